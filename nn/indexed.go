package nn

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// Max is the largest of all elements, a scalar, or that along some axes, which go away. A NaN is
// larger than any number. The gradient is that of the first of equal elements.
func (x Tensor) Max(axes ...int) Tensor {
	if len(axes) == 0 {
		axes = make([]int, len(x.Shape()))
		for i := range axes {
			axes[i] = i
		}
	}
	turned, _, ok := x.lastly("Max", axes)
	if !ok {
		return Tensor{in: x.in}
	}
	gone := slices.Compact(slices.Sorted(slices.Values(x.counted(axes))))
	kept := slices.Clone([]int(turned.Shape()[:len(x.Shape())-len(gone)]))
	if len(kept) == 0 {
		return turned.Reshape(1, -1).apply(ops.Max).Sum()
	}
	return turned.Reshape(append(kept, -1)...).apply(ops.Max)
}

// MaxPool is the largest of what windows see of x, (B, lengths..., C), at each of their places. The
// elements of a padding are never it.
func (x Tensor) MaxPool(windows ...ops.Sliding) Tensor {
	return x.Patches(math.Inf(-1), windows...).Max(-2)
}

// TopK is the k largest elements along the last axis, the largest first, and their indices, which
// [Tensor.Gather] and [Tensor.Scatter] take; see [ops.TopK].
func (x Tensor) TopK(k int) (values, ids Tensor) {
	if x.failed() {
		return x, x
	}
	v, i, err := ops.TopK(x.n, k)
	if err != nil {
		return x.fail(err), Tensor{in: x.in}
	}
	return x.in.of(v, nil), x.in.of(i, nil)
}

// Gather takes elements along the last axis by their indices, for each row its own; see
// [ops.Gather].
func (x Tensor) Gather(ids Tensor) Tensor {
	return x.indexed("Gather", ids, func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.Gather(n, ids.n) })
}

// Scatter puts the elements of x along a last axis of n elements, where ids say, and adds those
// that go to one place; see [ops.Scatter].
func (x Tensor) Scatter(ids Tensor, n int) Tensor {
	return x.indexed("Scatter", ids, func(node *gorgonia.Node) (*gorgonia.Node, error) { return ops.Scatter(node, ids.n, n) })
}

func (x Tensor) indexed(op string, ids Tensor, of func(n *gorgonia.Node) (*gorgonia.Node, error)) Tensor {
	if x.in != nil && ids.in == nil {
		return x.fail(errors.New(op + ": ids is a zero Tensor, it needs to be one of the model's"))
	}
	return x.apply(of)
}

// counted are axes counted from the first, where x has them.
func (x Tensor) counted(axes []int) []int {
	list := slices.Clone(axes)
	for i := range list {
		if list[i] < 0 {
			list[i] += len(x.Shape())
		}
	}
	return list
}

// lastly is x with some axes behind the others, and the order that brings them back.
func (x Tensor) lastly(op string, axes []int) (turned Tensor, back []int, ok bool) {
	for _, axis := range axes {
		if _, ok := x.axis(op, axis); !ok {
			return x, nil, false
		}
	}
	if len(axes) == 0 {
		return x.fail(fmt.Errorf("%s: x is a scalar, it needs at least one axis", op)), nil, false
	}
	moved := x.counted(axes)
	var order []int
	for i := range x.Shape() {
		if !slices.Contains(moved, i) {
			order = append(order, i)
		}
	}
	slices.Sort(moved)
	order = append(order, slices.Compact(moved)...)
	back = make([]int, len(order))
	for i, axis := range order {
		back[axis] = i
	}
	if slices.IsSorted(order) {
		return x, back, !x.failed()
	}
	return x.Permute(order...), back, !x.failed()
}
