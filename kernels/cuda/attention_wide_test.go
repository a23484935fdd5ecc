//go:build gpu

package cuda_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
)

// ofAnyDevice are arithmetics whose kernels for wide heads differ. There are none for Hopper.
func ofAnyDevice() []arithmetic {
	return slices.DeleteFunc(slices.Clone(arithmetics), func(a arithmetic) bool { return a.anyDevice })
}

// Heads of more than 256, with every set of options. With -grid each set meets all sizes, in every
// arithmetic.
func TestAttentionOfWideHeads(t *testing.T) {
	device(t)
	lengths := [][2]int{{127, 213}, {3, 799}, {256, 130}, {1, 65}, {300, 300}}
	for m, a := range ofAnyDevice() {
		for n, options := range OptionSets() {
			for k, size := range WideSizes {
				if !*grid && (n%6 != m || k != n%len(WideSizes)) {
					continue
				}
				c := gridCase(n+k+m, lengths[(n+2*k+m)%len(lengths)], size, options)
				c.Batch = 1
				a.cheaplyBeside(t, affordable(c))
			}
		}
	}
}

// Wide heads in parts that differ in length or share their keys, packed ones and rows without keys.
func TestAttentionOfUnevenWideHeads(t *testing.T) {
	device(t)
	some := ofAnyDevice()
	for n, c := range UnevenCases() {
		size := WideSizes[n%len(WideSizes)]
		c.D, c.Dv = size[0], size[1]
		for m, a := range some {
			if *grid || n%6 == m {
				a.cheaplyBeside(t, c)
			}
		}
	}
	for n, c := range []Case{
		{Sq: 300, Sk: 3, Options: []Option{Causal}},
		{Sq: 200, Sk: 90, Options: []Option{CausalTopLeft, WindowOf(5, -1)}},
		{Sq: 40, Sk: 0, Options: []Option{Sinks, DLSE}},
		{Sq: 70, Sk: 150, Options: []Option{MaskingBias(0.97), WindowOf(30, 3), DLSE}},
		{Sq: 70, Sk: 90, Options: []Option{Causal, Dropout}, Layout: Broadcast},
		{Sq: 70, Sk: 90, Options: []Option{RowBiasOver("HQ"), Sinks}, Layout: Padded},
	} {
		c.Batch, c.Heads, c.KeyHeads, c.D, c.Dv, c.Seed = 2, 2, 1, WideSizes[n][0], WideSizes[n][1], uint64(n)
		for _, a := range []arithmetic{some[n%2], some[2+n%4]} {
			a.cheaplyBeside(t, affordable(c))
		}
	}
}

// With as little shared memory as the smallest GPUs have, all pieces of operands pass through it.
func TestAttentionOfWideHeadsInLittleMemory(t *testing.T) {
	d := device(t)
	for m, a := range ofAnyDevice() {
		for n, options := range [][]Option{{Causal, DLSE}, {BiasOver("BHQ"), SoftCap}} {
			size := WideSizes[(m+n)%len(WideSizes)]
			c := affordable(Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 300, Sk: 310, D: size[0], Dv: size[1], Options: options, Seed: uint64(n)})
			a.run(t, c)
			restore := d.AsSmallest()
			a.run(t, c)
			restore()
		}
	}
}

// Where a block of the kernels for heads of 256 does not fit, those for heads of any size serve.
func TestAttentionInLittleMemory(t *testing.T) {
	d := device(t)
	defer d.AsSmallest()()
	for n, a := range ofAnyDevice() {
		wide := false
		d.Trace(func(kernel string) { wide = wide || strings.HasPrefix(kernel, "attention_backward_sm80_wide") })
		a.run(t, Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 130, Sk: 199, D: 256, Dv: 256, Options: []Option{Causal}, Seed: uint64(n)})
		d.Trace(nil)
		if !wide {
			t.Errorf("%s: a block that does not fit was chosen", a.name)
		}
	}
}

// The gradient of a bias that scores share, summed in one order.
func TestAttentionOfWideHeadsInOrder(t *testing.T) {
	device(t)
	for m, a := range ofAnyDevice() {
		for n, option := range []Option{BiasOver("H"), RowBiasOver("Q"), BiasOver("BQ")} {
			size := WideSizes[(m+n)%len(WideSizes)]
			p := a.newProblem(affordable(Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 100, Sk: 170, D: size[0], Dv: size[1], Options: []Option{option, Causal}, Seed: uint64(n)}))
			p.Attention.Deterministic = true
			a.check(t, p)
		}
	}
}

// Scores and masks that users write, with wide heads: a few, since each is compiled, and with -grid
// every set in every arithmetic.
func TestAttentionScoresOfWideHeads(t *testing.T) {
	compiles(t)
	for m, a := range ofAnyDevice() {
		for n, options := range ScoreSets() {
			if n != 2+3*m && !*grid {
				continue
			}
			heads, size := HeadCounts[n%len(HeadCounts)], WideSizes[(n+m)%len(WideSizes)]
			c := Case{Batch: 1, Heads: heads[0], KeyHeads: heads[1], Sq: 101 + 60*(n%3), Sk: 305 - 90*(n%4), D: size[0], Dv: size[1],
				Layout: []Layout{BHSD, BSHD, Padded}[n%3], Options: options, Seed: uint64(n)}
			if (n+m)%3 == 0 {
				c.QLens, c.KVLens = PackedLens(uint64(n), 3, c.Sq, c.Sk)
			}
			t.Run(a.name+"/"+c.String(), func(t *testing.T) {
				t.Parallel()
				a.runCheaply(t, affordable(c))
				p := a.newProblem(affordable(c))
				p.Attention.Deterministic = true
				a.check(t, p)
			})
		}
	}
}

// BenchmarkWideHeads times attention of wide heads beside heads of 256, both in kernels for any
// device: useful operations a second.
func BenchmarkWideHeads(b *testing.B) {
	d := device(b)
	defer d.WithoutMaps()()
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F32} {
		for _, causal := range []kernels.Causal{kernels.NotCausal, kernels.CausalBottomRight} {
			for _, size := range [][2]int{{256, 256}, {320, 320}, {512, 512}, {576, 512}, {576, 576}} {
				made := func(heads, rows, size int) kernels.Tensor {
					x, err := d.Alloc(dtype, 1, heads, rows, size)
					if err == nil {
						err = d.Fill(x, 0.01)
					}
					if err != nil {
						b.Fatal(err)
					}
					return x
				}
				const heads = 16
				length := 4096
				if dtype == kernels.F32 {
					length = 2048
				}
				a := kernels.Attention{Q: made(heads, length, size[0]), K: made(heads, length, size[0]), V: made(heads, length, size[1]), Causal: causal}
				out := kernels.AttentionOutputs{O: made(heads, length, size[1])}
				var err error
				if out.LSE, err = d.Alloc(kernels.F32, 1, heads, length); err != nil {
					b.Fatal(err)
				}
				delta, err := d.Alloc(kernels.F32, 1, heads, length)
				if err != nil {
					b.Fatal(err)
				}
				g := kernels.AttentionGradients{DO: made(heads, length, size[1]), LSE: out.LSE, Delta: delta,
					DQ: made(heads, length, size[0]), DK: made(heads, length, size[0]), DV: made(heads, length, size[1])}
				operations := 2 * float64(heads*length*length) * float64(size[0]+size[1])
				if causal != kernels.NotCausal {
					operations /= 2
				}
				for _, pass := range []struct {
					name  string
					share float64 // of a forward pass
					call  func() error
				}{
					{"forward", 1, func() error { return d.AttentionForward(&a, out) }},
					{"backward", float64(3*size[0]+2*size[1]) / float64(size[0]+size[1]), func() error { return d.AttentionBackward(&a, g) }},
				} {
					b.Run(fmt.Sprintf("%s/D=%d-%d/causal=%v/%v", dtype, size[0], size[1], causal != kernels.NotCausal, pass.name), func(b *testing.B) {
						if err := d.AttentionForward(&a, out); err != nil {
							b.Fatal(err)
						}
						one, err := ofRecording(b, d, []func() error{pass.call})
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(0, "ns/op")
						b.ReportMetric(one*1e3, "ms")
						b.ReportMetric(operations*pass.share/one/1e12, "TFLOP/s")
					})
				}
			}
		}
	}
}
