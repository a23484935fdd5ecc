//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/score"
)

// What is not finite reaches the rows that see it and no others, with Confine, and in many of these
// problems others without.
func TestAttentionConfines(t *testing.T) {
	device(t)
	documents := MaskOf("documents", func(p score.Pair) score.Cond {
		return p.Key.Div(37).Equal(p.Position().Div(37)).And(p.Key.LessEqual(p.Position()))
	})
	halved := ScoreOf("halved", func(p score.Pair) score.Expr { return p.Score.Mul(0.5).Tanh().Mul(3) })
	masks := [][]Option{
		{Causal}, {CausalTopLeft}, {WindowOf(9, 3)}, {WindowOf(40, 0), Causal}, {Causal, Dropout}, {Causal, ALiBi}, {Causal, ALiBi, BiasOver("Q"), DLSE},
		{Sinks, Causal}, {SoftCap, WindowOf(13, 13)}, {SoftCap, Causal, DropoutOf(0.5)}, {Plain}, {documents}, {documents, halved}, {halved, Causal, Dropout},
	}
	sizes := [][2]int{{64, 64}, {128, 128}, {96, 96}, {40, 24}, {256, 256}, {192, 128}, {576, 512}}
	for m, a := range arithmetics {
		t.Run(a.name, func(t *testing.T) {
			var alone, leaks atomic.Int32
			t.Run("problems", func(t *testing.T) {
				for n := range 5 * len(masks) {
					options, size := masks[n%len(masks)], sizes[(n+m)%len(sizes)]
					c := Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 110 + 31*(n%4), Sk: 170 - 40*(n%3), D: size[0], Dv: size[1],
						Layout: []Layout{BHSD, BSHD, Padded}[n%3], Options: options, Seed: uint64(1000*m + n), Checked: Checked{Slack: 2}}
					switch n / len(masks) {
					case 1:
						c.Batch, c.QLens, c.KVLens = 1, []int{0, 50, 51, 51, 100}, []int{0, 20, 60, 80, 85}
					case 2:
						c.KVLengths = []int{c.Sk, 77}
					case 3:
						c.Sq = 1 + n%5
					case 4:
						c.KeyHeads, c.Sq, c.SharedKeys = 2, 64, true
					}
					p := a.newProblem(c)
					values := []float64{math.NaN(), math.NaN(), math.Inf(1), math.Inf(-1)}
					if a.name == "float32" {
						values = values[:1] // of an infinity's two parts one is NaN
					}
					where := p.PlantNonFinite(c.Seed, values...)
					t.Run(fmt.Sprint(c, where), func(t *testing.T) {
						t.Parallel()
						without := a.judge(t, p)
						if errors.As(without, new(cuda.NoCompiler)) {
							t.Skip(without)
						}
						alone.Add(1)
						if without != nil {
							leaks.Add(1)
						}
						p.Attention.Confine = true
						a.check(t, p)
					})
				}
			})
			if t.Logf("%d of %d problems have rows that others reach without Confine", leaks.Load(), alone.Load()); leaks.Load() == 0 {
				t.Error("none does: these problems show nothing")
			}
		})
	}
}

// Second derivatives have no such kernels, and say so.
func TestSecondDerivativesDoNotConfine(t *testing.T) {
	p := New[float32](Case{Batch: 1, Heads: 1, KeyHeads: 1, Sq: 8, Sk: 8, D: 32, Dv: 32, Options: []Option{Causal}})
	p.Attention.Confine = true
	s := kernels.AttentionSecond{DO: p.DO, UQ: p.Q, UK: p.K, UV: p.V, DQ: p.DQ, DK: p.DK, DV: p.DV, DDO: p.O}
	if err := (mirrored{Device: device(t)}).AttentionSecond(&p.Attention, s); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the error is %v", err)
	}
}

// BenchmarkAttentionConfines measures causal attention of 16k tokens, hidden 2048, in bfloat16, in
// recordings, without and with Confine; and with it where an eighth of the keys has a NaN in v, in
// the middle, and where all have.
func BenchmarkAttentionConfines(b *testing.B) {
	d := device(b)
	const tokens, hidden, calls = 16384, 2048, 8
	for _, size := range []int{64, 128} {
		for _, length := range []int{512, 2048, 8192} {
			batch, heads := tokens/length, hidden/size
			tensor := func() kernels.Tensor { return normal(b, d, kernels.BF16, batch, heads, length, size) }
			rows := func() kernels.Tensor { return normal(b, d, kernels.F32, batch, heads, length) }
			p := &kernels.Attention{Q: tensor(), K: tensor(), V: tensor(), Causal: kernels.CausalBottomRight}
			o, lse := tensor(), rows()
			g := kernels.AttentionGradients{DO: tensor(), LSE: lse, Delta: rows(), DQ: tensor(), DK: tensor(), DV: tensor()}
			for _, pass := range []struct {
				name string
				do   func() error
			}{
				{"forward", func() error { return d.AttentionForward(p, kernels.AttentionOutputs{O: o, LSE: lse}) }},
				{"backward", func() error { return d.AttentionBackward(p, g) }},
			} {
				b.Run(fmt.Sprintf("D=%d/S=%d/%s", size, length, pass.name), func(b *testing.B) {
					read := func() error { // what backward reads
						return errors.Join(d.AttentionForward(p, kernels.AttentionOutputs{O: o, LSE: lse}), d.AttentionDelta(p, o, g.DO, kernels.Tensor{}, g.Delta))
					}
					if err := errors.Join(d.Fill(p.V, 0.5), read()); err != nil {
						b.Fatal(err)
					}
					var best [2]float64
					for range 3 {
						for n, confine := range []bool{false, true} {
							p.Confine = confine
							took, err := ofRecording(b, d, slices.Repeat([]func() error{pass.do}, calls))
							if err != nil {
								b.Fatal(err)
							}
							if best[n] == 0 || took < best[n] {
								best[n] = took
							}
						}
					}
					for n, some := range []kernels.Tensor{p.V.Slice(2, length/2, length/2+length/8).Slice(3, 5, 6), p.V} {
						if err := errors.Join(d.Fill(some, math.NaN()), read()); err != nil {
							b.Fatal(err)
						}
						took, err := ofRecording(b, d, slices.Repeat([]func() error{pass.do}, 2))
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(took*1e3, []string{"ms-some-NaN", "ms-all-NaN"}[n])
					}
					b.ReportMetric(best[0]*1e6, "us")
					b.ReportMetric((best[1]/best[0]-1)*100, "%-more")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}
