package main

import (
	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// fused measures the kernels beside attention and products against their floors: a copy of as many
// bytes as they must read and write, or, for the loss that is fused with the last projection, the
// peak of arithmetic.
func fused(s *session) error {
	const rows, c, vocabulary, tokens = 8192, 768, 50257, 256
	s.section("fused", "Fused kernels", "float32, tensors of 8192×768 (25 MB) and logits of 256×50257, which do not fit into the caches. "+
		"The share is that of a plain copy which reads and writes as many bytes; more than 100% is possible, as a copy that streams past the "+
		"caches gains nothing where more is read than written. The linear cross-entropy, three products, is held against the FMA peak.")
	r := newRandom()
	x, y, z, dy, dz := r.tensor(rows, c), r.tensor(rows, c), r.tensor(rows, c), r.tensor(rows, c), r.tensor(rows, c)
	gamma, beta, dGamma, dBeta, mean, rstd := r.tensor(c), r.tensor(c), r.tensor(c), r.tensor(c), r.tensor(rows), r.tensor(rows)
	layer, rms := &kernels.Norm{X: x, Gamma: gamma, Beta: beta}, &kernels.Norm{RMS: true, X: x, Gamma: gamma}
	embedding := &kernels.Embedding{Table: r.tensor(vocabulary, c), IDs: kernels.Of(r.indices(rows, vocabulary), rows)}
	logits := &kernels.CrossEntropy{Logits: r.tensor(tokens, vocabulary), Targets: kernels.Of(r.indices(tokens, vocabulary), tokens)}
	lse, loss, dLogits := r.tensor(tokens), r.tensor(), r.tensor(tokens, vocabulary)
	heads := x.Unflatten(1, 64).Unflatten(0, rows/8).Permute(0, 2, 1, 3)
	turned := y.Unflatten(1, 64).Unflatten(0, rows/8).Permute(0, 2, 1, 3)
	weights, gradients, first, second := r.tensor(rows, c), r.tensor(rows, c), r.tensor(rows, c), r.tensor(rows, c)
	for i, v := range kernels.Host[float32](second) {
		kernels.Host[float32](second)[i] = v * v // a mean of squares
	}
	adam := kernels.AdamW{Update: kernels.Update{LearningRate: 1e-3, WeightDecay: 0.1}, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: 10}
	const n, width, words = 512, 512, 8192
	head := &kernels.LinearCrossEntropy{Hidden: r.tensor(n, width), Weight: r.tensor(words, width), Targets: kernels.Of(r.indices(n, words), n)}
	headOut := kernels.LinearCrossEntropyOutputs{Loss: r.tensor(), DHidden: r.tensor(n, width), DWeight: r.tensor(words, width)}

	const matrix = 4 * rows * c // bytes
	for _, k := range []struct {
		name  string
		bytes int // read and written; 0 where arithmetic is the bound
		do    func(b *cpu.Backend) error
	}{
		{"add", 3 * matrix, func(b *cpu.Backend) error { return b.Add(x, z, y) }},
		{"sum", matrix, func(b *cpu.Backend) error { return b.Sum(x, loss) }},
		{"GELU (tanh)", 2 * matrix, func(b *cpu.Backend) error { return b.Activate(kernels.GELUTanh, x, y) }},
		{"GELU (tanh) backward", 3 * matrix, func(b *cpu.Backend) error { return b.ActivateBackward(kernels.GELUTanh, x, dy, y) }},
		{"GELU (erf)", 2 * matrix, func(b *cpu.Backend) error { return b.Activate(kernels.GELUErf, x, y) }},
		{"GELU (erf) backward", 3 * matrix, func(b *cpu.Backend) error { return b.ActivateBackward(kernels.GELUErf, x, dy, y) }},
		{"SiLU", 2 * matrix, func(b *cpu.Backend) error { return b.Activate(kernels.SiLU, x, y) }},
		{"ReLU²", 2 * matrix, func(b *cpu.Backend) error { return b.Activate(kernels.ReLUSquared, x, y) }},
		{"SwiGLU", 3 * matrix, func(b *cpu.Backend) error { return b.SwiGLU(x, z, y) }},
		{"SwiGLU backward", 5 * matrix, func(b *cpu.Backend) error { return b.SwiGLUBackward(x, z, dy, y, dz) }},
		{"layer norm", 2 * matrix, func(b *cpu.Backend) error {
			return b.NormForward(layer, kernels.NormOutputs{Y: y, Mean: mean, RStd: rstd})
		}},
		{"layer norm backward", 3 * matrix, func(b *cpu.Backend) error {
			return b.NormBackward(layer, kernels.NormGradients{DY: dy, Mean: mean, RStd: rstd, DX: y, DGamma: dGamma, DBeta: dBeta})
		}},
		{"RMS norm", 2 * matrix, func(b *cpu.Backend) error {
			return b.NormForward(rms, kernels.NormOutputs{Y: y, RStd: rstd})
		}},
		{"RMS norm backward", 3 * matrix, func(b *cpu.Backend) error {
			return b.NormBackward(rms, kernels.NormGradients{DY: dy, RStd: rstd, DX: y, DGamma: dGamma})
		}},
		{"RoPE", 2 * matrix, func(b *cpu.Backend) error { return b.RoPEForward(&kernels.RoPE{}, heads, turned) }},
		{"RoPE interleaved", 2 * matrix, func(b *cpu.Backend) error {
			return b.RoPEForward(&kernels.RoPE{Pairing: kernels.Interleaved}, heads, turned)
		}},
		{"dropout", 2 * matrix, func(b *cpu.Backend) error { return b.Dropout(kernels.Dropout{P: 0.1, Seed: 1}, x, y) }},
		{"embedding", 2 * matrix, func(b *cpu.Backend) error { return b.EmbeddingForward(embedding, y) }},
		// The table's gradient is cleared; then each row is read, like the sum so far, which is
		// written.
		{"embedding backward", 4*c*vocabulary + 3*matrix, func(b *cpu.Backend) error {
			return b.EmbeddingBackward(embedding, dy, embedding.Table)
		}},
		{"cross-entropy", 4 * tokens * vocabulary, func(b *cpu.Backend) error {
			return b.CrossEntropyForward(logits, kernels.CrossEntropyOutputs{Loss: loss, LSE: lse})
		}},
		{"cross-entropy backward", 2 * 4 * tokens * vocabulary, func(b *cpu.Backend) error {
			return b.CrossEntropyBackward(logits, kernels.CrossEntropyGradients{LSE: lse, DLogits: dLogits})
		}},
		{"AdamW", 7 * matrix, func(b *cpu.Backend) error {
			return b.AdamW(adam, []kernels.Tensor{weights}, []kernels.Tensor{gradients}, []kernels.Tensor{first}, []kernels.Tensor{second})
		}},
		{"linear cross-entropy, both gradients", 0, func(b *cpu.Backend) error { return b.LinearCrossEntropy(head, headOut) }},
	} {
		for _, threads := range s.threads {
			at := report.Case{Section: "fused", Name: k.name, Threads: threads, Work: float64(k.bytes), Unit: "B", Ceiling: copying}
			if k.bytes == 0 {
				at.Work, at.Unit, at.Ceiling = 3*2*n*width*words, "FLOP", fma
			}
			if !s.wants(at) {
				continue
			}
			backend := &cpu.Backend{Threads: threads}
			if err := s.measure(at, s.ours(func() error { return k.do(backend) })); err != nil {
				return err
			}
		}
	}
	return nil
}
