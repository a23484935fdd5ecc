package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// RMSNorm is y, row-major, and the reciprocal root mean square of each row.
func RMSNorm[T kernels.Float](n *kernels.RMSNorm) (y, rstd []T) {
	c := lastAxis(n.X)
	x, gamma := sum[T](n.X, n.Other), vector[T](n.Gamma, c, 1)
	y = make([]T, len(x))
	for from := 0; from < len(x); from += c {
		row := x[from:][:c]
		var squares T
		for _, v := range row {
			squares += v * v
		}
		r := 1 / T(math.Sqrt(float64(squares/T(c)+T(n.EffectiveEps()))))
		for i, v := range row {
			y[from+i] = v * r * gamma[i]
		}
		rstd = append(rstd, r)
	}
	return y, rstd
}

// RMSNormGrad returns the gradients of x and gamma for the gradient dy of y.
func RMSNormGrad[T kernels.Float](n *kernels.RMSNorm, dy []T) (dx, dGamma []T) {
	c := lastAxis(n.X)
	x, gamma := sum[T](n.X, n.Other), vector[T](n.Gamma, c, 1)
	_, rstd := RMSNorm[T](n)
	dx, dGamma = make([]T, len(x)), make([]T, c)
	for row, r := range rstd {
		var sumX T
		for i := range c {
			xHat := x[row*c+i] * r
			sumX += dy[row*c+i] * gamma[i] * xHat
			dGamma[i] += dy[row*c+i] * xHat
		}
		for i := range c {
			dx[row*c+i] = r * (dy[row*c+i]*gamma[i] - x[row*c+i]*r*sumX/T(c))
		}
	}
	return dx, dGamma
}
