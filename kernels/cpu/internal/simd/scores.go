package simd

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// SoftCap bounds scores: s ← cap·tanh(s·scale). Where slope is not nil it receives the derivative
// of the cap, 1 − tanh², at the same stride. scale is the attention's scale divided by cap.
func SoftCap[T kernels.Float](rows, n int, s, slope *T, ld int, scale, cap T) {
	if rows <= 0 || n <= 0 {
		return
	}
	if active != Generic {
		softCapVector(rows, n, s, slope, ld, scale, cap)
		return
	}
	for i := range rows {
		for j, x := range row(s, i, ld, n) {
			t := T(math.Tanh(float64(x * scale)))
			*at(s, i*ld+j) = cap * t
			if slope != nil {
				*at(slope, i*ld+j) = 1 - t*t
			}
		}
	}
}

// ALiBi scales scores and lowers them by their distance: s_ij ← s_ij·scale − slope·|c + i − j|.
func ALiBi[T kernels.Float](rows, n int, s *T, ld int, scale, slope T, c int) {
	if rows <= 0 || n <= 0 {
		return
	}
	if active != Generic {
		alibiVector(rows, n, s, ld, scale, slope, c)
		return
	}
	for i := range rows {
		for j, x := range row(s, i, ld, n) {
			*at(s, i*ld+j) = x*scale - slope*max(T(c+i-j), T(j-c-i))
		}
	}
}

// AddBias scales scores and adds a bias: s_ij ← s_ij·scale + bias_ij. Rows of bias are ldb elements
// apart; 0 gives all rows the same.
func AddBias[T kernels.Float](rows, n int, s *T, ld int, scale T, bias *T, ldb int) {
	if rows <= 0 || n <= 0 {
		return
	}
	if active != Generic {
		addBiasVector(rows, n, s, ld, scale, bias, ldb)
		return
	}
	for i := range rows {
		out := row(s, i, ld, n)
		for j, b := range row(bias, i, ldb, n) {
			out[j] = out[j]*scale + b
		}
	}
}
