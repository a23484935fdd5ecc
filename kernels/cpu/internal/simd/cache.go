package simd

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Rows of a cache are of float32, or of 16 bits and widened in registers. While a kernel computes
// it asks for what lies ahead bytes behind each row, which the next call reads. Sizes of rows are
// multiples of 16.

// CacheDots multiplies rows of a type by others of float32: out_hi = Σ_j a_ij·b_hj.
func CacheDots(dtype kernels.DType, heads, rows, d int, a unsafe.Pointer, lda int, b *float32, ldb int, out *float32, ldo, ahead int) {
	if rows <= 0 {
		return
	}
	if d == 0 || active == Generic {
		cacheDotsGeneric(dtype, heads, rows, d, a, lda, b, ldb, out, ldo)
		return
	}
	h := 0
	for ; h+4 <= heads; h += 4 {
		b, out := at(b, h*ldb), at(out, h*ldo)
		switch dtype {
		case kernels.F32:
			cacheDots4Float32Vector(rows, d, (*float32)(a), lda, b, ldb, out, ldo, ahead)
		case kernels.BF16:
			cacheDots4BFloat16Vector(rows, d, (*uint16)(a), lda, b, ldb, out, ldo, ahead)
		default:
			cacheDots4Float16Vector(rows, d, (*uint16)(a), lda, b, ldb, out, ldo, ahead)
		}
	}
	for ; h < heads; h++ {
		b, out := at(b, h*ldb), at(out, h*ldo)
		switch dtype {
		case kernels.F32:
			cacheDots1Float32Vector(rows, d, (*float32)(a), lda, b, out, ahead)
		case kernels.BF16:
			cacheDots1BFloat16Vector(rows, d, (*uint16)(a), lda, b, out, ahead)
		default:
			cacheDots1Float16Vector(rows, d, (*uint16)(a), lda, b, out, ahead)
		}
	}
}

// CacheCombine adds up rows of a type, each times a factor: to_hj += Σ_i x_hi·a_ij.
func CacheCombine(dtype kernels.DType, heads, rows, d int, a unsafe.Pointer, lda int, x *float32, ldx int, to *float32, ldt, ahead int) {
	if rows <= 0 || d == 0 {
		return
	}
	if active == Generic {
		cacheCombineGeneric(dtype, heads, rows, d, a, lda, x, ldx, to, ldt)
		return
	}
	h := 0
	for ; h+4 <= heads; h += 4 {
		x, to := at(x, h*ldx), at(to, h*ldt)
		switch dtype {
		case kernels.F32:
			cacheCombine4Float32Vector(rows, d, (*float32)(a), lda, x, ldx, to, ldt, ahead)
		case kernels.BF16:
			cacheCombine4BFloat16Vector(rows, d, (*uint16)(a), lda, x, ldx, to, ldt, ahead)
		default:
			cacheCombine4Float16Vector(rows, d, (*uint16)(a), lda, x, ldx, to, ldt, ahead)
		}
	}
	for ; h < heads; h++ {
		x, to := at(x, h*ldx), at(to, h*ldt)
		switch dtype {
		case kernels.F32:
			cacheCombine1Float32Vector(rows, d, (*float32)(a), lda, x, to, ahead)
		case kernels.BF16:
			cacheCombine1BFloat16Vector(rows, d, (*uint16)(a), lda, x, to, ahead)
		default:
			cacheCombine1Float16Vector(rows, d, (*uint16)(a), lda, x, to, ahead)
		}
	}
}

// cacheRow widens row i of a cache.
func cacheRow(wide []float32, dtype kernels.DType, a unsafe.Pointer, i, lda int) {
	a = unsafe.Add(a, i*lda*dtype.Size())
	for j := range wide {
		switch dtype {
		case kernels.F32:
			wide[j] = unsafe.Slice((*float32)(a), len(wide))[j]
		case kernels.BF16:
			wide[j] = fromBFloat16(unsafe.Slice((*uint16)(a), len(wide))[j])
		default:
			wide[j] = unsafe.Slice((*kernels.Float16)(a), len(wide))[j].Float32()
		}
	}
}

func cacheDotsGeneric(dtype kernels.DType, heads, rows, d int, a unsafe.Pointer, lda int, b *float32, ldb int, out *float32, ldo int) {
	wide := make([]float32, d)
	for i := range rows {
		cacheRow(wide, dtype, a, i, lda)
		for h := range heads {
			var sum float32
			for j, y := range row(b, h, ldb, d) {
				sum += wide[j] * y
			}
			*at(out, h*ldo+i) = sum
		}
	}
}

func cacheCombineGeneric(dtype kernels.DType, heads, rows, d int, a unsafe.Pointer, lda int, x *float32, ldx int, to *float32, ldt int) {
	wide := make([]float32, d)
	for i := range rows {
		cacheRow(wide, dtype, a, i, lda)
		for h := range heads {
			factor, sums := *at(x, h*ldx+i), row(to, h, ldt, d)
			for j, y := range wide {
				sums[j] += factor * y
			}
		}
	}
}
