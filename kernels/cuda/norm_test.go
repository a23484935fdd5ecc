//go:build gpu

package cuda_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// plus adds lists.
func plus[T kernels.Float](a, b []T) []T {
	sum := slices.Clone(a)
	for i := range sum {
		sum[i] += b[i]
	}
	return sum
}

// rounded is a tensor of the host of numbers rounded to a dtype.
func (r *rowwiseTest) rounded(dtype kernels.DType, list []float64, shape []int) kernels.Tensor {
	t := hostTensor(kernels.F64, shape...)
	for i, x := range list {
		kernels.Host[float64](t)[i] = roundedTo(dtype, x)
	}
	return t
}

// roundedSingles is numbers rounded to a dtype, as an unfused program stores them.
func (r *rowwiseTest) roundedSingles(dtype kernels.DType, list []float32) []float32 {
	rounded := make([]float32, len(list))
	for i, x := range list {
		rounded[i] = float32(roundedTo(dtype, float64(x)))
	}
	return rounded
}

func TestLayerNorm(t *testing.T) {
	for _, dtype := range halfAndFull {
		for i, s := range fieldShapes {
			for _, wide := range parameterTypes(dtype) {
				r := newRowwiseTest(t, "%v %v gap %d parameters %v", dtype, s.shape, s.gap, wide)
				c := s.shape[len(s.shape)-1]
				rows := s.shape[:len(s.shape)-1]
				x, dy, gamma, beta := r.normals(dtype, s.gap, s.shape...), r.normals(dtype, 0, s.shape...), r.normals(wide, 0, c), r.normals(wide, 0, c)
				n, host := kernels.Norm{X: x.Tensor, Eps: 1e-4}, kernels.Norm{X: x.host, Eps: 1e-4}
				if i%3 != 1 {
					n.Gamma, host.Gamma, n.Beta, host.Beta = gamma.Tensor, gamma.host, beta.Tensor, beta.host
				}
				y, mean, rstd := r.empty(dtype, s.gap, s.shape...), r.empty(kernels.F32, 0, rows...), r.empty(kernels.F32, 0, rows...)
				r.must(r.d.NormForward(&n, kernels.NormOutputs{Y: y.Tensor, Mean: mean.Tensor, RStd: rstd.Tensor}))
				wantY, wantMean, wantRStd := reference.Norm[float64](&host)
				plainY, plainMean, plainRStd := reference.Norm[float32](&host)
				r.check("y", y, wantY, plainY)
				r.checkSum("mean", mean, wantMean, plainMean, greatest(x.values()))
				r.check("rstd", rstd, wantRStd, plainRStd)

				dx, dGamma, dBeta := r.empty(dtype, s.gap, s.shape...), r.empty(wide, 0, c), r.empty(wide, 0, c)
				g := kernels.NormGradients{DY: dy.Tensor, Mean: mean.Tensor, RStd: rstd.Tensor, DX: dx.Tensor, DGamma: dGamma.Tensor, DBeta: dBeta.Tensor}
				r.must(r.d.NormBackward(&n, g))
				wantX, wantGamma, wantBeta := reference.NormGrad(&host, dy.values())
				plainX, plainGamma, plainBeta := reference.NormGrad(&host, single(dy.values()))
				terms := greatest(wantRStd) * greatest(dy.values()) * greatest(gamma.values()) // of dx
				r.checkSum("dx", dx, wantX, plainX, terms)
				r.check("dGamma", dGamma, wantGamma, plainGamma)
				r.check("dBeta", dBeta, wantBeta, plainBeta)

				// A sum is normalised, and has a gradient of its own.
				other, dSum, sum, sumY, sumDX := r.normals(dtype, 0, s.shape...), r.normals(dtype, s.gap, s.shape...), r.empty(dtype, s.gap, s.shape...), r.empty(dtype, 0, s.shape...), r.empty(dtype, 0, s.shape...)
				of, ofHost := n, host
				of.Other, ofHost.X = other.Tensor, r.rounded(dtype, reference.Add[float64](x.host, other.host), s.shape)
				sumMean, sumRStd := r.empty(kernels.F32, 0, rows...), r.empty(kernels.F32, 0, rows...)
				r.must(r.d.NormForward(&of, kernels.NormOutputs{Y: sumY.Tensor, Sum: sum.Tensor, Mean: sumMean.Tensor, RStd: sumRStd.Tensor}))
				r.checkSame("x + other", sum, kernels.Host[float64](ofHost.X))
				r.checkGaps("x + other", sum)
				wantY, _, wantRStd = reference.Norm[float64](&ofHost)
				plainY, _, _ = reference.Norm[float32](&ofHost)
				r.check("y of the sum", sumY, wantY, plainY)
				of.X, of.Other = sum.Tensor, kernels.Tensor{}
				r.must(r.d.NormBackward(&of, kernels.NormGradients{DY: dy.Tensor, DSum: dSum.Tensor, Mean: sumMean.Tensor, RStd: sumRStd.Tensor,
					DX: sumDX.Tensor, DGamma: dGamma.Tensor}))
				wantOf, _, _ := reference.NormGrad(&ofHost, dy.values())
				plainOf, _, _ := reference.NormGrad(&ofHost, single(dy.values()))
				ofTerms := greatest(wantRStd) * greatest(dy.values()) * greatest(gamma.values())
				r.checkSum("dx of the sum", sumDX, plus(wantOf, dSum.values()), plus(r.roundedSingles(dtype, plainOf), single(dSum.values())), ofTerms)
				sums := r.empty(wide, 0, c)
				for _, summed := range []kernels.NormGradients{{DGamma: dGamma.Tensor}, {DGamma: dGamma.Tensor, DBeta: dBeta.Tensor, DSum: dSum.Tensor}, {DSum: dSum.Tensor}} {
					summed.DY, summed.Mean, summed.RStd, summed.DX, summed.DXSums = dy.Tensor, sumMean.Tensor, sumRStd.Tensor, sumDX.Tensor, sums.Tensor
					r.must(errors.Join(r.d.Fill(sums.Tensor, math.NaN()), r.d.NormBackward(&of, summed)))
					all, plain := wantOf, r.roundedSingles(dtype, plainOf)
					if summed.DSum.IsSet() {
						all, plain = plus(all, dSum.values()), r.roundedSingles(dtype, plus(plain, single(dSum.values())))
					}
					r.checkSum("the sums of dx", sums, reference.SumRows[float64](kernels.Of(all, s.shape...)), reference.SumRows[float32](kernels.Of(plain, s.shape...)), ofTerms*float64(len(all)/c))
				}
				before := r.values(sumDX)
				r.must(r.d.NormBackward(&of, kernels.NormGradients{DY: dy.Tensor, DSum: dSum.Tensor, Mean: sumMean.Tensor, RStd: sumRStd.Tensor, DX: dSum.Tensor}))
				r.checkSum("dx of the sum alone, in place", dSum, plus(wantOf, dSum.values()), plus(r.roundedSingles(dtype, plainOf), single(dSum.values())), ofTerms)
				r.checkSame("dx of the sum", sumDX, before)

				r.must(r.d.NormBackward(&n, g))
				first := r.values(dGamma)
				r.must(errors.Join(r.d.Fill(dGamma.Tensor, math.NaN()), r.d.NormBackward(&n, g)))
				r.checkSame("dGamma", dGamma, first)

				// Each part alone, and dx in the place of dy.
				alone := r.empty(wide, 0, c)
				g.DX, g.DGamma, g.DBeta = kernels.Tensor{}, kernels.Tensor{}, alone.Tensor
				r.must(r.d.NormBackward(&n, g))
				r.check("dBeta alone", alone, wantBeta, plainBeta)
				g.DX, g.DBeta = dy.Tensor, kernels.Tensor{}
				r.must(r.d.NormBackward(&n, g))
				r.checkSum("dx alone, in place", dy, wantX, plainX, terms)
			}
		}
	}
}

func TestRMSNorm(t *testing.T) {
	for _, dtype := range halfAndFull {
		for i, s := range fieldShapes {
			for _, wide := range parameterTypes(dtype) {
				r := newRowwiseTest(t, "%v %v gap %d gamma %v", dtype, s.shape, s.gap, wide)
				c := s.shape[len(s.shape)-1]
				rows := s.shape[:len(s.shape)-1]
				x, dy, gamma := r.normals(dtype, s.gap, s.shape...), r.normals(dtype, 0, s.shape...), r.normals(wide, 0, c)
				n, host := kernels.Norm{RMS: true, X: x.Tensor}, kernels.Norm{RMS: true, X: x.host}
				if i%3 != 1 {
					n.Gamma, host.Gamma = gamma.Tensor, gamma.host
				}
				y, rstd := r.empty(dtype, s.gap, s.shape...), r.empty(kernels.F32, 0, rows...)
				r.must(r.d.NormForward(&n, kernels.NormOutputs{Y: y.Tensor, RStd: rstd.Tensor}))
				wantY, _, wantRStd := reference.Norm[float64](&host)
				plainY, _, plainRStd := reference.Norm[float32](&host)
				r.check("y", y, wantY, plainY)
				r.check("rstd", rstd, wantRStd, plainRStd)
				dx, dGamma := r.empty(dtype, s.gap, s.shape...), r.empty(wide, 0, c)
				r.must(r.d.NormBackward(&n, kernels.NormGradients{DY: dy.Tensor, RStd: rstd.Tensor, DX: dx.Tensor, DGamma: dGamma.Tensor}))
				wantX, wantGamma, _ := reference.NormGrad(&host, dy.values())
				plainX, plainGamma, _ := reference.NormGrad(&host, single(dy.values()))
				r.checkSum("dx", dx, wantX, plainX, greatest(wantRStd)*greatest(dy.values())*greatest(gamma.values()))
				r.check("dGamma", dGamma, wantGamma, plainGamma)

				other, dSum, sum := r.normals(dtype, 0, s.shape...), r.normals(dtype, s.gap, s.shape...), r.empty(dtype, s.gap, s.shape...)
				of, ofHost := n, host
				of.Other, ofHost.X = other.Tensor, r.rounded(dtype, reference.Add[float64](x.host, other.host), s.shape)
				r.must(r.d.NormForward(&of, kernels.NormOutputs{Y: y.Tensor, Sum: sum.Tensor, RStd: rstd.Tensor}))
				r.checkSame("x + other", sum, kernels.Host[float64](ofHost.X))
				wantY, _, wantRStd = reference.Norm[float64](&ofHost)
				plainY, _, _ = reference.Norm[float32](&ofHost)
				r.check("y of the sum", y, wantY, plainY)
				of.X, of.Other = sum.Tensor, kernels.Tensor{}
				g := kernels.NormGradients{DY: dy.Tensor, DSum: dSum.Tensor, RStd: rstd.Tensor, DX: dx.Tensor, DGamma: dGamma.Tensor}
				r.must(r.d.NormBackward(&of, g))
				first, sums, alone := r.values(dx), r.empty(wide, 0, c), r.empty(wide, 0, c)
				g.DXSums = sums.Tensor
				r.must(errors.Join(r.d.NormBackward(&of, g), r.d.SumRows(dx.Tensor, alone.Tensor, false)))
				r.checkSame("dx beside its sums", dx, first)
				r.checkSame("the sums of dx", sums, r.values(alone))
				wantX, wantGamma, _ = reference.NormGrad(&ofHost, dy.values())
				plainX, plainGamma, _ = reference.NormGrad(&ofHost, single(dy.values()))
				r.checkSum("dx of the sum", dx, plus(wantX, dSum.values()), plus(r.roundedSingles(dtype, plainX), single(dSum.values())), greatest(wantRStd)*greatest(dy.values())*greatest(gamma.values()))
				r.check("dGamma of the sum", dGamma, wantGamma, plainGamma)
			}
		}
	}
}

// A mean a thousand times the deviation costs no more digits than rounding the input did, and a NaN
// stays in its row.
func TestNormsKeepDigitsAndRows(t *testing.T) {
	for _, c := range []int{64, 769, 8192, 40000} {
		r := newRowwiseTest(t, "%d features", c)
		x := r.filled(kernels.F32, 0, func() float64 { return 1000 + r.random.NormFloat64() }, 3, c)
		y := r.empty(kernels.F32, 0, 3, c)
		r.must(r.d.NormForward(&kernels.Norm{X: x.Tensor}, kernels.NormOutputs{Y: y.Tensor}))
		want, _, _ := reference.Norm[float64](&kernels.Norm{X: x.host})
		r.check("y", y, want, single(want))

		r.must(r.d.Fill(x.Slice(0, 1, 2).Slice(1, 5, 6), math.NaN()))
		r.must(r.d.NormForward(&kernels.Norm{X: x.Tensor}, kernels.NormOutputs{Y: y.Tensor}))
		for i, v := range r.values(y) {
			if math.IsNaN(v) != (i/c == 1) {
				t.Fatalf("%s: element %d of row %d is %v, where row 1 has a NaN", r.name, i%c, i/c, v)
			}
		}
	}
}
