package simd

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// AdamW updates n weights: with g scaled, m_j += rest1·(g_j − m_j), v_j = beta2·v_j + rest2·g_j²
// and w_j = decay·w_j − rate·m_j/(root·√v_j + epsilon).
func AdamW[T kernels.Float](n int, w, g, m, v *T, scale, rest1, beta2, rest2, root, epsilon, decay, rate T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		adamwVector(n, w, g, m, v, scale, rest1, beta2, rest2, root, epsilon, decay, rate)
		return
	}
	weights, means, squares := row(w, 0, 0, n), row(m, 0, 0, n), row(v, 0, 0, n)
	for j, gradient := range row(g, 0, 0, n) {
		gradient *= scale
		means[j] += rest1 * (gradient - means[j])
		squares[j] = beta2*squares[j] + rest2*gradient*gradient
		weights[j] = decay*weights[j] - rate*means[j]/(root*T(math.Sqrt(float64(squares[j])))+epsilon)
	}
}

// SGD updates n weights: with g scaled, w_j = decay·w_j − rate·(g_j + pull·w_j).
func SGD[T kernels.Float](n int, w, g *T, scale, pull, decay, rate T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		sgdVector(n, w, g, scale, pull, decay, rate)
		return
	}
	weights := row(w, 0, 0, n)
	for j, gradient := range row(g, 0, 0, n) {
		gradient = gradient*scale + pull*weights[j]
		weights[j] = decay*weights[j] - rate*gradient
	}
}

// SGDMomentum updates n weights: with g scaled and pull·w_j added to it, m_j = momentum·m_j + g_j
// and w_j = decay·w_j − rate·g_j − ahead·m_j.
func SGDMomentum[T kernels.Float](n int, w, g, m *T, scale, pull, momentum, decay, rate, ahead T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		sgdMomentumVector(n, w, g, m, scale, pull, momentum, decay, rate, ahead)
		return
	}
	weights, means := row(w, 0, 0, n), row(m, 0, 0, n)
	for j, gradient := range row(g, 0, 0, n) {
		gradient = gradient*scale + pull*weights[j]
		means[j] = momentum*means[j] + gradient
		weights[j] = decay*weights[j] - rate*gradient - ahead*means[j]
	}
}

// Lion updates n weights: with g scaled, w_j = decay·w_j − rate·sign(beta1·m_j + rest1·g_j), and
// then m_j = beta2·m_j + rest2·g_j.
func Lion[T kernels.Float](n int, w, g, m *T, scale, beta1, rest1, beta2, rest2, decay, rate T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		lionVector(n, w, g, m, scale, beta1, rest1, beta2, rest2, decay, rate)
		return
	}
	weights, means := row(w, 0, 0, n), row(m, 0, 0, n)
	for j, gradient := range row(g, 0, 0, n) {
		gradient *= scale
		sign := beta1*means[j] + rest1*gradient // itself where it is zero or NaN
		if sign > 0 {
			sign = 1
		} else if sign < 0 {
			sign = -1
		}
		means[j] = beta2*means[j] + rest2*gradient
		weights[j] = decay*weights[j] - rate*sign
	}
}

// SumSquares adds up the squares of n elements in float64.
func SumSquares[T kernels.Float](n int, x *T) float64 {
	if n <= 0 {
		return 0
	}
	if active != Generic {
		return sumSquaresVector(n, x)
	}
	var sums [2]float64
	for j, v := range row(x, 0, 0, n) {
		sums[j%2] += float64(v) * float64(v)
	}
	return sums[0] + sums[1]
}
