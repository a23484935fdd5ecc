package cpu_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// cacheCases are problems of one to sixteen rows over keys of one to many runs, and of one row
// more.
func cacheCases() []Case {
	var list []Case
	options := [][]Option{{Plain}, {Causal}, {Causal, WindowOf(200, -1), Sinks}, {SoftCap, Causal}, {ALiBi, Causal}, {CausalTopLeft}, {Sinks}, {BiasOver("BHQ"), Causal}}
	sizes := [][2]int{{64, 64}, {128, 128}, {16, 48}, {256, 256}, {192, 128}, {80, 80}, {576, 512}}
	for n, rows := range []struct{ sq, heads, keyHeads int }{{1, 1, 1}, {1, 8, 8}, {1, 8, 2}, {1, 16, 1}, {1, 17, 1}, {3, 8, 2}, {16, 3, 3}, {5, 6, 2}} {
		for k, length := range []int{128, 257, 1000, 2100} {
			size := sizes[(n+k)%len(sizes)]
			c := Case{Batch: 1 + (n+k)%3, Heads: rows.heads, KeyHeads: rows.keyHeads, Sq: rows.sq, Sk: length, D: size[0], Dv: size[1],
				Layout: []Layout{BSHD, BHSD, Padded}[(n+k)%3], Options: options[(n+2*k)%len(options)], Seed: uint64(100*n + k)}
			if c.Batch == 3 && k%2 == 0 {
				c.KVLengths = []int{length, 0, length / 2}
			}
			list = append(list, c)
		}
	}
	return list
}

func TestAttentionOverCache(t *testing.T) {
	slow.Emulated(t)
	for n, c := range cacheCases() {
		if slow.Racing() {
			if n%8 != 2 { // a few that have runs of keys for several threads
				continue
			}
		} else if leftOut(n) {
			continue
		}
		c = affordable(c)
		checkLevels(t, New[float32](c))
		if n%4 == 0 {
			check(t, New[float64](c))
		}
		if t.Failed() {
			t.Fatalf("with %v", c)
		}
	}
}

// Runs of keys and the order of their sums do not depend on the threads.
func TestAttentionOverCacheIsDeterministic(t *testing.T) {
	slow.Emulated(t)
	for n, c := range cacheCases() {
		if n%5 > 0 || leftOut(n/5) {
			continue
		}
		var want []float32
		for _, threads := range []int{1, 2, 7} {
			p := New[float32](c)
			if err := p.Run(&cpu.Backend{Threads: threads}); err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = p.Bits()
			} else if !slices.EqualFunc(p.Bits(), want, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
				t.Errorf("%v: %d threads give other bits than one", c, threads)
			}
		}
	}
}

// Numbers of 16 bits give what float32 numbers of the same values do, rounded.
func TestAttentionOverHalfCache(t *testing.T) {
	for n, s := range []struct {
		batch, heads, keyHeads, sq, sk, d, dv int
		apart                                 bool // a head's keys lie together
	}{{1, 4, 4, 1, 300, 64, 64, false}, {2, 8, 2, 1, 600, 128, 128, false}, {1, 8, 2, 2, 257, 80, 48, true}, {2, 6, 1, 2, 129, 64, 64, false}} {
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
			t.Run(fmt.Sprintf("%v/%v", s, dtype), func(t *testing.T) {
				h := &halfTest{t, dtype, newRandom(), nil}
				in := func(heads, length, d int) kernels.Tensor {
					if s.apart {
						return h.in(s.batch, heads, length, d)
					}
					return h.in(s.batch, length, heads, d).Permute(0, 2, 1, 3)
				}
				a := &kernels.Attention{Q: in(s.heads, s.sq, s.d), K: in(s.keyHeads, s.sk, s.d), V: in(s.keyHeads, s.sk, s.dv), Causal: kernels.CausalBottomRight}
				if n%2 == 1 {
					a.KVLengths = slices.Repeat([]int{s.sk - 70}, s.batch)
				}
				wantO, wantLSE := reference.Attention(a)
				o, lse := h.out(dtype, s.batch, s.heads, s.sq, s.dv), h.dense(kernels.F32, s.batch, s.heads, s.sq)
				h.done(cpu.New().AttentionForward(a, kernels.AttentionOutputs{O: o, LSE: lse}))
				unit := map[kernels.DType]float64{kernels.BF16: 0x1p-8, kernels.F16: 0x1p-11}[dtype]
				for i, x := range numbers(o) {
					if bound := unit*1.01*math.Abs(wantO[i]) + 2e-6; !(math.Abs(x-wantO[i]) <= bound) {
						t.Fatalf("element %d of O is %v, want %v within %v", i, x, wantO[i], bound)
					}
				}
				for i, x := range numbers(lse) {
					if !(math.Abs(x-wantLSE[i]) <= 2e-6*(1+math.Abs(wantLSE[i]))) {
						t.Fatalf("element %d of LSE is %v, want %v", i, x, wantLSE[i])
					}
				}
			})
		}
	}
}

// What is not a number reaches the rows that see it, and no other.
func TestAttentionOverCacheOfNonFinite(t *testing.T) {
	slow.Emulated(t)
	for n, value := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for in := range 3 {
			c := Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 8, Sk: 390, D: 64, Dv: 32, Options: [][]Option{{Causal}, {WindowOf(5, 0)}, {CausalTopLeft}}[in], Seed: uint64(n), Checked: Checked{Slack: 2}}
			p := New[float32](c)
			target := []kernels.Tensor{p.Q, p.K, p.V}[in]
			p.Plant(target, value, 0, 1, target.Shape[2]-3, 5)
			if checkLevels(t, p); t.Failed() {
				t.Fatalf("with %v in tensor %d", value, in)
			}
		}
	}
}
