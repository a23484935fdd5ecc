package ops

import (
	"fmt"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Mode says whether a graph is training or evaluating, which is whether its dropout drops anything,
// and how exact its products need to be. It is a property of the graph and may be changed between
// runs; [ModeOf] finds it.
//
// A graph whose mode was never set is training, and each op counts its own runs, so that every run
// has new masks. Gorgonia's EvalMode option is not looked at: it belongs to a machine, of which a
// graph may have several.
//
// A Mode may be used from several goroutines at once. A change counts for forward runs that begin
// after it; a backward run always has the mask of its forward run.
type Mode struct {
	state     atomic.Uint64 // 0 when never set, otherwise one of the two bits below and the step
	drops     atomic.Bool
	precision atomic.Int64 // of products of float32
}

const (
	training   = 1 << 32
	evaluating = 1 << 33
)

// Train switches dropout on, with the masks of a step: the same step gives the same masks in every
// run, on every device. A training loop calls it before each run with the number of the step.
func (m *Mode) Train(step uint32) { m.state.Store(training | uint64(step)) }

// Evaluate switches dropout off.
func (m *Mode) Evaluate() { m.state.Store(evaluating) }

// IsSet reports whether the graph was told to train or to evaluate.
func (m *Mode) IsSet() bool { return m.state.Load() != 0 }

// ModeOf is the mode of a graph: the same Mode in every call, for as long as the graph lives. A nil
// graph gives a Mode that nothing reads.
func ModeOf(g *gorgonia.ExprGraph) *Mode { return &stateOf(g).mode }

// AllowPrecision sets the coarsest arithmetic that products of float32 tensors may have in the
// graph, those of attention among them where its options name none. What float32 itself would
// compute is the default; kernels.PrecisionTF32 is faster on a GPU, kernels.PrecisionBFloat16 on a
// CPU with units for it. A device may be more exact than it is allowed to be. A recorded step keeps
// what it was recorded with, so it is set where the graph is made.
//
// kernels.PrecisionFloat8 is for the products of linear layers, [Linear], [Linears], [MLP] and
// [SwiGLUMLP], and those of their gradients, in 16 bits too. Everything else is then as exact as by
// default: [MatMul], and so the head of a language model, attention, losses, grouped products, and
// changes of low rank. The CPU computes it, at the price of exact products and a rounding. A GPU
// without units for it gives an error that wraps errors.ErrUnsupported.
func (m *Mode) AllowPrecision(p kernels.Precision) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("AllowPrecision: %w", err)
	}
	m.precision.Store(int64(p))
	return nil
}

// orPrecision is the precision that an op asks for, or what the graph allows where it asks for
// none.
func (m *Mode) orPrecision(p kernels.Precision) kernels.Precision {
	if p == kernels.PrecisionAuto && m != nil {
		return kernels.Precision(m.precision.Load())
	}
	return p
}

// Drops reports whether the graph has an op that drops elements while it trains.
func (m *Mode) Drops() bool { return m.drops.Load() }

// step reports whether dropout is on, and which step it has for an op that has run the given number
// of times before.
func (m *Mode) step(runs uint32) (step uint32, on bool) {
	switch state := m.state.Load(); {
	case state&evaluating != 0:
		return 0, false
	case state&training != 0:
		return uint32(state), true
	}
	return runs, true
}
