package cpu_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Attention in bfloat16 differs from the exact one by what rounding its operands and probabilities
// to 8 bits does: relative errors of 2⁻⁹ each, of products whose terms partly cancel. The largest
// seen is 0.005 of the size.
func TestAttentionInTiles(t *testing.T) {
	withTiles(t)
	type shape struct{ batch, heads, kvHeads, sq, sk, d, dv int }
	options := map[string]func(*kernels.Attention){
		"full":   func(*kernels.Attention) {},
		"causal": func(a *kernels.Attention) { a.Causal = kernels.CausalBottomRight },
		"window": func(a *kernels.Attention) { a.Window = &kernels.Window{Left: 30, Right: 9} },
		"all": func(a *kernels.Attention) {
			a.Causal, a.SoftCap, a.Dropout = kernels.CausalTopLeft, 20, kernels.Dropout{P: 0.2, Seed: 3}
		},
	}
	shapes := []shape{{1, 2, 2, 128, 128, 64, 64}, {2, 4, 2, 113, 203, 32, 32}, {1, 2, 1, 203, 113, 40, 24}, {1, 1, 1, 97, 600, 128, 128}, {1, 2, 1, 70, 97, 1000, 1024}}
	if testing.Short() { // the reference's loops take their time under the race detector, and on an emulated processor
		shapes = []shape{{1, 2, 1, 70, 45, 40, 24}}
	}
	for name, change := range options {
		for _, s := range shapes {
			for _, dtype := range []kernels.DType{kernels.BF16, kernels.F32} {
				t.Run(fmt.Sprintf("%s/%v/%v", name, s, dtype), func(t *testing.T) {
					h := &halfTest{t, dtype, newRandom(), nil}
					a := &kernels.Attention{Q: h.in(s.batch, s.heads, s.sq, s.d), K: h.in(s.batch, s.kvHeads, s.sk, s.d), V: h.in(s.batch, s.kvHeads, s.sk, s.dv)}
					if change(a); dtype == kernels.F32 {
						a.Precision = kernels.PrecisionBFloat16
					}
					checkTiledAttention(h, a)
				})
			}
		}
	}
}

func checkTiledAttention(h *halfTest, a *kernels.Attention) {
	dO := h.in(a.Q.Shape[0], a.Q.Shape[1], a.Q.Shape[2], a.V.Shape[3])
	refO, refLSE := reference.Attention(a)
	ref := reference.AttentionGrad(a, numbers(dO), nil)
	exact := reference.AttentionDelta(a, refO, numbers(dO), nil)
	var first [][]float64
	for _, threads := range []int{1, 16} {
		b := &cpu.Backend{Threads: threads}
		o, lse, delta := h.out(h.dtype, dO.Shape...), h.dense(kernels.F32, a.Q.Shape[:3]...), h.dense(kernels.F32, a.Q.Shape[:3]...)
		h.done(b.AttentionForward(a, kernels.AttentionOutputs{O: o, LSE: lse}))
		kernels.CopyHost(delta, kernels.Of(exact, a.Q.Shape[:3]...))
		g := kernels.AttentionGradients{DO: dO, LSE: lse, Delta: delta, DQ: h.out(h.dtype, a.Q.Shape...), DK: h.out(h.dtype, a.K.Shape...), DV: h.out(h.dtype, a.V.Shape...)}
		h.done(b.AttentionBackward(a, g))
		var all [][]float64
		for i, x := range []struct {
			name string
			got  kernels.Tensor
			want []float64
		}{{"o", o, refO}, {"lse", lse, refLSE}, {"dq", g.DQ, ref.DQ}, {"dk", g.DK, ref.DK}, {"dv", g.DV, ref.DV}} {
			all = append(all, numbers(x.got))
			near(h, x.name, all[i], x.want)
		}
		if first == nil {
			first = all
		} else if !slices.EqualFunc(all, first, slices.Equal[[]float64]) {
			h.t.Errorf("%d threads give other bits than one", threads)
		}
	}
}

// near checks values whose operands were rounded to bfloat16 by their mean squares: a wrong tile is
// off by its whole size.
func near(h *halfTest, name string, got, want []float64) {
	h.t.Helper()
	var lost, size float64
	for i, x := range want {
		if math.IsInf(x, -1) && math.IsInf(got[i], -1) {
			continue
		}
		lost += (got[i] - x) * (got[i] - x)
		size += x * x
	}
	if r := math.Sqrt(lost / size); !(r < 0.01) {
		h.t.Errorf("%s is off by %.3g of its size", name, r)
	}
}

// Under a mask a NaN reaches the rows that see it, and no others, although a tile holds both.
func TestTiledAttentionSpreadsNaN(t *testing.T) {
	withTiles(t)
	const length, d, at = 100, 32, 41
	for name, change := range map[string]func(q, k, v []kernels.BFloat16){
		"q": func(q, _, _ []kernels.BFloat16) { q[at*d] = 0x7fc0 },
		"k": func(_, k, _ []kernels.BFloat16) { k[at*d] = 0x7fc0 },
		"v": func(_, _, v []kernels.BFloat16) { v[at*d] = 0x7f80 },
	} {
		h := &halfTest{t, kernels.BF16, newRandom(), &cpu.Backend{Threads: 2}}
		dense := func() kernels.Tensor { return roundedTo(kernels.BF16, h.in(1, 1, length, d)) }
		a := &kernels.Attention{Q: dense(), K: dense(), V: dense(), Causal: kernels.CausalBottomRight}
		list := kernels.Host[kernels.BFloat16]
		change(list(a.Q), list(a.K), list(a.V))
		o, lse := h.out(kernels.BF16, 1, 1, length, d), h.dense(kernels.F32, 1, 1, length)
		h.done(h.b.AttentionForward(a, kernels.AttentionOutputs{O: o, LSE: lse}))
		for i, x := range numbers(o) {
			row := i / d
			if row < at && x-x != 0 || row == at && i%d == 0 && x-x == 0 {
				t.Errorf("%s: element %d of row %d is %v", name, i%d, row, x)
				break
			}
		}
	}
}
