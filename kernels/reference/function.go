package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Function returns y and the gradient of x for the gradient dy.
func Function[T kernels.Float](f kernels.Function, x, dy []T) (y, dx []T) {
	y, dx = make([]T, len(x)), make([]T, len(x))
	for i, x := range x {
		switch wide := float64(x); f {
		case kernels.Exp:
			y[i] = T(math.Exp(wide))
			dx[i] = dy[i] * y[i]
		case kernels.Log:
			y[i] = T(math.Log(wide))
			dx[i] = dy[i] / x
		case kernels.Sqrt:
			y[i] = T(math.Sqrt(wide))
			dx[i] = dy[i] / (2 * y[i])
		case kernels.Abs:
			y[i] = T(math.Abs(wide))
			switch {
			case x > 0:
				dx[i] = dy[i]
			case x < 0:
				dx[i] = -dy[i]
			}
		}
	}
	return y, dx
}

// AddScalar is x + number.
func AddScalar[T kernels.Float](number float64, x []T) []T {
	y := make([]T, len(x))
	for i := range x {
		y[i] = x[i] + T(number)
	}
	return y
}

// Div is c = a/b and its gradients.
func Div[T kernels.Float](a, b, dc []T) (c, da, db []T) {
	c, da, db = make([]T, len(a)), make([]T, len(a)), make([]T, len(a))
	for i := range a {
		c[i] = a[i] / b[i]
		da[i] = dc[i] / b[i]
		db[i] = -dc[i] / b[i] * c[i]
	}
	return c, da, db
}
