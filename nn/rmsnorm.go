package nn

import (
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// RMSNormConfig describes an [RMSNorm].
type RMSNormConfig struct {
	Name       string       // prefix of the parameter's name
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0

	Dim     int
	Epsilon float64 // is added to the mean square; 0 means 1e-5
}

// RMSNorm divides each row of (..., Dim) by its root mean square, then scales each feature.
//
// Its parameter is weight, (Dim), which starts at 1.
type RMSNorm struct {
	*scope
	c      RMSNormConfig
	weight *gorgonia.Node
}

// NewRMSNorm adds the parameter of an RMSNorm to a graph.
func NewRMSNorm(g *gorgonia.ExprGraph, c RMSNormConfig) (*RMSNorm, error) {
	s, err := newScope("RMSNorm", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"dim", c.Dim}); err != nil {
		return nil, err
	}
	if err := s.epsilon(c.Epsilon); err != nil {
		return nil, err
	}
	r := &RMSNorm{scope: s, c: c}
	r.weight, err = s.parameter("weight", constant(1), c.Dim)
	return made(r, err)
}

// Forward normalises x.
func (r *RMSNorm) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := r.input("x", x, r.c.Dim); err != nil {
		return nil, err
	}
	return ops.RMSNorm(x, r.weight, ops.NormOptions{Epsilon: r.c.Epsilon})
}
