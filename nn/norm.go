package nn

import (
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// NormConfig describes a [Norm].
type NormConfig struct {
	Dim     int
	Epsilon float64 // is added to the variance or the mean square; 0 means 1e-5
	RMS     bool    // an RMSNorm in place of a LayerNorm
	NoBias  bool    // of a LayerNorm; an RMSNorm has none
	PlusOne bool    // an RMSNorm scales by 1 + weight instead of weight, as Gemma's does; the weight starts at 0
}

// Norm normalises each row of (..., Dim), then scales each feature. A LayerNorm makes the mean 0
// and the variance 1, and shifts each feature too; an RMSNorm divides by the root of the mean
// square.
//
// Its parameters are weight, (Dim), which starts at 1, and a LayerNorm's bias, (Dim), which starts
// at 0.
type Norm struct {
	layer
	c            NormConfig
	weight, bias *gorgonia.Node // what features are multiplied by, 1 added if asked, and shifted by
}

// NewNorm makes a Norm in a scope.
func NewNorm(s *Scope, c NormConfig) *Norm {
	m := &Norm{layer: s.layer("LayerNorm"), c: c}
	if c.RMS {
		m.kind = "RMSNorm"
	}
	if !m.positive(size{"dim", c.Dim}) || !m.nonNegative("epsilon", c.Epsilon, "1e-5") {
		return m
	}
	if c.PlusOne && !c.RMS {
		m.failf("PlusOne is set, it needs RMS")
		return m
	}
	if !c.PlusOne {
		m.weight = m.parameter("weight", Constant(1), c.Dim)
	} else if weight := m.parameter("weight", Constant(0), c.Dim); weight != nil {
		m.weight = m.s.of(weight, nil).Add(1).n
	}
	if !c.RMS && !c.NoBias {
		m.bias = m.parameter("bias", Constant(0), c.Dim)
	}
	return m
}

// Forward normalises x.
func (m *Norm) Forward(x Tensor) Tensor {
	if !m.takes("x", x, m.c.Dim) {
		return m.none(x)
	}
	if m.c.RMS {
		return m.s.of(ops.RMSNorm(x.n, m.weight, m.options()))
	}
	return m.s.of(ops.LayerNorm(x.n, m.weight, m.bias, m.options()))
}

func (m *Norm) options() ops.NormOptions { return ops.NormOptions{Epsilon: m.c.Epsilon} }

// forwardSum normalises x + other, and gives that sum too.
func (m *Norm) forwardSum(x, other Tensor) (sum, y Tensor) {
	if !m.takes("x", x, m.c.Dim) || !m.given("x", other) {
		return m.none(x), m.none(x)
	}
	var first, second *gorgonia.Node
	var err error
	if m.c.RMS {
		first, second, err = ops.AddRMSNorm(x.n, other.n, m.weight, m.options())
	} else {
		first, second, err = ops.AddLayerNorm(x.n, other.n, m.weight, m.bias, m.options())
	}
	return m.s.of(first, err), m.s.of(second, err)
}

// forwardOfSum is forwardSum of a sum that nothing else reads.
func (m *Norm) forwardOfSum(x, other Tensor) Tensor {
	if !m.takes("x", x, m.c.Dim) || !m.given("x", other) {
		return m.none(x)
	}
	if m.c.RMS {
		return m.s.of(ops.RMSNormOfSum(x.n, other.n, m.weight, m.options()))
	}
	return m.s.of(ops.LayerNormOfSum(x.n, other.n, m.weight, m.bias, m.options()))
}
