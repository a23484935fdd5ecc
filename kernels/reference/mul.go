package reference

import "github.com/stheno-ml/stheno/kernels"

// Mul is c = a·b and its gradients.
func Mul[T kernels.Float](a, b, dc []T) (c, da, db []T) {
	c, da, db = make([]T, len(a)), make([]T, len(a)), make([]T, len(a))
	for i := range a {
		c[i], da[i], db[i] = a[i]*b[i], dc[i]*b[i], dc[i]*a[i]
	}
	return c, da, db
}

// Scale is factor·x.
func Scale[T kernels.Float](factor float64, x []T) []T {
	y := make([]T, len(x))
	add(y, T(factor), x)
	return y
}
