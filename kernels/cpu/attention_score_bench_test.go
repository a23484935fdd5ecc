package cpu_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/score"
)

// BenchmarkAttentionScores measures scores and masks that are written in the language beside the
// options that they stand for, or beside plain attention, on one thread and in turns: ratio is the
// median of how many times the other's rate a visible pair they reach, and times of how many times
// its speed.
func BenchmarkAttentionScores(b *testing.B) {
	const length, size = 4096, 64
	documents := &score.Table{Name: "documents", Type: score.Int, Shape: []int{length}}
	ids := make([]int32, length)
	random := rand.New(rand.NewPCG(5, 6))
	for i := 1; i < length; i++ {
		if ids[i] = ids[i-1]; random.IntN(256) == 0 {
			ids[i]++
		}
	}
	blocks := &score.Table{Name: "blocks", Type: score.Int, Shape: []int{length / 64, length / 64}}
	shown := make([]int32, (length/64)*(length/64))
	for i := range shown {
		if random.IntN(4) == 0 {
			shown[i] = 1
		}
	}
	bias := &score.Table{Name: "bias", Shape: []int{2*length - 1}}
	for _, c := range []struct {
		name   string
		score  func(score.Pair) score.Expr
		mask   func(score.Pair) score.Cond
		tables []kernels.Tensor
		other  func(*kernels.Attention)
		change func() // between two calls
	}{
		{name: "causal", mask: score.Causal, other: causal},
		{name: "documents", tables: []kernels.Tensor{kernels.Of(ids, length)}, mask: func(p score.Pair) score.Cond {
			return score.Lookup(documents, p.Query).Equal(score.Lookup(documents, p.Key))
		}},
		{name: "slopes", score: score.ALiBi(0.5), other: func(a *kernels.Attention) { a.ALiBi = []float64{0.5} }},
		{name: "cap", score: score.SoftCap(30), other: func(a *kernels.Attention) { a.SoftCap = 30 }},
		{name: "every fourth block", mask: func(p score.Pair) score.Cond {
			return p.Key.Div(64).Rem(4).Equal(0).Or(p.Key.GreaterEqual(p.KeyLength.Sub(256)))
		}},
		{name: "listed blocks", tables: []kernels.Tensor{kernels.Of(shown, length/64, length/64)}, mask: func(p score.Pair) score.Cond {
			return score.Lookup(blocks, p.Query.Div(64), p.Key.Div(64)).Equal(1)
		}, change: func() { shown[0], shown[1] = shown[1], 1-shown[0] }},
		{name: "prefix", mask: score.Prefix(512), other: causal},
		{name: "relative bias", tables: []kernels.Tensor{kernels.Of(make([]float32, 2*length-1), 2*length-1)}, score: func(p score.Pair) score.Expr {
			return p.Score.Add(score.Lookup(bias, p.Query.Sub(p.Key).Add(length-1)))
		}},
	} {
		plain := newScored(length, size)
		own := *plain
		if c.other != nil {
			c.other(&plain.Attention)
		}
		var err error
		if c.score != nil {
			if own.Score, err = score.NewScore(c.score); err != nil {
				b.Fatal(err)
			}
		}
		if c.mask != nil {
			if own.Mask, err = score.NewMask(c.mask); err != nil {
				b.Fatal(err)
			}
		}
		own.Tables = c.tables
		pairs := float64(own.visible(b)) / float64(plain.visible(b))
		for _, backward := range []bool{false, true} {
			name := c.name + "/forward"
			if backward {
				name = c.name + "/backward"
			}
			b.Run(name, func(b *testing.B) {
				var ratios []float64
				for b.Loop() {
					if c.change != nil {
						c.change()
					}
					other, ours := plain.seconds(b, backward), own.seconds(b, backward)
					ratios = append(ratios, other/ours)
				}
				slices.Sort(ratios)
				median := ratios[len(ratios)/2]
				b.ReportMetric(median*pairs, "ratio")
				b.ReportMetric(median, "times")
			})
		}
	}
}

// scoredProblem is a problem of one head.
type scoredProblem struct {
	kernels.Attention
	out kernels.AttentionOutputs
	g   kernels.AttentionGradients
}

func newScored(length, size int) *scoredProblem {
	random := rand.New(rand.NewPCG(1, 2))
	tensor := func(shape ...int) kernels.Tensor {
		data := make([]float32, kernels.Contiguous(nil, kernels.F32, shape...).Elements())
		for i := range data {
			data[i] = float32(random.NormFloat64())
		}
		return kernels.Of(data, shape...)
	}
	p := &scoredProblem{}
	p.Q, p.K, p.V = tensor(1, 1, length, size), tensor(1, 1, length, size), tensor(1, 1, length, size)
	p.out = kernels.AttentionOutputs{O: tensor(1, 1, length, size), LSE: tensor(1, 1, length)}
	p.g = kernels.AttentionGradients{DO: tensor(1, 1, length, size), LSE: p.out.LSE, Delta: tensor(1, 1, length),
		DQ: tensor(1, 1, length, size), DK: tensor(1, 1, length, size), DV: tensor(1, 1, length, size)}
	return p
}

// visible counts the pairs that the mask shows.
func (p *scoredProblem) visible(b *testing.B) int {
	if p.Mask == nil {
		return p.VisiblePairs()
	}
	values, err := kernels.TableValues[float64](&p.Attention)
	if err != nil {
		b.Fatal(err)
	}
	e, s, n := score.NewEvaluator[float64](p.Mask.Whole), p.Sequences()[0], 0
	for q := range s.Sq {
		e.Run(score.Line[float64]{Where: p.Where(s, 0), N: s.Sk, Query: q, KeyStep: 1, Tables: values})
		for _, visible := range e.Bools(0) {
			if visible {
				n++
			}
		}
	}
	return n
}

func (p *scoredProblem) seconds(b *testing.B, backward bool) float64 {
	backend := &cpu.Backend{Threads: 1}
	start := time.Now()
	err := backend.AttentionForward(&p.Attention, p.out)
	if backward && err == nil {
		if err = backend.AttentionDelta(&p.Attention, p.out.O, p.g.DO, kernels.Tensor{}, p.g.Delta); err == nil {
			start = time.Now()
			err = backend.AttentionBackward(&p.Attention, p.g)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	return time.Since(start).Seconds()
}

// BenchmarkAttentionLongDocuments is 128k tokens of documents of 1024 on all threads, with what a
// call allocates after the first.
func BenchmarkAttentionLongDocuments(b *testing.B) {
	const length = 1 << 17
	documents := &score.Table{Name: "documents", Type: score.Int, Shape: []int{length}}
	ids := make([]int32, length)
	for i := range ids {
		ids[i] = int32(i / 1024)
	}
	p := newScored(length, 64)
	var err error
	if p.Mask, err = score.NewMask(func(p score.Pair) score.Cond {
		return score.Causal(p).And(score.Lookup(documents, p.Query).Equal(score.Lookup(documents, p.Key)))
	}); err != nil {
		b.Fatal(err)
	}
	p.Tables = []kernels.Tensor{kernels.Of(ids, length)}
	for _, backward := range []bool{false, true} {
		b.Run(map[bool]string{false: "forward", true: "backward"}[backward], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.seconds(b, backward)
			}
		})
	}
}
