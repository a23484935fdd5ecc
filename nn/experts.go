package nn

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ExpertsConfig describes [Experts].
type ExpertsConfig struct {
	Dim, Hidden int // of each expert, which is a gated MLP
	Count       int // how many there are
	Router      kernels.RouterOptions
	RouterBias  bool // the logits of the router have a bias
	// Corrected adds a parameter to the scores by which experts are chosen, as DeepSeek-V3. It has
	// no gradient, and is not listed by [Scope.Trainable]: what trains a model moves it by the
	// loads.
	Corrected bool
	Bias      bool // the experts' layers have biases
	// Activation is of the gates of all experts; zero means SiLU.
	Activation kernels.Activation
	// Clamped, if it is not nil, is the gate in the place of silu(gate)·up. The columns of gateup
	// are then pairs of a gate and what it gates.
	Clamped  *kernels.ClampedGate
	Shared   SharedExpert
	Init     Init // of the weights; nil means FanIn
	ProjInit Init // of the experts' last ones; nil means Init
}

// SharedExpert describes a gated MLP that all tokens go through beside those that they choose.
type SharedExpert struct {
	Hidden int  // 0 means that there is none
	Bias   bool // its linear layers have biases
	Gated  bool // what it gives is multiplied by σ(x·w), a number for each token, as in Qwen2-MoE
}

// Experts is a mixture of experts in the place of an MLP, (..., Dim) → (..., Dim). A router chooses
// a few of many gated MLPs for each token, and the result is their weighted sum:
//
//	y = Σ_j w_j·down_e(silu(gate_e(x))·up_e(x)), e = chosen_j     [+ shared(x)]
//
// or with another Activation in the place of silu.
//
// No token is dropped, and an expert computes its own tokens alone.
//
// Its parameters are router.weight, (Dim, Count), gateup.weight, (Count, Dim, 2·Hidden), with the
// gates' columns before the others but for Clamped, and down.weight, (Count, Hidden, Dim). What
// else there may be is router.bias and router.correction, (Count), gateup.bias and down.bias,
// (Count, ...), the MLP shared, and sharedgate, a [Linear]. [Parameters.KeepWeights] keeps gateup
// and down in 16 bits.
//
// The router alone would use few experts. [Scope.BalanceLoss] is for training.
type Experts struct {
	layer
	c                  ExpertsConfig
	router, routerBias *gorgonia.Node
	correction         *gorgonia.Node // nil for none
	gateup, gateupBias *gorgonia.Node
	down, downBias     *gorgonia.Node
	shared, sharedGate Layer // nil for none
}

// NewExperts makes Experts in a scope.
func NewExperts(s *Scope, c ExpertsConfig) *Experts {
	m := &Experts{layer: s.layer("Experts"), c: c}
	if !m.positive(size{"dim", c.Dim}, size{"hidden", c.Hidden}, size{"count", c.Count}) {
		return m
	}
	if c.Clamped != nil && !m.isSiLU() {
		m.failf("Clamped and Activation are set, it needs to be one of them")
		return m
	}
	if !m.check(m.possible()) {
		return m
	}
	router := s.Sub("router").layer("Experts")
	m.router = router.parameter("weight", initOr(c.Init, FanIn), c.Dim, c.Count)
	if c.RouterBias {
		m.routerBias = router.parameter("bias", Zero, c.Count)
	}
	if c.Corrected {
		m.correction = router.constant("correction", Zero, c.Count)
	}
	m.gateup, m.gateupBias = m.each("gateup", c.Init, c.Dim, 2*c.Hidden)
	m.down, m.downBias = m.each("down", initOr(c.ProjInit, c.Init), c.Hidden, c.Dim)
	if c.Shared.Hidden != 0 {
		m.shared = NewMLP(s.Sub("shared"), MLPConfig{
			Dim: c.Dim, Hidden: c.Shared.Hidden, Gated: true, Activation: c.Activation, NoBias: !c.Shared.Bias, Init: c.Init,
			ProjInit: c.ProjInit,
		})
		if c.Shared.Gated {
			m.sharedGate = NewLinear(s.Sub("sharedgate"), LinearConfig{In: c.Dim, Out: 1, NoBias: true, Init: c.Init})
		}
	}
	return m
}

// possible returns what is wrong with the router and the gates.
func (m *Experts) possible() error {
	dtype := kernels.F32
	if m.s.dtype == tensor.Float64 {
		dtype = kernels.F64
	}
	if err := m.c.Router.Validate(m.c.Count, dtype); err != nil {
		return fmt.Errorf("router: %w", err)
	}
	if m.c.Clamped != nil {
		return m.c.Clamped.Validate(dtype)
	}
	return m.c.Activation.Validate()
}

// each makes a linear layer of each expert.
func (m *Experts) each(part string, init Init, in, out int) (weight, bias *gorgonia.Node) {
	l := m.s.Sub(part).layer("Experts")
	weight = l.expertsWeight(func(shape []int, r *rand.Rand) func() float64 {
		return initOr(init, FanIn)(shape[1:], r)
	}, m.c.Count, in, out)
	if m.c.Bias {
		bias = l.parameter("bias", Zero, m.c.Count, out)
	}
	return weight, bias
}

// Forward gives the weighted sums of what the experts make of x.
func (m *Experts) Forward(x Tensor) Tensor {
	if !m.takes("x", x, m.c.Dim) {
		return m.none(x)
	}
	logits := m.s.of(ops.Linear(x.n, m.router, m.routerBias, ops.LinearOptions{}))
	if logits.failed() {
		return logits
	}
	weights, chosen, err := ops.Route(logits.n, m.correction, m.c.Router)
	if !m.check(err) {
		return m.none(x)
	}
	m.s.routed = append(m.s.routed, routed{logits.n, chosen})
	y := x
	for _, op := range []func(x *gorgonia.Node) (*gorgonia.Node, error){
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Dispatch(x, chosen) },
		func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.GroupedLinear(x, m.gateup, m.gateupBias, chosen)
		},
		m.gate,
		func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.GroupedLinear(x, m.down, m.downBias, chosen)
		},
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Combine(x, weights, chosen) },
	} {
		y = y.apply(op)
	}
	y = y.Reshape(x.Shape()...)
	if m.shared == nil {
		return y
	}
	shared := m.shared.Forward(x)
	if m.sharedGate != nil {
		shared = shared.Mul(m.sharedGate.Forward(x).Sigmoid())
	}
	return y.Add(shared)
}

// gate is what the halves of gateup's rows give together.
func (m *Experts) gate(x *gorgonia.Node) (*gorgonia.Node, error) {
	switch {
	case m.c.Clamped != nil:
		return ops.ClampedGate(x, *m.c.Clamped)
	case m.isSiLU():
		return ops.SwiGLUHalves(x)
	}
	last := x.Dims() - 1
	gate, err := ops.Slice(x, last, 0, m.c.Hidden)
	if err == nil {
		gate, err = ops.Activate(gate, m.c.Activation)
	}
	if err != nil {
		return nil, err
	}
	up, err := ops.Slice(x, last, m.c.Hidden, 2*m.c.Hidden)
	if err != nil {
		return nil, err
	}
	return ops.Mul(gate, up)
}

func (m *Experts) isSiLU() bool {
	return m.c.Activation == kernels.NoActivation || m.c.Activation == kernels.SiLU
}

// routed is what a router decided, and by which logits.
type routed struct {
	logits *gorgonia.Node
	chosen ops.Assignment
}

// BalanceLoss is the [ops.BalanceLoss] of all that [Experts] have computed in the graph so far: a
// scalar that is least where tokens use all experts alike. A model adds a hundredth of it to its
// loss, or so.
func (s *Scope) BalanceLoss() Tensor {
	if s == nil {
		return Tensor{}
	}
	if len(s.routed) == 0 {
		return s.Fail(errors.New("BalanceLoss: there are no Experts, they need to be applied before"))
	}
	var logits gorgonia.Nodes
	var chosen []ops.Assignment
	for _, r := range s.routed {
		logits, chosen = append(logits, r.logits), append(chosen, r.chosen)
	}
	return s.Tensor(ops.BalanceLoss(logits, chosen))
}

// Experts is a mixture of experts of x's Dim; see [Experts].
func (s *Scope) Experts(name string, x Tensor, c ExpertsConfig) Tensor {
	c.Dim = cmp.Or(c.Dim, x.Dim(-1))
	return NewExperts(s.Sub(name), c).Forward(x)
}
