package cpu_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/kernels/score"
)

// secondProblem is a call of AttentionSecond, and the same for the reference.
type secondProblem struct {
	*kernels.Attention
	call kernels.AttentionSecond
	in   reference.AttentionSecondInputs
}

func newSecondProblem[T kernels.Float](c attentiontest.Case, partly bool) *secondProblem {
	p := attentiontest.New[T](c)
	s := &secondProblem{Attention: &p.Attention}
	random := rand.New(rand.NewPCG(c.Seed, 7))
	draw := func(shape []int) (kernels.Tensor, []float64) {
		t := kernels.Of(make([]T, kernels.Contiguous(nil, kernels.F64, shape...).Elements()), shape...)
		list := make([]float64, t.Elements())
		for i := range list {
			x := T(random.NormFloat64())
			kernels.Host[T](t)[i], list[i] = x, float64(x)
		}
		return t, list
	}
	like := func(t kernels.Tensor) kernels.Tensor {
		return kernels.Of(make([]T, t.Elements()), t.Shape...)
	}
	s.call.DO, s.in.DO = draw(p.OutputShape())
	s.call.DQ, s.call.DK, s.call.DV, s.call.DDO = like(p.Q), like(p.K), like(p.V), like(s.call.DO)
	s.call.UQ, s.in.UQ = draw(p.Q.Shape)
	s.call.DDLSE = like(kernels.Contiguous(nil, p.Q.DType, p.Q.Shape[:3]...))
	if p.Bias.IsSet() {
		s.call.DBias = like(p.Bias)
	}
	if p.Sinks.IsSet() {
		s.call.DSinks = like(p.Sinks)
	}
	if partly {
		return s
	}
	s.call.DLSE, s.in.DLSE = draw(p.Q.Shape[:3])
	s.call.UK, s.in.UK = draw(p.K.Shape)
	s.call.UV, s.in.UV = draw(p.V.Shape)
	if p.Bias.IsSet() {
		s.call.UBias, s.in.UBias = draw(p.Bias.Shape)
	}
	if p.Sinks.IsSet() {
		s.call.USinks, s.in.USinks = draw(p.Sinks.Shape)
	}
	return s
}

// compare compares what was computed with the reference, relative to the largest element.
func compareSecond[T kernels.Float](t *testing.T, name any, s *secondProblem, bound float64) {
	t.Helper()
	want := reference.AttentionSecond(s.Attention, s.in)
	for _, c := range []struct {
		name string
		got  kernels.Tensor
		want []float64
	}{{"dq", s.call.DQ, want.DQ}, {"dk", s.call.DK, want.DK}, {"dv", s.call.DV, want.DV}, {"ddO", s.call.DDO, want.DDO},
		{"ddLSE", s.call.DDLSE, want.DDLSE}, {"dBias", s.call.DBias, want.DBias}, {"dSinks", s.call.DSinks, want.DSinks}} {
		if !c.got.IsSet() {
			continue
		}
		largest := 0.1
		for _, x := range c.want {
			if size := math.Abs(x); size > largest {
				largest = size
			}
		}
		for i, x := range kernels.Host[T](c.got) {
			if got, want := float64(x), c.want[i]; !(math.Abs(got-want) <= bound*largest) && !(got != got && want != want) {
				t.Fatalf("%v: %s[%d] is %v instead of %v; the largest element is %.3g", name, c.name, i, got, want, largest)
			}
		}
	}
}

func secondSets() [][]attentiontest.Option {
	waves := attentiontest.ScoreOf("waves", func(p score.Pair) score.Expr {
		return p.Score.Mul(0.7).Sin().Add(p.Score.Mul(p.Query.Sub(p.Key).Abs().Float()).Mul(0.01))
	})
	return append(attentiontest.OptionSets(), []attentiontest.Option{attentiontest.RowBiasOver("BQ"), attentiontest.Sinks},
		[]attentiontest.Option{attentiontest.MaskingBias(0.3)},
		[]attentiontest.Option{waves, attentiontest.BiasOver("HQ"), attentiontest.SoftCap, attentiontest.Sinks, attentiontest.MaskingBias(0.1)},
		[]attentiontest.Option{attentiontest.ScoreOf("affine", func(p score.Pair) score.Expr { return p.Score.Mul(0.5).Add(p.Key.Float().Mul(0.01)) }), attentiontest.Dropout},
		[]attentiontest.Option{attentiontest.MaskOf("dilated", score.Dilated(3)), attentiontest.Causal, attentiontest.Dropout},
		[]attentiontest.Option{attentiontest.MaskOf("prefix", score.Prefix(170)), attentiontest.NegativeScale})
}

// Second derivatives are those of the reference, with every option, in problems of several tiles.
func TestAttentionSecond(t *testing.T) {
	slow.Emulated(t)
	backend := cpu.New()
	for n, options := range secondSets() {
		for kind := range 4 {
			c := attentiontest.Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 101, Sk: 139, D: 9, Dv: 5, Options: options, Seed: uint64(n), Layout: []attentiontest.Layout{attentiontest.BHSD, attentiontest.BSHD, attentiontest.Padded}[n%3]}
			switch kind {
			case 1:
				c.Batch, c.Sq, c.Sk = 1, 140, 150 // empty sequences, and rows behind the last
				c.QLens, c.KVLens = []int{0, 10, 10, 25, 130}, []int{0, 4, 15, 15, 148}
			case 2:
				c.KVLengths, c.SharedKeys = []int{3, 139}, true
			case 3:
				c.Sq, c.Sk, c.Heads = 2, 1, 1
			}
			if testing.Short() && (n+kind)%3 > 0 || slow.Racing() && n%3 > 0 {
				continue
			}
			double := newSecondProblem[float64](c, n%5 == 4)
			if err := backend.AttentionSecond(double.Attention, double.call); err != nil {
				t.Fatalf("%v: %v", c, err)
			}
			compareSecond[float64](t, c, double, 1e-11)
			single := newSecondProblem[float32](c, false)
			if err := backend.AttentionSecond(single.Attention, single.call); err != nil {
				t.Fatalf("%v: %v", c, err)
			}
			compareSecond[float32](t, c, single, 1e-4)
		}
	}
}

// A NaN changes no bit of the rows that do not see it, whatever hides it.
func TestSecondMaskedValuesDoNotSpread(t *testing.T) {
	for _, hides := range []attentiontest.Option{attentiontest.Causal, attentiontest.WindowOf(20, 0), attentiontest.MaskOf("dilated", score.Dilated(3))} {
		c := attentiontest.Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 110, Sk: 110, D: 8, Dv: 8, Options: []attentiontest.Option{hides}, Seed: 1}
		clean, dirty := newSecondProblem[float64](c, false), newSecondProblem[float64](c, false)
		const key = 100
		kernels.Host[float64](dirty.K)[key*8+1] = math.NaN()
		kernels.Host[float64](dirty.call.UV)[key*8+3] = math.Inf(1)
		for _, s := range []*secondProblem{clean, dirty} {
			if err := cpu.New().AttentionSecond(s.Attention, s.call); err != nil {
				t.Fatal(err)
			}
		}
		want := reference.AttentionSecond(clean.Attention, clean.in)
		seen := 0
		for h := range 2 {
			for i := range 110 {
				row := (h*110 + i) * 8
				sees := i >= key
				if hides.Name == "dilated" {
					sees = (i-key)%3 == 0
				}
				for e := range 8 {
					got := kernels.Host[float64](dirty.call.DQ)[row+e]
					if math.IsNaN(got) != sees {
						t.Fatalf("%s: dq of row %d is %v, the row sees the NaN: %v", hides.Name, i, got, sees)
					}
					if !sees && math.Abs(got-want.DQ[row+e]) > 1e-12 {
						t.Fatalf("%s: dq of row %d is %v instead of %v", hides.Name, i, got, want.DQ[row+e])
					}
				}
				if sees {
					seen++
				}
			}
		}
		if seen == 0 || seen == 220 {
			t.Errorf("%s: %d rows see the NaN, the test needs both kinds", hides.Name, seen)
		}
	}
}

// Results have the same bits for any number of threads.
func TestSecondThreads(t *testing.T) {
	c := attentiontest.Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 300, Sk: 520, D: 32, Dv: 32, Options: []attentiontest.Option{attentiontest.Causal, attentiontest.BiasOver("")}, Seed: 3}
	one, four := newSecondProblem[float32](c, false), newSecondProblem[float32](c, false)
	for threads, s := range map[int]*secondProblem{1: one, 4: four} {
		if err := (&cpu.Backend{Threads: threads}).AttentionSecond(s.Attention, s.call); err != nil {
			t.Fatal(err)
		}
	}
	for n, x := range []kernels.Tensor{one.call.DQ, one.call.DK, one.call.DV, one.call.DDO, one.call.DBias} {
		y := []kernels.Tensor{four.call.DQ, four.call.DK, four.call.DV, four.call.DDO, four.call.DBias}[n]
		if !slices.Equal(kernels.Host[float32](x), kernels.Host[float32](y)) {
			t.Errorf("output %d differs between one thread and four", n)
		}
	}
}

// Sixteen bits are computed in float32 and rounded once.
func TestSecondHalf(t *testing.T) {
	c := attentiontest.Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 20, Sk: 30, D: 8, Dv: 8, Options: []attentiontest.Option{attentiontest.Causal}, Seed: 3}
	s := newSecondProblem[float32](c, true)
	half, call := *s.Attention, s.call
	narrow := func(t kernels.Tensor) kernels.Tensor {
		n := kernels.Of(make([]kernels.BFloat16, t.Elements()), t.Shape...)
		kernels.CopyHost(n, t)
		kernels.CopyHost(t, n)
		return n
	}
	for to, from := range map[*kernels.Tensor]kernels.Tensor{&half.Q: s.Q, &half.K: s.K, &half.V: s.V, &call.DO: s.call.DO, &call.UQ: s.call.UQ,
		&call.DQ: s.call.DQ, &call.DK: s.call.DK, &call.DV: s.call.DV, &call.DDO: s.call.DDO} {
		*to = narrow(from)
	}
	for _, err := range []error{cpu.New().AttentionSecond(s.Attention, s.call), cpu.New().AttentionSecond(&half, call)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for n, x := range []kernels.Tensor{s.call.DQ, s.call.DK, s.call.DV, s.call.DDO} {
		got, want := []kernels.Tensor{call.DQ, call.DK, call.DV, call.DDO}[n], narrow(x)
		if !slices.Equal(kernels.Host[kernels.BFloat16](got), kernels.Host[kernels.BFloat16](want)) {
			t.Errorf("output %d is not float32's, rounded", n)
		}
	}
}

func TestSecondErrors(t *testing.T) {
	c := attentiontest.Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 3, Sk: 4, D: 2, Dv: 2, Options: []attentiontest.Option{attentiontest.Plain}}
	for want, change := range map[string]func(s *secondProblem){
		"dO is missing": func(s *secondProblem) { s.call.DO = kernels.Tensor{} },
		"uk has shape":  func(s *secondProblem) { s.call.UK = s.call.UK.Slice(2, 0, 1) },
		"ddO is float32, it needs to be float64": func(s *secondProblem) {
			s.call.DDO = kernels.Of(make([]float32, s.call.DDO.Elements()), s.call.DDO.Shape...)
		},
		"uSinks or dSinks is there": func(s *secondProblem) { s.call.USinks = kernels.Of(make([]float64, 2), 2) },
		"score looks up table, it needs to look up no floats": func(s *secondProblem) {
			table := &score.Table{Name: "table", Shape: []int{2}, Type: score.Float, Source: 1}
			s.Score, _ = score.NewScore(func(p score.Pair) score.Expr { return p.Score.Add(score.Lookup(table, p.Head)) })
			s.Tables = []kernels.Tensor{kernels.Of(make([]float64, 2), 2)}
		},
	} {
		s := newSecondProblem[float64](c, false)
		change(s)
		if err := cpu.New().AttentionSecond(s.Attention, s.call); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

// BenchmarkAttentionSecond measures second derivatives beside the backward kernel, in turns: times
// is the median of the ratios.
func BenchmarkAttentionSecond(b *testing.B) {
	for _, c := range []attentiontest.Case{
		{Batch: 1, Heads: 8, KeyHeads: 8, Sq: 1024, Sk: 1024, D: 64, Dv: 64},
		{Batch: 1, Heads: 8, KeyHeads: 8, Sq: 1024, Sk: 1024, D: 64, Dv: 64, Options: []attentiontest.Option{attentiontest.Causal}},
		{Batch: 1, Heads: 8, KeyHeads: 8, Sq: 1024, Sk: 1024, D: 128, Dv: 128},
		{Batch: 1, Heads: 8, KeyHeads: 8, Sq: 1024, Sk: 1024, D: 64, Dv: 64, Options: []attentiontest.Option{attentiontest.Dropout}},
		{Batch: 1, Heads: 8, KeyHeads: 8, Sq: 1024, Sk: 1024, D: 64, Dv: 64, Options: []attentiontest.Option{attentiontest.SoftCap}},
	} {
		b.Run(c.String(), func(b *testing.B) {
			s := newSecondProblem[float32](c, false)
			backend := &cpu.Backend{Threads: 1}
			rows := func() kernels.Tensor {
				return kernels.Of(make([]float32, c.Batch*c.Heads*c.Sq), c.Batch, c.Heads, c.Sq)
			}
			g := kernels.AttentionGradients{DO: s.call.DO, LSE: rows(), Delta: rows(), DQ: s.call.DQ, DK: s.call.DK, DV: s.call.DV}
			if err := backend.AttentionForward(s.Attention, kernels.AttentionOutputs{O: s.call.DDO, LSE: g.LSE}); err != nil {
				b.Fatal(err)
			}
			var ratios, seconds []float64
			for b.Loop() {
				start := time.Now()
				if err := backend.AttentionBackward(s.Attention, g); err != nil {
					b.Fatal(err)
				}
				middle := time.Now()
				if err := backend.AttentionSecond(s.Attention, s.call); err != nil {
					b.Fatal(err)
				}
				seconds = append(seconds, time.Since(middle).Seconds())
				ratios = append(ratios, time.Since(middle).Seconds()/middle.Sub(start).Seconds())
			}
			slices.Sort(ratios)
			slices.Sort(seconds)
			b.ReportMetric(ratios[len(ratios)/2], "times")
			b.ReportMetric(1e3*seconds[len(seconds)/2], "ms")
		})
	}
}
