//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/kernels/score"
)

// BenchmarkAttentionScores measures scores and masks that users write beside options that are built
// in: 16k tokens of 8192 a sequence, hidden 2048, bfloat16, in TFLOP/s a visible pair; the backward
// pass with δ, and all gradients.
func BenchmarkAttentionScores(b *testing.B) {
	d := device(b)
	const batch, length, hidden, window, prefix = 2, 8192, 2048, 1024, 1024
	ids, begins := make([]int32, length), 0
	for n := int32(0); begins < length; n++ {
		end := min(length, begins+300+int(n)*7919%1500)
		for ; begins < end; begins++ {
			ids[begins] = n
		}
	}
	documents := &score.Table{Name: "documents", Type: score.Int, Shape: []int{length}}
	for _, size := range []int{64, 128} {
		heads := hidden / size
		slopes := make([]float64, heads)
		for h := range slopes {
			slopes[h] = 1 / float64(int(1)<<(8*(h+1)/heads))
		}
		relative := &score.Table{Name: "relative", Type: score.Float, Shape: []int{heads, 2*length - 1}}
		sameDocument := func(p score.Pair) score.Cond {
			return score.Lookup(documents, p.Query).Equal(score.Lookup(documents, p.Key))
		}
		bias := func(p score.Pair) score.Expr {
			return p.Score.Add(score.Lookup(relative, p.Head, p.Query.Sub(p.Key).Add(length-1)))
		}
		fourth := func(p score.Pair) score.Cond { return p.Key.Rem(4).Equal(0) }
		blocks := func(p score.Pair) score.Cond {
			return p.Key.Div(64).Rem(4).Equal(0).Or(p.Key.GreaterEqual(length - 256))
		}
		all := func(i, j int) bool { return true }
		causal := func(i, j int) bool { return j <= i }
		for _, c := range []struct {
			name    string
			problem kernels.Attention
			score   func(score.Pair) score.Expr
			mask    func(score.Pair) score.Cond
			visible func(i, j int) bool
		}{
			{"built-in-plain", kernels.Attention{}, nil, nil, all},
			{"built-in-causal", kernels.Attention{Causal: kernels.CausalBottomRight}, nil, nil, causal},
			{"causal", kernels.Attention{}, nil, score.Causal, causal},
			{"window", kernels.Attention{}, nil, score.And(score.Causal, score.SlidingWindow(window, -1)), func(i, j int) bool { return j <= i && i-j <= window }},
			{"prefix", kernels.Attention{}, nil, score.Prefix(prefix), func(i, j int) bool { return j <= i || j < prefix }},
			{"documents", kernels.Attention{}, nil, sameDocument, func(i, j int) bool { return ids[i] == ids[j] }},
			{"fourth-key", kernels.Attention{}, nil, fourth, func(i, j int) bool { return j%4 == 0 }},
			{"blocks", kernels.Attention{}, nil, blocks, func(i, j int) bool { return j/64%4 == 0 || j >= length-256 }},
			{"built-in-cap", kernels.Attention{SoftCap: 30}, nil, nil, all},
			{"cap", kernels.Attention{}, score.SoftCap(30), nil, all},
			{"built-in-slopes", kernels.Attention{ALiBi: slopes}, nil, nil, all},
			{"slopes", kernels.Attention{}, score.ALiBi(slopes...), nil, all},
			{"slopes-causal", kernels.Attention{}, score.ALiBi(slopes...), score.Causal, causal},
			{"relative-bias", kernels.Attention{}, bias, nil, all},
		} {
			b.Run(fmt.Sprintf("D=%d/%s", size, c.name), func(b *testing.B) {
				p := c.problem
				tensor := func() kernels.Tensor { return normal(b, d, kernels.BF16, batch, heads, length, size) }
				p.Q, p.K, p.V = tensor(), tensor(), tensor()
				dO, o, dQ, dK, dV := tensor(), tensor(), tensor(), tensor(), tensor()
				lse, delta := normal(b, d, kernels.F32, batch, heads, length), normal(b, d, kernels.F32, batch, heads, length)
				g := kernels.AttentionGradients{DO: dO, LSE: lse, Delta: delta, DQ: dQ, DK: dK, DV: dV}
				var err error
				if c.score != nil {
					if p.Score, err = score.NewScore(c.score); err != nil {
						b.Fatal(err)
					}
				}
				if c.mask != nil {
					if p.Mask, err = score.NewMask(c.mask, p.ScoreTables()...); err != nil {
						b.Fatal(err)
					}
				}
				for _, t := range p.ScoreTables() {
					if t.Type == score.Float {
						p.Tables, g.DTables = append(p.Tables, normal(b, d, kernels.F32, t.Shape...)), append(g.DTables, normal(b, d, kernels.F32, t.Shape...))
						continue
					}
					list, err := d.Alloc(kernels.I32, t.Shape...)
					if err == nil {
						err = d.Copy(list, kernels.Of(ids, t.Shape...))
					}
					if err != nil {
						b.Fatal(err)
					}
					p.Tables, g.DTables = append(p.Tables, list), append(g.DTables, kernels.Tensor{})
				}
				pairs := 0.0
				for i := range length {
					for j := range length {
						if c.visible(i, j) {
							pairs++
						}
					}
				}
				flops := 4 * pairs * float64(batch*hidden)
				began := time.Now()
				forward := func() error { return d.AttentionForward(&p, kernels.AttentionOutputs{O: o, LSE: lse}) }
				if err := forward(); err != nil {
					b.Fatal(err)
				}
				if err := d.Synchronize(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(time.Since(began).Seconds(), "s-first")
				b.ReportMetric(flops/seconds(b, d, forward)/1e12, "forward-TFLOP/s")
				b.ReportMetric(2.5*flops/seconds(b, d, func() error {
					if err := d.AttentionDelta(&p, o, dO, kernels.Tensor{}, delta); err != nil {
						return err
					}
					return d.AttentionBackward(&p, g)
				})/1e12, "backward-TFLOP/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkListedBlocks measures blocks of keys that are listed anew for each call, a quarter of
// them at random for each block of queries of each head, or of each four heads that share keys,
// beside full attention a visible pair: 16k tokens of 8192 a sequence, hidden 2048, bfloat16, in
// recordings of ten calls. The time of making the table and of finding its tiles counts.
func BenchmarkListedBlocks(b *testing.B) {
	d := device(b)
	const batch, length, hidden, calls = 2, 8192, 2048, 10
	for _, size := range []int{64, 128} {
		for _, c := range []struct{ queries, keys, group int }{{64, 64, 1}, {64, 64, 4}, {128, 64, 1}, {128, 128, 1}} {
			name := fmt.Sprintf("D=%d/%dx%d", size, c.queries, c.keys)
			if c.group > 1 {
				name += fmt.Sprintf("-of-%d-heads", c.group)
			}
			b.Run(name, func(b *testing.B) {
				heads, rows, count := hidden/size, length/c.queries, length/c.keys
				keyHeads, n := heads/c.group, count/4
				random := rand.New(rand.NewPCG(5, 6))
				var chosen []int32
				for range batch * keyHeads * rows {
					for _, block := range random.Perm(count)[:n] {
						chosen = append(chosen, int32(block))
					}
				}
				grid, err := d.Alloc(kernels.I32, batch, keyHeads, rows, count)
				if err != nil {
					b.Fatal(err)
				}
				lists, err := d.Alloc(kernels.I32, batch, keyHeads, rows, n)
				if err == nil {
					err = d.Copy(lists, kernels.Of(chosen, batch, keyHeads, rows, n))
				}
				if err != nil {
					b.Fatal(err)
				}
				queries := func() kernels.Tensor { return normal(b, d, kernels.BF16, batch, heads, length, size) }
				keys := func() kernels.Tensor { return normal(b, d, kernels.BF16, batch, keyHeads, length, size) }
				full := kernels.Attention{Q: queries(), K: keys(), V: keys()}
				listed := full
				table := &score.Table{Name: "blocks", Type: score.Int, Shape: grid.Shape}
				listed.Tables = []kernels.Tensor{grid}
				if listed.Mask, err = score.NewMask(func(p score.Pair) score.Cond {
					return score.Lookup(table, p.Batch, p.KeyHead, p.Query.Div(c.queries), p.Key.Div(c.keys)).Equal(1)
				}); err != nil {
					b.Fatal(err)
				}
				dO, o := queries(), queries()
				lse, delta := normal(b, d, kernels.F32, batch, heads, length), normal(b, d, kernels.F32, batch, heads, length)
				g := kernels.AttentionGradients{DO: dO, LSE: lse, Delta: delta, DQ: queries(), DK: keys(), DV: keys()}
				time := func(p *kernels.Attention, before func() error) (forward, backward float64) {
					for _, call := range []struct {
						to  *float64
						run func() error
					}{
						{&forward, func() error { return d.AttentionForward(p, kernels.AttentionOutputs{O: o, LSE: lse}) }},
						{&backward, func() error { return d.AttentionBackward(p, g) }},
					} {
						var err error
						*call.to, err = ofRecording(b, d, slices.Repeat([]func() error{func() error { return errors.Join(before(), call.run()) }}, calls))
						if err != nil {
							b.Fatal(err)
						}
					}
					return forward, backward
				}
				fullForward, fullBackward := time(&full, func() error { return nil })
				forward, backward := time(&listed, func() error { return d.ListBlocks(lists, grid) })
				b.ReportMetric(fullForward/4/forward, "forward-of-full")
				b.ReportMetric(fullBackward/4/backward, "backward-of-full")
				b.ReportMetric(1e3*forward, "forward-ms")
				b.ReportMetric(1e3*backward, "backward-ms")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// noise are the numbers of all tensors that normal makes.
var noise []float32

// normal is a tensor of normally distributed numbers.
func normal(b testing.TB, d *cuda.Device, dtype kernels.DType, shape ...int) kernels.Tensor {
	t, err := d.Alloc(dtype, shape...)
	if err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for n := len(noise); n < t.Elements(); n++ {
		if n < 1<<16 {
			noise = append(noise, float32(random.NormFloat64()))
		} else {
			noise = append(noise, noise[n*7919%(1<<16)])
		}
	}
	list := noise[:t.Elements()]
	if err := d.Copy(t, kernels.Of(list, shape...)); err != nil {
		b.Fatal(err)
	}
	return t
}

// seconds is how long a call takes, of the quickest of a few rounds.
func seconds(b *testing.B, d *cuda.Device, call func() error) float64 {
	const rounds, calls = 3, 5
	best := 0.0
	for n := range rounds + 1 {
		began := time.Now()
		for range calls {
			if err := call(); err != nil {
				b.Fatal(err)
			}
		}
		if err := d.Synchronize(); err != nil {
			b.Fatal(err)
		}
		if took := time.Since(began).Seconds() / calls; n == 1 || n > 0 && took < best {
			best = took
		}
	}
	return best
}
