package transpose_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/internal/transpose"
)

// A matrix is turned whatever its sizes and strides are, and nothing is written beside it.
func TestMatrix(t *testing.T) {
	for _, rows := range []int{1, 31, 32, 33, 64, 100} {
		for _, columns := range []int{1, 31, 32, 65, 128} {
			const extra = 3
			from, to := make([]float32, rows*(columns+extra)), make([]float32, columns*(rows+extra))
			for i := range from {
				from[i] = float32(i + 1)
			}
			transpose.Matrix(to, rows+extra, from, columns+extra, rows, columns)
			for j := range columns {
				for i := range rows + extra {
					want := float32(0)
					if i < rows {
						want = from[i*(columns+extra)+j]
					}
					if got := to[j*(rows+extra)+i]; got != want {
						t.Fatalf("%d×%d: [%d, %d] is %v, want %v", rows, columns, j, i, got, want)
					}
				}
			}
		}
	}
}

// BenchmarkMatrix turns strips of matrices with rows of 2,048 and 8,192.
func BenchmarkMatrix(b *testing.B) {
	for _, columns := range []int{2048, 2052, 8192} {
		b.Run(fmt.Sprint(columns), func(b *testing.B) {
			const strip, stride = 1 << 20, 8192
			rows := strip / columns
			from, to := make([]float32, strip), make([]float32, columns*stride)
			b.SetBytes(int64(4 * rows * columns))
			for n := 0; b.Loop(); n++ {
				transpose.Matrix(to[n*rows%(stride-rows):], stride, from, columns, rows, columns)
			}
		})
	}
}
