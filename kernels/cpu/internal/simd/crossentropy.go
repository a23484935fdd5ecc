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
	out, least := row(y, 0, 0, n), leastExp64
	if size[T]() == 4 {
		least = leastExp32
	}
	for j, v := range row(x, 0, 0, n) {
		e := math.Exp(float64(v - lse))
		if e < least {
			e = 0
		}
		out[j] = T(e)*scale - less
	}
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
