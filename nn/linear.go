package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// LinearConfig describes a [Linear].
type LinearConfig struct {
	Name       string       // prefix of the parameters' names
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0

	In, Out    int
	NoBias     bool
	Activation kernels.Activation // is applied to the result, in the same pass
	Init       Init               // of the weight; nil means FanIn
}

// Linear is act(x·W + b), over the last axis of x: (..., In) → (..., Out).
//
// Its parameters are weight, (In, Out), and bias, (Out), which starts at 0. A [LoRA] of its Parameters changes it.
type Linear struct {
	*scope
	c            LinearConfig
	weight, bias *gorgonia.Node
	change       *linearChange // nil for none
}

// NewLinear adds the parameters of a Linear to a graph.
func NewLinear(g *gorgonia.ExprGraph, c LinearConfig) (*Linear, error) {
	s, err := newScope("Linear", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"in", c.In}, size{"out", c.Out}); err != nil {
		return nil, err
	}
	if err := c.Activation.Validate(); err != nil {
		return nil, s.errorf("%w", err)
	}
	l := &Linear{scope: s, c: c}
	if l.weight, err = s.keptWeight(initOr(c.Init, FanIn), c.In, c.Out); err != nil {
		return nil, err
	}
	if !c.NoBias {
		if l.bias, err = s.parameter("bias", Constant(0), c.Out); err != nil {
			return nil, err
		}
	}
	l.change, err = s.change(c.In, c.Out)
	return made(l, err)
}

// Forward is act(x·W + b).
func (l *Linear) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := l.input("x", x, l.c.In); err != nil {
		return nil, err
	}
	if l.change == nil {
		return ops.Linear(x, l.weight, l.bias, ops.LinearOptions{Activation: l.c.Activation})
	}
	y, err := ops.Linear(x, l.weight, l.bias, ops.LinearOptions{})
	if err != nil {
		return nil, err
	}
	if y, err = l.change.addTo(y, x); err != nil || l.c.Activation == kernels.NoActivation {
		return y, err
	}
	return ops.Activate(y, l.c.Activation)
}

// plainLinear is a layer as what can be computed together with others: a Linear without an activation and a change; nil for another.
func plainLinear(l Layer) *Linear {
	linear, ok := l.(*Linear)
	if !ok || linear.change != nil || linear.c.Activation != kernels.NoActivation {
		return nil
	}
	return linear
}

// forwardAll is what layers make of one x, together where they are plain.
func forwardAll(x *gorgonia.Node, layers ...Layer) (gorgonia.Nodes, error) {
	weights, biases, err := plainLinears(x, layers)
	if err != nil {
		return nil, err
	}
	if weights != nil {
		return ops.Linears(x, weights, biases)
	}
	var out gorgonia.Nodes
	for _, l := range layers {
		y, err := l.Forward(x)
		if err != nil {
			return nil, err
		}
		out = append(out, y)
	}
	return out, nil
}

// plainLinears are the weights and biases of layers of one x, if all are plain.
func plainLinears(x *gorgonia.Node, layers []Layer) (weights, biases gorgonia.Nodes, err error) {
	for _, l := range layers {
		linear := plainLinear(l)
		if linear == nil {
			return nil, nil, nil
		}
		if err := linear.input("x", x, linear.c.In); err != nil {
			return nil, nil, err
		}
		weights, biases = append(weights, linear.weight), append(biases, linear.bias)
	}
	return weights, biases, nil
}
