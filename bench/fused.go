package main

import (
	"slices"

	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// Tensors of the cases are rows × channels; a loss is one of tokens × vocabulary.
const (
	fusedRows, fusedChannels, fusedTokens, fusedVocabulary = 8192, 768, 256, 50257
	fusedBytes                                             = 4 * fusedRows * fusedChannels // of a tensor
	linearRows, linearWidth, linearWords                   = 512, 512, 8192
)

// A fusedCase reads and writes so many bytes, or 0 where arithmetic is the bound.
type fusedCase struct {
	name  string
	bytes int
	do    func(b *cpu.Backend) error
}

// fused measures the kernels beside attention and products against their floors: a copy of as many
// bytes as they must read and write, or, for the loss that is fused with the last projection, the
// peak of arithmetic.
func fused(s *session) error {
	s.section("fused", "Fused kernels", "float32, tensors of 8192×768 (25 MB) and logits of 256×50257, which do not fit into the caches. "+
		"The share is that of a plain copy which reads and writes as many bytes; more than 100% is possible, as a copy that streams past the "+
		"caches gains nothing where more is read than written. The linear cross-entropy, three products, is held against the FMA peak.")
	r := newRandom()
	for _, k := range slices.Concat(rowwiseCases(r), tableCases(r), optimizerAndLossCases(r)) {
		for _, threads := range s.threads {
			at := report.Case{Section: "fused", Name: k.name, Threads: threads, Work: float64(k.bytes), Unit: "B", Ceiling: copying}
			if k.bytes == 0 {
				at.Work, at.Unit, at.Ceiling = 3*2*linearRows*linearWidth*linearWords, "FLOP", fma
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

func rowwiseCases(r random) []fusedCase {
	const rows, c, matrix = fusedRows, fusedChannels, fusedBytes
	x, y, z, dy, dz := r.tensor(rows, c), r.tensor(rows, c), r.tensor(rows, c), r.tensor(rows, c), r.tensor(rows, c)
	gamma, beta, dGamma, dBeta, mean, rstd := r.tensor(c), r.tensor(c), r.tensor(c), r.tensor(c), r.tensor(rows), r.tensor(rows)
	layer, rms := &kernels.Norm{X: x, Gamma: gamma, Beta: beta}, &kernels.Norm{RMS: true, X: x, Gamma: gamma}
	heads := x.Unflatten(1, 64).Unflatten(0, rows/8).Permute(0, 2, 1, 3)
	turned, sum := y.Unflatten(1, 64).Unflatten(0, rows/8).Permute(0, 2, 1, 3), r.tensor()
	return []fusedCase{
		{"add", 3 * matrix, func(b *cpu.Backend) error { return b.Add(x, z, y) }},
		{"sum", matrix, func(b *cpu.Backend) error { return b.Sum(x, sum) }},
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
	}
}

func tableCases(r random) []fusedCase {
	const matrix, tokens, vocabulary = fusedBytes, fusedTokens, fusedVocabulary
	y, dy := r.tensor(fusedRows, fusedChannels), r.tensor(fusedRows, fusedChannels)
	embedding := &kernels.Embedding{
		Table: r.tensor(vocabulary, fusedChannels), IDs: kernels.Of(r.indices(fusedRows, vocabulary), fusedRows),
	}
	logits := &kernels.CrossEntropy{Logits: r.tensor(tokens, vocabulary), Targets: kernels.Of(r.indices(tokens, vocabulary), tokens)}
	lse, loss, dLogits := r.tensor(tokens), r.tensor(), r.tensor(tokens, vocabulary)
	return []fusedCase{
		{"embedding", 2 * matrix, func(b *cpu.Backend) error { return b.EmbeddingForward(embedding, y) }},
		// The table's gradient is cleared; then each row is read, like the sum so far, which is
		// written.
		{"embedding backward", 4*fusedChannels*vocabulary + 3*matrix, func(b *cpu.Backend) error {
			return b.EmbeddingBackward(embedding, dy, embedding.Table)
		}},
		{"cross-entropy", 4 * tokens * vocabulary, func(b *cpu.Backend) error {
			return b.CrossEntropyForward(logits, kernels.CrossEntropyOutputs{Loss: loss, LSE: lse})
		}},
		{"cross-entropy backward", 2 * 4 * tokens * vocabulary, func(b *cpu.Backend) error {
			return b.CrossEntropyBackward(logits, kernels.CrossEntropyGradients{LSE: lse, DLogits: dLogits})
		}},
	}
}

func optimizerAndLossCases(r random) []fusedCase {
	const rows, c, n, width, words = fusedRows, fusedChannels, linearRows, linearWidth, linearWords
	weights, gradients, first, second := r.tensor(rows, c), r.tensor(rows, c), r.tensor(rows, c), r.tensor(rows, c)
	for i, v := range kernels.Host[float32](second) {
		kernels.Host[float32](second)[i] = v * v // a mean of squares
	}
	adam := kernels.AdamW{Update: kernels.Update{LearningRate: 1e-3, WeightDecay: 0.1}, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: 10}
	head := &kernels.LinearCrossEntropy{Hidden: r.tensor(n, width), Weight: r.tensor(words, width), Targets: kernels.Of(r.indices(n, words), n)}
	headOut := kernels.LinearCrossEntropyOutputs{Loss: r.tensor(), DHidden: r.tensor(n, width), DWeight: r.tensor(words, width)}
	return []fusedCase{
		{"AdamW", 7 * fusedBytes, func(b *cpu.Backend) error {
			return b.AdamW(adam, []kernels.Tensor{weights}, []kernels.Tensor{gradients}, []kernels.Tensor{first}, []kernels.Tensor{second})
		}},
		{"linear cross-entropy, both gradients", 0, func(b *cpu.Backend) error { return b.LinearCrossEntropy(head, headOut) }},
	}
}
