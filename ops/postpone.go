package ops

import "github.com/stheno-ml/stheno/kernels"

// postponed is the work of a step that the one step which reads its result does, in one kernel with
// its own. A norm is left to the products of its rows, and a product to the sum that adds it:
//
//	x → norm → product → + x         becomes    x → product
//
// The plan says which steps may do so, in a graph that reuses memory, since nobody looks at a
// result that only one step reads. Where the device has no kernel for both, the work is done after
// all.
type postponed struct {
	norm    *kernels.Norm        // what it is: an RMS norm
	product *kernels.RowsProduct // or products of few rows
	compute func() error         // does it after all, in the memory that it was to go to
}

// joiner is the device, if it may do the work of two steps in one kernel.
func (r *run) joiner() kernels.RowsProductKernels {
	device, ok := r.Backend.(kernels.RowsProductKernels)
	if !ok || r.wanted != nil || r.step == nil || r.again || r.c.state.walk.astray {
		return nil
	}
	return device
}

// postpones reports whether the step's work can be left to the one that reads it.
func (r *run) postpones() bool { return r.step.postpones && r.shares() }

// postponed is what was left to the run of an input, nil if nothing was.
func (r *run) postponed(input int) *postponed {
	if r.step == nil || r.step.before[input] == nil {
		return nil
	}
	return r.step.before[input].c.last.postponed
}

// catchUp does what was left to the run of an input, into the input.
func (r *run) catchUp(input int) error {
	before := r.postponed(input)
	if before == nil {
		return nil
	}
	r.step.before[input].c.last.postponed = nil
	return before.compute()
}

// multiplyRows computes products of x, input 0, if they are for a kernel of few rows: with the norm
// that was left to it. Otherwise input 0 is there.
func (r *run) multiplyRows(p kernels.RowsProduct, out kernels.Tensor) (done bool, err error) {
	device := r.joiner()
	if before := r.postponed(0); before != nil && device != nil {
		normed := p
		normed.X, normed.Norm = asMatrix(before.norm.X), &kernels.RowNorm{Gamma: before.norm.Gamma, Eps: before.norm.EffectiveEps()}
		if device.TakesRowsProduct(&normed) {
			return true, device.RowsProductForward(&normed, asMatrix(out))
		}
	}
	if err := r.catchUp(0); err != nil || device == nil || !device.TakesRowsProduct(&p) {
		return false, err
	}
	return true, device.RowsProductForward(&p, asMatrix(out))
}

// leaveRows leaves a product to the step that reads it, if that may add it and it is one for a
// kernel of few rows.
func (r *run) leaveRows(p kernels.RowsProduct, out kernels.Tensor) bool {
	device := r.joiner()
	if device == nil || !r.postpones() || !device.TakesRowsProduct(&p) {
		return false
	}
	r.c.last.postponed = &postponed{product: &p, compute: func() error { return device.RowsProductForward(&p, asMatrix(out)) }}
	return true
}

// addRows computes sum = x + an input, if that is a product that was left to it. Otherwise the
// input is there.
func (r *run) addRows(input int, x, sum kernels.Tensor) (done bool, err error) {
	before, device := r.postponed(input), r.joiner()
	if before == nil || device == nil {
		return false, r.catchUp(input)
	}
	p := *before.product
	if p.Residual = asMatrix(x); !device.TakesRowsProduct(&p) {
		return false, r.catchUp(input)
	}
	return true, device.RowsProductForward(&p, asMatrix(sum))
}
