package nn

import (
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// LayerNormConfig describes a [LayerNorm].
type LayerNormConfig struct {
	Name       string       // prefix of the parameters' names
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0

	Dim     int
	Epsilon float64 // is added to the variance; 0 means 1e-5
	NoBias  bool
}

// LayerNorm normalises each row of (..., Dim) to mean 0 and variance 1, then scales and shifts each feature.
//
// Its parameters are weight, (Dim), which starts at 1, and bias, (Dim), which starts at 0.
type LayerNorm struct {
	*scope
	c            LayerNormConfig
	weight, bias *gorgonia.Node
}

// NewLayerNorm adds the parameters of a LayerNorm to a graph.
func NewLayerNorm(g *gorgonia.ExprGraph, c LayerNormConfig) (*LayerNorm, error) {
	s, err := newScope("LayerNorm", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"dim", c.Dim}); err != nil {
		return nil, err
	}
	if err := s.epsilon(c.Epsilon); err != nil {
		return nil, err
	}
	l := &LayerNorm{scope: s, c: c}
	if l.weight, err = s.parameter("weight", Constant(1), c.Dim); err != nil || c.NoBias {
		return made(l, err)
	}
	l.bias, err = s.parameter("bias", Constant(0), c.Dim)
	return made(l, err)
}

// forwardSum normalises x + other, and gives that sum too.
func (l *LayerNorm) forwardSum(x, other *gorgonia.Node) (sum, y *gorgonia.Node, err error) {
	if err := l.input("x", x, l.c.Dim); err != nil {
		return nil, nil, err
	}
	return ops.AddLayerNorm(x, other, l.weight, l.bias, ops.NormOptions{Epsilon: l.c.Epsilon})
}

// forwardOfSum is forwardSum of a sum that nothing else reads.
func (l *LayerNorm) forwardOfSum(x, other *gorgonia.Node) (*gorgonia.Node, error) {
	if err := l.input("x", x, l.c.Dim); err != nil {
		return nil, err
	}
	return ops.LayerNormOfSum(x, other, l.weight, l.bias, ops.NormOptions{Epsilon: l.c.Epsilon})
}

// Forward normalises x.
func (l *LayerNorm) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := l.input("x", x, l.c.Dim); err != nil {
		return nil, err
	}
	return ops.LayerNorm(x, l.weight, l.bias, ops.NormOptions{Epsilon: l.c.Epsilon})
}
