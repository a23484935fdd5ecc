package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Select is the part of x at one index of an axis, which goes away: of (B, S, C), Select(x, 1, 3)
// is (B, C), the rows of position 3. In contrast to Gorgonia's Slice it works on a device too.
func Select(x *gorgonia.Node, axis, index int) (*gorgonia.Node, error) {
	return arrange("Select", func(in tensors) (a arrangement, err error) {
		switch shape := in[0].Shape; {
		case len(shape) < 2:
			return a, fmt.Errorf("x has shape %v, it needs at least two axes", shape)
		case axis < 0 || axis >= len(shape):
			return a, errAxis("x", axis, in[0])
		case index < 0 || index >= shape[axis]:
			return a, fmt.Errorf("index is %d, it needs to be from 0 to %d: x has shape %v", index, shape[axis]-1, shape)
		}
		part := func(t kernels.Tensor) kernels.Tensor { return at(t, axis, index) }
		return arrangement{shape: part(in[0]).Shape, parts: []arranged{{0, part, whole}}, rests: true}, nil
	}, input{name: "x", node: x})
}

// Slice is the part of x at the indices of an axis from one on and before another: of (B, S, C),
// Slice(x, 1, 2, 5) is (B, 3, C).
func Slice(x *gorgonia.Node, axis, from, before int) (*gorgonia.Node, error) {
	return arrange("Slice", func(in tensors) (a arrangement, err error) {
		switch shape := in[0].Shape; {
		case axis < 0 || axis >= len(shape):
			return a, errAxis("x", axis, in[0])
		case from < 0 || before > shape[axis] || from >= before:
			return a, fmt.Errorf("the range is %d to %d, it needs to begin at 0 or above, end at %d or below, and hold an index: x has shape %v",
				from, before, shape[axis], shape)
		}
		part := func(t kernels.Tensor) kernels.Tensor { return t.Slice(axis, from, before) }
		return arrangement{shape: part(in[0]).Shape, parts: []arranged{{0, part, whole}}, rests: true}, nil
	}, input{name: "x", node: x})
}

// at views one index of an axis, which goes away.
func at(t kernels.Tensor, axis, index int) kernels.Tensor {
	t = t.Slice(axis, index, index+1)
	t.Shape, t.Strides = slices.Delete(t.Shape, axis, axis+1), slices.Delete(t.Strides, axis, axis+1)
	return t
}

func errAxis(name string, axis int, t kernels.Tensor) error {
	return fmt.Errorf("axis is %d, it needs to be from 0 to %s's last, %d", axis, name, len(t.Shape)-1)
}
