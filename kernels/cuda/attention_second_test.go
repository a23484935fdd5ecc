//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// secondProblem is a call of AttentionSecond on tensors of the host, and the same for the
// reference.
type secondProblem struct {
	*Problem[float32]
	call kernels.AttentionSecond
	in   reference.AttentionSecondInputs
}

// newSecond gives a case random values; partly leaves out all but UQ.
func (a arithmetic) newSecond(c Case, partly bool) *secondProblem {
	s := &secondProblem{Problem: a.newProblem(c)}
	if a.rounding != nil {
		s.Round(a.rounding.Operand) // what the device rounds on its way in, too
	}
	p := &s.Problem.Attention
	random := rand.New(rand.NewPCG(c.Seed, 7))
	draw := func(shape []int, isRounded bool) (kernels.Tensor, []float64) {
		t := kernels.Of(make([]float32, kernels.Contiguous(nil, kernels.F64, shape...).Elements()), shape...)
		list := make([]float64, t.Elements())
		for i := range list {
			x := float32(random.NormFloat64())
			if isRounded && a.rounding != nil {
				x = a.rounding.Operand(x)
			}
			kernels.Host[float32](t)[i], list[i] = x, float64(x)
		}
		return t, list
	}
	like := func(shape []int) kernels.Tensor {
		t := kernels.Of(make([]float32, kernels.Contiguous(nil, kernels.F64, shape...).Elements()), shape...)
		for i := range kernels.Host[float32](t) {
			kernels.Host[float32](t)[i] = math.Float32frombits(poison32)
		}
		return t
	}
	g := &s.call
	g.DO, s.in.DO = draw(p.OutputShape(), true)
	g.DQ, g.DK, g.DV, g.DDO, g.DDLSE = like(p.Q.Shape), like(p.K.Shape), like(p.V.Shape), like(p.OutputShape()), like(p.Q.Shape[:3])
	g.UQ, s.in.UQ = draw(p.Q.Shape, true)
	if p.Bias.IsSet() {
		g.DBias = like(p.Bias.Shape)
	}
	if p.Sinks.IsSet() {
		g.DSinks = like(p.Sinks.Shape)
	}
	if partly {
		return s
	}
	g.DLSE, s.in.DLSE = draw(p.Q.Shape[:3], false)
	g.UK, s.in.UK = draw(p.K.Shape, true)
	g.UV, s.in.UV = draw(p.V.Shape, true)
	if p.Bias.IsSet() {
		g.UBias, s.in.UBias = draw(p.Bias.Shape, true)
	}
	if p.Sinks.IsSet() {
		g.USinks, s.in.USinks = draw(p.Sinks.Shape, true)
	}
	return s
}

// AttentionSecond is the device's, on tensors of the host.
func (m mirrored) AttentionSecond(a *kernels.Attention, s kernels.AttentionSecond) error {
	c, err := m.newAttention([]kernels.Tensor{a.Q, a.K, a.V, s.DO, s.UQ, s.UK, s.UV, s.DQ, s.DK, s.DV, s.DDO},
		[]kernels.Tensor{a.Bias, a.Sinks, s.UBias, s.USinks, s.DBias, s.DSinks}, []kernels.Tensor{s.DLSE, s.DDLSE})
	if err != nil {
		return err
	}
	err = m.Device.AttentionSecond(c.problem(a), kernels.AttentionSecond{
		DO: c.typed(s.DO), DLSE: c.on(s.DLSE), UQ: c.typed(s.UQ), UK: c.typed(s.UK), UV: c.typed(s.UV), UBias: c.added(s.UBias), USinks: c.added(s.USinks),
		DQ: c.typed(s.DQ), DK: c.typed(s.DK), DV: c.typed(s.DV), DDO: c.typed(s.DDO), DDLSE: c.on(s.DDLSE), DBias: c.added(s.DBias), DSinks: c.added(s.DSinks),
	})
	return errors.Join(err, c.download())
}

// compare compares what was computed with the reference, relative to the largest element.
func (s *secondProblem) compare(want reference.AttentionSecondGradients, bound float64) error {
	for _, c := range []struct {
		name string
		got  kernels.Tensor
		want []float64
	}{{"dq", s.call.DQ, want.DQ}, {"dk", s.call.DK, want.DK}, {"dv", s.call.DV, want.DV}, {"ddO", s.call.DDO, want.DDO},
		{"ddLSE", s.call.DDLSE, want.DDLSE}, {"dBias", s.call.DBias, want.DBias}, {"dSinks", s.call.DSinks, want.DSinks}} {
		if !c.got.IsSet() {
			continue
		}
		largest, worst, at := 0.1, 0.0, 0
		for i, x := range kernels.Host[float32](c.got) {
			largest = max(largest, math.Abs(c.want[i]))
			if e := math.Abs(float64(x) - c.want[i]); !(e <= worst) && worst == worst {
				worst, at = e, i
			}
		}
		if !(worst <= bound*largest) {
			return fmt.Errorf("%s[%d] is %v instead of %v: error %.3g of the largest, %.3g; the bound is %.3g", c.name, at,
				kernels.Host[float32](c.got)[at], c.want[at], worst/largest, largest, bound)
		}
	}
	return nil
}

// secondBounds are of the largest element.
func (a arithmetic) secondBound() float64 {
	switch {
	case a.half == kernels.BF16 || a.precision == kernels.PrecisionBFloat16:
		return 2e-2
	case a.rounding != nil:
		return 3e-3
	}
	return 2e-5
}

// Second derivatives are those of the reference, with every option, in problems of several tiles,
// packed and with short keys and shared ones, for heads of every kernel's size and of others.
func TestAttentionSecond(t *testing.T) {
	d := device(t)
	sets := slices.DeleteFunc(append(OptionSets(), []Option{RowBiasOver("BQ"), Sinks}, []Option{MaskingBias(0.3)}), func(set []Option) bool {
		p := New[float32](Case{Batch: 1, Heads: 1, KeyHeads: 1, Sq: 2, Sk: 2, D: 8, Dv: 8, Options: set})
		return p.Attention.Score != nil || p.Attention.Mask != nil
	})
	for n, options := range sets {
		for m, size := range [][2]int{{64, 64}, {9, 5}, {128, 96}, {256, 200}} {
			for k, a := range arithmetics {
				if (n+m+k)%4 != 0 && !*grid {
					continue
				}
				c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 101, Sk: 139, D: size[0], Dv: size[1], Options: options, Seed: uint64(n), Layout: []Layout{BHSD, BSHD, Padded}[n%3]}
				switch (n + m + k) / 4 % 4 {
				case 1:
					c.Batch, c.Sq, c.Sk = 1, 140, 150 // empty sequences, and rows behind the last
					c.QLens, c.KVLens = []int{0, 10, 10, 25, 130}, []int{0, 4, 15, 15, 148}
				case 2:
					c.KVLengths, c.SharedKeys = []int{3, 139}, true
				case 3:
					c.Sq, c.Sk, c.Heads, c.KeyHeads = 2, 1, 1, 1
				}
				t.Run(a.name+"/"+c.String(), func(t *testing.T) {
					t.Parallel()
					s := a.newSecond(c, n%5 == 4)
					want := reference.AttentionSecond(&s.Problem.Attention, s.in)
					oneAtATime.Lock()
					defer oneAtATime.Unlock()
					if a.anyDevice {
						defer d.WithoutMaps()()
					}
					if err := (mirrored{Device: d, half: a.half}).AttentionSecond(&s.Problem.Attention, s.call); err != nil {
						t.Fatal(err)
					}
					if err := s.compare(want, a.secondBound()); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// Sums that no two scores share are the same from call to call.
func TestAttentionSecondRepeats(t *testing.T) {
	d := device(t)
	a := arithmetics[0]
	c := Case{Batch: 2, Heads: 4, KeyHeads: 1, Sq: 300, Sk: 333, D: 64, Dv: 64, Options: []Option{Causal, SoftCap, Dropout, Sinks}}
	var first []float32
	for range 4 {
		s := a.newSecond(c, false)
		if err := (mirrored{Device: d, half: a.half}).AttentionSecond(&s.Problem.Attention, s.call); err != nil {
			t.Fatal(err)
		}
		var all []float32
		for _, x := range []kernels.Tensor{s.call.DQ, s.call.DK, s.call.DV, s.call.DDO, s.call.DDLSE, s.call.DSinks} {
			all = append(all, kernels.Host[float32](x)...)
		}
		if first == nil {
			first = all
		} else if !slices.Equal(all, first) {
			t.Fatal("the results are not those of the first call")
		}
	}
}

// BenchmarkAttentionSecond measures second derivatives beside the backward pass: bfloat16, 16 heads
// of 4096 tokens in sequences of one length.
func BenchmarkAttentionSecond(b *testing.B) {
	d := device(b)
	const tokens, heads, calls = 4096, 16, 2
	for _, size := range []int{64, 128, 256} {
		for _, length := range []int{1024, tokens} {
			for _, causal := range []kernels.Causal{kernels.NotCausal, kernels.CausalBottomRight} {
				b.Run(fmt.Sprintf("D=%d/S=%d/causal=%v", size, length, causal != kernels.NotCausal), func(b *testing.B) {
					rows := func() kernels.Tensor { return normal(b, d, kernels.BF16, tokens/length, heads, length, size) }
					values := func() kernels.Tensor { return normal(b, d, kernels.F32, tokens/length, heads, length) }
					a := &kernels.Attention{Q: rows(), K: rows(), V: rows(), Causal: causal}
					out := kernels.AttentionOutputs{O: rows(), LSE: values()}
					g := kernels.AttentionGradients{DO: rows(), LSE: out.LSE, Delta: values(), DQ: rows(), DK: rows(), DV: rows()}
					s := kernels.AttentionSecond{DO: g.DO, UQ: rows(), UK: rows(), UV: rows(), DQ: g.DQ, DK: g.DK, DV: g.DV, DDO: rows()}
					if err := d.AttentionForward(a, out); err != nil {
						b.Fatal(err)
					}
					backward, err := ofRecording(b, d, slices.Repeat([]func() error{func() error { return d.AttentionBackward(a, g) }}, calls))
					if err != nil {
						b.Fatal(err)
					}
					second, err := ofRecording(b, d, slices.Repeat([]func() error{func() error { return d.AttentionSecond(a, s) }}, calls))
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(second/backward, "times")
					b.ReportMetric(1e3*second, "ms")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}
