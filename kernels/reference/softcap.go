package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// SoftCap is y = cap·tanh(x/cap) and dx = dy·(1 − tanh²(x/cap)).
func SoftCap[T kernels.Float](cap float64, x, dy []T) (y, dx []T) {
	y, dx = make([]T, len(x)), make([]T, len(x))
	for i := range x {
		t := T(math.Tanh(float64(x[i] / T(cap))))
		y[i], dx[i] = T(cap)*t, dy[i]*(1-t*t)
	}
	return y, dx
}
