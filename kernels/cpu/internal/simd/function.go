package simd

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Div divides two rows: c_j = a_j/b_j. c may be a or b.
func Div[T kernels.Float](n int, c, a, b *T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		quotientVector(n, c, a, b)
		return
	}
	out, other := row(c, 0, 0, n), row(b, 0, 0, n)
	for j, v := range row(a, 0, 0, n) {
		out[j] = v / other[j]
	}
}

// Sqrt is the square root of each element of a row. y may be x.
func Sqrt[T kernels.Float](n int, y, x *T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		squareRootVector(n, y, x)
		return
	}
	out := row(y, 0, 0, n)
	for j, v := range row(x, 0, 0, n) {
		out[j] = T(math.Sqrt(float64(v)))
	}
}

// Log is the natural logarithm of each element of a row, to two units in the last place. y may be
// x.
func Log[T kernels.Float](n int, y, x *T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		logarithmVector(n, y, x)
		return
	}
	out := row(y, 0, 0, n)
	for j, v := range row(x, 0, 0, n) {
		out[j] = T(logOf(float64(v)))
	}
}

// logOf is math.Log, whose assembly for amd64 is wrong below the smallest normal number.
func logOf(x float64) float64 {
	if 0 < x && x < 0x1p-1022 {
		return math.Log(x*0x1p54) - 54*math.Ln2
	}
	return math.Log(x)
}

// AbsGrad is dy·d|x|/dx of each element: dy, −dy, or 0 where x is 0 or NaN. dx may be x or dy.
func AbsGrad[T kernels.Float](n int, dx, x, dy *T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		absGradVector(n, dx, x, dy)
		return
	}
	out, other := row(dx, 0, 0, n), row(dy, 0, 0, n)
	for j, v := range row(x, 0, 0, n) {
		switch {
		case v > 0:
			out[j] = other[j]
		case v < 0:
			out[j] = -other[j]
		default:
			out[j] = 0
		}
	}
}
