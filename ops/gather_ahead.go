package ops

import (
	"errors"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// This file moves what ranks share beside an attention, whose kernels leave room for transfers: the
// weights that the plan has gathered there, and the gradients that were computed since the
// attention before, where someone knows that their sums come later.

// DeferSums lets the sums of the gradients of parts ([Whole]) over the ranks be made some time
// after a run has computed them, in runs for which when says so. Behind such a run the gradients
// are known once [SettleSums] was called. It needs to be called after [gorgonia.Grad] and before
// the first run. The gradients of what several ops read are not put off.
func DeferSums(parts gorgonia.Nodes, when func() bool) {
	for _, n := range parts {
		if n == nil || n.Deriv() == nil {
			continue
		}
		if g, _ := gradientsBehind(n.Deriv()); g != nil && g.c.is.gathers != nil {
			g.later = when
		}
	}
}

// SettleSums makes the sums that were put off in a run of a graph the gradients.
func SettleSums(g *gorgonia.ExprGraph) error { return stateOf(g).ahead.settle() }

// ahead is what moves ahead of the steps that need it, and behind those that computed it.
type ahead struct {
	begun            map[uint64]*transfer // by the id of the gather
	asked, travelled []*deferredSum       // since the attention that ran last, and beside it
}

// transfer is a whole that is being collected.
type transfer struct {
	kernels.Transfer
	whole kernels.Tensor
	place kernels.Backend
}

// attend is called before a step that leaves room for transfers.
func (r *run) attend() error {
	if !r.c.is.leavesRoom || r.step == nil || !r.shares() {
		return nil
	}
	a := &r.c.state.ahead
	if err := a.settle(); err != nil {
		return err
	}
	a.travelled, a.asked = a.asked, nil
	if r.c.state.walk.astray {
		return nil
	}
	for _, s := range r.step.beside {
		t, err := s.c.is.gathers.begin(r)
		if err != nil {
			return err
		}
		if a.begun == nil {
			a.begun = map[uint64]*transfer{}
		}
		a.begun[s.c.id] = t
	}
	return nil
}

// begin begins to collect.
func (k *gather) begin(r *run) (*transfer, error) {
	part, err := TensorOf(k.of.part.Value())
	if err != nil {
		return nil, err
	}
	t := &transfer{place: r.Backend}
	if t.whole, err = r.c.state.pool.take(r.Backend, k.to, k.of.shape...); err != nil {
		return nil, err
	}
	if err := r.Copy(ownPart(k.of.ranks, t.whole), part.Reshape(part.Elements())); err != nil {
		return nil, err
	}
	t.Transfer, err = k.of.ranks.CollectPartsLater(t.whole)
	return t, err
}

// arrived is what brings the output of a step, nil where nothing does.
func (a *ahead) arrived(id uint64) *transfer {
	t := a.begun[id]
	delete(a.begun, id)
	return t
}

// drop gives back what was collected and not read.
func (a *ahead) drop(p *pool) (err error) {
	for _, t := range a.begun {
		err = errors.Join(err, t.Join())
		p.put(t.place, t.whole)
	}
	*a = ahead{}
	return err
}

// deferredSum is a gradient of a whole that is being summed, and where this rank's part of the sum
// belongs.
type deferredSum struct {
	sum, part kernels.Tensor
	ranks     kernels.Holders
	place     kernels.Backend
	pool      *pool
}

// sumsLater reports whether a sum over ranks may be made beside another attention, which follows.
func (r *run) sumsLater() bool {
	g := r.gradients
	return g != nil && g.later != nil && g.later() && len(r.step.reads) == 1 && r.step.at < r.c.plan.room
}

// sum begins a sum.
func (a *ahead) sum(s *deferredSum) error {
	a.asked = append(a.asked, s)
	return s.ranks.SumPartsLater(s.sum)
}

// settle makes the sums that travelled beside an attention the gradients.
func (a *ahead) settle() (err error) {
	for _, s := range a.travelled {
		err = errors.Join(err, s.place.Copy(s.part.Reshape(s.part.Elements()), ownPart(s.ranks, s.sum)))
		s.pool.put(s.place, s.sum)
	}
	a.travelled = nil
	return err
}
