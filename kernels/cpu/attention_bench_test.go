package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// benchCase is one line of the benchmark's table.
type benchCase struct {
	name                  string
	batch, heads, kvHeads int
	length, headDim       int
	change                func(*kernels.Attention)
	threads               int
	level                 simd.Level
}

func causal(a *kernels.Attention) { a.Causal = kernels.CausalBottomRight }

// BenchmarkAttention measures attention beside the machine's peak: every run of the kernel is
// followed by a loop that does nothing but multiply and add in registers on as many threads, and
// %peak is the median of the ratios.
func BenchmarkAttention(b *testing.B) {
	var cases []benchCase
	for _, level := range []simd.Level{simd.AVX512, simd.AVX2, simd.Generic} {
		if level > simd.Active() {
			continue
		}
		for _, d := range []int{64, 128} {
			for _, threads := range []int{1, 2} {
				shape := benchCase{batch: 1, heads: 8, kvHeads: 8, length: 1024, headDim: d, threads: threads, level: level}
				cases = append(cases, shape.named("full", nil), shape.named("causal", causal))
			}
		}
	}
	best := simd.Active()
	ragged := benchCase{batch: 1, heads: 8, kvHeads: 8, length: 1000, headDim: 64, threads: 1, level: best}
	long := benchCase{batch: 1, heads: 1, kvHeads: 1, length: 8192, headDim: 64, threads: 1, level: best}
	cases = append(cases, ragged.named("full", nil), ragged.named("causal", causal), long.named("causal", causal),
		long.named("causal, window 256", func(a *kernels.Attention) {
			a.Causal, a.Window = kernels.CausalBottomRight, &kernels.Window{Left: 256, Right: 0}
		}))
	far := benchCase{batch: 1, heads: 1, kvHeads: 1, length: 4096, headDim: 64, threads: 1, level: best}
	cases = append(cases, far.named("full", nil), far.named("full, bfloat16", func(a *kernels.Attention) { a.Precision = kernels.PrecisionBFloat16 }),
		far.named("causal, bfloat16", func(a *kernels.Attention) {
			a.Causal, a.Precision = kernels.CausalBottomRight, kernels.PrecisionBFloat16
		}))
	small := benchCase{batch: 12, heads: 4, kvHeads: 4, length: 64, headDim: 32, threads: 2, level: best}
	gqa := benchCase{batch: 1, heads: 8, kvHeads: 2, length: 1024, headDim: 64, threads: 1, level: best}
	options := benchCase{batch: 1, heads: 8, kvHeads: 8, length: 1024, headDim: 64, threads: 1, level: best}
	cases = append(cases, small.named("causal", causal), gqa.named("causal", causal),
		options.named("dropout", func(a *kernels.Attention) { a.Dropout = kernels.Dropout{P: 0.1, Seed: 1} }),
		options.named("soft cap", func(a *kernels.Attention) { a.SoftCap = 30 }),
		options.named("ALiBi", func(a *kernels.Attention) { a.ALiBi = []float64{1, .5, .25, .125, .06, .03, .015, .008} }))
	for _, c := range cases {
		b.Run(c.name+"/forward", func(b *testing.B) { c.run(b, false) })
		b.Run(c.name+"/backward", func(b *testing.B) { c.run(b, true) })
	}
}

func (c benchCase) named(mask string, change func(*kernels.Attention)) benchCase {
	c.change = change
	c.name = fmt.Sprintf("%v/B=%d,H=%d:%d,S=%d,D=%d/%s/threads=%d", c.level, c.batch, c.heads, c.kvHeads, c.length, c.headDim, mask, c.threads)
	return c
}

func (c benchCase) run(b *testing.B, backward bool) {
	defer simd.SetLevel(c.level)()
	random := rand.New(rand.NewPCG(1, 2))
	tensor := func(heads, d int) kernels.Tensor {
		data := make([]float32, c.batch*heads*c.length*d)
		for i := range data {
			data[i] = float32(random.NormFloat64())
		}
		return kernels.Of(data, c.batch, heads, c.length, d)
	}
	rows := func() kernels.Tensor {
		return kernels.Of(make([]float32, c.batch*c.heads*c.length), c.batch, c.heads, c.length)
	}
	a := &kernels.Attention{Q: tensor(c.heads, c.headDim), K: tensor(c.kvHeads, c.headDim), V: tensor(c.kvHeads, c.headDim)}
	if c.change != nil {
		c.change(a)
	}
	backend := &cpu.Backend{Threads: c.threads}
	out := kernels.AttentionOutputs{O: tensor(c.heads, c.headDim), LSE: rows()}
	if err := backend.AttentionForward(a, out); err != nil {
		b.Fatal(err)
	}
	do := func() error { return backend.AttentionForward(a, out) }
	flops := a.ForwardFLOPs()
	if backward {
		g := kernels.AttentionGradients{
			DO: tensor(c.heads, c.headDim), LSE: out.LSE, Delta: rows(),
			DQ: tensor(c.heads, c.headDim), DK: tensor(c.kvHeads, c.headDim), DV: tensor(c.kvHeads, c.headDim),
		}
		flops = a.BackwardFLOPs()
		do = func() error {
			if err := backend.AttentionDelta(a, out.O, g.DO, kernels.Tensor{}, g.Delta); err != nil {
				return err
			}
			return backend.AttentionBackward(a, g)
		}
	}
	measureBesidePeak(b, c.threads, flops, 1, do)
}

// measureBesidePeak reports the median rate of do in a number of calls that follow each other, the
// median of its ratio to the peak loop beside it, and the ratio of the fastest run to the fastest
// loop, which a machine shared with others disturbs least.
func measureBesidePeak(b *testing.B, threads int, flops float64, calls int, do func() error) {
	var seconds, shares []float64
	peak := 0.0
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		for range calls {
			if err := do(); err != nil {
				b.Fatal(err)
			}
		}
		took := time.Since(start).Seconds() / float64(calls)
		seconds = append(seconds, took)
		beside, err := cpu.PeakRate[float32](threads, 2*time.Millisecond)
		if err != nil {
			b.Fatal(err)
		}
		shares = append(shares, flops/took/beside)
		peak = max(peak, beside)
	}
	slices.Sort(seconds)
	slices.Sort(shares)
	b.ReportMetric(seconds[len(seconds)/2]*1e9, "ns/op")
	b.ReportMetric(flops/seconds[len(seconds)/2]/1e9, "GFLOP/s")
	b.ReportMetric(100*shares[len(shares)/2], "%peak")
	b.ReportMetric(100*flops/seconds[0]/peak, "best%peak")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := do(); err != nil {
		b.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc), "B/op") // of one call, without the peak loop's
	b.ReportMetric(float64(after.Mallocs-before.Mallocs), "allocs/op")
}
