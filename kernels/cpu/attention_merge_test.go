package cpu_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Outputs over two halves of the keys, one of which some rows do not see, join to those over all of them.
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

// Sums grow by elements of their own type and of 16 bits, as views too.
func TestAccumulate(t *testing.T) {
	for _, types := range [][2]kernels.DType{{kernels.F64, kernels.F64}, {kernels.F32, kernels.F32}, {kernels.F32, kernels.BF16}, {kernels.BF16, kernels.BF16}, {kernels.F16, kernels.F16}} {
		for _, columns := range []int{1, 6, 64} {
			x, sums := make([]float64, 3*columns), make([]float64, 3*columns)
			for i := range x {
				x[i], sums[i] = float64(i%9), float64(i%5)
			}
			sum, add := tensorOf(t, types[0], sums, 3, columns), tensorOf(t, types[1], x, 3, columns)
			if err := cpu.New().Accumulate(sum.Slice(0, 1, 3), add.Slice(0, 0, 2)); err != nil {
				t.Fatal(err)
			}
			for i, got := range numbersOf(t, sum) {
				want := sums[i]
				if i >= columns {
					want += x[i-columns]
				}
				if got != want {
					t.Fatalf("%v: element %d is %v, want %v", types, i, got, want)
				}
			}
		}
	}
	if err := cpu.New().Accumulate(tensorOf(t, kernels.BF16, []float64{1}, 1), tensorOf(t, kernels.F32, []float64{1}, 1)); err == nil || !strings.Contains(err.Error(), "sum is bfloat16, it needs to be float32") {
		t.Errorf("float32 into bfloat16: %v", err)
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
