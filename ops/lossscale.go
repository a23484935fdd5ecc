package ops

import (
	"fmt"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// ScaleLoss makes runs of a graph compute the gradients of its cost multiplied by the number that
// scale holds in each run, a vector of one float64 where the graph computes. The cost itself stays
// what it is. It keeps gradients of float16 from becoming zero; package train's optimisers divide
// by the scale, and change it.
func ScaleLoss(g *gorgonia.ExprGraph, scale kernels.Tensor) error {
	if g == nil {
		return fmt.Errorf("ScaleLoss: g is nil, it needs to be a graph")
	}
	if scale.DType != kernels.F64 || len(scale.Shape) != 1 || scale.Shape[0] != 1 || !scale.IsSet() {
		return fmt.Errorf("ScaleLoss: scale is %v of shape %v, it needs to be a float64 of shape [1]", scale.DType, scale.Shape)
	}
	stateOf(g).lossScale.Store(&scale)
	return nil
}

// lossScale is what multiplies the gradients of a graph's cost, nil for nothing.
type lossScale struct{ atomic.Pointer[kernels.Tensor] }

// scaled writes factor times the loss scale, or factor alone without one, into t, which has one
// element.
func (s *lossScale) scaled(b kernels.Backend, factor float64, t kernels.Tensor) error {
	scale := s.Load()
	if scale == nil {
		return b.Fill(t, factor)
	}
	if err := b.Copy(t.Reshape(1), *scale); err != nil || factor == 1 {
		return err
	}
	return b.MulScalar(factor, t.Reshape(1), t.Reshape(1))
}
