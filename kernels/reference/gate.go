package reference

import "github.com/stheno-ml/stheno/kernels"

// ClampedGate returns y, and the gradient of x for dy.
func ClampedGate[T kernels.Float](gate kernels.ClampedGate, x, dy []T) (y, dx []T) {
	y, dx = make([]T, len(x)/2), make([]T, len(x))
	slope, limit := T(gate.Slope), T(gate.Limit)
	for i := range y {
		g, u := min(x[2*i], limit), max(min(x[2*i+1], limit), -limit)
		s := 1 / (1 + exp(-slope*g))
		y[i] = (u + 1) * g * s
		if x[2*i] <= limit {
			dx[2*i] = dy[i] * (u + 1) * (s + slope*g*s*(1-s))
		}
		if x[2*i+1] <= limit && x[2*i+1] >= -limit {
			dx[2*i+1] = dy[i] * g * s
		}
	}
	return y, dx
}
