//go:build !amd64

package simd

import "github.com/stheno-ml/stheno/kernels"

func activateVector[T kernels.Float](act kernels.Activation, n int, y, x *T) {
	panic(unreachable)
}

func activateGradVector[T kernels.Float](act kernels.Activation, n int, dx, x, dy *T) {
	panic(unreachable)
}

func swigluVector[T kernels.Float](n int, y, gate, up *T) {
	panic(unreachable)
}

func swigluGradVector[T kernels.Float](n int, dGate, dUp, gate, up, dy *T) {
	panic(unreachable)
}

func addVector[T kernels.Float](n int, c, a, b *T) {
	panic(unreachable)
}

func mulVector[T kernels.Float](n int, c, a, b *T) {
	panic(unreachable)
}

func sumVector[T kernels.Float](n int, x *T) float64 {
	panic(unreachable)
}

func deviationsVector[T kernels.Float](n int, x *T, centre T) (sum, squares T) {
	panic(unreachable)
}

func normalizeVector[T kernels.Float](n int, y, x *T, centre, rstd, shift T, gamma, beta *T) {
	panic(unreachable)
}

func normalizeDotsVector[T kernels.Float](n int, x, dy, gamma *T, centre, rstd T) (sum, sumX T) {
	panic(unreachable)
}

func normalizeGradVector[T kernels.Float](n int, dx, x, dy, gamma *T, centre, rstd, mean, meanX T, dGamma, dBeta *T) {
	panic(unreachable)
}

func greatestVector[T kernels.Float](n int, x *T) T {
	panic(unreachable)
}

func sumExpVector[T kernels.Float](n int, x *T, most T) T {
	panic(unreachable)
}

func scaledExpVector[T kernels.Float](n int, y, x *T, lse, scale, less T) {
	panic(unreachable)
}

func rotateVector[T kernels.Float](rows, n int, y1, y2 *T, ldy int, x1, x2 *T, ldx int, cos, sin *T, ldt int) {
	panic(unreachable)
}

func rotateNeighboursVector[T kernels.Float](rows, n int, y *T, ldy int, x *T, ldx int, cos, sin *T, ldt int) {
	panic(unreachable)
}
