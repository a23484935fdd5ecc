package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Norm is y, row-major, and the mean, 0 for an RMS norm, and the reciprocal standard deviation of
// each row.
func Norm[T kernels.Float](n *kernels.Norm) (y, mean, rstd []T) {
	c := lastAxis(n.X)
	x, gamma, beta := normalised[T](n), vector[T](n.Gamma, c, 1), vector[T](n.Beta, c, 0)
	y = make([]T, len(x))
	for from := 0; from < len(x); from += c {
		row := x[from:][:c]
		var mu, squares T
		if !n.RMS {
			var sum T
			for _, v := range row {
				sum += v
			}
			mu = sum / T(c)
		}
		for _, v := range row {
			squares += (v - mu) * (v - mu)
		}
		r := 1 / T(math.Sqrt(float64(squares/T(c)+T(n.EffectiveEps()))))
		for i, v := range row {
			y[from+i] = (v-mu)*r*gamma[i] + beta[i]
		}
		mean, rstd = append(mean, mu), append(rstd, r)
	}
	return y, mean, rstd
}

// NormGrad returns the gradients of x, gamma and beta for the gradient dy of y. That of x is also
// the one of what is added to it.
func NormGrad[T kernels.Float](n *kernels.Norm, dy []T) (dx, dGamma, dBeta []T) {
	c := lastAxis(n.X)
	x, gamma := normalised[T](n), vector[T](n.Gamma, c, 1)
	_, mean, rstd := Norm[T](n)
	dx, dGamma, dBeta = make([]T, len(x)), make([]T, c), make([]T, c)
	for row, mu := range mean {
		var sum, sumX T
		xHat := func(i int) T { return (x[row*c+i] - mu) * rstd[row] }
		for i := range c {
			g := dy[row*c+i] * gamma[i]
			sum += g
			sumX += g * xHat(i)
			dGamma[i] += dy[row*c+i] * xHat(i)
			dBeta[i] += dy[row*c+i]
		}
		if n.RMS {
			sum = 0
		}
		for i := range c {
			dx[row*c+i] = rstd[row] * (dy[row*c+i]*gamma[i] - sum/T(c) - xHat(i)*sumX/T(c))
		}
	}
	return dx, dGamma, dBeta
}

// normalised is x + other, or x where there is no other.
func normalised[T kernels.Float](n *kernels.Norm) []T {
	if !n.Other.IsSet() {
		return elements[T](n.X)
	}
	return Add[T](n.X, n.Other)
}
