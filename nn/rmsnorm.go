package nn

import (
	"fmt"

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
	PlusOne bool    // scale by 1 + weight instead of weight, as Gemma does; the weight starts at 0
}

// RMSNorm divides each row of (..., Dim) by its root mean square, then scales each feature.
//
// Its parameter is weight, (Dim), which starts at 1.
type RMSNorm struct {
	*scope
	c      RMSNormConfig
	weight *gorgonia.Node
	scale  *gorgonia.Node // what features are multiplied by: weight, or 1 + weight
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
	if !c.PlusOne {
		r.weight, err = s.parameter("weight", Constant(1), c.Dim)
		r.scale = r.weight
		return made(r, err)
	}
	if r.weight, err = s.parameter("weight", Constant(0), c.Dim); err != nil {
		return nil, err
	}
	one, err := s.ones(c.Dim)
	if err == nil {
		r.scale, err = ops.Add(r.weight, one)
	}
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	return r, nil
}

// ones is an input of the graph that holds as many ones. One serves all norms of its size.
func (s *scope) ones(n int) (*gorgonia.Node, error) {
	name := fmt.Sprintf("ones.%v.%d", s.dtype, n)
	if found := s.g.ByName(name); len(found) > 0 {
		return found[0], nil
	}
	value, err := s.store.placed(filled(1, s.dtype, []int{n}))
	if err != nil {
		return nil, err
	}
	return gorgonia.NewVector(s.g, s.dtype, gorgonia.WithShape(n), gorgonia.WithName(name), gorgonia.WithValue(value)), nil
}

// forwardSum normalises x + other, and gives that sum too.
func (r *RMSNorm) forwardSum(x, other *gorgonia.Node) (sum, y *gorgonia.Node, err error) {
	if err := r.input("x", x, r.c.Dim); err != nil {
		return nil, nil, err
	}
	return ops.AddRMSNorm(x, other, r.scale, ops.NormOptions{Epsilon: r.c.Epsilon})
}

// forwardOfSum is forwardSum of a sum that nothing else reads.
func (r *RMSNorm) forwardOfSum(x, other *gorgonia.Node) (*gorgonia.Node, error) {
	if err := r.input("x", x, r.c.Dim); err != nil {
		return nil, err
	}
	return ops.RMSNormOfSum(x, other, r.scale, ops.NormOptions{Epsilon: r.c.Epsilon})
}

// Forward normalises x.
func (r *RMSNorm) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := r.input("x", x, r.c.Dim); err != nil {
		return nil, err
	}
	return ops.RMSNorm(x, r.scale, ops.NormOptions{Epsilon: r.c.Epsilon})
}
