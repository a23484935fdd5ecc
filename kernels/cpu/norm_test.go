package cpu_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// perRow is the shape of a tensor without its last axis.
func perRow(shape []int) []int { return shape[:len(shape)-1] }

func last(shape []int) int { return shape[len(shape)-1] }

// plus adds lists.
func plus[T kernels.Float](a, b []T) []T {
	sum := slices.Clone(a)
	for i := range sum {
		sum[i] += b[i]
	}
	return sum
}

func TestLayerNorm(t *testing.T) { bothTypes(t, testLayerNorm[float32], testLayerNorm[float64]) }

func testLayerNorm[T kernels.Float](t *testing.T) {
	for i, s := range fieldShapes() {
		r := newRandom()
		f := func() field[T] { return newField[T](r, s.gap, s.shape...) }
		vector := func() field[T] { return newField[T](r, 0, last(s.shape)) }
		rows := func() field[T] { return newField[T](r, 0, perRow(s.shape)...) }
		x, dy, y, dx, gamma, beta, dGamma, dBeta, mean, rstd := f(), f(), f(), f(), vector(), vector(), vector(), vector(), rows(), rows()
		if x.Elements() > 100 {
			x.memory[50] = T(math.NaN())
		}
		n := &kernels.Norm{X: x.Tensor, Gamma: gamma.Tensor, Beta: beta.Tensor, Eps: []float64{0, 0.5}[i%2]}
		if i%3 == 2 {
			n.Gamma, n.Beta = kernels.Tensor{}, kernels.Tensor{}
		}
		refY, refMean, refRStd := reference.Norm[float64](n)
		ptY, ptMean, ptRStd := reference.Norm[T](n)
		refDX, refDGamma, refDBeta := reference.NormGrad(n, dy.values())
		ptDX, ptDGamma, ptDBeta := reference.NormGrad(n, dy.typed())
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			if err := b.NormForward(n, kernels.NormOutputs{Y: y.Tensor, Mean: mean.Tensor, RStd: rstd.Tensor}); err != nil {
				return nil, err
			}
			err := b.NormBackward(n, kernels.NormGradients{DY: dy.Tensor, Mean: mean.Tensor, RStd: rstd.Tensor,
				DX: dx.Tensor, DGamma: dGamma.Tensor, DBeta: dBeta.Tensor})
			return []result{
				resultOf("y", y, refY, ptY), resultOf("mean", mean, refMean, ptMean), resultOf("rstd", rstd, refRStd, ptRStd),
				resultOf("dx", dx, refDX, ptDX), resultOf("dGamma", dGamma, refDGamma, ptDGamma), resultOf("dBeta", dBeta, refDBeta, ptDBeta),
			}, err
		})

		// A sum is normalised, and has a gradient of its own.
		other, sum, dSum, dxSums := f(), f(), f(), vector()
		added := *n
		added.Other = other.Tensor
		refY, _, _ = reference.Norm[float64](&added)
		ptY, _, _ = reference.Norm[T](&added)
		refDX, refDGamma, _ = reference.NormGrad(&added, dy.values())
		ptDX, ptDGamma, _ = reference.NormGrad(&added, dy.typed())
		verify[T](t, name(s.shape, s.gap)+" of a sum", func(b *cpu.Backend) ([]result, error) {
			if err := b.NormForward(&added, kernels.NormOutputs{Y: y.Tensor, Sum: sum.Tensor, Mean: mean.Tensor, RStd: rstd.Tensor}); err != nil {
				return nil, err
			}
			of := *n
			of.X = sum.Tensor
			err := b.NormBackward(&of, kernels.NormGradients{DY: dy.Tensor, DSum: dSum.Tensor, Mean: mean.Tensor, RStd: rstd.Tensor,
				DX: dx.Tensor, DGamma: dGamma.Tensor, DBeta: dBeta.Tensor, DXSums: dxSums.Tensor})
			return []result{
				resultOf("dx's sums", dxSums, reference.SumRows[float64](kernels.Of(plus(refDX, dSum.values()), s.shape...)), reference.SumRows[T](kernels.Of(plus(ptDX, dSum.typed()), s.shape...))),
				resultOf("sum", sum, reference.Add[float64](x.Tensor, other.Tensor), reference.Add[T](x.Tensor, other.Tensor)), resultOf("y", y, refY, ptY),
				resultOf("dx", dx, plus(refDX, dSum.values()), plus(ptDX, dSum.typed())), resultOf("dGamma", dGamma, refDGamma, ptDGamma),
			}, err
		})
	}
}

// With a mean ten thousand times the deviation, what is left of float32 is used: the results are as
// exact as the inputs allow, far closer than the obvious loop.
func TestLayerNormFarFromZero(t *testing.T) {
	r := newRandom()
	x, y := newField[float32](r, 0, 37, 771), newField[float32](r, 0, 37, 771)
	x.each(func(at *float32) { *at += 1e4 })
	n := &kernels.Norm{X: x.Tensor}
	want, _, _ := reference.Norm[float64](n)
	verify[float32](t, "mean=1e4", func(b *cpu.Backend) ([]result, error) {
		err := b.NormForward(n, kernels.NormOutputs{Y: y.Tensor})
		// An unfused program has few digits left here.
		return []result{{name: "y", got: y.values(), ref: want, pt: want, steps: 8}}, err
	})
}

func TestRMSNorm(t *testing.T) { bothTypes(t, testRMSNorm[float32], testRMSNorm[float64]) }

func testRMSNorm[T kernels.Float](t *testing.T) {
	for i, s := range fieldShapes() {
		r := newRandom()
		f := func() field[T] { return newField[T](r, s.gap, s.shape...) }
		x, dy, y, dx := f(), f(), f(), f()
		gamma, dGamma, rstd := newField[T](r, 0, last(s.shape)), newField[T](r, 0, last(s.shape)), newField[T](r, 0, perRow(s.shape)...)
		n := &kernels.Norm{RMS: true, X: x.Tensor, Gamma: gamma.Tensor, Eps: []float64{0, 0.5}[i%2]}
		if i%3 == 2 {
			n.Gamma = kernels.Tensor{}
		}
		refY, _, refRStd := reference.Norm[float64](n)
		ptY, _, ptRStd := reference.Norm[T](n)
		refDX, refDGamma, _ := reference.NormGrad(n, dy.values())
		ptDX, ptDGamma, _ := reference.NormGrad(n, dy.typed())
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			if err := b.NormForward(n, kernels.NormOutputs{Y: y.Tensor, RStd: rstd.Tensor}); err != nil {
				return nil, err
			}
			err := b.NormBackward(n, kernels.NormGradients{DY: dy.Tensor, RStd: rstd.Tensor, DX: dx.Tensor, DGamma: dGamma.Tensor})
			results := []result{
				resultOf("y", y, refY, ptY), resultOf("rstd", rstd, refRStd, ptRStd),
				resultOf("dx", dx, refDX, ptDX), resultOf("dGamma", dGamma, refDGamma, ptDGamma),
			}
			if last(s.shape) == 1 { // dx = rstd·(g − x̂²·g), with x̂² near 1
				g := 1.0
				if n.Gamma.IsSet() {
					g = float64(gamma.memory[0])
				}
				for row, rstd := range refRStd {
					results[2].terms = max(results[2].terms, math.Abs(rstd*dy.values()[row]*g))
				}
			}
			return results, err
		})

		other, sum, dSum, dxSums := f(), f(), f(), newField[T](r, 0, last(s.shape))
		added := *n
		added.Other = other.Tensor
		refY, _, _ = reference.Norm[float64](&added)
		ptY, _, _ = reference.Norm[T](&added)
		refDX, _, _ = reference.NormGrad(&added, dy.values())
		ptDX, _, _ = reference.NormGrad(&added, dy.typed())
		verify[T](t, name(s.shape, s.gap)+" of a sum", func(b *cpu.Backend) ([]result, error) {
			if err := b.NormForward(&added, kernels.NormOutputs{Y: y.Tensor, Sum: sum.Tensor, RStd: rstd.Tensor}); err != nil {
				return nil, err
			}
			of := *n
			of.X = sum.Tensor
			err := b.NormBackward(&of, kernels.NormGradients{DY: dy.Tensor, DSum: dSum.Tensor, RStd: rstd.Tensor,
				DX: dx.Tensor, DGamma: dGamma.Tensor, DXSums: dxSums.Tensor})
			refAll, ptAll := plus(refDX, dSum.values()), plus(ptDX, dSum.typed())
			refSums, ptSums := reference.SumRows[float64](kernels.Of(refAll, s.shape...)), reference.SumRows[T](kernels.Of(ptAll, s.shape...))
			return []result{
				resultOf("y", y, refY, ptY), resultOf("dx", dx, refAll, ptAll), resultOf("dx's sums", dxSums, refSums, ptSums),
			}, err
		})
	}
}

// The gradients may be had one by one, and dx in the place of dy.
func TestNormGradientsInParts(t *testing.T) {
	r := newRandom()
	const rows, c = 100, 37
	x, gamma, dy := newField[float64](r, 0, rows, c), newField[float64](r, 0, c), newField[float64](r, 0, rows, c)
	mean, rstd, y := newField[float64](r, 0, rows), newField[float64](r, 0, rows), newField[float64](r, 0, rows, c)
	n := &kernels.Norm{X: x.Tensor, Gamma: gamma.Tensor}
	wantDX, wantDGamma, wantDBeta := reference.NormGrad(n, dy.values())
	dGamma, dBeta := newField[float64](r, 0, c), newField[float64](r, 0, c)
	verify[float64](t, "parts", func(b *cpu.Backend) ([]result, error) {
		dx := newField[float64](r, 0, rows, c)
		copy(dx.memory, dy.memory)
		if err := b.NormForward(n, kernels.NormOutputs{Y: y.Tensor, Mean: mean.Tensor, RStd: rstd.Tensor}); err != nil {
			return nil, err
		}
		g := kernels.NormGradients{DY: dy.Tensor, Mean: mean.Tensor, RStd: rstd.Tensor}
		for _, part := range []kernels.NormGradients{{DX: dx.Tensor}, {DGamma: dGamma.Tensor}, {DBeta: dBeta.Tensor}} {
			part.DY, part.Mean, part.RStd = g.DY, g.Mean, g.RStd
			if part.DX.IsSet() {
				part.DY = dx.Tensor
			}
			if err := b.NormBackward(n, part); err != nil {
				return nil, err
			}
		}
		return []result{resultOf("dx", dx, wantDX, wantDX), resultOf("dGamma", dGamma, wantDGamma, wantDGamma),
			resultOf("dBeta", dBeta, wantDBeta, wantDBeta)}, nil
	})
}

func TestNormErrors(t *testing.T) {
	b := cpu.New()
	x, v, none := kernels.Of(make([]float32, 6), 2, 3), kernels.Of(make([]float32, 2), 2), kernels.Tensor{}
	checkErrors(t, []errorCase{
		{"cpu: norm forward: x is missing", b.NormForward(&kernels.Norm{}, kernels.NormOutputs{})},
		{"cpu: norm forward: x has shape [2 0], it needs at least one element along a last axis",
			b.NormForward(&kernels.Norm{X: shapeOnly(2, 0)}, kernels.NormOutputs{})},
		{"cpu: norm forward: gamma has shape [2], it needs one value for each of x's 3 features",
			b.NormForward(&kernels.Norm{X: x, Gamma: v}, kernels.NormOutputs{Y: x})},
		{"cpu: norm forward: beta is float64, with x of float32 it needs to be float32",
			b.NormForward(&kernels.Norm{X: x, Beta: kernels.Of(make([]float64, 3), 3)}, kernels.NormOutputs{Y: x})},
		{"cpu: norm forward: eps is -1, it needs to be positive, or 0 for 1e-5",
			b.NormForward(&kernels.Norm{X: x, Eps: -1}, kernels.NormOutputs{Y: x})},
		{"cpu: norm forward: rstd is missing, it needs shape [2]",
			b.NormForward(&kernels.Norm{X: x}, kernels.NormOutputs{Y: x, Mean: v})},
		{"cpu: norm backward: mean is missing, it needs shape [2]",
			b.NormBackward(&kernels.Norm{X: x}, kernels.NormGradients{DY: x, RStd: v, DX: x})},
		{"cpu: norm forward: y is missing, it needs shape [2 3]", b.NormForward(&kernels.Norm{RMS: true, X: x}, kernels.NormOutputs{Y: none})},
		{"cpu: norm backward: dGamma has shape [2] and strides [1], it needs shape [3]",
			b.NormBackward(&kernels.Norm{RMS: true, X: x}, kernels.NormGradients{DY: x, RStd: v, DGamma: v})},
		{"cpu: norm forward: other is float32 of shape [2], x is float32 of shape [2 3]: they need one dtype and shape",
			b.NormForward(&kernels.Norm{X: x, Other: v}, kernels.NormOutputs{Y: x, Sum: x})},
		{"cpu: norm forward: other has shape [2 3] and no dtype, what is left out is the zero Tensor",
			b.NormForward(&kernels.Norm{X: x, Other: kernels.Tensor{Data: x.Data, Shape: x.Shape, Strides: x.Strides}}, kernels.NormOutputs{Y: x})},
		{"cpu: norm forward: sum is missing, it needs shape [2 3]",
			b.NormForward(&kernels.Norm{X: x, Other: x}, kernels.NormOutputs{Y: x})},
		{"cpu: norm forward: other is missing, it needs shape [2 3]",
			b.NormForward(&kernels.Norm{RMS: true, X: x}, kernels.NormOutputs{Y: x, Sum: x})},
		{"cpu: norm backward: dSum has shape [2] and strides [1], it needs shape [2 3]",
			b.NormBackward(&kernels.Norm{RMS: true, X: x}, kernels.NormGradients{DY: x, DSum: v, RStd: v, DX: x})},
	})
}
