//go:build !amd64

package simd

import "github.com/stheno-ml/stheno/kernels"

func adamwVector[T kernels.Float](n int, w, g, m, v *T, scale, rest1, beta2, rest2, root, epsilon, decay, rate T) {
	panic(unreachable)
}

func sgdVector[T kernels.Float](n int, w, g *T, scale, pull, decay, rate T) {
	panic(unreachable)
}

func sgdMomentumVector[T kernels.Float](n int, w, g, m *T, scale, pull, momentum, decay, rate, ahead T) {
	panic(unreachable)
}

func lionVector[T kernels.Float](n int, w, g, m *T, scale, beta1, rest1, beta2, rest2, decay, rate T) {
	panic(unreachable)
}

func sumSquaresVector[T kernels.Float](n int, x *T) float64 {
	panic(unreachable)
}
