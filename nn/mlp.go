package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
)

// MLPConfig describes an [MLP].
type MLPConfig struct {
	Dim        int
	Hidden     int                // 0 means 4·Dim, or with Gated 8/3·Dim rounded up to a multiple of 256
	Gated      bool               // what Llama has: half of the first product gates the other
	Activation kernels.Activation // zero means GELUTanh, or of the gate SiLU
	NoBias     bool
	Dropout    float64 // of what the last layer reads
	Init       Init    // of the weights; nil means FanIn
	ProjInit   Init    // of the last one's; nil means Init

	NewLinear Maker[LinearConfig] // makes the linear layers; nil means NewLinear
}

// MLP is two linear layers with an activation between them, proj(act(fc(x))), or if it is gated
// three, down(act(gate(x))·up(x)): (..., Dim) → (..., Dim). Llama's gate has SiLU, that of Gemma
// GELUTanh.
//
// Its parameters are those of the linear layers fc and proj, or gate, up and down.
type MLP struct {
	layer
	fc, up, proj Layer    // fc is the gate where there is one; up is nil for none
	drop         *Dropout // nil for none
	silu         bool     // the gate has no activation of its own, SwiGLU computes it together with the product
}

// NewMLP makes an MLP in a scope.
func NewMLP(s *Scope, c MLPConfig) *MLP {
	m := &MLP{layer: s.layer("MLP")}
	fc, proj := "fc", "proj"
	switch {
	case !c.Gated:
		if c.Hidden == 0 {
			c.Hidden = 4 * c.Dim
		}
		if c.Activation == kernels.NoActivation {
			c.Activation = kernels.GELUTanh
		}
	default:
		fc, proj = "gate", "down"
		if c.Hidden == 0 {
			c.Hidden = (8*c.Dim/3 + 255) / 256 * 256
		}
		if m.silu = c.Activation == kernels.NoActivation || c.Activation == kernels.SiLU; m.silu {
			c.Activation = kernels.NoActivation
		}
	}
	if !m.positive(size{"dim", c.Dim}, size{"hidden", c.Hidden}) {
		return m
	}
	in := LinearConfig{In: c.Dim, Out: c.Hidden, NoBias: c.NoBias, Activation: c.Activation, Init: c.Init}
	m.fc = m.linear(fc, c.NewLinear, in)
	if c.Gated {
		in.Activation = kernels.NoActivation
		m.up = m.linear("up", c.NewLinear, in)
	}
	if c.Dropout != 0 {
		m.drop = m.dropout("drop", c.Dropout)
	}
	m.proj = m.linear(proj, c.NewLinear, LinearConfig{In: c.Hidden, Out: c.Dim, NoBias: c.NoBias, Init: initOr(c.ProjInit, c.Init)})
	return m
}

// Forward applies the MLP to x.
func (m *MLP) Forward(x Tensor) Tensor {
	if !m.given("x", x) {
		return m.none(x)
	}
	if m.up != nil {
		return m.gated(x)
	}
	if m.drop != nil {
		return x.Through(m.fc, m.drop, m.proj)
	}
	fc, ok := m.fc.(*Linear)
	proj := plainLinear(m.proj)
	if !ok || proj == nil || fc.change != nil || proj.change != nil {
		return x.Through(m.fc, m.proj)
	}
	if !fc.takes("x", x, fc.c.In) {
		return m.none(x)
	}
	return m.s.of(ops.MLP(x.n, fc.weight, fc.bias, proj.weight, proj.bias, ops.MLPOptions{Activation: fc.c.Activation}))
}

// gated is down(act(gate(x))·up(x)).
func (m *MLP) gated(x Tensor) Tensor {
	gate, up, down := plainLinear(m.fc), plainLinear(m.up), plainLinear(m.proj)
	if m.drop == nil && m.silu && gate != nil && up != nil && down != nil && !down.change.drops() {
		if !gate.takes("x", x, gate.c.In) {
			return m.none(x)
		}
		return m.s.of(ops.SwiGLUMLP(x.n, gate.weight, up.weight, down.weight,
			ops.SwiGLUMLPBiases{Gate: gate.bias, Up: up.bias, Down: down.bias}, append(changesOf(x, gate, up), down.change.of(x))...))
	}
	a, b := m.fc.Forward(x), m.up.Forward(x)
	if !m.given("gate", a) || !m.given("up", b) {
		return m.none(x)
	}
	multiply := ops.Mul
	if m.silu {
		multiply = ops.SwiGLU
	}
	h := m.s.of(multiply(a.n, b.n))
	if m.drop != nil {
		h = m.drop.Forward(h)
	}
	return m.proj.Forward(h)
}
