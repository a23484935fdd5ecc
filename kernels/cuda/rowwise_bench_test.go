//go:build gpu

package cuda_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// BenchmarkRowwise measures kernels that are bound by memory on the tensors of a training step of
// GPT-2's smallest model, beside copies of tensors as large: GB/s counts what has to be read and
// written once. A recording of ten calls runs at a time, so that launches cost what they cost in a
// recorded step.
func BenchmarkRowwise(b *testing.B) {
	d := device(b)
	const tokens, features, hidden, vocabulary, heads, length = 32768, 768, 3072, 50257, 12, 1024
	made := func(dtype kernels.DType, value float64, shape ...int) kernels.Tensor {
		t, err := d.Alloc(dtype, shape...)
		if err == nil {
			err = d.Fill(t, value)
		}
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	half := func(shape ...int) kernels.Tensor { return made(kernels.BF16, 0.5, shape...) }
	wide := func(shape ...int) kernels.Tensor { return made(kernels.F32, 0.5, shape...) }
	x, y, z := half(tokens, features), half(tokens, features), half(tokens, features)
	drawn, random := make([]float32, tokens*features), rand.New(rand.NewPCG(1, 2))
	for i := range drawn {
		drawn[i] = float32(random.NormFloat64())
	}
	if err := d.Copy(x, kernels.Of(drawn, tokens, features)); err != nil {
		b.Fatal(err)
	}
	u, v, w := half(tokens, hidden), half(tokens, hidden), half(tokens, hidden)
	gate, up := half(tokens, hidden), half(tokens, hidden)
	single, narrow := wide(tokens, hidden), half(tokens, hidden)
	gamma, beta, dGamma, dBeta := wide(features), wide(features), wide(features), wide(features)
	mean, rstd, scalar, bias := wide(tokens), wide(tokens), wide(), wide(hidden)
	long, longY, longGrad, gammaLong, dGammaLong := half(8192, 4096), half(8192, 4096), half(8192, 4096), wide(4096), wide(4096)
	table, dTable := wide(vocabulary, features), wide(vocabulary, features)
	logits, lse := half(8192, vocabulary), wide(8192)
	targets, ids := made(kernels.I32, 7, 8192), made(kernels.I32, 0, tokens)
	// Ids as frequent as words are: the n-th of them about 1/n.
	list := make([]int32, tokens)
	for i := range list {
		list[i] = int32(math.Exp(math.Mod(float64(i)*0.6180339887498949, 1)*math.Log(vocabulary))) - 1
	}
	if err := d.Copy(ids, kernels.Of(list, tokens)); err != nil {
		b.Fatal(err)
	}
	rotated := kernels.Tensor{Data: x.Data, DType: x.DType, Owner: x.Owner,
		Shape: []int{tokens / length, heads, length, features / heads}, Strides: []int{length * features, features / heads, features, 1}}
	turned := rotated
	turned.Data, turned.Owner = y.Data, y.Owner
	norm, rms := &kernels.Norm{X: x, Gamma: gamma, Beta: beta}, &kernels.Norm{RMS: true, X: long, Gamma: gammaLong}
	sum, longSum := half(tokens, features), half(8192, 4096)
	addNorm, addRMS := &kernels.Norm{X: x, Other: z, Gamma: gamma, Beta: beta}, &kernels.Norm{RMS: true, X: long, Other: longGrad, Gamma: gammaLong}
	top, topIDs := half(tokens, 8), made(kernels.I64, 3, tokens, 8)
	top50, top50IDs := half(tokens, 50), made(kernels.I64, 3, tokens, 50)
	read := half(tokens, features) // drawn, and nothing writes it
	if err := d.Copy(read, x); err != nil {
		b.Fatal(err)
	}
	embedding := &kernels.Embedding{Table: table, IDs: ids}
	entropy := &kernels.CrossEntropy{Logits: logits, Targets: targets}
	const small, large, longs, bits = tokens * features * 2, tokens * hidden * 2, 8192 * 4096 * 2, 8192 * vocabulary * 2
	for _, c := range []struct {
		name  string
		bytes float64
		call  func() error
	}{
		{"copy-50MB", 2 * small, func() error { return d.Copy(y, x) }},
		{"copy-200MB", 2 * large, func() error { return d.Copy(v, u) }},
		{"add-768", 3 * small, func() error { return d.Add(x, y, z) }},
		{"add-3072", 3 * large, func() error { return d.Add(u, v, w) }},
		{"round-3072", 3 * large, func() error { return d.Copy(narrow, single) }},
		{"widen-3072", 3 * large, func() error { return d.Copy(single, narrow) }},
		{"gelu-3072", 2 * large, func() error { return d.Activate(kernels.GELUTanh, u, v) }},
		{"gelu-backward-3072", 3 * large, func() error { return d.ActivateBackward(kernels.GELUTanh, u, v, w) }},
		{"exp-3072", 2 * large, func() error { return d.Apply(kernels.Exp, u, v) }},
		{"log-backward-3072", 3 * large, func() error { return d.ApplyBackward(kernels.Log, u, v, w) }},
		{"add-scalar-3072", 2 * large, func() error { return d.AddScalar(1, u, v) }},
		{"div-3072", 3 * large, func() error { return d.Div(u, v, w) }},
		{"div-backward-3072", 5 * large, func() error { return d.DivBackward(u, v, w, gate, up) }},
		{"softmax-768", 2 * small, func() error { return d.SoftmaxForward(read, y) }},
		{"softmax-backward-768", 3 * small, func() error { return d.SoftmaxBackward(x, y, z) }},
		{"top-1-of-768", small, func() error { return d.TopK(read, top.Slice(1, 0, 1), topIDs.Slice(1, 0, 1)) }},
		{"top-8-of-768", small, func() error { return d.TopK(read, top, topIDs) }},
		{"top-50-of-768", small, func() error { return d.TopK(read, top50, top50IDs) }},
		{"gather-8-of-768", tokens * 8 * (2 + 2 + 8), func() error { return d.Gather(x, topIDs, top) }},
		{"scatter-1-to-768", small, func() error { return d.Scatter(top.Slice(1, 0, 1), topIDs.Slice(1, 0, 1), x) }},
		{"scatter-8-to-768", small, func() error { return d.Scatter(top, topIDs, x) }},
		{"swiglu-3072", 3 * large, func() error { return d.SwiGLU(u, v, w) }},
		{"swiglu-backward-3072", 5 * large, func() error { return d.SwiGLUBackward(u, v, w, gate, up) }},
		{"layernorm-768", 2 * small, func() error {
			return d.NormForward(norm, kernels.NormOutputs{Y: y, Mean: mean, RStd: rstd})
		}},
		{"add-layernorm-768", 4 * small, func() error {
			return d.NormForward(addNorm, kernels.NormOutputs{Sum: sum, Y: y, Mean: mean, RStd: rstd})
		}},
		{"layernorm-backward-768", 3 * small, func() error {
			return d.NormBackward(norm, kernels.NormGradients{DY: y, Mean: mean, RStd: rstd, DX: z, DGamma: dGamma, DBeta: dBeta})
		}},
		{"rmsnorm-4096", 2 * longs, func() error {
			return d.NormForward(rms, kernels.NormOutputs{Y: longY, RStd: rstd.Slice(0, 0, 8192)})
		}},
		{"add-rmsnorm-4096", 4 * longs, func() error {
			return d.NormForward(addRMS, kernels.NormOutputs{Sum: longSum, Y: longY, RStd: rstd.Slice(0, 0, 8192)})
		}},
		{"rmsnorm-backward-4096", 3 * longs, func() error {
			return d.NormBackward(rms, kernels.NormGradients{DY: longY, RStd: rstd.Slice(0, 0, 8192), DX: longGrad, DGamma: dGammaLong})
		}},
		{"dropout-768", 2 * small, func() error { return d.Dropout(kernels.Dropout{P: 0.1}, x, y) }},
		{"rope-12x64", 2 * small, func() error { return d.RoPEForward(&kernels.RoPE{}, rotated, turned) }},
		{"embedding", 3*small + tokens*4, func() error { return d.EmbeddingForward(embedding, y) }},
		{"embedding-backward", small + vocabulary*features*4, func() error { return d.EmbeddingBackward(embedding, y, dTable) }},
		{"cross-entropy", bits, func() error {
			return d.CrossEntropyForward(entropy, kernels.CrossEntropyOutputs{Loss: scalar, LSE: lse})
		}},
		{"cross-entropy-backward", 2 * bits, func() error {
			return d.CrossEntropyBackward(entropy, kernels.CrossEntropyGradients{LSE: lse, DLogits: logits})
		}},
		{"sumrows-768", small, func() error { return d.SumRows(x, beta, false) }},
		{"sumrows-3072", large, func() error { return d.SumRows(u, bias, false) }},
		{"sum-3072", 2 * large, func() error { return d.Sum(single, scalar) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			const calls = 10
			if err := c.call(); err != nil { // it loads the module
				b.Fatal(err)
			}
			recording, err := d.Capture(func() error {
				for range calls {
					if err := c.call(); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			if err := recording.Launch(); err != nil {
				b.Fatal(err)
			}
			from, err := d.Record()
			if err != nil {
				b.Fatal(err)
			}
			for range b.N {
				if err := recording.Launch(); err != nil {
					b.Fatal(err)
				}
			}
			to, err := d.Record()
			if err != nil {
				b.Fatal(err)
			}
			passed, err := to.Since(from)
			if err != nil {
				b.Fatal(err)
			}
			one := passed.Seconds() / float64(b.N*calls)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(one*1e6, "µs")
			b.ReportMetric(c.bytes/one/1e9, "GB/s")
		})
	}
}
