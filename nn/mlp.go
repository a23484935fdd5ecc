package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// MLPConfig describes an [MLP].
type MLPConfig struct {
	Name       string       // prefix of the parameters' names
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0

	Dim        int
	Hidden     int                // 0 means 4·Dim
	Activation kernels.Activation // zero means GELUTanh
	NoBias     bool
	Init       Init // of the weights; nil means FanIn
	ProjInit   Init // of proj's; nil means Init

	NewLinear Maker[LinearConfig] // makes fc and proj; nil means NewLinear
}

// MLP is two linear layers with an activation between them: (..., Dim) → (..., Dim).
//
// Its parameters are those of the linear layers fc and proj.
type MLP struct{ fc, proj Layer }

// NewMLP adds the parameters of an MLP to a graph.
func NewMLP(g *gorgonia.ExprGraph, c MLPConfig) (*MLP, error) {
	s, err := newScope("MLP", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if c.Hidden == 0 {
		c.Hidden = 4 * c.Dim
	}
	if c.Activation == kernels.NoActivation {
		c.Activation = kernels.GELUTanh
	}
	if err := s.positive(size{"dim", c.Dim}, size{"hidden", c.Hidden}); err != nil {
		return nil, err
	}
	m := &MLP{}
	if m.fc, err = s.linear("fc", c.NewLinear, LinearConfig{In: c.Dim, Out: c.Hidden, NoBias: c.NoBias, Activation: c.Activation, Init: c.Init}); err != nil {
		return nil, err
	}
	if m.proj, err = s.linear("proj", c.NewLinear, LinearConfig{In: c.Hidden, Out: c.Dim, NoBias: c.NoBias, Init: initOr(c.ProjInit, c.Init)}); err != nil {
		return nil, err
	}
	return m, nil
}

// Forward is proj(act(fc(x))).
func (m *MLP) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	fc, ok := m.fc.(*Linear)
	proj := plainLinear(m.proj)
	if !ok || fc.change != nil || proj == nil {
		return Chain(x, m.fc, m.proj)
	}
	if err := fc.input("x", x, fc.c.In); err != nil {
		return nil, err
	}
	return ops.MLP(x, fc.weight, fc.bias, proj.weight, proj.bias, ops.MLPOptions{Activation: fc.c.Activation})
}

// Parameters lists the weights, and the biases if there are.
func (m *MLP) Parameters() gorgonia.Nodes { return parametersOf(m.fc, m.proj) }

// SwiGLUMLPConfig describes a [SwiGLUMLP].
type SwiGLUMLPConfig struct {
	Name       string       // prefix of the parameters' names
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0

	Dim        int
	Hidden     int                // 0 means 8/3·Dim, rounded up to a multiple of 256
	Activation kernels.Activation // of the gate; zero means SiLU
	Bias       bool               // whether the linear layers have biases
	Init       Init               // of the weights; nil means FanIn
	DownInit   Init               // of down's; nil means Init

	NewLinear Maker[LinearConfig] // makes gate, up and down; nil means NewLinear
}

// SwiGLUMLP is the gated MLP of Llama, down(silu(gate(x))·up(x)): (..., Dim) → (..., Dim). With the activation GELUTanh it
// is the GeGLU of Gemma.
//
// Its parameters are those of the linear layers gate, up and down.
type SwiGLUMLP struct {
	gate, up, down Layer
	silu           bool // gate has no activation of its own, SwiGLU computes it together with the product
}

// NewSwiGLUMLP adds the parameters of a SwiGLUMLP to a graph.
func NewSwiGLUMLP(g *gorgonia.ExprGraph, c SwiGLUMLPConfig) (*SwiGLUMLP, error) {
	s, err := newScope("SwiGLUMLP", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if c.Hidden == 0 {
		c.Hidden = (8*c.Dim/3 + 255) / 256 * 256
	}
	if err := s.positive(size{"dim", c.Dim}, size{"hidden", c.Hidden}); err != nil {
		return nil, err
	}
	m := &SwiGLUMLP{silu: c.Activation == kernels.NoActivation || c.Activation == kernels.SiLU}
	if m.silu {
		c.Activation = kernels.NoActivation
	}
	if m.gate, err = s.linear("gate", c.NewLinear, LinearConfig{In: c.Dim, Out: c.Hidden, NoBias: !c.Bias, Activation: c.Activation, Init: c.Init}); err != nil {
		return nil, err
	}
	if m.up, err = s.linear("up", c.NewLinear, LinearConfig{In: c.Dim, Out: c.Hidden, NoBias: !c.Bias, Init: c.Init}); err != nil {
		return nil, err
	}
	if m.down, err = s.linear("down", c.NewLinear, LinearConfig{In: c.Hidden, Out: c.Dim, NoBias: !c.Bias, Init: initOr(c.DownInit, c.Init)}); err != nil {
		return nil, err
	}
	return m, nil
}

// Forward is down(act(gate(x))·up(x)).
func (m *SwiGLUMLP) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	if m.gate == nil {
		return nil, errUnmade
	}
	if gate, up, down := plainLinear(m.gate), plainLinear(m.up), plainLinear(m.down); m.silu && gate != nil && up != nil && down != nil {
		if err := gate.input("x", x, gate.c.In); err != nil {
			return nil, err
		}
		return ops.SwiGLUMLP(x, gate.weight, up.weight, down.weight, ops.SwiGLUMLPBiases{Gate: gate.bias, Up: up.bias, Down: down.bias})
	}
	gate, err := m.gate.Forward(x)
	if err != nil {
		return nil, err
	}
	up, err := m.up.Forward(x)
	if err != nil {
		return nil, err
	}
	multiply := ops.Mul
	if m.silu {
		multiply = ops.SwiGLU
	}
	h, err := multiply(gate, up)
	if err != nil {
		return nil, err
	}
	return m.down.Forward(h)
}

// Parameters lists the weights, and the biases if there are.
func (m *SwiGLUMLP) Parameters() gorgonia.Nodes { return parametersOf(m.gate, m.up, m.down) }
