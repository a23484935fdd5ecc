//go:build gpu

package cuda_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Outputs over two halves of the keys, one of which some rows do not see, join to those over all of
// them.
func TestAttentionMerge(t *testing.T) {
	const batch, heads, rows = 2, 3, 5
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
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
			if err := device(t).AttentionMerge(sum, part); err != nil {
				t.Fatal(err)
			}
			got, gotLSE := numbersOf(t, sum.O), numbersOf(t, sum.LSE)
			for i := range want {
				if math.IsNaN(want[i]) != math.IsNaN(got[i]) || math.Abs(got[i]-want[i]) > 2e-6 {
					t.Fatalf("%v, size %d: element %d is %v, want %v", dtype, size, i, got[i], want[i])
				}
			}
			for i := range wantLSE {
				if gotLSE[i] != wantLSE[i] && math.IsNaN(wantLSE[i]) != math.IsNaN(gotLSE[i]) || math.Abs(gotLSE[i]-wantLSE[i]) > 2e-6 {
					t.Fatalf("%v, size %d: logsumexp %d is %v, want %v", dtype, size, i, gotLSE[i], wantLSE[i])
				}
			}
		}
	}
}

// tensorOf is numbers on the device, and numbersOf the way back.
func tensorOf(t *testing.T, dtype kernels.DType, data []float64, shape ...int) kernels.Tensor {
	t.Helper()
	x, err := device(t).Alloc(dtype, shape...)
	if err == nil {
		err = device(t).Copy(x, kernels.Of(data, shape...))
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func numbersOf(t *testing.T, x kernels.Tensor) []float64 {
	t.Helper()
	list := make([]float64, x.Elements())
	if err := device(t).Copy(kernels.Of(list, x.Shape...), x); err != nil {
		t.Fatal(err)
	}
	return list
}

// Rows of a tensor that say which they are lose what they lose in the whole.
func TestDropoutOfLaterRows(t *testing.T) {
	const rows, columns, first = 20, 21, 13
	ones := make([]float64, rows*columns)
	for i := range ones {
		ones[i] = 1
	}
	d := kernels.Dropout{P: 0.4, Seed: 3, Step: 5}
	whole, part := tensorOf(t, kernels.F32, ones, rows, columns), tensorOf(t, kernels.F32, ones, rows-first, columns)
	if err := device(t).Dropout(d, whole, whole); err != nil {
		t.Fatal(err)
	}
	d.Row = first
	if err := device(t).Dropout(d, part, part); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(numbersOf(t, part), numbersOf(t, whole)[first*columns:]) {
		t.Error("they lose other elements")
	}
}
