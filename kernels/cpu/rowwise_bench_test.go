package cpu_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// BenchmarkRowwise measures the kernels that memory bounds beside a plain copy: every run is
// followed by copies that read and write as many bytes as the kernel must, on as many threads, and
// "x-copy" is the median of how many times longer the kernel took. Tensors do not fit into the
// caches.
func BenchmarkRowwise(b *testing.B) {
	const rows, c, vocabulary, tokens = 8192, 768, 50257, 256
	r := newRandom()
	f := func(shape ...int) kernels.Tensor { return newField[float32](r, 0, shape...).Tensor }
	x, y, z, dy, dz := f(rows, c), f(rows, c), f(rows, c), f(rows, c), f(rows, c)
	gamma, beta, dGamma, dBeta, mean, rstd := f(c), f(c), f(c), f(c), f(rows), f(rows)
	layer := &kernels.Norm{X: x, Gamma: gamma, Beta: beta}
	rms := &kernels.Norm{RMS: true, X: x, Gamma: gamma}
	ids := make([]int, rows)
	for i := range ids {
		ids[i] = r.IntN(vocabulary)
	}
	embedding := &kernels.Embedding{Table: f(vocabulary, c), IDs: int32s(ids, rows)}
	logits := &kernels.CrossEntropy{Logits: f(tokens, vocabulary), Targets: int32s(ids[:tokens], tokens)}
	lse, loss, dLogits := f(tokens), f(), f(tokens, vocabulary)
	heads := x.Unflatten(1, 64).Unflatten(0, rows/8).Permute(0, 2, 1, 3)
	turned := y.Unflatten(1, 64).Unflatten(0, rows/8).Permute(0, 2, 1, 3)
	dropout := kernels.Dropout{P: 0.1, Seed: 1}
	top, topIDs := f(rows, 8), int32s(make([]int, rows*8), rows, 8)
	for i := range rows * 8 {
		kernels.Host[int32](topIDs)[i] = int32(i % c)
	}
	for _, k := range []struct {
		name    string
		tensors int // of rows × c that are read or written; 0 for those that count their bytes
		bytes   int
		do      func(b *cpu.Backend) error
	}{
		{"add", 3, 0, func(b *cpu.Backend) error { return b.Add(x, z, y) }},
		{"sum", 1, 0, func(b *cpu.Backend) error { return b.Sum(x, loss) }},
		{"gelu tanh", 2, 0, func(b *cpu.Backend) error { return b.Activate(kernels.GELUTanh, x, y) }},
		{"gelu tanh backward", 3, 0, func(b *cpu.Backend) error { return b.ActivateBackward(kernels.GELUTanh, x, dy, y) }},
		{"gelu erf", 2, 0, func(b *cpu.Backend) error { return b.Activate(kernels.GELUErf, x, y) }},
		{"gelu erf backward", 3, 0, func(b *cpu.Backend) error { return b.ActivateBackward(kernels.GELUErf, x, dy, y) }},
		{"silu", 2, 0, func(b *cpu.Backend) error { return b.Activate(kernels.SiLU, x, y) }},
		{"relu squared", 2, 0, func(b *cpu.Backend) error { return b.Activate(kernels.ReLUSquared, x, y) }},
		{"swiglu", 3, 0, func(b *cpu.Backend) error { return b.SwiGLU(x, z, y) }},
		{"swiglu backward", 5, 0, func(b *cpu.Backend) error { return b.SwiGLUBackward(x, z, dy, y, dz) }},
		{"layer norm", 2, 0, func(b *cpu.Backend) error {
			return b.NormForward(layer, kernels.NormOutputs{Y: y, Mean: mean, RStd: rstd})
		}},
		{"layer norm backward", 3, 0, func(b *cpu.Backend) error {
			return b.NormBackward(layer, kernels.NormGradients{DY: dy, Mean: mean, RStd: rstd, DX: y, DGamma: dGamma, DBeta: dBeta})
		}},
		{"rms norm", 2, 0, func(b *cpu.Backend) error { return b.NormForward(rms, kernels.NormOutputs{Y: y, RStd: rstd}) }},
		{"rms norm backward", 3, 0, func(b *cpu.Backend) error {
			return b.NormBackward(rms, kernels.NormGradients{DY: dy, RStd: rstd, DX: y, DGamma: dGamma})
		}},
		{"rope", 2, 0, func(b *cpu.Backend) error { return b.RoPEForward(&kernels.RoPE{}, heads, turned) }},
		{"rope interleaved", 2, 0, func(b *cpu.Backend) error {
			return b.RoPEForward(&kernels.RoPE{Pairing: kernels.Interleaved}, heads, turned)
		}},
		{"dropout", 2, 0, func(b *cpu.Backend) error { return b.Dropout(dropout, x, y) }},
		{"repeat a row", 0, 4 * rows * c, func(b *cpu.Backend) error {
			return b.MatMul(&kernels.MatMul{A: mean.Reshape(rows, 1), B: gamma.Reshape(1, c)}, kernels.MatMulOutputs{C: y})
		}},
		{"repeat a column", 0, 4 * rows * c, func(b *cpu.Backend) error {
			m := &kernels.MatMul{A: gamma.Reshape(c, 1), B: mean.Reshape(rows, 1, 1)}
			m.A.Shape, m.A.Strides = []int{rows, c, 1}, []int{0, 1, 1}
			return b.MatMul(m, kernels.MatMulOutputs{C: y.Reshape(rows, c, 1)})
		}},
		{"exp", 2, 0, func(b *cpu.Backend) error { return b.Apply(kernels.Exp, x, y) }},
		{"exp backward", 3, 0, func(b *cpu.Backend) error { return b.ApplyBackward(kernels.Exp, x, dy, y) }},
		{"log", 2, 0, func(b *cpu.Backend) error { return b.Apply(kernels.Log, z, y) }},
		{"log backward", 3, 0, func(b *cpu.Backend) error { return b.ApplyBackward(kernels.Log, x, dy, y) }},
		{"sqrt", 2, 0, func(b *cpu.Backend) error { return b.Apply(kernels.Sqrt, z, y) }},
		{"sqrt backward", 3, 0, func(b *cpu.Backend) error { return b.ApplyBackward(kernels.Sqrt, z, dy, y) }},
		{"abs", 2, 0, func(b *cpu.Backend) error { return b.Apply(kernels.Abs, x, y) }},
		{"abs backward", 3, 0, func(b *cpu.Backend) error { return b.ApplyBackward(kernels.Abs, x, dy, y) }},
		{"relu", 2, 0, func(b *cpu.Backend) error { return b.Activate(kernels.ReLU, x, y) }},
		{"sigmoid", 2, 0, func(b *cpu.Backend) error { return b.Activate(kernels.Sigmoid, x, y) }},
		{"sigmoid backward", 3, 0, func(b *cpu.Backend) error { return b.ActivateBackward(kernels.Sigmoid, x, dy, y) }},
		{"tanh", 2, 0, func(b *cpu.Backend) error { return b.Activate(kernels.Tanh, x, y) }},
		{"tanh backward", 3, 0, func(b *cpu.Backend) error { return b.ActivateBackward(kernels.Tanh, x, dy, y) }},
		{"add scalar", 2, 0, func(b *cpu.Backend) error { return b.AddScalar(1, x, y) }},
		{"mul scalar", 2, 0, func(b *cpu.Backend) error { return b.MulScalar(2, x, y) }},
		{"mul", 3, 0, func(b *cpu.Backend) error { return b.Mul(x, z, y) }},
		{"div", 3, 0, func(b *cpu.Backend) error { return b.Div(x, z, y) }},
		{"div backward", 5, 0, func(b *cpu.Backend) error { return b.DivBackward(x, z, dy, y, dz) }},
		{"softmax", 2, 0, func(b *cpu.Backend) error { return b.SoftmaxForward(x, y) }},
		{"softmax backward", 3, 0, func(b *cpu.Backend) error { return b.SoftmaxBackward(x, dy, y) }},
		{"log softmax", 2, 0, func(b *cpu.Backend) error { return b.LogSoftmaxForward(x, y) }},
		{"mean", 1, 0, func(b *cpu.Backend) error { return b.Mean(x, loss) }},
		{"sum of rows", 1, 0, func(b *cpu.Backend) error { return b.SumRows(x, dBeta, false) }},
		{"max", 1, 0, func(b *cpu.Backend) error { return b.TopK(x, top.Slice(1, 0, 1), topIDs.Slice(1, 0, 1)) }},
		{"top 8", 1, 0, func(b *cpu.Backend) error { return b.TopK(x, top, topIDs) }},
		{"gather", 0, rows * 8 * (4 + 4 + 4), func(b *cpu.Backend) error { return b.Gather(x, topIDs, top) }},
		{"scatter", 1, 0, func(b *cpu.Backend) error { return b.Scatter(top, topIDs, y) }},
		{"transpose", 2, 0, func(b *cpu.Backend) error { return b.Copy(y.Unflatten(0, 1024).Permute(1, 0, 2), x.Unflatten(0, 8)) }},
		{"embedding", 2, 0, func(b *cpu.Backend) error { return b.EmbeddingForward(embedding, y) }},
		// The table's gradient is cleared, and then every row that is added is read, like the sum
		// so far, and written.
		{"embedding backward", 0, 4 * c * (vocabulary + 3*rows), func(b *cpu.Backend) error { return b.EmbeddingBackward(embedding, dy, embedding.Table) }},
		{"cross-entropy", 0, 4 * tokens * vocabulary, func(b *cpu.Backend) error {
			return b.CrossEntropyForward(logits, kernels.CrossEntropyOutputs{Loss: loss, LSE: lse})
		}},
		{"cross-entropy backward", 0, 2 * 4 * tokens * vocabulary, func(b *cpu.Backend) error {
			return b.CrossEntropyBackward(logits, kernels.CrossEntropyGradients{LSE: lse, DLogits: dLogits})
		}},
	} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", k.name, threads), func(b *testing.B) {
				backend := &cpu.Backend{Threads: threads}
				measureBesideCopy(b, threads, k.bytes+k.tensors*4*rows*c, func() error { return k.do(backend) })
			})
		}
	}
}

// measureBesideCopy reports the median rate of do, of a copy of the same bytes, and the median of
// the ratios.
func measureBesideCopy(b *testing.B, threads, bytes int, do func() error) {
	from, to := make([]byte, bytes/2), make([]byte, bytes/2)
	for i := range from {
		from[i] = byte(i)
	}
	plainCopy(to, from, threads)
	var kernel, copying, ratios []float64
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		took := time.Since(start).Seconds()
		copied := plainCopy(to, from, threads)
		kernel, copying, ratios = append(kernel, took), append(copying, copied), append(ratios, took/copied)
	}
	median := func(list []float64) float64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	b.ReportMetric(median(kernel)*1e9, "ns/op")
	b.ReportMetric(float64(bytes)/median(kernel)/1e9, "GB/s")
	b.ReportMetric(float64(bytes)/median(copying)/1e9, "copy-GB/s")
	b.ReportMetric(median(ratios), "x-copy")
}

// plainCopy copies on a number of threads and gives the seconds it took.
func plainCopy(to, from []byte, threads int) float64 {
	start := time.Now()
	var all sync.WaitGroup
	for t := range threads {
		first, last := t*len(to)/threads, (t+1)*len(to)/threads
		all.Go(func() { copy(to[first:last], from[first:last]) })
	}
	all.Wait()
	return time.Since(start).Seconds()
}

// BenchmarkLinearCrossEntropy is the loss of a language model's head with both gradients, three
// products, beside the peak.
func BenchmarkLinearCrossEntropy(b *testing.B) {
	const n, c, vocabulary = 512, 512, 8192
	r := newRandom()
	f := func(shape ...int) kernels.Tensor { return newField[float32](r, 0, shape...).Tensor }
	problem := &kernels.LinearCrossEntropy{Hidden: f(n, c), Weight: f(vocabulary, c), Targets: int32s(make([]int, n), n)}
	out := kernels.LinearCrossEntropyOutputs{Loss: f(), DHidden: f(n, c), DWeight: f(vocabulary, c)}
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			backend := &cpu.Backend{Threads: threads}
			measureBesidePeak(b, threads, 3*2*n*c*vocabulary, 1, func() error { return backend.LinearCrossEntropy(problem, out) })
		})
	}
}
