package simd

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Greatest returns the greatest of n elements, at least −MaxFloat. With a NaN among them it may be
// anything.
func Greatest[T kernels.Float](n int, x *T) T {
	most := lowest[T]()
	if n <= 0 {
		return most
	}
	if active != Generic {
		return greatestVector(n, x)
	}
	for _, v := range row(x, 0, 0, n) {
		most = max(most, v)
	}
	return most
}

// SumExp is Σ exp(x_j − most), for a most that no x_j exceeds.
func SumExp[T kernels.Float](n int, x *T, most T) T {
	if n <= 0 {
		return 0
	}
	if active != Generic {
		return sumExpVector(n, x, most)
	}
	var sum T
	for _, v := range row(x, 0, 0, n) {
		sum += T(math.Exp(float64(v - most)))
	}
	return sum
}

// ScaledExp writes y_j = exp(x_j − lse)·scale − less, for an lse that no x_j exceeds but for
// rounding. y may be x.
//
// An exponential below 2⁻¹⁰⁰, in float64 2⁻⁹⁰⁰, counts as 0. Scaled, it might be too small for a
// normal number, and a matrix product of such numbers takes twenty times as long.
func ScaledExp[T kernels.Float](n int, y, x *T, lse, scale, less T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		scaledExpVector(n, y, x, lse, scale, less)
		return
	}
	out, least := row(y, 0, 0, n), leastOfExp[T]()
	for j, v := range row(x, 0, 0, n) {
		e := math.Exp(float64(v - lse))
		if e < least {
			e = 0
		}
		out[j] = T(e)*scale - less
	}
}

// Exponentials writes y_j = exp(x_j − most) for a most that no x_j exceeds, and gives their sum.
// What [ScaledExp] counts as 0 is written as 0. y may be x.
func Exponentials[T kernels.Float](n int, y, x *T, most T) T {
	if n <= 0 {
		return 0
	}
	if active != Generic {
		return exponentialsVector(n, y, x, most)
	}
	out, sum, least := row(y, 0, 0, n), T(0), leastOfExp[T]()
	for j, v := range row(x, 0, 0, n) {
		e := math.Exp(float64(v - most))
		sum += T(e)
		if e < least {
			e = 0
		}
		out[j] = T(e)
	}
	return sum
}

// Probabilities writes y_j = x_j·factor, past the caches if past says so. y may be x.
func Probabilities[T kernels.Float](n int, y, x *T, factor T, past bool) {
	if n <= 0 {
		return
	}
	if active != Generic {
		probabilitiesVector(n, y, x, factor, toInt(past))
		return
	}
	out := row(y, 0, 0, n)
	for j, v := range row(x, 0, 0, n) {
		out[j] = v * factor
	}
}

// LogProbabilities writes y_j = (x_j − most) − log, past the caches if past says so. y may be x.
func LogProbabilities[T kernels.Float](n int, y, x *T, most, log T, past bool) {
	if n <= 0 {
		return
	}
	if active != Generic {
		logProbabilitiesVector(n, y, x, most, log, toInt(past))
		return
	}
	out := row(y, 0, 0, n)
	for j, v := range row(x, 0, 0, n) {
		out[j] = v - most - log
	}
}

// SoftmaxRowGrad writes dx_j = y_j·(dy_j − mean), past the caches if past says so. dx may be y or
// dy.
func SoftmaxRowGrad[T kernels.Float](n int, dx, y, dy *T, mean T, past bool) {
	if n <= 0 {
		return
	}
	if active != Generic {
		softmaxRowGradVector(n, dx, y, dy, mean, toInt(past))
		return
	}
	out, d := row(dx, 0, 0, n), row(dy, 0, 0, n)
	for j, p := range row(y, 0, 0, n) {
		out[j] = p * (d[j] - mean)
	}
}

// LogSoftmaxRowGrad writes dx_j = dy_j − exp(y_j)·sum, for y_j of at most 0 but for rounding, past
// the caches if past says so. What [ScaledExp] counts as 0 counts as 0. dx may be y or dy.
func LogSoftmaxRowGrad[T kernels.Float](n int, dx, y, dy *T, sum T, past bool) {
	if n <= 0 {
		return
	}
	if active != Generic {
		logSoftmaxRowGradVector(n, dx, y, dy, sum, toInt(past))
		return
	}
	out, d, least := row(dx, 0, 0, n), row(dy, 0, 0, n), leastOfExp[T]()
	for j, v := range row(y, 0, 0, n) {
		e := math.Exp(float64(v))
		if e < least {
			e = 0
		}
		out[j] = d[j] - T(e)*sum
	}
}

func leastOfExp[T kernels.Float]() float64 {
	if size[T]() == 4 {
		return leastExp32
	}
	return leastExp64
}

// leastExp is the least exponential that [ScaledExp] does not count as 0.
const (
	leastExp32 = 0x1p-100
	leastExp64 = 0x1p-900
)

// lowest is −MaxFloat.
func lowest[T kernels.Float]() T {
	if size[T]() == 4 {
		most := float32(math.MaxFloat32)
		return T(-most)
	}
	most := math.MaxFloat64
	return T(-most)
}
