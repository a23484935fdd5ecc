package scoretest

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// Report says what comparing a case was worth.
type Report struct {
	Hidden float64 // the share of pairs for which rounding decides something
	// Bounds are the largest bound of an error in each output, as a share of the output's largest
	// element.
	Bounds map[string]float64
}

// Check lets a backend compute the case in an arithmetic, and compares all that it computes.
func (c *Case) Check(b kernels.AttentionKernels, m Arithmetic) (r Report, err error) {
	f := newField(c, m)
	r.Hidden = f.hide()
	want := f.expect()
	p, err := f.problem()
	if err != nil {
		return r, fmt.Errorf("%s: %w\n%v", m.Name, err, c)
	}
	if err := p.run(b); err != nil {
		return r, fmt.Errorf("%s: %w\n%v", m.Name, err, c)
	}
	r.Bounds = map[string]float64{}
	var failures []error
	compare := func(name string, got kernels.Tensor, want []real) {
		largest, bound := 0.0, 0.0
		var worst error
		excess := 1.0
		for n, x := range load(got) {
			w := want[n]
			if math.IsInf(w.x, -1) {
				if x != w.x {
					worst, excess = fmt.Errorf("%s[%d] is %v, it needs to be −∞", name, n, x), math.Inf(1)
				}
				continue
			}
			largest, bound = max(largest, math.Abs(w.x)), max(bound, w.e)
			if e := math.Abs(x - w.x); !(e <= w.e) && !(e/w.e <= excess) {
				worst, excess = fmt.Errorf("%s[%d] of shape %v is %.9g instead of %.9g: error %.3g, bound %.3g", name, n, got.Shape, x, w.x, e, w.e), e/w.e
			}
		}
		if worst != nil {
			failures = append(failures, worst)
		}
		if largest > 0 {
			r.Bounds[name] = bound / largest
		}
	}
	compare("o", p.o, want.o)
	compare("lse", p.lse, want.lse)
	compare("dq", p.dQ, want.dQ)
	compare("dk", p.dK, want.dK)
	compare("dv", p.dV, want.dV)
	for n, d := range p.dTables {
		if d.IsSet() {
			compare(fmt.Sprint("dt", p.numbers[n]), d, want.dTables[p.numbers[n]])
		}
	}
	if failures != nil {
		return r, fmt.Errorf("%s: %w\n%.1f%% of the pairs are hidden by a table\n%v", m.Name, errors.Join(failures...), 100*r.Hidden, c)
	}
	return r, nil
}

// problem is a case's attention, with room for its results.
type problem struct {
	kernels.Attention
	dO, dLSE                  kernels.Tensor
	o, lse, delta, dQ, dK, dV kernels.Tensor
	dTables                   []kernels.Tensor
	numbers                   []int // of each table, its number in the case
}

// problem makes the tensors of the case.
func (f *field) problem() (*problem, error) {
	program := *f.Program
	if len(f.hidden) > 0 {
		f.addHiding(&program)
	}
	s, m, numbers, err := program.Compile()
	if err != nil {
		return nil, err
	}
	c := f.Case
	input := func(list []float64, shape ...int) kernels.Tensor { return store(f.DType, list, shape...) }
	empty := func(dtype kernels.DType, shape ...int) kernels.Tensor {
		return store(dtype, make([]float64, kernels.Contiguous(nil, dtype, shape...).Elements()), shape...)
	}
	p := &problem{numbers: numbers}
	p.Attention = kernels.Attention{Q: input(f.q, c.Batch, c.Heads, c.Sq, c.D), K: input(f.k, c.Batch, c.KeyHeads, c.Sk, c.D),
		V:       input(f.v, c.Batch, c.KeyHeads, c.Sk, c.Dv),
		Lengths: kernels.Lengths{QLens: c.QLens, KVLens: c.KVLens}, Program: kernels.Program{Score: s, Mask: m}}
	if c.Causal {
		p.Causal = kernels.CausalBottomRight
	}
	wide := f.DType.Wide()
	p.dO = input(f.dO, c.Batch, c.Heads, c.Sq, c.Dv)
	if c.DLSE {
		p.dLSE = store(wide, f.dLSE, c.Batch, c.Heads, c.Sq)
	}
	p.o, p.lse, p.delta = empty(f.DType, c.Batch, c.Heads, c.Sq, c.Dv), empty(wide, c.Batch, c.Heads, c.Sq), empty(wide, c.Batch, c.Heads, c.Sq)
	p.dQ, p.dK, p.dV = empty(f.DType, p.Q.Shape...), empty(f.DType, p.K.Shape...), empty(f.DType, p.V.Shape...)
	for _, n := range numbers {
		t := program.Tables[n]
		dtype, d := f.DType, kernels.Tensor{}
		switch {
		case t.Type == score.Int && f.Wide:
			dtype = kernels.I64
		case t.Type == score.Int:
			dtype = kernels.I32
		case f.Wide:
			dtype = wide
		}
		if t.Type == score.Float {
			d = empty(dtype, t.Shape...)
		}
		p.Tables, p.dTables = append(p.Tables, store(dtype, t.Values, t.Shape...)), append(p.dTables, d)
	}
	return p, nil
}

// addHiding adds a table of the hidden pairs to a program's mask.
func (f *field) addHiding(p *Program) {
	sequences, queries, keys := f.extents()
	t := Table{Type: score.Int, Shape: []int{sequences, f.Heads, queries, keys}, Values: make([]float64, sequences*f.Heads*queries*keys)}
	for at := range f.hidden {
		t.Values[((at.sequence*f.Heads+at.head)*queries+at.i)*keys+at.j] = 1
	}
	p.Tables = append(p.Tables[:len(p.Tables):len(p.Tables)], t)
	p.Nodes = p.Nodes[:len(p.Nodes):len(p.Nodes)]
	add := func(n Node) int {
		p.Nodes = append(p.Nodes, n)
		return len(p.Nodes) - 1
	}
	var index []int
	for _, op := range []Op{Batch, Head, Query, Key} {
		index = append(index, add(Node{Op: op, Type: score.Int}))
	}
	found := add(Node{Op: Lookup, Type: score.Int, Table: len(p.Tables) - 1, Args: index})
	shown := add(Node{Op: Equal, Type: score.Bool, Args: []int{found, add(Node{Op: Number, Type: score.Int})}})
	if p.Mask != None {
		shown = add(Node{Op: And, Type: score.Bool, Args: []int{p.Mask, shown}})
	}
	p.Mask = shown
}

// run lets a backend compute everything. A panic is an error.
func (p *problem) run(b kernels.AttentionKernels) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it panics: %v\n%s", r, debug.Stack())
		}
	}()
	if err := b.AttentionForward(&p.Attention, kernels.AttentionOutputs{O: p.o, LSE: p.lse}); err != nil {
		return fmt.Errorf("forward: %w", err)
	}
	if err := b.AttentionDelta(&p.Attention, p.o, p.dO, p.dLSE, p.delta); err != nil {
		return fmt.Errorf("delta: %w", err)
	}
	g := kernels.AttentionGradients{DO: p.dO, LSE: p.lse, Delta: p.delta, DQ: p.dQ, DK: p.dK, DV: p.dV, DTables: p.dTables}
	if err := b.AttentionBackward(&p.Attention, g); err != nil {
		return fmt.Errorf("backward: %w", err)
	}
	return nil
}
