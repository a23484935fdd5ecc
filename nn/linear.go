package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// LinearConfig describes a [Linear].
type LinearConfig struct {
	In, Out    int
	NoBias     bool
	Activation kernels.Activation // is applied to the result, in the same pass
	Init       Init               // of the weight; nil means FanIn
}

// Linear is act(x·W + b), over the last axis of x: (..., In) → (..., Out).
//
// Its parameters are weight, (In, Out), and bias, (Out), which starts at 0. A [LoRA] of the scope's
// Parameters changes it.
type Linear struct {
	layer
	c            LinearConfig
	weight, bias *gorgonia.Node
	change       *linearChange // nil for none
}

// NewLinear makes a Linear in a scope.
func NewLinear(s *Scope, c LinearConfig) *Linear {
	l := &Linear{layer: s.layer("Linear"), c: c}
	if !l.positive(size{"in", c.In}, size{"out", c.Out}) || !l.check(c.Activation.Validate()) {
		return l
	}
	l.weight = l.linearWeight(initOr(c.Init, FanIn), c.In, c.Out)
	if !c.NoBias {
		l.bias = l.parameter("bias", Constant(0), c.Out)
	}
	l.change = l.lora(c.In, c.Out)
	return l
}

// Forward is act(x·W + b).
func (l *Linear) Forward(x Tensor) Tensor {
	if !l.takes("x", x, l.c.In) {
		return l.none(x)
	}
	if l.change.isDecomposed() {
		return l.decomposed(x)
	}
	return l.s.of(ops.Linear(x.n, l.weight, l.bias, ops.LinearOptions{Activation: l.c.Activation, Change: l.change.of(x)}))
}

// plainLinear is a layer as what can be computed together with others: a Linear without an
// activation or a DoRA; nil for another.
func plainLinear(l Layer) *Linear {
	linear, ok := l.(*Linear)
	if !ok || linear.c.Activation != kernels.NoActivation || linear.change.isDecomposed() {
		return nil
	}
	return linear
}

// forwardAll is what layers make of one x, together where they are plain.
func forwardAll(x Tensor, layers ...Layer) []Tensor {
	out := make([]Tensor, len(layers))
	if weights, biases, changes := plainLinears(x, layers); weights != nil {
		nodes, err := ops.Linears(x.n, weights, biases, changes...)
		if err != nil {
			nodes = make(gorgonia.Nodes, len(layers))
		}
		for i, n := range nodes {
			out[i] = x.in.of(n, err)
		}
		return out
	}
	for i, l := range layers {
		out[i] = l.Forward(x)
	}
	return out
}

// plainLinears are the weights, biases and changes of layers of one x, if all are plain and nothing
// has failed.
func plainLinears(x Tensor, layers []Layer) (weights, biases gorgonia.Nodes, changes []ops.Change) {
	var list []*Linear
	for _, l := range layers {
		linear := plainLinear(l)
		if linear == nil || !linear.takes("x", x, linear.c.In) {
			return nil, nil, nil
		}
		list = append(list, linear)
	}
	for _, linear := range list {
		weights, biases = append(weights, linear.weight), append(biases, linear.bias)
	}
	return weights, biases, changesOf(x, list...)
}
