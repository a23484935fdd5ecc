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
	k := concatenation{axis: axis}
	return apply("Concat", kernel{k.describe, k.forward, k.backward}, inputs...)
}

type concatenation struct{ axis int }

func (k concatenation) describe(in tensors) (description, error) {
	first := in[0]
	if k.axis < 0 || k.axis >= len(first.Shape) {
		return description{}, fmt.Errorf("axis is %d, it needs to be from 0 to part 0's last, %d", k.axis, len(first.Shape)-1)
	}
	shape := slices.Clone(first.Shape)
	for i, t := range in[1:] {
		like := slices.Clone(t.Shape)
		if len(like) == len(shape) {
			like[k.axis] = shape[k.axis]
		}
		if t.DType != first.DType || !slices.Equal(like, shape) {
			return description{}, fmt.Errorf("part %d is %v of shape %v, it needs to be %v of part 0's shape %v but for axis %d",
				i+1, t.DType, t.Shape, first.DType, first.Shape, k.axis)
		}
		shape[k.axis] += t.Shape[k.axis]
	}
	return described(first.DType, shape...), nil
}

// each calls do with every part and its place in a whole.
func (k concatenation) each(parts tensors, whole kernels.Tensor, do func(part, place kernels.Tensor) error) error {
	from := 0
	for _, part := range parts {
		to := from + part.Shape[k.axis]
		if err := do(part, whole.Slice(k.axis, from, to)); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (k concatenation) forward(r *run, in, out tensors) error {
	return k.each(in, out[0], func(part, place kernels.Tensor) error { return r.Copy(place, part) })
}

func (k concatenation) backward(r *run, in, dOut, d tensors) error {
	i := -1
	return k.each(in, dOut[0], func(_, place kernels.Tensor) error {
		if i++; !d[i].IsSet() {
			return nil
		}
		return r.Copy(d[i], place)
	})
}
