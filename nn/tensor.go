package nn

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Tensor is a value in a model's graph. What has no parameters is a method of it, and gives
// another:
//
//	x = x.Add(gate.Mul(s.Attention("attn", x.LayerNorm().Mul(scale.Add(1)), heads)))
//
// Where two tensors meet, they broadcast: counted from the last, their axes are equal, or one of
// them is 1 or missing. In the place of the second there may be a number. Axes may be counted from
// the last too, which is -1.
//
// After an error methods do nothing, and the error is the scope's, see [Scope.Err]. The zero Tensor
// stands for none, where something may be left out.
//
// Methods compute on the host and on a GPU, and in 16 bits too. On a GPU, a scalar can be used by
// one op: the gradients of several are added by Gorgonia, on the host alone.
type Tensor struct {
	in *making // nil for none
	n  *gorgonia.Node
}

// Node is the node of the graph, for ops that are no methods; nil after an error.
func (x Tensor) Node() *gorgonia.Node { return x.n }

// Err is the first error of the model; see [Scope.Err].
func (x Tensor) Err() error {
	if x.in == nil {
		return errors.New("nn: the tensor is a zero value, it needs to be one of a model's")
	}
	return x.in.err
}

// IsZero reports whether the tensor is none at all.
func (x Tensor) IsZero() bool { return x.in == nil }

// Shape is the size of each axis; nil for a scalar, and after an error. [Tensor.Dim] is one of
// them, without an index that is out of range after an error.
func (x Tensor) Shape() tensor.Shape {
	if x.n == nil {
		return nil
	}
	return x.n.Shape()
}

// Dim is the size of an axis; 0 after an error, and for an axis that there is not.
func (x Tensor) Dim(axis int) int {
	shape := x.Shape()
	if axis < 0 {
		axis += len(shape)
	}
	if axis < 0 || axis >= len(shape) {
		return 0
	}
	return shape[axis]
}

// DType is the type of the elements.
func (x Tensor) DType() tensor.Dtype {
	if x.n == nil {
		return tensor.Dtype{}
	}
	return x.n.Dtype()
}

// Through applies layers one after the other.
func (x Tensor) Through(layers ...Layer) Tensor {
	for _, l := range layers {
		if l == nil {
			return x.fail(errUnmade)
		}
		x = l.Forward(x)
	}
	return x
}

// fail makes an error that of the model.
func (x Tensor) fail(err error) Tensor {
	if x.in != nil {
		x.in.fail(err)
	}
	return Tensor{in: x.in}
}

// failed reports whether there is nothing to compute with.
func (x Tensor) failed() bool { return x.n == nil || x.in.err != nil }

// apply computes an op of x, if nothing has failed.
func (x Tensor) apply(op func(x *gorgonia.Node) (*gorgonia.Node, error)) Tensor {
	if x.failed() {
		return Tensor{in: x.in}
	}
	return x.in.of(op(x.n))
}

// axis is an axis counted from the first.
func (x Tensor) axis(op string, axis int) (int, bool) {
	from := axis
	if axis < 0 {
		axis += len(x.Shape())
	}
	if x.failed() {
		return 0, false
	}
	if axis < 0 || axis >= len(x.Shape()) {
		x.fail(fmt.Errorf("%s: axis is %d, it needs to be one of shape %v", op, from, []int(x.Shape())))
		return 0, false
	}
	return axis, true
}

// number is a float64 of any of Go's numbers.
func number(y any) (float64, bool) {
	switch y := y.(type) {
	case int:
		return float64(y), true
	case float32:
		return float64(y), true
	case float64:
		return y, true
	}
	return 0, false
}

// pair broadcasts x and y, which is a Tensor, to one shape.
func (x Tensor) pair(op string, y any) (a, b Tensor, ok bool) {
	if x.failed() {
		return x, x, false
	}
	b, is := y.(Tensor)
	switch {
	case !is:
		x.fail(fmt.Errorf("%s: y is a %T, it needs to be a Tensor, an int or a float", op, y))
		return x, b, false
	case b.in == nil:
		x.fail(fmt.Errorf("%s: y is a zero Tensor, it needs to be one of the model's", op))
		return x, b, false
	case b.in.g != x.in.g:
		x.fail(fmt.Errorf("%s: y belongs to another graph than x", op))
		return x, b, false
	case b.failed():
		x.fail(b.in.err)
		return x, b, false
	}
	shape, err := broadcastShape(x.Shape(), b.Shape())
	if err != nil {
		x.fail(fmt.Errorf("%s: x has shape %v and y %v, which do not broadcast: %w", op, []int(x.Shape()), []int(b.Shape()), err))
		return x, b, false
	}
	if x.DType() != b.DType() {
		x.fail(fmt.Errorf("%s: x is %v and y %v, they need one type: Cast makes it", op, x.DType(), b.DType()))
		return x, b, false
	}
	return x.expand(shape), b.expand(shape), x.in.err == nil
}

func scalarOf(d tensor.Dtype, c float64) any {
	if d == tensor.Float64 {
		return c
	}
	return float32(c)
}

// broadcastShape is the shape that two tensors have together.
func broadcastShape(a, b tensor.Shape) ([]int, error) {
	if len(a) == 0 && len(b) > 0 || len(b) == 0 && len(a) > 0 {
		return nil, errors.New("a scalar goes with scalars and numbers")
	}
	shape := make([]int, max(len(a), len(b)))
	for i := range shape {
		of := func(t tensor.Shape) int {
			if at := i - len(shape) + len(t); at >= 0 {
				return t[at]
			}
			return 1
		}
		switch n, m := of(a), of(b); {
		case n == m, m == 1:
			shape[i] = n
		case n == 1:
			shape[i] = m
		default:
			return nil, fmt.Errorf("the sizes of an axis are %d and %d", n, m)
		}
	}
	return shape, nil
}

// expand repeats x along the axes where a shape has more: as products with ones, which are exact
// and whose gradient is a sum.
func (x Tensor) expand(shape []int) Tensor {
	if slices.Equal(x.Shape(), shape) {
		return x
	}
	have := slices.Concat(slices.Repeat([]int{1}, len(shape)-len(x.Shape())), x.Shape())
	for i := 0; i < len(shape); {
		end, n := i, 1
		for ; end < len(shape) && have[end] == 1; end++ {
			n *= shape[end]
		}
		if n > 1 {
			ones := x.in.full(1, x.DType(), n, 1)
			x = ones.MatMul(x.Reshape(product(have[:i]), 1, product(have[end:])))
			copy(have[i:end], shape[i:end])
		}
		i = max(end, i+1)
	}
	return x.Reshape(shape...)
}

func product(sizes []int) int {
	n := 1
	for _, d := range sizes {
		n *= d
	}
	return n
}

// arithmetic computes x and y, which is a Tensor or a number.
func (x Tensor) arithmetic(name string, y any, tensors func(a, b *gorgonia.Node) (*gorgonia.Node, error),
	with func(x *gorgonia.Node, number float64) (*gorgonia.Node, error)) Tensor {
	if c, is := number(y); is {
		return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return with(n, c) })
	}
	a, b, ok := x.pair(name, y)
	if !ok {
		return Tensor{in: x.in}
	}
	return x.in.of(tensors(a.n, b.n))
}

// Add is x + y.
func (x Tensor) Add(y any) Tensor { return x.arithmetic("Add", y, ops.Add, ops.AddScalar) }

// Sub is x − y.
func (x Tensor) Sub(y any) Tensor {
	return x.arithmetic("Sub", y, func(a, b *gorgonia.Node) (*gorgonia.Node, error) {
		minus, err := ops.Scale(b, -1)
		if err != nil {
			return nil, err
		}
		return ops.Add(a, minus)
	}, func(x *gorgonia.Node, number float64) (*gorgonia.Node, error) { return ops.AddScalar(x, -number) })
}

// Mul is x·y, element by element.
func (x Tensor) Mul(y any) Tensor { return x.arithmetic("Mul", y, ops.Mul, ops.Scale) }

// Div is x/y, element by element.
func (x Tensor) Div(y any) Tensor {
	return x.arithmetic("Div", y, ops.Div, func(x *gorgonia.Node, number float64) (*gorgonia.Node, error) {
		if number == 0 {
			return nil, errors.New("Div: y is 0, it needs to be another number")
		}
		return ops.Scale(x, 1/number)
	})
}

// MatMul is the product of matrices; see [ops.MatMul]. Options may transpose either.
func (x Tensor) MatMul(y Tensor, options ...ops.MatMulOptions) Tensor {
	if x.in != nil && y.in == nil {
		return x.fail(errors.New("MatMul: y is a zero Tensor, it needs to be one of the model's"))
	}
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.MatMul(n, y.n, first(options)) })
}

// Exp is e to the x.
func (x Tensor) Exp() Tensor { return x.apply(ops.Exp) }

// Log is the natural logarithm of x.
func (x Tensor) Log() Tensor { return x.apply(ops.Log) }

// Sqrt is the square root of x.
func (x Tensor) Sqrt() Tensor { return x.apply(ops.Sqrt) }

// Abs is x without its sign.
func (x Tensor) Abs() Tensor { return x.apply(ops.Abs) }

// ReLU is max(x, 0).
func (x Tensor) ReLU() Tensor { return x.apply(ops.ReLU) }

// Clip bounds every element to ±limit, which needs to be positive. What is bounded has no gradient.
func (x Tensor) Clip(limit float64) Tensor {
	if !(limit > 0) || math.IsInf(limit, 0) {
		return x.fail(fmt.Errorf("Clip: limit is %v, it needs to be positive and finite", limit))
	}
	if d := x.DType(); isHalf(d) { // of which differences would be too coarse
		return x.Cast(tensor.Float32).Clip(limit).Cast(d)
	}
	above, below := x.Sub(limit).ReLU(), x.Mul(-1).Sub(limit).ReLU()
	return x.Sub(above).Add(below)
}

// Sigmoid is 1/(1 + e to the −x).
func (x Tensor) Sigmoid() Tensor { return x.apply(ops.Sigmoid) }

// Square is x².
func (x Tensor) Square() Tensor { return x.Mul(x) }

// Tanh is the hyperbolic tangent of x.
func (x Tensor) Tanh() Tensor { return x.apply(ops.Tanh) }

// SoftCap bounds x to ±cap by a tanh; see [ops.SoftCap].
func (x Tensor) SoftCap(cap float64) Tensor {
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.SoftCap(n, cap) })
}

// GELU is x·Φ(x), exactly; see [ops.GELUErf].
func (x Tensor) GELU() Tensor { return x.apply(ops.GELUErf) }

// SiLU is x·σ(x).
func (x Tensor) SiLU() Tensor { return x.apply(ops.SiLU) }

// LogSoftmax is the logarithm of [Tensor.Softmax], exact where that is too small for a float.
func (x Tensor) LogSoftmax() Tensor { return x.apply(ops.LogSoftmax) }

// Softmax makes probabilities of logits along an axis; along the last where none is named.
func (x Tensor) Softmax(axis ...int) Tensor {
	if len(axis) == 0 {
		return x.apply(ops.Softmax)
	}
	turned, back, ok := x.lastly("Softmax", axis)
	if !ok {
		return Tensor{in: x.in}
	}
	if len(axis) > 1 {
		return x.fail(fmt.Errorf("Softmax: axes are %v, it needs to be one", axis))
	}
	return turned.apply(ops.Softmax).Permute(back...)
}

// LayerNorm normalises each row of x to mean 0 and variance 1. [Scope.LayerNorm] scales and shifts
// it too.
func (x Tensor) LayerNorm() Tensor {
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.LayerNorm(n, nil, nil, ops.NormOptions{}) })
}

// CrossEntropy is the mean of −log of the probability that logits, (..., classes), give their
// targets, (...) of integers: a loss. See [ops.SoftmaxCrossEntropy], and its options.
func (x Tensor) CrossEntropy(targets Tensor, options ...ops.CrossEntropyOptions) Tensor {
	if x.in != nil && targets.in == nil {
		return x.fail(errors.New("CrossEntropy: targets is a zero Tensor, it needs to be one of the model's"))
	}
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.SoftmaxCrossEntropy(n, targets.n, first(options))
	})
}

// Sum is the sum of all elements, a scalar, or that along some axes, which go away.
func (x Tensor) Sum(axes ...int) Tensor {
	if len(axes) == 0 {
		return x.apply(ops.Sum)
	}
	return x.along("Sum", axes, func(int) float64 { return 1 })
}

// Mean is the mean of all elements, a scalar, or that along some axes, which go away.
func (x Tensor) Mean(axes ...int) Tensor {
	if len(axes) == 0 {
		return x.apply(ops.Mean)
	}
	return x.along("Mean", axes, func(n int) float64 { return 1 / float64(n) })
}

// along is a weighted sum along axes, as a product with weights that are equal.
func (x Tensor) along(op string, axes []int, weight func(n int) float64) Tensor {
	var sorted []int
	for _, axis := range axes {
		at, ok := x.axis(op, axis)
		if !ok {
			return Tensor{in: x.in}
		}
		sorted = append(sorted, at)
	}
	slices.Sort(sorted)
	for _, at := range slices.Backward(slices.Compact(sorted)) {
		shape := slices.Clone([]int(x.Shape()))
		if len(shape) == 1 {
			return x.Mul(weight(shape[0])).apply(ops.Sum)
		}
		n := shape[at]
		weights := x.in.full(weight(n), x.DType(), 1, n)
		x = weights.MatMul(x.Reshape(product(shape[:at]), n, product(shape[at+1:]))).Reshape(slices.Delete(shape, at, at+1)...)
	}
	return x
}

// Reshape is x with other axes, of as many elements. One axis may be -1: it takes what is left.
func (x Tensor) Reshape(shape ...int) Tensor {
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) {
		to, left := slices.Clone(shape), product(n.Shape())
		at := slices.Index(to, -1)
		for i, d := range to {
			if i != at && (d < 1 || left%d != 0) {
				left = 0
			} else if i != at {
				left /= d
			}
		}
		if at >= 0 {
			to[at] = left
		}
		if len(to) == 0 || left == 0 || at < 0 && left != 1 {
			return nil, fmt.Errorf("Reshape: x has shape %v, it cannot become %v", []int(n.Shape()), shape)
		}
		if slices.Equal(to, n.Shape()) {
			return n, nil
		}
		return ops.Reshape(n, to...)
	})
}

// Permute is x with its axes in another order: axis i of the result is x's axes[i].
func (x Tensor) Permute(axes ...int) Tensor {
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.Permute(n, axes...) })
}

// Select is the part of x at an index of an axis, which goes away. An index below 0 counts from the
// last.
func (x Tensor) Select(axis, index int) Tensor {
	at, ok := x.axis("Select", axis)
	if !ok {
		return Tensor{in: x.in}
	}
	if index < 0 {
		index += x.Dim(at)
	}
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.Select(n, at, index) })
}

// Slice is the part of x at the indices of an axis from one on and before another. Numbers below 0
// count from the last.
func (x Tensor) Slice(axis, from, before int) Tensor {
	at, ok := x.axis("Slice", axis)
	if !ok {
		return Tensor{in: x.in}
	}
	if from < 0 {
		from += x.Dim(at)
	}
	if before < 0 {
		before += x.Dim(at)
	}
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.Slice(n, at, from, before) })
}

// Pad is x with elements of a value before and after it along an axis; see [ops.Pad].
func (x Tensor) Pad(axis, before, after int, value float64) Tensor {
	at, ok := x.axis("Pad", axis)
	if !ok {
		return Tensor{in: x.in}
	}
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.Pad(n, at, before, after, value) })
}

// Patches is what windows see of x, (B, lengths..., C), at each of their places; see [ops.Patches].
func (x Tensor) Patches(value float64, windows ...ops.Sliding) Tensor {
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.Patches(n, value, windows...) })
}

// MeanPool is the mean of what windows see of x, (B, lengths..., C), at each of their places. The
// elements of a padding count as zeros.
func (x Tensor) MeanPool(windows ...ops.Sliding) Tensor { return x.Patches(0, windows...).Mean(-2) }

// Unbind takes apart an axis of n elements, which goes away.
func (x Tensor) Unbind(axis, n int) []Tensor {
	at, ok := x.axis("Unbind", axis)
	if ok && x.Dim(at) != n {
		x.fail(fmt.Errorf("Unbind: axis %d of shape %v has %d elements, it needs %d", axis, []int(x.Shape()), x.Dim(at), n))
	}
	parts := x.parts(n)
	for i := range parts {
		parts[i] = x.Select(axis, i)
	}
	return parts
}

// Chunk cuts an axis into n parts of one size.
func (x Tensor) Chunk(axis, n int) []Tensor {
	at, ok := x.axis("Chunk", axis)
	if ok && (n < 1 || x.Dim(at)%n != 0) {
		x.fail(fmt.Errorf("Chunk: n is %d, it needs to divide axis %d of shape %v", n, axis, []int(x.Shape())))
	}
	parts := x.parts(n)
	for i := range parts {
		if size := x.Dim(at) / n; !x.failed() {
			parts[i] = x.Slice(at, i*size, (i+1)*size)
		}
	}
	return parts
}

// parts are n tensors that are yet to come, or that come after an error and are there to be
// indexed.
func (x Tensor) parts(n int) []Tensor {
	if x.failed() {
		n = min(n, 1<<16)
	}
	return slices.Repeat([]Tensor{{in: x.in}}, max(0, n))
}

// Concat puts tensors one behind the other along an axis, as [ops.Concat] does.
func Concat(axis int, parts ...Tensor) Tensor {
	var nodes gorgonia.Nodes
	for _, x := range parts {
		if x.failed() {
			return Tensor{in: x.in}
		}
		nodes = append(nodes, x.n)
	}
	if len(parts) == 0 {
		return Tensor{}
	}
	at, ok := parts[0].axis("Concat", axis)
	if !ok {
		return Tensor{in: parts[0].in}
	}
	return parts[0].in.of(ops.Concat(at, nodes...))
}

// Detach is x as a constant to gradients: what it is made of gets none through it.
func (x Tensor) Detach() Tensor { return x.apply(ops.Detach) }

// Cast is x in another type; see [ops.Cast].
func (x Tensor) Cast(dtype tensor.Dtype) Tensor {
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.Cast(n, dtype) })
}
