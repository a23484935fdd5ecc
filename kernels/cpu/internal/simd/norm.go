package simd

import "github.com/stheno-ml/stheno/kernels"

// Sum adds up n elements in float64.
func Sum[T kernels.Float](n int, x *T) float64 {
	if n <= 0 {
		return 0
	}
	if active != Generic {
		return sumVector(n, x)
	}
	var sums [2]float64
	for j, v := range row(x, 0, 0, n) {
		sums[j%2] += float64(v)
	}
	return sums[0] + sums[1]
}

// Deviations is Σ (x_j − centre) and Σ (x_j − centre)².
func Deviations[T kernels.Float](n int, x *T, centre T) (sum, squares T) {
	if n <= 0 {
		return 0, 0
	}
	if active != Generic {
		return deviationsVector(n, x, centre)
	}
	var sums, squared [2]T
	for j, v := range row(x, 0, 0, n) {
		d := v - centre
		sums[j%2] += d
		squared[j%2] += d * d
	}
	return sums[0] + sums[1], squared[0] + squared[1]
}

// Normalize writes y_j = ((x_j − centre)·rstd + shift)·gamma_j + beta_j. y may be x.
func Normalize[T kernels.Float](n int, y, x *T, centre, rstd, shift T, gamma, beta *T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		normalizeVector(n, y, x, centre, rstd, shift, gamma, beta)
		return
	}
	out, g, b := row(y, 0, 0, n), row(gamma, 0, 0, n), row(beta, 0, 0, n)
	for j, v := range row(x, 0, 0, n) {
		out[j] = ((v-centre)*rstd+shift)*g[j] + b[j]
	}
}

// NormalizeDots is Σ g_j and Σ g_j·(x_j − centre)·rstd, with g_j = dy_j·gamma_j.
func NormalizeDots[T kernels.Float](n int, x, dy, gamma *T, centre, rstd T) (sum, sumX T) {
	if n <= 0 {
		return 0, 0
	}
	if active != Generic {
		return normalizeDotsVector(n, x, dy, gamma, centre, rstd)
	}
	d, w := row(dy, 0, 0, n), row(gamma, 0, 0, n)
	for j, v := range row(x, 0, 0, n) {
		g := d[j] * w[j]
		sum += g
		sumX += g * ((v - centre) * rstd)
	}
	return sum, sumX
}

// NormalizeGrad is the gradient of a normalised row: with x̂_j = (x_j − centre)·rstd,
//
//	dx_j = rstd·(dy_j·gamma_j − mean − x̂_j·meanX)      dGamma_j += dy_j·x̂_j      dBeta_j += dy_j
//
// dx may be dy or x.
func NormalizeGrad[T kernels.Float](n int, dx, x, dy, gamma *T, centre, rstd, mean, meanX T, dGamma, dBeta *T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		normalizeGradVector(n, dx, x, dy, gamma, centre, rstd, mean, meanX, dGamma, dBeta)
		return
	}
	out, d, w := row(dx, 0, 0, n), row(dy, 0, 0, n), row(gamma, 0, 0, n)
	dG, dB := row(dGamma, 0, 0, n), row(dBeta, 0, 0, n)
	for j, v := range row(x, 0, 0, n) {
		xHat, g := (v-centre)*rstd, d[j]
		dG[j] += g * xHat
		dB[j] += g
		out[j] = rstd * (g*w[j] - mean - xHat*meanX)
	}
}
