package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Concat is tensors one behind the other along an axis: of (B, 1, C) and (B, S, C), Concat(1, ...)
// is (B, 1+S, C). In contrast to Gorgonia's own it works on a device.
func Concat(axis int, parts ...*gorgonia.Node) (*gorgonia.Node, error) {
	var inputs []input
	for i, n := range parts {
		inputs = append(inputs, input{name: fmt.Sprintf("part %d", i), node: n, form: stridedForm, unread: true})
	}
	return apply("Concat", kernel{
		describe: func(in tensors) (description, error) { return describeConcat(axis, in) },
		forward:  func(r *run, in, out tensors) error { return copyEach(r, cut(axis, out[0], in), in) },
		backward: func(r *run, in, dOut, d tensors) error {
			for i, part := range cut(axis, dOut[0], in) {
				if !d[i].IsSet() {
					continue
				}
				if err := r.Copy(d[i], part); err != nil {
					return err
				}
			}
			return nil
		},
	}, inputs...)
}

func describeConcat(axis int, parts tensors) (is description, err error) {
	first := parts[0]
	if axis < 0 || axis >= len(first.Shape) {
		return is, fmt.Errorf("axis is %d, it needs to be from 0 to part 0's last, %d", axis, len(first.Shape)-1)
	}
	shape := slices.Clone(first.Shape)
	for i, t := range parts[1:] {
		like := slices.Clone(t.Shape)
		if len(like) == len(shape) {
			like[axis] = shape[axis]
		}
		if t.DType != first.DType || !slices.Equal(like, shape) {
			return is, fmt.Errorf("part %d is %v of shape %v, it needs to be %v of part 0's shape %v but for axis %d",
				i+1, t.DType, t.Shape, first.DType, first.Shape, axis)
		}
		shape[axis] += t.Shape[axis]
	}
	return described(first.DType, shape...), nil
}

// cut gives the parts of a whole along an axis, as long there as others are.
func cut(axis int, whole kernels.Tensor, like tensors) (parts tensors) {
	at := 0
	for _, t := range like {
		parts = append(parts, whole.Slice(axis, at, at+t.Shape[axis]))
		at += t.Shape[axis]
	}
	return parts
}
