package ring

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// Scratch gives memory of a device for as long as a call lasts, for a tensor with one axis of so
// many elements. Its contents are undefined.
type Scratch func(dtype kernels.DType, elements int) (kernels.Tensor, error)

// Check returns what is wrong with a problem that ranks share, or with the number of rows that each
// has of it. What only the values of cumulative lengths tell may be left out.
func Check(a *kernels.Attention, ranks kernels.Ranks) error {
	whole := *a
	whole.QLens, whole.KVLens = nil, nil
	if err := whole.Validate(); err != nil {
		return err
	}
	rows := a.Q.Shape[2]
	switch {
	case a.Bias.IsSet():
		return errors.New("bias is given, a sequence that ranks share has none")
	case a.Score != nil:
		return errors.New("score is given, a sequence that ranks share has none")
	case a.Mask != nil:
		return errors.New("mask is given, a sequence that ranks share has none: Causal and Window can be had")
	case a.KVLengths != nil:
		return errors.New("kvLengths is given, a sequence that ranks share has as many keys as queries")
	case a.Places != nil:
		return errors.New("places are given, a sequence that ranks share has none")
	case a.K.Shape[2] != rows:
		return fmt.Errorf("k has %d rows, a sequence that ranks share needs q's %d", a.K.Shape[2], rows)
	case rows%2 != 0:
		return fmt.Errorf("q has %d rows, a rank needs an even number of them: an early and a late part", rows)
	}
	if a.QLens == nil && a.KVLens == nil {
		return nil
	}
	if !slices.Equal(a.QLens, a.KVLens) {
		return fmt.Errorf("kvLens is %v, a sequence that ranks share needs qLens's %v", a.KVLens, a.QLens)
	}
	all := *a
	all.Q.Shape = []int{a.Q.Shape[0], a.Q.Shape[1], rows * ranks.Size(), a.Q.Shape[3]}
	all.K.Shape = []int{a.K.Shape[0], a.K.Shape[1], rows * ranks.Size(), a.K.Shape[3]}
	all.V.Shape = []int{a.V.Shape[0], a.V.Shape[1], rows * ranks.Size(), a.V.Shape[3]}
	return all.Validate()
}

// runner is one call on one rank.
type runner struct {
	kernels.Backend
	*kernels.Attention
	*problem
	ranks   kernels.Ranks
	scratch Scratch
	wide    kernels.DType
	pending func() error // short work that comes before the next long kernel; see flush
}

func newRunner(b kernels.Backend, ranks kernels.Ranks, a *kernels.Attention, scratch Scratch) (*runner, error) {
	if err := Check(a, ranks); err != nil {
		return nil, err
	}
	return &runner{Backend: b, Attention: a, problem: newProblem(ranks.Size(), a), ranks: ranks, scratch: scratch, wide: a.Q.DType.Wide()}, nil
}

// rank is another rank, so many further on.
func (r *runner) rank(further int) int {
	return (r.ranks.Rank() + further + r.size) % r.size
}

// local is a problem of this rank's rows and nothing else.
func (r *runner) local() *kernels.Attention {
	a := *r.Attention
	a.QLens, a.KVLens = nil, nil
	return &a
}

// own is what this rank's rows see of its own keys.
func (r *runner) own() []block { return r.blocks(r.ranks.Rank(), r.ranks.Rank()) }

// flush does what was put off. Attention's kernels take all of a GPU, so that a transfer that
// begins beside them waits until they are done. What is put off runs between the two, and gives the
// transfer the time to be first.
func (r *runner) flush() error {
	if r.pending == nil {
		return nil
	}
	work := r.pending
	r.pending = nil
	return work()
}

// Forward computes the outputs of this rank's rows, those of AttentionForward over the whole
// sequence; it needs room for LSE. The cumulative lengths of packed sequences are those of the
// whole.
func Forward(b kernels.Backend, ranks kernels.Ranks, a *kernels.Attention, out kernels.AttentionOutputs, scratch Scratch) error {
	r, err := newRunner(b, ranks, a, scratch)
	if err != nil {
		return err
	}
	if err := r.local().CheckForward(out); err != nil {
		return err
	}
	if !out.LSE.IsSet() {
		return errors.New("lse is missing, parts are merged by it")
	}
	sum := out
	if r.wide != a.Q.DType {
		if sum.O, err = r.tensor(r.wide, a.OutputShape()...); err != nil {
			return err
		}
	}
	most := r.most() * a.Q.Shape[0] * a.Q.Shape[1]
	part := kernels.AttentionOutputs{}
	if part.O, err = scratch(a.Q.DType, most*a.V.Shape[3]); err != nil {
		return err
	}
	if part.LSE, err = scratch(r.wide, most); err != nil {
		return err
	}
	attend := func(list []block, k, v kernels.Tensor) error {
		for _, b := range list {
			p := r.part(b, k, v)
			o := kernels.AttentionOutputs{O: shaped(part.O, p.OutputShape()...), LSE: shaped(part.LSE, p.Q.Shape[:3]...)}
			if err := r.flush(); err != nil {
				return err
			}
			if err := r.AttentionForward(p, o); err != nil {
				return err
			}
			r.pending = func() error {
				return r.AttentionMerge(kernels.AttentionOutputs{O: rowsOf(sum.O, b.q), LSE: rowsOf(sum.LSE, b.q)}, o)
			}
		}
		return nil
	}
	keys, err := r.newKeys()
	if err != nil {
		return err
	}
	if err := r.begin(sum); err != nil {
		return err
	}
	if err := attend(r.own(), a.K, a.V); err != nil {
		return err
	}
	for keys.more() {
		list, k, v, err := keys.arrived()
		if err != nil {
			return err
		}
		if err := attend(list, k, v); err != nil {
			return err
		}
	}
	if err := r.flush(); err != nil || r.wide == a.Q.DType {
		return err
	}
	return r.Copy(out.O, sum.O)
}

// begin makes the outputs those of rows that see nothing.
func (r *runner) begin(sum kernels.AttentionOutputs) error {
	if err := r.Fill(sum.O, 0); err != nil {
		return err
	}
	if !r.Sinks.IsSet() {
		return r.Fill(sum.LSE, math.Inf(-1))
	}
	sinks := kernels.Tensor{Data: r.Sinks.Data, DType: r.Sinks.DType, Owner: r.Sinks.Owner,
		Shape: sum.LSE.Shape, Strides: []int{0, r.Sinks.Strides[0], 0}}
	if err := r.Copy(sum.LSE, sinks); err != nil || r.QLens == nil {
		return err
	}
	held, err := Held(r.ranks.Rank(), r.size, r.rows*r.size)
	if err != nil {
		return err
	}
	at := 0
	for _, piece := range held { // rows behind the last sequence have no sink
		used := min(piece.Count, max(0, r.QLens[len(r.QLens)-1]-piece.From))
		if err := r.Fill(sum.LSE.Slice(2, at+used, at+piece.Count), math.Inf(-1)); err != nil {
			return err
		}
		at += piece.Count
	}
	return nil
}

// Backward computes the gradients of this rank's rows, from its rows of dO, the logsumexp that
// Forward left and δ, as AttentionBackward does of the whole sequence. The gradient of sinks is
// that of this rank's rows.
func Backward(b kernels.Backend, ranks kernels.Ranks, a *kernels.Attention, g kernels.AttentionGradients, scratch Scratch) error {
	r, err := newRunner(b, ranks, a, scratch)
	if err != nil {
		return err
	}
	if err := r.local().CheckBackward(g); err != nil {
		return err
	}
	if g.DSinks.IsSet() {
		if err := r.AttentionBackward(r.local(), kernels.AttentionGradients{DO: g.DO, LSE: g.LSE, Delta: g.Delta, DSinks: g.DSinks}); err != nil {
			return err
		}
	}
	if !g.DQ.IsSet() {
		return nil
	}
	return r.backward(g)
}

// backward computes the gradients of queries, keys and values.
func (r *runner) backward(g kernels.AttentionGradients) error {
	sums := [3]kernels.Tensor{g.DQ, g.DK, g.DV}
	var err error
	if r.wide != r.Q.DType {
		for i, d := range sums {
			if sums[i], err = r.tensor(r.wide, d.Shape...); err != nil {
				return err
			}
		}
	}
	parts, err := r.newParts(g)
	if err != nil {
		return err
	}
	keys, err := r.newKeys()
	if err != nil {
		return err
	}
	for _, d := range sums {
		if err := r.Fill(d, 0); err != nil {
			return err
		}
	}
	own := r.own()
	first := min(1, len(own)) // the rest is computed while the last gradients travel
	if err := parts.compute(own[:first], r.K, r.V, sums); err != nil {
		return err
	}
	travel := &gradients{runner: r, sums: sums}
	for keys.more() {
		step := keys.steps[0]
		list, k, v, err := keys.arrived()
		if err != nil {
			return err
		}
		sent, err := travel.next(step)
		if err != nil {
			return err
		}
		if err := parts.compute(list, k, v, [3]kernels.Tensor{sums[0], sent[0], sent[1]}); err != nil {
			return err
		}
		if err := travel.start(step); err != nil {
			return err
		}
	}
	if err := parts.compute(own[first:], r.K, r.V, sums); err != nil {
		return err
	}
	if err := r.flush(); err != nil {
		return err
	}
	if err := travel.join(); err != nil || r.wide == r.Q.DType {
		return err
	}
	for i, d := range [3]kernels.Tensor{g.DQ, g.DK, g.DV} {
		if err := r.Copy(d, sums[i]); err != nil {
			return err
		}
	}
	return nil
}

// parts computes the gradients of blocks.
type parts struct {
	*runner
	g          kernels.AttentionGradients
	d          [3]kernels.Tensor // memory for those of a block's q, k and v
	lse, delta kernels.Tensor
}

func (r *runner) newParts(g kernels.AttentionGradients) (*parts, error) {
	p, most, batch := &parts{runner: r, g: g}, r.most(), r.Q.Shape[0]
	var err error
	for _, m := range []struct {
		to       *kernels.Tensor
		dtype    kernels.DType
		elements int
	}{
		{&p.d[0], r.Q.DType, most * batch * r.Q.Shape[1] * r.Q.Shape[3]},
		{&p.d[1], r.Q.DType, r.rows * r.K.Shape[0] * r.K.Shape[1] * r.K.Shape[3]},
		{&p.d[2], r.Q.DType, r.rows * r.V.Shape[0] * r.V.Shape[1] * r.V.Shape[3]},
		{&p.lse, r.wide, most * batch * r.Q.Shape[1]},
		{&p.delta, r.wide, most * batch * r.Q.Shape[1]},
	} {
		if *m.to, err = r.scratch(m.dtype, m.elements); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// compute adds the gradients of blocks to sums.
func (p *parts) compute(list []block, k, v kernels.Tensor, sums [3]kernels.Tensor) error {
	for _, b := range list {
		problem := p.part(b, k, v)
		shape := problem.Q.Shape[:3]
		g := kernels.AttentionGradients{
			DO: rowsOf(p.g.DO, b.q), LSE: shaped(p.lse, shape...), Delta: shaped(p.delta, shape...),
			DQ: shaped(p.d[0], problem.Q.Shape...), DK: shaped(p.d[1], problem.K.Shape...), DV: shaped(p.d[2], problem.V.Shape...),
		}
		if err := p.flush(); err != nil {
			return err
		}
		for _, c := range [2][2]kernels.Tensor{{g.LSE, p.g.LSE}, {g.Delta, p.g.Delta}} {
			if err := p.Copy(c[0], rowsOf(c[1], b.q)); err != nil {
				return err
			}
		}
		if err := p.AttentionBackward(problem, g); err != nil {
			return err
		}
		for i, d := range []kernels.Tensor{g.DK, g.DV} {
			sum := rowsOf(sums[1+i], b.k)
			if err := p.Add(sum, d, sum); err != nil {
				return err
			}
		}
		p.pending = func() error {
			sum := rowsOf(sums[0], b.q)
			return p.Add(sum, g.DQ, sum)
		}
	}
	return nil
}

// part is the problem of a block, whose keys are in k and v.
func (r *runner) part(b block, k, v kernels.Tensor) *kernels.Attention {
	a := *r.Attention
	a.Q, a.K, a.V = rowsOf(a.Q, b.q), rowsOf(k, b.k), rowsOf(v, b.k)
	a.Sinks = kernels.Tensor{} // the sums begin with them
	a.QLens, a.KVLens, a.Places = b.lens, b.lens, b.places
	a.Causal, a.Window = kernels.NotCausal, nil
	off := b.k.Count - b.q.Count
	left, right := !b.seesFirst(), b.hi < b.k.Count
	if b.lens != nil {
		off, left, right = 0, b.lo > -far/2, b.hi < far/2
	}
	switch {
	case left && right:
		a.Window = &kernels.Window{Left: b.hi - 1 - b.lo, Shift: b.hi - 1 - off}
	case left:
		a.Window = &kernels.Window{Right: -1, Shift: b.lo - off}
	case right && b.hi == off+1:
		a.Causal = kernels.CausalBottomRight
	case right:
		a.Window = &kernels.Window{Left: -1, Shift: b.hi - 1 - off}
	}
	return &a
}

// most is as many rows as any block has queries.
func (r *runner) most() int {
	most := 1
	for further := range r.size {
		for _, b := range r.blocks(r.ranks.Rank(), r.rank(further)) {
			most = max(most, b.q.Count)
		}
	}
	return most
}

// tensor is a row-major tensor of scratch memory.
func (r *runner) tensor(dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	t, err := r.scratch(dtype, kernels.Contiguous(nil, dtype, shape...).Elements())
	return shaped(t, shape...), err
}

// shaped is the beginning of memory as a row-major tensor.
func shaped(memory kernels.Tensor, shape ...int) kernels.Tensor { return memory.Reshape(shape...) }

// rowsOf is some rows of a tensor of (batch, heads, length, ...).
func rowsOf(t kernels.Tensor, r Rows) kernels.Tensor { return t.Slice(2, r.From, r.From+r.Count) }
