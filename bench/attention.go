package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// attentionShape is one problem of the grid.
type attentionShape struct {
	batch, heads, keyHeads, length, size int
	causal                               bool
	window                               int // keys before the query, 0 for all
}

// mask names what the shape leaves visible, and how heads share keys.
func (a attentionShape) mask() string {
	switch {
	case a.window > 0:
		return fmt.Sprintf("causal, window %d", a.window)
	case a.keyHeads < a.heads:
		return "causal, grouped heads"
	case a.causal:
		return "causal"
	}
	return "full"
}

func (a attentionShape) setup() string {
	s := fmt.Sprintf("B=%d H=%d", a.batch, a.heads)
	if a.keyHeads < a.heads {
		s += fmt.Sprintf(":%d", a.keyHeads)
	}
	return s
}

// attentionGrid is the grid of the FlashAttention papers, made smaller for a CPU: 8,192 tokens of
// width 256, so that every length has as many numbers; the longest has half the heads instead of
// half a sequence.
func attentionGrid(quick bool) []attentionShape {
	const width = 256
	lengths, tokens := []int{512, 1024, 2048, 4096, 8192, 16384}, 8192
	if quick {
		lengths, tokens = lengths[:3], 2048
	}
	var all []attentionShape
	for _, size := range []int{64, 128} {
		for _, kind := range []attentionShape{{}, {causal: true}, {causal: true, window: 256}, {causal: true, keyHeads: 1}} {
			for _, length := range lengths {
				a := kind
				a.batch, a.heads, a.length, a.size = max(1, tokens/length), width/size, length, size
				if length > tokens {
					a.heads = a.heads * tokens / length
				}
				if a.keyHeads == 0 {
					a.keyHeads = a.heads
				} else if a.heads == 1 {
					continue
				}
				all = append(all, a)
			}
		}
	}
	return all
}

// longestOnFewThreads bounds the lengths that are measured on fewer threads than the most.
const longestOnFewThreads = 2048

func attention(s *session) error {
	s.section("attention", "Attention", "float32, forward, and backward with the delta pre-pass. 8,192 tokens of width 256, as 4 heads of 64 or 2 of 128; at "+
		"16,384 tokens with half the heads; with -quick, 2,048 tokens. FLOPs are those of the products over visible pairs: 4·D a pair forward, 10·D backward. Masked pairs do not count.")
	for _, a := range attentionGrid(s.quick) {
		if err := s.attention(a); err != nil {
			return err
		}
	}
	return nil
}

// attention measures one problem, forward and backward.
func (s *session) attention(a attentionShape) error {
	for _, threads := range s.threads {
		most := threads == s.threads[len(s.threads)-1]
		cases := a.cases(threads)
		if !most && a.length > longestOnFewThreads || !s.wants(cases[0]) && !s.wants(cases[1]) {
			continue
		}
		problem := a.problem()
		backend := &cpu.Backend{Threads: threads}
		passes := [2]func() error{
			func() error { return backend.AttentionForward(&problem.Attention, problem.out) },
			func() error {
				if err := backend.AttentionDelta(&problem.Attention, problem.out.O, problem.g.DO, kernels.Tensor{}, problem.g.Delta); err != nil {
					return err
				}
				return backend.AttentionBackward(&problem.Attention, problem.g)
			},
		}
		// Backward needs what forward saves, and peers are compared with the results of both.
		for _, pass := range passes {
			if err := pass(); err != nil {
				return fmt.Errorf("%s: %w", cases[0].Key(), err)
			}
		}
		var opened []*peerAttention
		for _, p := range s.peerList {
			if !most || a.length > p.longest {
				continue
			}
			o, err := p.attention(a, threads, problem)
			if err != nil {
				s.missing(p.name+", attention, "+a.mask(), err)
				continue
			}
			opened = append(opened, o)
		}
		for i, c := range cases {
			if !s.wants(c) {
				continue
			}
			contenders := []contender{s.ours(passes[i])}
			for _, o := range opened {
				contenders = append(contenders, o.contender(i))
			}
			c.Work = []float64{problem.ForwardFLOPs(), problem.BackwardFLOPs()}[i]
			if err := s.measure(c, contenders...); err != nil {
				return err
			}
		}
		for _, o := range opened {
			o.close()
		}
	}
	return nil
}

// passNames are in the order in which a problem's passes are everywhere here.
var passNames = [2]string{"forward", "backward"}

// cases are the problem's forward and backward pass. Their work is known once there is a problem.
func (a attentionShape) cases(threads int) [2]report.Case {
	var all [2]report.Case
	for i, pass := range passNames {
		all[i] = report.Case{
			Section: "attention", Series: fmt.Sprintf("%s, D=%d, %s", pass, a.size, a.mask()), Name: fmt.Sprintf("S=%d", a.length),
			Setup: a.setup(), Threads: threads, Figure: fmt.Sprintf("attention-%s-d%d", pass, a.size), X: float64(a.length), Unit: "FLOP", Ceiling: fma,
		}
	}
	return all
}

// attentionProblem is all tensors of both passes.
type attentionProblem struct {
	kernels.Attention
	out kernels.AttentionOutputs
	g   kernels.AttentionGradients
}

func (a attentionShape) problem() *attentionProblem {
	r := newRandom()
	queries := func() kernels.Tensor { return r.tensor(a.batch, a.heads, a.length, a.size) }
	keys := func() kernels.Tensor { return r.tensor(a.batch, a.keyHeads, a.length, a.size) }
	rows := func() kernels.Tensor { return r.tensor(a.batch, a.heads, a.length) }
	p := &attentionProblem{Attention: kernels.Attention{Q: queries(), K: keys(), V: keys()}}
	if a.causal {
		p.Causal = kernels.CausalBottomRight
	}
	if a.window > 0 {
		p.Window = &kernels.Window{Left: a.window, Right: -1}
	}
	p.out = kernels.AttentionOutputs{O: queries(), LSE: rows()}
	p.g = kernels.AttentionGradients{DO: queries(), LSE: p.out.LSE, Delta: rows(), DQ: queries(), DK: keys(), DV: keys()}
	return p
}
