package ops

import (
	"errors"
	"slices"
	"weak"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// This file collects tensors that ranks share out before the ops that read them run: beside an attention, whose kernels leave room for
// transfers, all that is read up to the next one. So a device holds at most what two layers read. In the same way the gradients that were
// computed since one attention are summed beside the next, where someone knows that they come later.

// DeferSums lets the sums of the gradients of parts ([Whole]) over the ranks be made some time after a run has computed them, in runs for
// which when says so. Behind such a run the gradients are known once [SettleSums] was called. It needs to be called after
// [gorgonia.Grad] and before the first run. The gradients of what several ops read are not put off.
func DeferSums(parts gorgonia.Nodes, when func() bool) {
	for _, n := range parts {
		if n == nil || n.Deriv() == nil {
			continue
		}
		if g, _ := gradientsBehind(n.Deriv()); g != nil {
			if k, ok := g.c.kernel.(*gather); ok {
				k.defers = when
			}
		}
	}
}

// SettleSums makes the sums that were put off in a run of a graph the gradients.
func SettleSums(g *gorgonia.ExprGraph) error { return stateOf(g).aheads.settle() }

// aheads knows when a graph gathers: in the order that the first run has had.
type aheads struct {
	gathers bool // there are any
	steps   []step
	places  map[step]int
	next    int  // place of the step that is expected
	learnt  bool // the first run is over
	differs bool // a later run was another one: nothing is collected ahead any more
	begun   []*gather

	asked, travelled []deferredSum // since the attention that ran last, and beside it
}

// step is a gather, or an attention's forward or backward run. It does not keep the graph alive.
type step struct {
	gather    weak.Pointer[gather]
	attention uint64
	backward  bool
}

// reach is told of each step of a run. Where that is the run's first, or not the expected one, what was collected for later steps is
// of no use.
func (a *aheads) reach(s step, p *pool) error {
	at, known := a.places[s]
	switch {
	case known && at == 0:
		a.learnt = true
	case a.learnt && (!known || at != a.next), known && !a.learnt:
		a.differs = true
	case !known:
		if a.places == nil {
			a.places = map[step]int{}
		}
		at = len(a.steps)
		a.places[s], a.steps = at, append(a.steps, s)
	}
	a.next = at + 1
	if at == 0 || a.differs {
		return a.drop(p)
	}
	return nil
}

// attend is called before an attention runs.
func (a *aheads) attend(r *run, backward bool) error {
	if !a.gathers || r.again || !r.c.memory.pool.shared {
		return nil
	}
	err := errors.Join(a.reach(step{attention: r.c.id, backward: backward}, r.c.memory.pool), a.settle())
	a.travelled, a.asked = a.asked, a.travelled[:0]
	if err != nil || !a.learnt || a.differs {
		return err
	}
	for _, s := range a.steps[a.next:] {
		k := s.gather.Value()
		if k == nil || slices.ContainsFunc(a.begun, func(other *gather) bool { return other.of == k.of }) { // forward, and backward at once
			break
		}
		if err := k.begin(r); err != nil {
			return err
		}
		a.begun = append(a.begun, k)
	}
	return nil
}

// drop gives back what was collected and not read.
func (a *aheads) drop(p *pool) (err error) {
	for _, k := range a.begun {
		if k.transfer != nil {
			err = errors.Join(err, k.transfer.Join())
			p.put(k.place, k.ahead)
			k.ahead, k.transfer = kernels.Tensor{}, nil
		}
	}
	a.begun, a.asked, a.travelled = a.begun[:0], nil, nil
	return err
}

// collected is the memory in which the gather's result lies ahead of its run, if it does.
func (a *aheads) collected(k *gather, p *pool) (kernels.Tensor, error) {
	if !p.shared {
		return kernels.Tensor{}, nil
	}
	if err := a.reach(step{gather: weak.Make(k)}, p); err != nil {
		return kernels.Tensor{}, err
	}
	a.begun = slices.DeleteFunc(a.begun, func(other *gather) bool { return other == k })
	return k.ahead, nil
}

// deferredSum is a gradient of a whole that is being summed, and where this rank's part of the sum belongs.
type deferredSum struct {
	sum, part kernels.Tensor
	ranks     kernels.Holders
	place     kernels.Backend
	pool      *pool
}

// leavesRoom reports whether another attention of the run follows.
func (a *aheads) leavesRoom() bool {
	return a.learnt && !a.differs && slices.ContainsFunc(a.steps[a.next:], func(s step) bool { return s.attention != 0 })
}

// settle makes the sums that travelled beside an attention the gradients.
func (a *aheads) settle() (err error) {
	for _, s := range a.travelled {
		err = errors.Join(err, s.place.Copy(s.part.Reshape(s.part.Elements()), ownPart(s.ranks, s.sum)))
		s.pool.put(s.place, s.sum)
	}
	a.travelled = a.travelled[:0]
	return err
}

// begin begins to collect.
func (k *gather) begin(r *run) error {
	part, err := TensorOf(k.of.part.Value())
	if err != nil {
		return err
	}
	if k.ahead, err = r.c.memory.pool.take(r.Backend, k.to, k.of.shape...); err != nil {
		return err
	}
	k.place = r.Backend
	if err := r.Copy(ownPart(k.of.ranks, k.ahead), part.Reshape(part.Elements())); err != nil {
		return err
	}
	k.transfer, err = k.of.ranks.CollectPartsLater(k.ahead)
	return err
}
