package cpu_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestMatMulFloat8(t *testing.T) {
	slow.Emulated(t)
	for i, c := range slices.Concat(productCases(), weightCases()) {
		if c.precision = kernels.PrecisionFloat8; !leftOut(i) {
			checkProduct[float32](t, c, uint64(i))
		}
	}
}

// Rows of A and columns of B have scales of their own, whatever their magnitudes, and what is not
// finite spreads as far as it does in a product.
func TestMatMulFloat8Scales(t *testing.T) {
	const m, n, k = 70, 66, 40
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		h := &halfTest{t, dtype, newRandom(), nil}
		a, b := h.tensor(dtype, h.r.NormFloat64, m, k), h.tensor(dtype, h.r.NormFloat64, k, n)
		scaled := func(x kernels.Tensor, row, column int, by float64) {
			x = x.Slice(0, row, row+1).Slice(1, column, column+1)
			kernels.CopyHost(x, kernels.Of([]float64{numbers(x)[0] * by}, 1, 1))
		}
		for p := range k {
			scaled(a, 3, p, 1.0/256)
			scaled(a, 5, p, 0)
			scaled(b, p, 7, 128)
		}
		scaled(a, 60, 2, math.Inf(1))
		scaled(b, 9, 65, math.NaN())
		problem := &kernels.MatMul{A: a, B: b, Precision: kernels.PrecisionFloat8}
		out := kernels.MatMulOutputs{C: h.out(kernels.F32, m, n)}
		h.done((&cpu.Backend{Threads: 2}).MatMul(problem, out))
		want, _ := reference.MatMul[float64](problem, nil)
		for i, x := range numbers(out.C) {
			row, column := i/n, i%n
			if row == 60 || column == 65 {
				if !math.IsNaN(x) {
					t.Fatalf("%v: element (%d, %d) is %v, of a row or column with a NaN or an infinity", dtype, row, column, x)
				}
			} else if e := math.Abs(x - want[i]); !(e <= 1e-5*max(math.Abs(want[i]), math.Abs(want[i/n*n]))) {
				t.Fatalf("%v: element (%d, %d) is %v, want %v", dtype, row, column, x, want[i])
			}
		}
	}
}

func TestFloat8IsRefused(t *testing.T) {
	number := kernels.Of([]float64{1}, 1, 1)
	out := kernels.MatMulOutputs{C: kernels.Of([]float64{1}, 1, 1)}
	err := (&cpu.Backend{}).MatMul(&kernels.MatMul{A: number, B: number, Precision: kernels.PrecisionFloat8}, out)
	const want = "cpu: matmul: a is float64 and b is float64, for PrecisionFloat8 they need to be float32 or of 16 bits"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v: no device computes it", err)
	}
}
