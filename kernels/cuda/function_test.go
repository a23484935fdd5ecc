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

func TestFunctions(t *testing.T) {
	for _, dtype := range halfAndFull {
		for _, s := range fieldShapes {
			r := newRowwiseTest(t, "%v %v gap %d", dtype, s.shape, s.gap)
			x, dy := r.normals(dtype, s.gap, s.shape...), r.normals(dtype, 2*s.gap, s.shape...)
			y, dx, db := r.empty(dtype, s.gap, s.shape...), r.empty(dtype, 0, s.shape...), r.empty(dtype, s.gap, s.shape...)
			// x is −1.5 to 1.5 but for some, away from 0, and its size is for the functions of
			// positive numbers.
			size := r.normals(dtype, s.gap, s.shape...)
			r.must(errors.Join(r.d.MulScalar(0.1, size.Tensor, size.Tensor), r.d.AddScalar(1.5, size.Tensor, size.Tensor)))
			positive := kernels.Of(r.values(size), s.shape...)
			for _, f := range kernels.Functions() {
				of, numbers := size, kernels.Host[float64](positive)
				if f == kernels.Exp || f == kernels.Abs {
					of, numbers = x, x.values()
				}
				r.must(errors.Join(r.d.Apply(f, of.Tensor, y.Tensor), r.d.ApplyBackward(f, of.Tensor, dy.Tensor, dx.Tensor)))
				want, slope := reference.Function(f, numbers, dy.values())
				plain, plainSlope := reference.Function(f, single(numbers), single(dy.values()))
				r.check(f.String(), y, want, plain)
				r.check(f.String()+"'", dx, slope, plainSlope)
			}
			r.must(r.d.AddScalar(-0.3, x.Tensor, y.Tensor))
			r.check("x − 0.3", y, reference.AddScalar(-0.3, x.values()), reference.AddScalar(-0.3, single(x.values())))
			numbers := kernels.Host[float64](positive)
			r.must(errors.Join(r.d.Div(x.Tensor, size.Tensor, y.Tensor)))
			want, dA, dB := reference.Div(x.values(), numbers, dy.values())
			plain, plainA, plainB := reference.Div(single(x.values()), single(numbers), single(dy.values()))
			r.check("a/b", y, want, plain)
			r.must(r.d.DivBackward(x.Tensor, size.Tensor, dy.Tensor, dx.Tensor, db.Tensor))
			r.check("da", dx, dA, plainA)
			r.check("db", db, dB, plainB)
		}
	}
}

func TestSoftmax(t *testing.T) {
	for _, dtype := range halfAndFull {
		for _, s := range fieldShapes {
			r := newRowwiseTest(t, "%v %v gap %d", dtype, s.shape, s.gap)
			x, dy := r.normals(dtype, s.gap, s.shape...), r.normals(dtype, 2*s.gap, s.shape...)
			y, dx := r.empty(dtype, s.gap, s.shape...), r.empty(dtype, 0, s.shape...)
			r.must(r.d.SoftmaxForward(x.Tensor, y.Tensor))
			want, _ := reference.Softmax(x.host, dy.values())
			plain, _ := reference.Softmax(x.host, single(dy.values()))
			r.check("y", y, want, plain)
			// From what was written, as a graph has it.
			rounded, length := r.values(y), s.shape[len(s.shape)-1]
			slope := func(y, dy []float64) (dx []float64) {
				for from := 0; from < len(y); from += length {
					sum := 0.0
					for v := range length {
						sum += y[from+v] * dy[from+v]
					}
					for v := range length {
						dx = append(dx, y[from+v]*(dy[from+v]-sum))
					}
				}
				return dx
			}(rounded, dy.values())
			r.must(r.d.SoftmaxBackward(y.Tensor, dy.Tensor, dx.Tensor))
			r.check("dx", dx, slope, single(slope))
			r.must(r.d.SoftmaxForward(x.Tensor, x.Tensor))
			r.checkSame("in place", x, rounded)
		}
	}
}

// Zeros and infinities give what IEEE's arithmetic gives.
func TestFunctionsOfSpecialNumbers(t *testing.T) {
	inf := math.Inf(1)
	for _, dtype := range halfAndFull {
		x := tensorOf(t, dtype, []float64{0, 1, -1, inf, -inf, math.NaN()}, 6)
		y := tensorOf(t, dtype, make([]float64, 6), 6)
		for f, want := range map[kernels.Function][]float64{
			kernels.Log: {-inf, 0, math.NaN(), inf, math.NaN(), math.NaN()}, kernels.Sqrt: {0, 1, math.NaN(), inf, math.NaN(), math.NaN()},
			kernels.Abs: {0, 1, 1, inf, inf, math.NaN()},
		} {
			if err := device(t).Apply(f, x, y); err != nil {
				t.Fatal(err)
			}
			for i, got := range numbersOf(t, y) {
				if got != want[i] && !(math.IsNaN(got) && math.IsNaN(want[i])) {
					t.Errorf("%v: %v of element %d is %v, want %v", dtype, f, i, got, want[i])
				}
			}
		}
	}
}

// Targets from 0 to 1 are copied as they are, of all types and lengths.
func TestBinaryTargets(t *testing.T) {
	r := newRowwiseTest(t, "binary targets")
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		for _, n := range []int{1, 7, 64, 100_003} {
			x, y := r.empty(dtype, 0, n).Tensor, r.empty(dtype, 0, n).Tensor
			want, got := make([]float32, n), make([]float32, n)
			for i := range want {
				want[i] = float32(i%9) / 8
			}
			r.must(r.d.Copy(x, kernels.Of(want, n)))
			r.must(r.d.BinaryTargets(x, y))
			r.must(r.d.Copy(kernels.Of(got, n), y))
			r.must(r.d.Synchronize())
			if !slices.Equal(got, want) {
				t.Errorf("%v: %d targets are not what they were", dtype, n)
			}
		}
	}
}
