package cpu_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// A large copy whose rows become columns is that of each element, and writes nothing else.
func TestCopyExchangesAxes(t *testing.T) {
	const rows, columns = 300, 131 // more than a block of either
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		src := kernels.Contiguous(unsafe.Pointer(&make([]uint64, rows*(columns+2))[0]), dtype, rows, columns+2).Slice(1, 0, columns)
		values := make([]float32, rows*columns)
		for i := range values {
			values[i] = float32(i%251 - 125) // in bfloat16 as well
		}
		kernels.CopyHost(src, kernels.Of(values, rows, columns))
		for _, threads := range []int{1, 3} {
			const gap = 7
			turned := make([]float32, columns*(rows+gap))
			dst := kernels.Of(turned, columns, rows+gap).Slice(1, 0, rows).Permute(1, 0)
			if err := (&cpu.Backend{Threads: threads}).Copy(dst, src); err != nil {
				t.Fatal(err)
			}
			for at, have := range turned {
				want := float32(0)
				if i, j := at%(rows+gap), at/(rows+gap); i < rows {
					want = values[i*columns+j]
				}
				if have != want {
					t.Fatalf("%v, %d threads: element %d is %v, want %v", dtype, threads, at, have, want)
				}
			}
		}
	}
}

// BenchmarkCopyExchangesAxes turns strips of a matrix of 8,192 rows.
func BenchmarkCopyExchangesAxes(b *testing.B) {
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		for _, columns := range []int{2048, 2052} {
			b.Run(fmt.Sprintf("%v/columns=%d", dtype, columns), func(b *testing.B) {
				const rows, stride = 256, 8192
				src := kernels.Contiguous(unsafe.Pointer(&make([]uint64, rows*columns)[0]), dtype, rows, columns)
				turned := kernels.Of(make([]float32, columns*stride), columns, stride)
				backend := &cpu.Backend{Threads: 1}
				b.SetBytes(int64(src.Elements() * dtype.Size()))
				for n := 0; b.Loop(); n = (n + rows) % stride {
					if err := backend.Copy(turned.Slice(1, n, n+rows).Permute(1, 0), src); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
