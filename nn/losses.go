package nn

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// MSE is the mean of (x − targets)² over all elements: a loss. As in all losses that compare
// elements, targets have the shape of x, and 16-bit values are compared in float32.
func (x Tensor) MSE(targets Tensor) Tensor {
	x, targets, ok := x.compared("MSE", targets)
	if !ok {
		return x
	}
	return x.Sub(targets).Square().Mean()
}

// L1 is the mean of |x − targets| over all elements: a loss. Where they are equal the gradient is
// 0.
func (x Tensor) L1(targets Tensor) Tensor {
	x, targets, ok := x.compared("L1", targets)
	if !ok {
		return x
	}
	return x.Sub(targets).Abs().Mean()
}

// Huber is the mean over all elements of d²/2 where d = |x − targets| is at most delta, and of
// delta·(d − delta/2) elsewhere: a loss whose gradient outliers do not dominate.
func (x Tensor) Huber(targets Tensor, delta float64) Tensor {
	x, targets, ok := x.compared("Huber", targets)
	if !ok {
		return x
	}
	if d := float64(float32(delta)); !(d > 0) || math.IsInf(d, 1) {
		return x.fail(fmt.Errorf("Huber: delta is %v, it needs to be positive and finite", delta))
	}
	d := x.Sub(targets).Abs()
	above := d.Sub(delta).ReLU()
	// As a quotient of max(d, delta), min(d, delta) is as exact for small d as for large ones,
	// where differences are not.
	deltas := x.in.full(delta, x.DType(), x.Shape()...)
	below := d.Mul(deltas.Div(above.Add(deltas)))
	return below.Square().Mul(0.5).Add(above.Mul(delta)).Mean()
}

// BinaryCrossEntropyOptions are the options of [Tensor.BinaryCrossEntropy].
type BinaryCrossEntropyOptions struct {
	// PositiveWeights are how often positive targets count: one number, or one for each index of
	// the last axis. None means 1.
	PositiveWeights []float64
}

// BinaryCrossEntropy is the mean over all elements of −t·log σ(x) − (1−t)·log(1−σ(x)), where x are
// logits and t the targets, of the same shape, from 0 to 1: a loss of questions that are answered
// by yes or no, each for itself. A run with any other target fails. It is exact where σ(x) is too
// near to 0 or 1 for a float.
func (x Tensor) BinaryCrossEntropy(targets Tensor, options ...BinaryCrossEntropyOptions) Tensor {
	x, targets, ok := x.compared("BinaryCrossEntropy", targets)
	if !ok {
		return x
	}
	targets = x.in.of(ops.BinaryTargets(targets.Node()))
	positive, weights := targets, first(options).PositiveWeights
	for i, w := range weights {
		if w < 0 || math.IsNaN(w) || math.IsInf(w, 1) {
			return x.fail(fmt.Errorf("BinaryCrossEntropy: positive weight %d is %v, it needs to be finite and not negative", i, w))
		}
	}
	switch len(weights) {
	case 0:
	case 1, x.Dim(-1):
		positive = targets.Mul(x.in.vector(weights, x.DType()))
	default:
		return x.fail(fmt.Errorf("BinaryCrossEntropy: positive weights are %d, they need to be 1, or %d as x's last axis", len(weights), x.Dim(-1)))
	}
	// Yes and no are two classes, with logits x and 0.
	pair := x.Reshape(append(x.Shape().Clone(), 1)...).Pad(-1, 0, 1, 0).LogSoftmax()
	yes, no := pair.Select(-1, 0), pair.Select(-1, 1)
	return yes.Mul(positive).Add(no.Mul(targets.Mul(-1).Add(1))).Mean().Mul(-1)
}

// vector is an input of numbers. One serves the whole graph.
func (m *making) vector(numbers []float64, dtype tensor.Dtype) Tensor {
	return m.constant(fmt.Sprintf("vector.%v.%v", numbers, dtype), func() *tensor.Dense {
		v := filled(0, dtype, []int{len(numbers)})
		for i, x := range numbers {
			v.Set(i, scalarOf(dtype, x))
		}
		return v
	})
}

// compared are x and the targets that a loss compares with it, in the type in which it does.
func (x Tensor) compared(op string, targets Tensor) (a, b Tensor, ok bool) {
	switch {
	case x.failed():
		return Tensor{in: x.in}, targets, false
	case targets.in == nil:
		return x.fail(fmt.Errorf("%s: targets is a zero Tensor, it needs to be one of the model's", op)), targets, false
	case targets.in.g != x.in.g:
		return x.fail(fmt.Errorf("%s: targets belongs to another graph than x", op)), targets, false
	case targets.failed():
		return x.fail(targets.in.err), targets, false
	case len(x.Shape()) == 0 || !slices.Equal(x.Shape(), targets.Shape()):
		return x.fail(fmt.Errorf("%s: x has shape %v and targets %v, they need to be of one shape with at least one axis", op, []int(x.Shape()), []int(targets.Shape()))), targets, false
	}
	a, b = x.wide(op, "x"), targets.wide(op, "targets")
	if !a.failed() && !b.failed() && a.DType() != b.DType() {
		a = x.fail(fmt.Errorf("%s: x is %v and targets %v, they need one type: Cast makes it", op, x.DType(), targets.DType()))
	}
	return a, b, !a.failed() && !b.failed()
}

// wide is an argument in float32 if it has 16 bits.
func (x Tensor) wide(op, name string) Tensor {
	switch d := x.DType(); {
	case isHalf(d):
		return x.Cast(tensor.Float32)
	case d == tensor.Float32 || d == tensor.Float64:
		return x
	default:
		return x.fail(fmt.Errorf("%s: %s is %v, it needs to be of floats", op, name, d))
	}
}
