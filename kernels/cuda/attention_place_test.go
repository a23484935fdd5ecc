//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
)

// Parts of a larger problem have its dropout and slopes, in every arithmetic: those whose columns
// begin at a multiple of eight, for which dropout draws as for a problem of its own, and others.
func TestAttentionOfParts(t *testing.T) {
	compiles(t)
	dropout, slopes := []Option{Dropout}, []Option{ALiBi, Causal}
	biased := []Option{BiasOver("HQ"), Dropout}
	all := []Option{DropoutOf(0.7), ALiBi, SoftCap, WindowOf(120, 40), Sinks, DLSE}
	for n, c := range []struct {
		arithmetic int
		size       [2]int
		options    []Option
	}{
		{0, [2]int{64, 64}, dropout}, {0, [2]int{64, 64}, all}, {0, [2]int{128, 128}, dropout}, {0, [2]int{128, 128}, slopes}, {1, [2]int{128, 128}, all},
		{0, [2]int{256, 256}, all}, {2, [2]int{64, 64}, all}, {4, [2]int{64, 64}, all}, {3, [2]int{128, 128}, dropout}, {5, [2]int{111, 128}, dropout},
		{0, [2]int{192, 128}, all}, {1, [2]int{96, 96}, all}, {0, [2]int{192, 192}, dropout}, {4, [2]int{160, 96}, slopes}, {0, [2]int{64, 64}, biased},
	} {
		a := arithmetics[c.arithmetic]
		for m, place := range [][2]int{{96, 40}, {700, 1601}, {13, 350}} {
			problem := Case{Batch: 1 + m, Heads: 4, KeyHeads: 2, Sq: 300, Sk: 277, D: c.size[0], Dv: c.size[1],
				Layout: []Layout{BHSD, BSHD, Padded}[m], Options: append(c.options, PlacedAt(place[0], place[1])), Seed: uint64(n)}
			if m == 2 {
				problem.Batch, problem.QLens, problem.KVLens = 1, []int{0, 100, 101, 101, 280}, []int{0, 90, 90, 131, 270}
			}
			problem = affordable(problem)
			a.cheaplyBeside(t, problem)
		}
	}
	p := New[float32](Case{Batch: 1, Heads: 2, KeyHeads: 2, Sq: 9, Sk: 9, D: 8, Dv: 8, Options: []Option{ALiBi, BiasOver("Q"), PlacedAt(3, 8)}})
	if err := p.Run(mirrored{Device: device(t)}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "with slopes and a bias") {
		t.Errorf("slopes and a bias: error %v", err)
	}
}

// BenchmarkAttentionOfParts measures dropout and slopes of parts of a larger problem beside those
// of a problem of its own: 16k tokens of 8192 a sequence, hidden 2048, bfloat16, in TFLOP/s.
func BenchmarkAttentionOfParts(b *testing.B) {
	d := device(b)
	const batch, length, hidden = 2, 8192, 2048
	for _, size := range []int{64, 128} {
		heads := hidden / size
		tensor := func() kernels.Tensor { return normal(b, d, kernels.BF16, batch, heads, length, size) }
		p := kernels.Attention{Q: tensor(), K: tensor(), V: tensor()}
		g := kernels.AttentionGradients{DO: tensor(), DQ: tensor(), DK: tensor(), DV: tensor()}
		g.LSE, g.Delta = normal(b, d, kernels.F32, batch, heads, length), normal(b, d, kernels.F32, batch, heads, length)
		out := kernels.AttentionOutputs{O: tensor(), LSE: g.LSE}
		slopes := make([]float64, heads)
		for h := range slopes {
			slopes[h] = 0.5 / float64(h+1)
		}
		for _, options := range []string{"dropout", "slopes", "dropout and slopes"} {
			p.Dropout, p.ALiBi = kernels.Dropout{}, nil
			if options != "slopes" {
				p.Dropout.P = 0.1
			}
			if options != "dropout" {
				p.ALiBi = slopes
			}
			for _, column := range []int{-1, 64, 67} {
				p.Places = nil
				if column >= 0 {
					p.Places = []kernels.Place{{Sequence: 5, Column: column}, {Sequence: 6, Column: column}}
				}
				b.Run(fmt.Sprintf("D=%d/%s/column %d", size, options, column), func(b *testing.B) {
					forward := func() error { return d.AttentionForward(&p, out) }
					backward := func() error { return d.AttentionBackward(&p, g) }
					b.ReportMetric(p.ForwardFLOPs()/seconds(b, d, forward)/1e12, "forward-TFLOP/s")
					if err := d.AttentionDelta(&p, out.O, g.DO, kernels.Tensor{}, g.Delta); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(p.BackwardFLOPs()/seconds(b, d, backward)/1e12, "backward-TFLOP/s")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}
