package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// halfTest makes the tensors of a call, and checks what was computed.
type halfTest struct {
	t     *testing.T
	dtype kernels.DType
	r     *rand.Rand
	b     *cpu.Backend
}

// tensor is one of a dtype whose rows have gaps between them, filled by next.
func (h *halfTest) tensor(dtype kernels.DType, next func() float64, shape ...int) kernels.Tensor {
	padded := append([]int(nil), shape...)
	last := len(shape) - 1
	if last > 0 {
		padded[last] += 3
	}
	all := kernels.Contiguous(nil, dtype, padded...)
	memory := make([]uint64, all.Elements()*dtype.Size()/8+1)
	all.Data = unsafe.Pointer(&memory[0])
	t := all
	if last > 0 {
		t = all.Slice(last, 0, shape[last])
	}
	values := make([]float64, t.Elements())
	for i := range values {
		values[i] = next()
	}
	kernels.CopyHost(t, kernels.Of(values, shape...))
	return t
}

// in is a 16-bit input, wide a float32 one, and out an output full of NaN.
func (h *halfTest) in(shape ...int) kernels.Tensor {
	return h.tensor(h.dtype, h.r.NormFloat64, shape...)
}
func (h *halfTest) wide(shape ...int) kernels.Tensor {
	return h.tensor(kernels.F32, h.r.NormFloat64, shape...)
}
func (h *halfTest) out(dtype kernels.DType, shape ...int) kernels.Tensor {
	return h.tensor(dtype, math.NaN, shape...)
}

// dense is a row-major output.
func (h *halfTest) dense(dtype kernels.DType, shape ...int) kernels.Tensor {
	n := kernels.Contiguous(nil, dtype, shape...).Elements()
	return h.out(dtype, n).Reshape(shape...)
}

// close checks an output against the reference: what float32 loses of the whole, and half a unit in
// the last place of a 16-bit element.
func (h *halfTest) close(name string, got kernels.Tensor, ref []float64) {
	h.t.Helper()
	values, most := make([]float64, got.Elements()), 0.0
	kernels.CopyHost(kernels.Of(values, got.Shape...), got)
	for _, x := range ref {
		most = max(most, math.Abs(x))
	}
	unit := map[kernels.DType]float64{kernels.BF16: 0x1p-8, kernels.F16: 0x1p-11, kernels.F32: 0x1p-24}[got.DType]
	for i, x := range ref {
		if allowed := 2e-6*most + unit*math.Abs(x) + 0x1p-25; !(math.Abs(values[i]-x) <= allowed) {
			h.t.Errorf("%s[%d] of %v is %v instead of %v, which is more than %v away", name, i, got.DType, values[i], x, allowed)
			return
		}
	}
}

// done ends the test at an error.
func (h *halfTest) done(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func numbers(t kernels.Tensor) []float64 {
	list := make([]float64, t.Elements())
	kernels.CopyHost(kernels.Of(list, t.Shape...), t)
	return list
}

// Every kernel takes 16-bit tensors, beside float32 ones where it may, and rounds its results once.
func TestHalf(t *testing.T) {
	for name, test := range map[string]func(*halfTest){
		"elements": testHalfElements, "rows": testHalfRows, "products": testHalfProducts, "embedding": testHalfEmbedding,
		"losses": testHalfLosses, "attention": testHalfAttention, "copies": testHalfCopies,
		"functions": testHalfFunctions, "indices": testHalfIndices, "experts": testHalfExperts,
	} {
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
			if slow.Racing() && dtype == kernels.F16 {
				continue // the same kernels, but for how they round
			}
			t.Run(fmt.Sprintf("%s/%v", name, dtype), func(t *testing.T) {
				test(&halfTest{t, dtype, newRandom(), &cpu.Backend{Threads: 2}})
			})
		}
	}
}

func testHalfElements(h *halfTest) {
	shape := []int{3, 5, 37}
	x, z, dy := h.in(shape...), h.in(shape...), h.in(shape...)
	out := func() kernels.Tensor { return h.out(h.dtype, shape...) }
	y, dx, dz := out(), out(), out()

	h.done(h.b.Add(x, z, y))
	h.close("add", y, reference.Add[float64](x, z))
	h.done(h.b.Mul(x, z, y))
	product, _, _ := reference.Mul(numbers(x), numbers(z), numbers(dy))
	h.close("mul", y, product)
	h.done(h.b.MulScalar(0.3, x, y))
	h.close("mul scalar", y, reference.Scale(0.3, numbers(x)))

	h.done(h.b.Activate(kernels.GELUTanh, x, y))
	h.done(h.b.ActivateBackward(kernels.GELUTanh, x, dy, dx))
	refY, refDX := reference.Activation(kernels.GELUTanh, numbers(x), numbers(dy))
	h.close("gelu", y, refY)
	h.close("gelu's dx", dx, refDX)

	h.done(h.b.SwiGLU(x, z, y))
	h.done(h.b.SwiGLUBackward(x, z, dy, dx, dz))
	refY, refDX, refDZ := reference.SwiGLU(numbers(x), numbers(z), numbers(dy))
	h.close("swiglu", y, refY)
	h.close("swiglu's dgate", dx, refDX)
	h.close("swiglu's dup", dz, refDZ)

	h.done(h.b.SoftCap(2, x, y))
	h.done(h.b.SoftCapBackward(2, y, dy, dx))
	refY, _ = reference.SoftCap(2, numbers(x), numbers(dy))
	h.close("soft cap", y, refY)
	for i, capped := range numbers(y) {
		refDX[i] = numbers(dy)[i] * (1 - capped*capped/4)
	}
	h.close("soft cap's dx", dx, refDX)

	d := kernels.Dropout{P: 0.3, Seed: 5}
	h.done(h.b.Dropout(d, x, y))
	h.close("dropout", y, reference.Dropout[float64](d, x))

	// In place.
	want := reference.Add[float64](x, z)
	h.done(h.b.Add(x, z, x))
	h.close("add in place", x, want)

	heads := h.in(2, 3, 5, 8)
	turned := h.out(h.dtype, 2, 3, 5, 8)
	r := &kernels.RoPE{Base: 100}
	h.done(h.b.RoPEForward(r, heads, turned))
	h.close("rope", turned, reference.RoPE[float64](r, heads))
	h.done(h.b.RoPEBackward(r, heads, turned))
	h.close("rope's dx", turned, reference.RoPEGrad[float64](r, heads))
}

func testHalfRows(h *halfTest) {
	const rows, n = 19, 83
	for _, parameter := range []kernels.DType{h.dtype, kernels.F32} {
		vector := func() kernels.Tensor { return h.tensor(parameter, h.r.NormFloat64, n) }
		x, dy, gamma, beta := h.in(rows, n), h.in(rows, n), vector(), vector()
		y, dx := h.out(h.dtype, rows, n), h.out(h.dtype, rows, n)
		mean, rstd := h.out(kernels.F32, rows), h.out(kernels.F32, rows)
		dGamma, dBeta := h.out(parameter, n), h.out(parameter, n)

		layer := &kernels.Norm{X: x, Gamma: gamma, Beta: beta}
		h.done(h.b.NormForward(layer, kernels.NormOutputs{Y: y, Mean: mean, RStd: rstd}))
		h.done(h.b.NormBackward(layer, kernels.NormGradients{DY: dy, Mean: mean, RStd: rstd, DX: dx, DGamma: dGamma, DBeta: dBeta}))
		refY, refMean, refRStd := reference.Norm[float64](layer)
		refDX, refDGamma, refDBeta := reference.NormGrad(layer, numbers(dy))
		h.close("layer norm", y, refY)
		h.close("mean", mean, refMean)
		h.close("rstd", rstd, refRStd)
		h.close("layer norm's dx", dx, refDX)
		h.close("layer norm's dgamma", dGamma, refDGamma)
		h.close("dbeta", dBeta, refDBeta)

		rms := &kernels.Norm{RMS: true, X: x, Gamma: gamma}
		h.done(h.b.NormForward(rms, kernels.NormOutputs{Y: y, RStd: rstd}))
		h.done(h.b.NormBackward(rms, kernels.NormGradients{DY: dy, RStd: rstd, DX: dx, DGamma: dGamma}))
		refY, _, refRStd = reference.Norm[float64](rms)
		refDX, refDGamma, _ = reference.NormGrad(rms, numbers(dy))
		h.close("rms norm", y, refY)
		h.close("rms norm's rstd", rstd, refRStd)
		h.close("rms norm's dx", dx, refDX)
		h.close("rms norm's dgamma", dGamma, refDGamma)

		sum := h.in(n)
		if parameter == kernels.F32 {
			sum = h.wide(n)
		}
		ref := reference.SumRows[float64](x)
		h.done(h.b.SumRows(x, sum, false))
		h.close("sum rows", sum, ref)
		before := numbers(sum)
		h.done(h.b.SumRows(x, sum, true))
		for j := range ref {
			ref[j] += before[j]
		}
		h.close("sum rows, added", sum, ref)
	}
	x, sum := h.in(rows, n), h.out(kernels.F32)
	h.done(h.b.Sum(x, sum))
	h.close("sum", sum, []float64{reference.Sum[float64](x)})
	h.done(h.b.Mean(x, sum))
	h.close("mean of all", sum, []float64{reference.Mean[float64](x)})
	h.done(h.b.Broadcast(sum, 0.7, x))
	h.close("broadcast", x, []float64{numbers(sum)[0] * 0.7})
}

func testHalfProducts(h *halfTest) {
	const batch, m, k, n = 2, 21, 40, 35
	for _, types := range [][2]kernels.DType{{h.dtype, h.dtype}, {h.dtype, kernels.F32}, {kernels.F32, h.dtype}, {kernels.F32, kernels.F32}} {
		p := &kernels.MatMul{A: h.in(batch, m, k), B: h.in(n, k).Permute(1, 0), Bias: h.tensor(types[0], h.r.NormFloat64, n)}
		out := kernels.MatMulOutputs{C: h.out(types[0], batch, m, n)}
		epilogue := kernels.Activate{Activation: kernels.SiLU, Pre: h.out(types[1], batch, m, n)}
		p.Epilogue = epilogue
		h.done(h.b.MatMul(p, out))
		c, pre := reference.MatMul[float64](p, nil)
		h.close("c", out.C, c)
		h.close("pre", epilogue.Pre, pre)

		// Accumulating, into a broadcast product's C.
		a := h.in(m, k)
		a.Shape, a.Strides = []int{batch, m, k}, []int{0, a.Strides[0], 1}
		p = &kernels.MatMul{A: a, B: h.in(batch, k, n), Accumulate: true}
		out = kernels.MatMulOutputs{C: h.tensor(types[0], h.r.NormFloat64, batch, m, n)}
		c, _ = reference.MatMul(p, numbers(out.C))
		h.done(h.b.MatMul(p, out))
		h.close("c, added to", out.C, c)
	}
}

func testHalfEmbedding(h *halfTest) {
	const vocabulary, n = 11, 13
	ids := kernels.Of([]int32{3, 0, 10, 3, 3, 7}, 2, 3)
	for _, types := range []struct{ table, y, dy, dTable kernels.DType }{
		{h.dtype, h.dtype, h.dtype, h.dtype}, {kernels.F32, h.dtype, h.dtype, kernels.F32},
	} {
		e := &kernels.Embedding{Table: h.tensor(types.table, h.r.NormFloat64, vocabulary, n), IDs: ids}
		y, dy, dTable := h.out(types.y, 2, 3, n), h.tensor(types.dy, h.r.NormFloat64, 2, 3, n), h.out(types.dTable, vocabulary, n)
		h.done(h.b.EmbeddingForward(e, y))
		h.close("embedding", y, reference.Embedding[float64](e))
		h.done(h.b.EmbeddingBackward(e, dy, dTable))
		h.close("embedding's gradient", dTable, reference.EmbeddingGrad(e, numbers(dy)))
	}
}

func testHalfLosses(h *halfTest) {
	const rows, vocabulary, n = 9, 50, 24
	targets := kernels.Of([]int64{1, 49, 0, 7, 7, 20, 30, 2, 5}, rows)
	options := kernels.CrossEntropyOptions{LabelSmoothing: 0.1}
	c := &kernels.CrossEntropy{Logits: h.in(rows, vocabulary), Targets: targets, CrossEntropyOptions: options}
	loss, lse, dLogits := h.out(kernels.F32), h.out(kernels.F32, rows), h.out(h.dtype, rows, vocabulary)
	h.done(h.b.CrossEntropyForward(c, kernels.CrossEntropyOutputs{Loss: loss, LSE: lse}))
	h.done(h.b.CrossEntropyBackward(c, kernels.CrossEntropyGradients{LSE: lse, DLogits: dLogits}))
	refLoss, refLSE, refDLogits := reference.CrossEntropy(c, 1.0)
	h.close("loss", loss, []float64{refLoss})
	h.close("lse", lse, refLSE)
	h.close("dlogits", dLogits, refDLogits)
	y, dy, dx := h.out(h.dtype, rows, vocabulary), h.in(rows, vocabulary), h.out(h.dtype, rows, vocabulary)
	h.done(h.b.LogSoftmaxForward(c.Logits, y))
	h.done(h.b.LogSoftmaxBackward(y, dy, dx))
	refY, _ := reference.LogSoftmax(c.Logits, numbers(dy))
	h.close("log-softmax", y, refY)
	refDX := make([]float64, len(refY))
	for i, list := 0, numbers(y); i < len(list); i += vocabulary { // from the rounded y that it is given
		sum := 0.0
		for v := range vocabulary {
			sum += numbers(dy)[i+v]
		}
		for v := range vocabulary {
			refDX[i+v] = numbers(dy)[i+v] - math.Exp(list[i+v])*sum
		}
	}
	h.close("log-softmax's gradient", dx, refDX)

	for _, weight := range []kernels.DType{h.dtype, kernels.F32} {
		for _, transposed := range []bool{false, true} {
			w, dWeight := h.tensor(weight, h.r.NormFloat64, vocabulary, n), h.out(weight, vocabulary, n)
			if transposed {
				w, dWeight = h.tensor(weight, h.r.NormFloat64, n, vocabulary).Permute(1, 0), h.out(weight, n, vocabulary).Permute(1, 0)
			}
			l := &kernels.LinearCrossEntropy{Hidden: h.in(rows, n), Weight: w, Targets: targets, CrossEntropyOptions: options}
			dHidden := h.out(h.dtype, rows, n)
			h.done(h.b.LinearCrossEntropy(l, kernels.LinearCrossEntropyOutputs{Loss: loss, DHidden: dHidden, DWeight: dWeight}))
			rounded := *l
			rounded.Weight = h.out(h.dtype, vocabulary, n)
			kernels.CopyHost(rounded.Weight, w)
			refLoss, refDHidden, refDWeight := reference.LinearCrossEntropy[float64](&rounded)
			h.close("linear loss", loss, []float64{refLoss})
			h.close("dhidden", dHidden, refDHidden)
			h.close("dweight", dWeight, refDWeight)
		}
	}
}

func testHalfAttention(h *halfTest) {
	defer simd.SetTiles(false)() // which round probabilities; see TestAttentionInTiles
	const batch, heads, sq, sk, d = 2, 4, 37, 53, 24
	for _, added := range []kernels.DType{h.dtype, kernels.F32} {
		a := &kernels.Attention{
			Q: h.in(batch, sq, heads, d).Permute(0, 2, 1, 3), K: h.in(batch, heads/2, sk, d), V: h.in(batch, heads/2, sk, d),
			Bias: h.tensor(added, h.r.NormFloat64, 1, heads, sq, sk), Sinks: h.tensor(added, h.r.NormFloat64, heads), Causal: kernels.CausalBottomRight,
		}
		o, lse, delta := h.out(h.dtype, batch, heads, sq, d), h.dense(kernels.F32, batch, heads, sq), h.dense(kernels.F32, batch, heads, sq)
		h.done(h.b.AttentionForward(a, kernels.AttentionOutputs{O: o, LSE: lse}))
		refO, refLSE := reference.Attention(a)
		h.close("o", o, refO)
		h.close("attention's lse", lse, refLSE)

		dO := h.in(batch, heads, sq, d)
		h.done(h.b.AttentionDelta(a, o, dO, kernels.Tensor{}, delta))
		h.close("delta", delta, reference.AttentionDelta(a, numbers(o), numbers(dO), nil))
		// The gradients of the reference are those of the unrounded o: so is δ, to compare them.
		exact := reference.AttentionDelta(a, refO, numbers(dO), nil)
		kernels.CopyHost(delta, kernels.Of(exact, batch, heads, sq))
		g := kernels.AttentionGradients{DO: dO, LSE: lse, Delta: delta,
			DQ: h.out(h.dtype, batch, heads, sq, d), DK: h.out(h.dtype, batch, heads/2, sk, d), DV: h.out(h.dtype, batch, heads/2, sk, d),
			DBias: h.dense(added, 1, heads, sq, sk), DSinks: h.out(added, heads)}
		h.done(h.b.AttentionBackward(a, g))
		ref := reference.AttentionGrad(a, numbers(dO), nil)
		h.close("dq", g.DQ, ref.DQ)
		h.close("dk", g.DK, ref.DK)
		h.close("dv", g.DV, ref.DV)
		h.close("dbias", g.DBias, ref.DBias)
		h.close("dsinks", g.DSinks, ref.DSinks)
	}
}

func testHalfCopies(h *halfTest) {
	for _, shape := range [][]int{{}, {1}, {7}, {3, 100}, {300, 100}, {2, 1, 5, 30}, {4, 0, 3}} {
		x := h.tensor(kernels.F32, h.r.NormFloat64, shape...)
		half, back := h.out(h.dtype, shape...), h.out(kernels.F64, shape...)
		h.done(h.b.Copy(half, x))
		h.close("rounded", half, numbers(x))
		h.done(h.b.Copy(back, half))
		came := numbers(back)
		for i, want := range numbers(half) {
			if got := came[i]; got != want {
				h.t.Fatalf("element %d of shape %v came back as %v instead of %v", i, shape, got, want)
			}
		}
		if len(shape) == 2 {
			turned := h.out(h.dtype, shape[1], shape[0])
			h.done(h.b.Copy(turned, x.Permute(1, 0)))
			h.close("transposed", turned, numbers(x.Permute(1, 0)))
			h.done(h.b.Copy(turned, half.Permute(1, 0)))
			if !slices.Equal(numbers(turned), numbers(half.Permute(1, 0))) {
				h.t.Errorf("elements of shape %v are others once they are transposed", shape)
			}
		}
	}
}

func testHalfFunctions(h *halfTest) {
	shape := []int{3, 5, 37}
	positive := func() float64 { return 0.5 + h.r.Float64() }
	x, z, dy := h.tensor(h.dtype, positive, shape...), h.tensor(h.dtype, positive, shape...), h.in(shape...)
	out := func() kernels.Tensor { return h.out(h.dtype, shape...) }
	y, dx, dz := out(), out(), out()

	for _, f := range kernels.Functions() {
		h.done(h.b.Apply(f, x, y))
		h.done(h.b.ApplyBackward(f, x, dy, dx))
		refY, refDX := reference.Function(f, numbers(x), numbers(dy))
		h.close(f.String(), y, refY)
		h.close(f.String()+"'s dx", dx, refDX)
	}

	h.done(h.b.Div(x, z, y))
	refY, refDX, refDZ := reference.Div(numbers(x), numbers(z), numbers(dy))
	h.close("div", y, refY)
	h.done(h.b.DivBackward(x, z, dy, dx, dz))
	h.close("div's da", dx, refDX)
	h.close("div's db", dz, refDZ)

	h.done(h.b.AddScalar(0.7, x, y))
	h.close("add scalar", y, reference.AddScalar(0.7, numbers(x)))

	h.done(h.b.SoftmaxForward(x, y))
	refY, _ = reference.Softmax(x, numbers(dy))
	h.close("softmax", y, refY)
	h.done(h.b.SoftmaxBackward(y, dy, dx))
	rounded, n := numbers(y), shape[len(shape)-1]
	for i := range rounded {
		dot := 0.0
		for j := i / n * n; j < i/n*n+n; j++ {
			dot += rounded[j] * numbers(dy)[j]
		}
		refDX[i] = rounded[i] * (numbers(dy)[i] - dot)
	}
	h.close("softmax's dx", dx, refDX)

	gate, pairs, half := kernels.ClampedGate{Slope: 1.702, Limit: 1}, h.in(3, 5, 38), h.in(3, 5, 19)
	gated, dPairs := h.out(h.dtype, 3, 5, 19), h.out(h.dtype, 3, 5, 38)
	h.done(h.b.ClampedGate(gate, pairs, gated))
	h.done(h.b.ClampedGateBackward(gate, pairs, half, dPairs))
	refY, refDX = reference.ClampedGate(gate, numbers(pairs), numbers(half))
	h.close("clamped gate", gated, refY)
	h.close("clamped gate's dx", dPairs, refDX)
}

func testHalfIndices(h *halfTest) {
	const rows, n, k = 7, 50, 9
	x, picked, few, y := h.in(rows, n), h.out(h.dtype, rows, k), h.in(rows, k), h.out(h.dtype, rows, n)
	ids := kernels.Of(make([]int32, rows*k), rows, k)
	h.done(h.b.TopK(x, picked, ids))
	values, _ := reference.TopK[float64](x, k)
	h.close("top-k", picked, values)
	h.done(h.b.Gather(x, ids, picked))
	h.close("gather", picked, values)
	list := kernels.Host[int32](ids)
	for i := range list {
		list[i] = int32(h.r.IntN(n)) // so that some repeat
	}
	h.done(h.b.Scatter(few, ids, y))
	h.close("scatter", y, reference.Scatter(numbers(few), ids, n))
}

func testHalfExperts(h *halfTest) {
	const tokens, experts, chosen, n = 13, 6, 2, 21
	r := &kernels.Routing{Logits: h.in(tokens, experts), RouterOptions: kernels.RouterOptions{Chosen: chosen}}
	size := kernels.AssignmentSize(tokens, experts, chosen)
	a := kernels.AssignmentOf(kernels.Of(make([]int32, size), size), experts, chosen)
	weights, dWeights := h.dense(kernels.F32, tokens, chosen), h.wide(tokens*chosen).Reshape(tokens, chosen)
	dLogits := h.out(h.dtype, tokens, experts)
	h.done(h.b.Route(r, weights, a))
	h.done(h.b.RouteBackward(r, a, dWeights, dLogits))
	h.close("weights", weights, reference.Route[float64](r).Weights)
	h.close("dlogits", dLogits, reference.RouteGrad(r, numbers(dWeights)))

	x, sorted, back := h.in(tokens, n), h.out(h.dtype, tokens*chosen, n), h.out(h.dtype, tokens, n)
	h.done(h.b.Dispatch(x, kernels.Tensor{}, a, sorted))
	h.close("dispatched", sorted, reference.Dispatch(numbers(x), nil, a))
	h.done(h.b.Combine(sorted, weights, a, back))
	h.close("combined", back, reference.Combine(numbers(sorted), numbers(weights), a))
	h.done(h.b.CombineFactors(sorted, x, a, dWeights))
	h.close("dfactors", dWeights, reference.CombineFactors(numbers(sorted), numbers(x), a))
}
