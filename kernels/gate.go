package kernels

import (
	"fmt"
	"math"
)

// ClampedGate is the gate of gpt-oss' experts, of features in pairs: x, (..., 2n), has a gate at
// every even place and what it gates behind it, and the result is (..., n):
//
//	y = (u + 1)·g·σ(Slope·g),  g = min(gate, Limit),  u = up, bounded to ±Limit
//
// What is beyond a bound has no gradient.
type ClampedGate struct{ Slope, Limit float64 }

// GateKernels compute gates whose features are pairs. 16-bit tensors are computed in float32 and
// rounded once.
type GateKernels interface {
	// ClampedGate computes y, of x's dtype.
	ClampedGate(g ClampedGate, x, y Tensor) error
	// ClampedGateBackward computes dx, in x's shape; dx may be x itself.
	ClampedGateBackward(g ClampedGate, x, dy, dx Tensor) error
}

// Validate returns what is wrong with the gate.
func (g ClampedGate) Validate(dtype DType) error {
	for _, n := range []struct {
		name string
		x    float64
	}{{"slope", g.Slope}, {"limit", g.Limit}} {
		if !(n.x > 0) || math.IsInf(n.x, 0) {
			return fmt.Errorf("%s is %v, it needs to be positive", n.name, n.x)
		}
		if err := validateNumber(n.name, n.x, dtype); err != nil {
			return err
		}
	}
	return nil
}

// check checks both calls: pairs have x's shape, halves that of y.
func (g ClampedGate) check(x Tensor, pairs, halves operandList, written string) error {
	if err := x.validateFeatures("x"); err != nil {
		return err
	}
	last := len(x.Shape) - 1
	if x.Shape[last]%2 != 0 {
		return fmt.Errorf("x has shape %v, it needs an even number of features", x.Shape)
	}
	if err := g.Validate(x.DType); err != nil {
		return err
	}
	half := append(append([]int(nil), x.Shape[:last]...), x.Shape[last]/2)
	for i, list := range []operandList{pairs, halves} {
		for _, o := range list {
			is := like(o.name, o.tensor, [][]int{x.Shape, half}[i], x.DType)
			if o.name == written {
				is.layout = writtenRows
			}
			if err := checkOperands(is); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckForward returns what is wrong with a call of ClampedGate.
func (g ClampedGate) CheckForward(x, y Tensor) error {
	return g.check(x, operandList{{"x", x}}, operandList{{"y", y}}, "y")
}

// CheckBackward returns what is wrong with a call of ClampedGateBackward.
func (g ClampedGate) CheckBackward(x, dy, dx Tensor) error {
	return g.check(x, operandList{{"x", x}, {"dx", dx}}, operandList{{"dy", dy}}, "dx")
}
