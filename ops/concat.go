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
		inputs = append(inputs, input{name: fmt.Sprintf("part %d", i), node: n})
	}
	return arrange("Concat", func(in tensors) (arrangement, error) { return concat(axis, in) }, inputs...)
}

func concat(axis int, parts tensors) (a arrangement, err error) {
	first := parts[0]
	if axis < 0 || axis >= len(first.Shape) {
		return a, errAxis("part 0", axis, first)
	}
	a.shape = slices.Clone(first.Shape)
	a.shape[axis] = 0
	for i, t := range parts {
		like := slices.Clone(t.Shape)
		if len(like) == len(first.Shape) {
			like[axis] = first.Shape[axis]
		}
		if t.DType != first.DType || !slices.Equal(like, first.Shape) {
			return a, fmt.Errorf("part %d is %v of shape %v, it needs to be %v of part 0's shape %v but for axis %d",
				i, t.DType, t.Shape, first.DType, first.Shape, axis)
		}
		from, n := a.shape[axis], t.Shape[axis]
		a.parts = append(a.parts, arranged{i, whole, func(t kernels.Tensor) kernels.Tensor { return t.Slice(axis, from, from+n) }})
		a.shape[axis] += n
	}
	return a, nil
}

// Pad is x with elements of a value before and after it along an axis: of (B, S, C),
// Pad(x, 1, 2, 3, 0) is (B, 2+S+3, C). A negative number takes elements away.
func Pad(x *gorgonia.Node, axis, before, after int, value float64) (*gorgonia.Node, error) {
	return arrange("Pad", func(in tensors) (a arrangement, err error) {
		shape := slices.Clone(in[0].Shape)
		if axis < 0 || axis >= len(shape) {
			return a, errAxis("x", axis, in[0])
		}
		from, n := max(0, -before), shape[axis]
		end := n - max(0, -after)
		if from > end || from == end && n > 0 {
			return a, fmt.Errorf("before is %d and after %d, they need to leave something of axis %d: x has shape %v", before, after, axis, in[0].Shape)
		}
		shape[axis] = n + before + after
		part := func(t kernels.Tensor) kernels.Tensor { return t.Slice(axis, from, end) }
		place := func(t kernels.Tensor) kernels.Tensor { return t.Slice(axis, max(0, before), max(0, before)+end-from) }
		return arrangement{
			shape: shape, parts: []arranged{{0, part, place}}, fill: value, gaps: max(before, after) > 0, rests: min(before, after) < 0,
		}, nil
	}, input{name: "x", node: x})
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
