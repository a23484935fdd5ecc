package simd

import "github.com/stheno-ml/stheno/kernels"

// Mul multiplies two rows: c_j = a_j·b_j. c may be a or b.
func Mul[T kernels.Float](n int, c, a, b *T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		mulVector(n, c, a, b)
		return
	}
	out, other := row(c, 0, 0, n), row(b, 0, 0, n)
	for j, v := range row(a, 0, 0, n) {
		out[j] = v * other[j]
	}
}
