package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Outputs over two halves of the keys, one of which some rows do not see, join to those over all of
// them.
func TestAttentionMerge(t *testing.T) {
	const batch, heads, rows = 2, 3, 5
	for _, dtype := range []kernels.DType{kernels.F64, kernels.F32, kernels.BF16, kernels.F16} {
		for _, size := range []int{1, 7, 64, 200} {
			random := rand.New(rand.NewPCG(1, uint64(size)))
			var o, lse [2][]float64
			for i := range o {
				o[i], lse[i] = make([]float64, batch*heads*rows*size), make([]float64, batch*heads*rows)
				for n := range o[i] {
					o[i][n] = float64(kernels.ToBFloat16(float32(random.NormFloat64())).Float32())
				}
				for n := range lse[i] {
					if lse[i][n] = 3 * random.NormFloat64(); n%4 == i || n%7 == 0 {
						lse[i][n] = math.Inf(-1)
						clear(o[i][n*size:][:size])
					}
				}
			}
			lse[1][3] = math.NaN()
			want, wantLSE := reference.AttentionMerge(o[0], lse[0], o[1], lse[1])
			sum := kernels.AttentionOutputs{O: tensorOf(t, dtype.Wide(), o[0], batch, heads, rows, size), LSE: tensorOf(t, dtype.Wide(), lse[0], batch, heads, rows)}
			part := kernels.AttentionOutputs{O: tensorOf(t, dtype, o[1], batch, heads, rows, size), LSE: tensorOf(t, dtype.Wide(), lse[1], batch, heads, rows)}
			if err := cpu.New().AttentionMerge(sum, part); err != nil {
				t.Fatal(err)
			}
			bound := 2e-6
			if dtype == kernels.F64 {
				bound = 4e-15
			}
			for _, x := range []struct {
				name      string
				got, want []float64
			}{{"o", numbersOf(t, sum.O), want}, {"lse", numbersOf(t, sum.LSE), wantLSE}} {
				for i, want := range x.want {
					got := x.got[i]
					if got == want || math.IsNaN(got) && math.IsNaN(want) {
						continue
					}
					if !(math.Abs(got-want) <= bound) {
						t.Fatalf("%v, size %d: %s[%d] is %.17g, it needs to be %.17g: off by %.3g of %.3g", dtype, size, x.name, i, got, want, got-want, bound)
					}
				}
			}
		}
	}
}

// tensorOf is numbers on the device, and numbersOf the way back.
func tensorOf(t *testing.T, dtype kernels.DType, data []float64, shape ...int) kernels.Tensor {
	t.Helper()
	x, err := cpu.New().Alloc(dtype, shape...)
	if err == nil {
		err = cpu.New().Copy(x, kernels.Of(data, shape...))
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func numbersOf(t *testing.T, x kernels.Tensor) []float64 {
	t.Helper()
	list := make([]float64, x.Elements())
	if err := cpu.New().Copy(kernels.Of(list, x.Shape...), x); err != nil {
		t.Fatal(err)
	}
	return list
}
