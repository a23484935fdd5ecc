package simd

import "github.com/stheno-ml/stheno/kernels"

// Rotate rotates pairs whose halves lie in two tiles, each pair by its own angle:
//
//	y1_ij = x1_ij·cos_ij − x2_ij·sin_ij      y2_ij = x2_ij·cos_ij + x1_ij·sin_ij
//
// x1 and x2 share the stride ldx, y1 and y2 ldy, cos and sin ldt. y1 and y2 may be x1 and x2.
func Rotate[T kernels.Float](rows, n int, y1, y2 *T, ldy int, x1, x2 *T, ldx int, cos, sin *T, ldt int) {
	if rows <= 0 || n <= 0 {
		return
	}
	if active != Generic {
		rotateVector(rows, n, y1, y2, ldy, x1, x2, ldx, cos, sin, ldt)
		return
	}
	for i := range rows {
		a, b := row(x1, i, ldx, n), row(x2, i, ldx, n)
		outA, outB := row(y1, i, ldy, n), row(y2, i, ldy, n)
		c, s := row(cos, i, ldt, n), row(sin, i, ldt, n)
		for j := range a {
			outA[j], outB[j] = a[j]*c[j]-b[j]*s[j], b[j]*c[j]+a[j]*s[j]
		}
	}
}

// RotateNeighbours rotates pairs of neighbouring columns; n is even. cos holds each pair's cosine
// twice, sin its sine twice, first negated:
//
//	y_ij = x_ij·cos_ij + x_ij'·sin_ij      with j' the other column of the pair
//
// y may be x.
func RotateNeighbours[T kernels.Float](rows, n int, y *T, ldy int, x *T, ldx int, cos, sin *T, ldt int) {
	if rows <= 0 || n <= 0 {
		return
	}
	if active != Generic {
		rotateNeighboursVector(rows, n, y, ldy, x, ldx, cos, sin, ldt)
		return
	}
	for i := range rows {
		in, out := row(x, i, ldx, n), row(y, i, ldy, n)
		c, s := row(cos, i, ldt, n), row(sin, i, ldt, n)
		for j := 0; j < n; j += 2 {
			a, b := in[j], in[j+1]
			out[j], out[j+1] = a*c[j]+b*s[j], b*c[j+1]+a*s[j+1]
		}
	}
}
