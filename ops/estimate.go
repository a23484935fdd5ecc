package ops

import (
	"errors"
	"fmt"
	"slices"
	"weak"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Estimate is what a run of a graph needs, known before the run.
type Estimate struct {
	// Inputs is the memory of the graph's inputs, in bytes: parameters and batches.
	Inputs int
	// Results is the memory of all that the graph computes, in bytes: activations, gradients and
	// workspaces of ops. It is the most that a run holds at once, in the blocks of a graph that
	// reuses memory. Of what a device's kernels allocate for themselves it has what a
	// [kernels.Borrower] tells, where an input's value is on one.
	Results int
	// Work grows with the time of a run: operations of products, and bytes that are moved, as many
	// operations a byte as take that long. It compares runs of one model.
	Work float64
	// Regions are those that were offered by [OfferRegion], in that order.
	Regions []RegionEstimate
}

// RegionEstimate is what is known of a region that may be computed again.
type RegionEstimate struct {
	Name  string
	Bytes int     // what it keeps from its forward run to its backward run
	Work  float64 // of its forward run, without the product that gives its result

	calls  []uint64    // by id
	ends   []regionEnd // results that are there in any case
	costly struct {    // the part of Bytes and Work of calls whose output may be kept
		bytes int
		work  float64
	}
}

// EstimateRun finds out what a run of a graph needs, without running it. The graph needs to reuse
// memory ([ReuseMemory]), and may lack the values of its inputs, but for those that ops read on the
// host. Ranks do not communicate.
func EstimateRun(g *gorgonia.ExprGraph) (Estimate, error) {
	if g == nil {
		return Estimate{}, errors.New("EstimateRun: g is nil, it needs to be a graph")
	}
	s := stateOf(g)
	if !s.pool.isShared() {
		return Estimate{}, errors.New("EstimateRun: the graph's ops keep their memory, it needs ReuseMemory")
	}
	kept := func(n *gorgonia.Node) bool {
		s.planning.Lock()
		defer s.planning.Unlock()
		return s.planning.kept[weak.Make(n)]
	}
	w := &estimator{plan: newPlan(g, kept), state: &graphState{}, device: &meter{stands: borrowerOf(g)}, work: map[uint64]float64{}, last: map[uint64]float64{}, held: map[uint64]int{}, given: map[uint64][]int{}}
	w.plan.inputs = nil // the memory of results is none that an input could have
	w.state.pool.shared = true
	w.state.regions.chosen = s.regions.chosen
	w.state.lossScale.Store(s.lossScale.Load())
	w.state.mode.precision.Store(s.mode.precision.Load())
	if err := w.run(); err != nil {
		return Estimate{}, fmt.Errorf("EstimateRun: %w", err)
	}
	e := Estimate{Inputs: inputBytes(g, w.device.stands), Results: w.device.bytes + w.device.borrowed + sumBytes(g), Work: w.device.work}
	for _, r := range s.regions.offered {
		w.measure(&r)
		e.Regions = append(e.Regions, r)
	}
	return e, nil
}

// measure finds out what a region keeps and costs.
func (e *estimator) measure(r *RegionEstimate) {
	r.Bytes, r.Work = 0, 0
	for _, id := range r.calls {
		r.Bytes, r.Work = r.Bytes+e.held[id], r.Work+e.work[id]
		if s := e.plan.of[id]; s != nil && s.c.isCostly() {
			r.costly.bytes, r.costly.work = r.costly.bytes+e.held[id], r.costly.work+e.work[id]
		}
	}
	for _, end := range r.ends {
		r.Bytes -= e.given[end.call][end.output]
		r.Work -= e.last[end.call]
		if s := e.plan.of[end.call]; s != nil && s.c.isCostly() {
			r.costly.bytes -= e.given[end.call][end.output]
		}
	}
}

// borrowerOf is the device on which the value of an input is, if its kernels borrow memory.
func borrowerOf(g *gorgonia.ExprGraph) kernels.Borrower {
	for _, n := range g.Inputs() {
		if v, ok := n.Value().(*tensor.Dense); ok && !isEmpty(v) {
			if b, err := PlaceOf(v); err == nil {
				d, _ := b.(kernels.Borrower)
				return d
			}
		}
	}
	return nil
}

// inputBytes is the memory of a graph's inputs on a device, or on one that borrows nothing, each
// counted once.
func inputBytes(g *gorgonia.ExprGraph, on kernels.Borrower) (bytes int) {
	seen := map[uintptr]bool{}
	for _, n := range g.Inputs() {
		if v, ok := n.Value().(*tensor.Dense); ok && !isEmpty(v) {
			if at := v.Uintptr(); !seen[at] {
				seen[at], bytes = true, bytes+occupied(on, int(v.MemSize()))
			}
			continue
		}
		if n.Type() != nil && n.Dtype() != (tensor.Dtype{}) {
			bytes += occupied(on, n.Shape().TotalSize()*int(n.Dtype().Size()))
		}
	}
	return bytes
}

// sumBytes is the most memory that results of Gorgonia's own ops need at once: the gradient of a
// node that is used several times is a sum.
func sumBytes(g *gorgonia.ExprGraph) int {
	sorted, err := gorgonia.Sort(g)
	if err != nil { // a cycle, of which no machine can be made
		return 0
	}
	slices.Reverse(sorted)
	at := map[*gorgonia.Node]int{}
	for i, n := range sorted {
		at[n] = i
	}
	changes := make([]int, len(sorted)+1)
	for i, n := range sorted {
		if n.Op() == nil || n.Op().Arity() < 2 || isOurs(n.Op()) || n.Type() == nil {
			continue
		}
		last := i
		for parents := g.To(n.ID()); parents != nil && parents.Next(); {
			last = max(last, at[parents.Node().(*gorgonia.Node)])
		}
		bytes := n.Shape().TotalSize() * int(n.Dtype().Size())
		changes[i] += bytes
		changes[last+1] -= bytes
	}
	most, now := 0, 0
	for _, change := range changes {
		now += change
		most = max(most, now)
	}
	return most
}

// estimator makes the run of a plan on a [meter]: every op takes and gives back its memory as in a
// run, and its kernels compute nothing.
type estimator struct {
	plan   *plan
	state  *graphState // in the place of the graph's own
	device *meter
	work   map[uint64]float64 // of the forward run of each call, by its id
	last   map[uint64]float64 // the part of it that nobody needs a second time
	held   map[uint64]int     // what a call keeps when the first gradient is computed
	given  map[uint64][]int   // the part of it that is each of its results
}

// run runs the plan on calls that stand for those of the graph. A second run begins with what the
// first left, as every step of a training but the first does.
func (e *estimator) run() error {
	calls := map[*call]*call{}
	for _, s := range e.plan.steps {
		if calls[s.c] == nil {
			calls[s.c] = e.double(s.c)
		}
	}
	e.redirect(calls)
	for range 2 {
		e.device.work = 0
		backward := false
		for _, s := range e.plan.steps {
			if s.back && !backward {
				backward = true
				e.note(calls)
			}
			before := e.device.work
			e.device.last = 0
			if err := e.step(s, calls[s.c]); err != nil {
				return s.c.runError(err)
			}
			if !s.back {
				e.work[s.c.id], e.last[s.c.id] = e.device.work-before, e.device.last
			}
		}
	}
	return nil
}

// double is a call like another that has not run.
func (e *estimator) double(c *call) *call {
	d := &call{signature: c.signature, kernel: c.kernel, is: c.is, repeats: c.repeats, operands: slices.Clone(c.operands), outputs: slices.Clone(c.outputs)}
	d.member = member{graph: c.graph, state: e.state, plan: e.plan}
	for i := range d.operands {
		d.operands[i].d = result{gradient: true}
	}
	for i := range d.outputs {
		d.outputs[i].memory = result{}
	}
	d.last.saved, d.rooms.saved = make(tensors, len(c.is.saves)), make(tensors, len(c.is.saves))
	return d
}

// redirect makes the plan speak of the results of the doubles.
func (e *estimator) redirect(calls map[*call]*call) {
	same := map[*result]*result{}
	for c, d := range calls {
		for i := range c.outputs {
			same[&c.outputs[i].memory] = &d.outputs[i].memory
		}
		for i := range c.operands {
			same[&c.operands[i].d] = &d.operands[i].d
		}
	}
	held := map[*result]bool{}
	for r, is := range e.plan.held {
		held[same[r]] = is
	}
	e.plan.held = held
	for _, s := range e.plan.steps {
		for i, r := range s.frees {
			s.frees[i] = same[r]
		}
		if s.bias != nil {
			s.bias = calls[s.bias]
		}
	}
}

// note finds out what each call holds.
func (e *estimator) note(calls map[*call]*call) {
	for c, d := range calls {
		kept, given := 0, make([]int, len(d.outputs))
		for _, t := range d.last.kept {
			kept += sizeClass(t.Elements() * t.DType.Size())
		}
		for i := range d.outputs {
			if r := &d.outputs[i].memory; r.place != nil {
				given[i] = sizeClass(r.Elements() * r.DType.Size())
				kept += given[i]
			}
		}
		e.held[c.id], e.given[c.id] = kept, given
	}
}

// step makes one step.
func (e *estimator) step(s *step, c *call) (err error) {
	r := &run{Backend: e.device, c: c, step: s, wanted: s.wanted, backward: s.back}
	in := make(tensors, len(c.operands))
	for i, o := range c.operands {
		if in[i] = o.shape; o.node == nil || !o.form.isOnHost() {
			continue
		}
		v := o.node.Value()
		if v == nil {
			return fmt.Errorf("%s has no value, and the host reads it", o.name)
		}
		if in[i], err = c.bindOne(host, i, v); err != nil {
			return err
		}
	}
	if s.back {
		err = e.backward(r, in, s.op().(*gradients))
	} else {
		err = e.forward(r, in)
	}
	for _, freed := range s.frees {
		c.release(freed)
	}
	return err
}

func (e *estimator) forward(r *run, in tensors) (err error) {
	c := r.c
	c.forget()
	for i := range c.operands {
		c.release(&c.operands[i].d)
	}
	out := make(tensors, len(c.outputs))
	for i := range out {
		if out[i], err = c.lend(&c.outputs[i].memory, r.Backend, c.is.outputs[i]); err != nil {
			return err
		}
	}
	defer r.end()
	if err := r.takeSaves(); err != nil {
		return err
	}
	c.last.place, c.last.wanted, c.last.dropout = r.Backend, r.wanted, c.is.dropout
	if c.is.gathers != nil {
		return r.Copy(out[0], out[0])
	}
	if err := c.kernel.forward(r, in, out); err != nil || r.wanted == nil {
		return err
	}
	for i, exposed := range e.plan.of[c.id].exposed[:c.is.readsOutputs] {
		if exposed {
			var copied kernels.Tensor
			if _, err := r.keepIn(&copied, &copied, out[i].DType, out[i].Shape...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *estimator) backward(r *run, in tensors, g *gradients) error {
	c := r.c
	defer r.end()
	arrived, next := make(tensors, len(g.hasDOut)), 0
	for _, o := range c.operands {
		if o.child >= 0 && !o.unread {
			next++
		}
	}
	for i, has := range g.hasDOut {
		if !has {
			continue
		}
		n := g.reads[next]
		next++
		is := c.is.outputs[i]
		if arrived[i] = is; c.is.dOutput != kernels.NoDType {
			arrived[i].DType = c.is.dOutput
		}
		if is.Elements() == 1 && n.Op() == nil { // Gorgonia's constant 1, which becomes a tensor
			r.unit = true
			if _, err := r.scratchLike(arrived[i]); err != nil {
				return err
			}
		}
	}
	r.out = c.is.outputs[:c.is.readsOutputs]
	d, err := r.lendGradients(arrived)
	if err != nil {
		return err
	}
	switch {
	case c.is.gathers != nil:
		if _, err := r.scratchLike(arrived[0]); err != nil {
			return err
		}
	case c.is.gradients != fromOutput:
		if err := c.kernel.backward(r, in, arrived, d); err != nil {
			return err
		}
	}
	if c.is.gradients == fromForward {
		c.handOut(d)
	}
	c.forget()
	return nil
}
