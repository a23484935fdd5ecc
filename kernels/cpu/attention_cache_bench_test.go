package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// BenchmarkAttentionOverCache measures attention of a token over a long cache, (length, heads,
// size) in memory, by the bytes of its keys and values. Every call is followed by threads that do
// nothing but read, and %read is the median of the ratios. The keys of all calls are larger than
// the caches.
func BenchmarkAttentionOverCache(b *testing.B) {
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
		for _, d := range []int{64, 128} {
			for _, length := range []int{8 << 10, 64 << 10} {
				for _, heads := range [][2]int{{8, 8}, {32, 8}} {
					for _, threads := range []int{1, 2} {
						b.Run(fmt.Sprintf("%v/D=%d/keys=%d/heads=%d:%d/threads=%d", dtype, d, length, heads[0], heads[1], threads), func(b *testing.B) {
							overCache(b, dtype, d, length, heads[0], heads[1], threads)
						})
					}
				}
			}
		}
	}
}

func overCache(b *testing.B, dtype kernels.DType, d, length, heads, keyHeads, threads int) {
	random := rand.New(rand.NewPCG(1, 2))
	made := func(shape ...int) kernels.Tensor {
		wide := make([]float32, kernels.Contiguous(nil, kernels.F32, shape...).Elements())
		for i := range wide {
			wide[i] = random.Float32() - 0.5
		}
		t := kernels.Of(wide, shape...)
		if dtype == kernels.F32 {
			return t
		}
		half := kernels.Of(make([]kernels.BFloat16, len(wide)), shape...)
		kernels.CopyHost(half, t)
		return half
	}
	a := kernels.Attention{Q: made(1, heads, 1, d), Causal: kernels.CausalBottomRight}
	a.K, a.V = made(1, length, keyHeads, d).Permute(0, 2, 1, 3), made(1, length, keyHeads, d).Permute(0, 2, 1, 3)
	out := kernels.AttentionOutputs{O: made(1, heads, 1, d)}
	backend := &cpu.Backend{Threads: threads}
	bytes := float64(2 * a.K.Elements() * dtype.Size())
	other := slices.Repeat([]float32{1}, 64<<20) // written: all that was not is one page of zeros
	var seconds, shares []float64
	best := 0.0
	for b.Loop() {
		start := time.Now()
		if err := backend.AttentionForward(&a, out); err != nil {
			b.Fatal(err)
		}
		took := time.Since(start).Seconds()
		rate, err := cpu.ReadRate(threads, other)
		if err != nil {
			b.Fatal(err)
		}
		seconds, shares, best = append(seconds, took), append(shares, bytes/took/rate), max(best, rate)
	}
	slices.Sort(seconds)
	slices.Sort(shares)
	b.ReportMetric(seconds[len(seconds)/2]*1e9, "ns/op")
	b.ReportMetric(bytes/seconds[len(seconds)/2]/1e9, "GB/s")
	b.ReportMetric(100*shares[len(shares)/2], "%read")
	b.ReportMetric(100*bytes/seconds[0]/best, "best%read")
}
