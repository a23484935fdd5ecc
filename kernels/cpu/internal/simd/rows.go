package simd

import (
	"github.com/stheno-ml/stheno/kernels"
)

// MulTile multiplies element by element: dst_ij ← dst_ij·src_ij, both at one stride.
func MulTile[T kernels.Float](rows, n int, dst, src *T, ld int) {
	if rows <= 0 || n <= 0 {
		return
	}
	if active != Generic {
		mulTileVector(rows, n, dst, src, ld)
		return
	}
	for i := range rows {
		out := row(dst, i, ld, n)
		for j, x := range row(src, i, ld, n) {
			out[j] *= x
		}
	}
}

// AddTile adds a tile to another: dst_ij ← dst_ij + src_ij.
func AddTile[T kernels.Float](rows, n int, dst *T, ldd int, src *T, lds int) {
	if rows <= 0 || n <= 0 {
		return
	}
	if active != Generic {
		addTileVector(rows, n, dst, ldd, src, lds)
		return
	}
	for i := range rows {
		out := row(dst, i, ldd, n)
		for j, x := range row(src, i, lds, n) {
			out[j] += x
		}
	}
}

// ScaleRows multiplies each row by a factor of its own: dst_ij = src_ij·f_i. dst may be src.
func ScaleRows[T kernels.Float](rows, n int, dst *T, ldd int, src *T, lds int, f []T) {
	if rows <= 0 || n <= 0 {
		return
	}
	f = f[:rows]
	if active != Generic {
		scaleRowsVector(rows, n, dst, ldd, src, lds, &f[0])
		return
	}
	for i := range rows {
		out := row(dst, i, ldd, n)
		for j, x := range row(src, i, lds, n) {
			out[j] = x * f[i]
		}
	}
}

// Dots multiplies row by row: out_i = Σ_j a_ij·b_ij.
func Dots[T kernels.Float](rows, n int, a *T, lda int, b *T, ldb int, out []T) {
	if rows <= 0 {
		return
	}
	out = out[:rows]
	if n <= 0 {
		clear(out)
		return
	}
	if active != Generic && ldb == 0 {
		dotsWithOneVector(rows, n, a, lda, b, &out[0])
		return
	}
	if active != Generic {
		dotsVector(rows, n, a, lda, b, ldb, &out[0])
		return
	}
	for i := range rows {
		other := row(b, i, ldb, n)
		var sum T
		for j, x := range row(a, i, lda, n) {
			sum += x * other[j]
		}
		out[i] = sum
	}
}

// Finite reports whether a tile holds neither NaN nor Inf.
func Finite[T kernels.Float](rows, n int, a *T, lda int) bool {
	if rows <= 0 || n <= 0 {
		return true
	}
	if active != Generic {
		return finiteVector(rows, n, a, lda)
	}
	for i := range rows {
		var sum T // stays 0 until a 0·Inf or 0·NaN makes it NaN
		for _, x := range row(a, i, lda, n) {
			sum += x * 0
		}
		if sum != 0 {
			return false
		}
	}
	return true
}
