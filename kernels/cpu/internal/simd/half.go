package simd

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// HalfDots multiplies rows of 16-bit numbers by one of float32: out_i = Σ_j a_ij·b_j, in float32.
// dtype is BF16 or F16.
func HalfDots(dtype kernels.DType, rows, n int, a *uint16, lda int, b *float32, out []float32) {
	if rows <= 0 {
		return
	}
	out = out[:rows]
	whole := halfVectors(n)
	switch {
	case whole == 0:
		clear(out)
	case dtype == kernels.BF16:
		dotsBFloat16Vector(rows, whole, a, lda, b, &out[0])
	default:
		dotsFloat16Vector(rows, whole, a, lda, b, &out[0])
	}
	if whole == n {
		return
	}
	right := row(b, 0, 0, n)[whole:]
	for i := range out {
		left := halfRow(a, i, lda, n)[whole:]
		sum := out[i]
		if dtype == kernels.BF16 {
			for j, x := range left {
				sum += fromBFloat16(x) * right[j]
			}
		} else {
			for j, x := range left {
				sum += kernels.Float16(x).Float32() * right[j]
			}
		}
		out[i] = sum
	}
}

// HalfCombine adds up rows of 16-bit numbers, each times a factor: c_j (+)= Σ_i x_i·a_ij, in
// float32. The factors are step apart. With accumulate the sum is added to c, without it c is
// written only. Every element is summed in the order of the rows: a sum may be cut between any two,
// and c between any two columns that are a multiple of 16 apart.
func HalfCombine(dtype kernels.DType, rows, n int, a *uint16, lda int, x *float32, step int, c *float32, accumulate bool) {
	if n <= 0 {
		return
	}
	out := row(c, 0, 0, n)
	if rows <= 0 {
		if !accumulate {
			clear(out)
		}
		return
	}
	whole := halfVectors(n)
	switch {
	case whole == 0:
	case dtype == kernels.BF16:
		combineBFloat16Vector(rows, whole, a, lda, x, step, c, accumulate)
	default:
		combineFloat16Vector(rows, whole, a, lda, x, step, c, accumulate)
	}
	if whole == n {
		return
	}
	out = out[whole:]
	if !accumulate {
		clear(out)
	}
	for i := range rows {
		factor, left := *at(x, i*step), halfRow(a, i, lda, n)[whole:]
		if dtype == kernels.BF16 {
			for j, y := range left {
				out[j] += factor * fromBFloat16(y)
			}
		} else {
			for j, y := range left {
				out[j] += factor * kernels.Float16(y).Float32()
			}
		}
	}
}

// halfVectors is how many of n numbers the vector kernels take: all that fill vectors of float32
// and of 16-bit numbers.
func halfVectors(n int) int {
	switch active {
	case Generic:
		return 0
	case AVX512:
		return n &^ 15
	}
	return n &^ 7
}

// halfRow is the first n numbers of row i of a tile whose rows are ld numbers apart.
func halfRow(tile *uint16, i, ld, n int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Add(unsafe.Pointer(tile), 2*i*ld)), n)
}
