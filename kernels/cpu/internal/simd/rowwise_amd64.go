package simd

import "github.com/stheno-ml/stheno/kernels"

// The same for the kernels that work on rows rather than on tiles of scores.

func activateVector[T kernels.Float](act kernels.Activation, n int, y, x *T) {
	switch act {
	case kernels.GELUTanh:
		geluTanhVector(n, y, x)
	case kernels.GELUErf:
		geluErfVector(n, y, x)
	case kernels.SiLU:
		siluVector(n, y, x)
	case kernels.ReLUSquared:
		reluSquaredVector(n, y, x)
	}
}

func geluTanhVector[T kernels.Float](n int, y, x *T) {
	switch {
	case active == AVX512 && single[T]():
		geluTanhAVX512F32(n, pointer32(y), pointer32(x))
	case active == AVX512:
		geluTanhAVX512F64(n, pointer64(y), pointer64(x))
	case single[T]():
		geluTanhAVX2F32(n, pointer32(y), pointer32(x))
	default:
		geluTanhAVX2F64(n, pointer64(y), pointer64(x))
	}
}

func geluErfVector[T kernels.Float](n int, y, x *T) {
	switch {
	case active == AVX512 && single[T]():
		geluErfAVX512F32(n, pointer32(y), pointer32(x))
	case active == AVX512:
		geluErfAVX512F64(n, pointer64(y), pointer64(x))
	case single[T]():
		geluErfAVX2F32(n, pointer32(y), pointer32(x))
	default:
		geluErfAVX2F64(n, pointer64(y), pointer64(x))
	}
}

func siluVector[T kernels.Float](n int, y, x *T) {
	switch {
	case active == AVX512 && single[T]():
		siluAVX512F32(n, pointer32(y), pointer32(x))
	case active == AVX512:
		siluAVX512F64(n, pointer64(y), pointer64(x))
	case single[T]():
		siluAVX2F32(n, pointer32(y), pointer32(x))
	default:
		siluAVX2F64(n, pointer64(y), pointer64(x))
	}
}

func reluSquaredVector[T kernels.Float](n int, y, x *T) {
	switch {
	case active == AVX512 && single[T]():
		reluSquaredAVX512F32(n, pointer32(y), pointer32(x))
	case active == AVX512:
		reluSquaredAVX512F64(n, pointer64(y), pointer64(x))
	case single[T]():
		reluSquaredAVX2F32(n, pointer32(y), pointer32(x))
	default:
		reluSquaredAVX2F64(n, pointer64(y), pointer64(x))
	}
}

func activateGradVector[T kernels.Float](act kernels.Activation, n int, dx, x, dy *T) {
	switch act {
	case kernels.GELUTanh:
		geluTanhGradVector(n, dx, x, dy)
	case kernels.GELUErf:
		geluErfGradVector(n, dx, x, dy)
	case kernels.SiLU:
		siluGradVector(n, dx, x, dy)
	case kernels.ReLUSquared:
		reluSquaredGradVector(n, dx, x, dy)
	}
}

func geluTanhGradVector[T kernels.Float](n int, dx, x, dy *T) {
	switch {
	case active == AVX512 && single[T]():
		geluTanhGradAVX512F32(n, pointer32(dx), pointer32(x), pointer32(dy))
	case active == AVX512:
		geluTanhGradAVX512F64(n, pointer64(dx), pointer64(x), pointer64(dy))
	case single[T]():
		geluTanhGradAVX2F32(n, pointer32(dx), pointer32(x), pointer32(dy))
	default:
		geluTanhGradAVX2F64(n, pointer64(dx), pointer64(x), pointer64(dy))
	}
}

func geluErfGradVector[T kernels.Float](n int, dx, x, dy *T) {
	switch {
	case active == AVX512 && single[T]():
		geluErfGradAVX512F32(n, pointer32(dx), pointer32(x), pointer32(dy))
	case active == AVX512:
		geluErfGradAVX512F64(n, pointer64(dx), pointer64(x), pointer64(dy))
	case single[T]():
		geluErfGradAVX2F32(n, pointer32(dx), pointer32(x), pointer32(dy))
	default:
		geluErfGradAVX2F64(n, pointer64(dx), pointer64(x), pointer64(dy))
	}
}

func siluGradVector[T kernels.Float](n int, dx, x, dy *T) {
	switch {
	case active == AVX512 && single[T]():
		siluGradAVX512F32(n, pointer32(dx), pointer32(x), pointer32(dy))
	case active == AVX512:
		siluGradAVX512F64(n, pointer64(dx), pointer64(x), pointer64(dy))
	case single[T]():
		siluGradAVX2F32(n, pointer32(dx), pointer32(x), pointer32(dy))
	default:
		siluGradAVX2F64(n, pointer64(dx), pointer64(x), pointer64(dy))
	}
}

func reluSquaredGradVector[T kernels.Float](n int, dx, x, dy *T) {
	switch {
	case active == AVX512 && single[T]():
		reluSquaredGradAVX512F32(n, pointer32(dx), pointer32(x), pointer32(dy))
	case active == AVX512:
		reluSquaredGradAVX512F64(n, pointer64(dx), pointer64(x), pointer64(dy))
	case single[T]():
		reluSquaredGradAVX2F32(n, pointer32(dx), pointer32(x), pointer32(dy))
	default:
		reluSquaredGradAVX2F64(n, pointer64(dx), pointer64(x), pointer64(dy))
	}
}

func swigluVector[T kernels.Float](n int, y, gate, up *T) {
	switch {
	case active == AVX512 && single[T]():
		swigluAVX512F32(n, pointer32(y), pointer32(gate), pointer32(up))
	case active == AVX512:
		swigluAVX512F64(n, pointer64(y), pointer64(gate), pointer64(up))
	case single[T]():
		swigluAVX2F32(n, pointer32(y), pointer32(gate), pointer32(up))
	default:
		swigluAVX2F64(n, pointer64(y), pointer64(gate), pointer64(up))
	}
}

func swigluGradVector[T kernels.Float](n int, dGate, dUp, gate, up, dy *T) {
	switch {
	case active == AVX512 && single[T]():
		swigluGradAVX512F32(n, pointer32(dGate), pointer32(dUp), pointer32(gate), pointer32(up), pointer32(dy))
	case active == AVX512:
		swigluGradAVX512F64(n, pointer64(dGate), pointer64(dUp), pointer64(gate), pointer64(up), pointer64(dy))
	case single[T]():
		swigluGradAVX2F32(n, pointer32(dGate), pointer32(dUp), pointer32(gate), pointer32(up), pointer32(dy))
	default:
		swigluGradAVX2F64(n, pointer64(dGate), pointer64(dUp), pointer64(gate), pointer64(up), pointer64(dy))
	}
}

func addVector[T kernels.Float](n int, c, a, b *T) {
	switch {
	case active == AVX512 && single[T]():
		addAVX512F32(n, pointer32(c), pointer32(a), pointer32(b))
	case active == AVX512:
		addAVX512F64(n, pointer64(c), pointer64(a), pointer64(b))
	case single[T]():
		addAVX2F32(n, pointer32(c), pointer32(a), pointer32(b))
	default:
		addAVX2F64(n, pointer64(c), pointer64(a), pointer64(b))
	}
}

func mulVector[T kernels.Float](n int, c, a, b *T) {
	switch {
	case active == AVX512 && single[T]():
		mulAVX512F32(n, pointer32(c), pointer32(a), pointer32(b))
	case active == AVX512:
		mulAVX512F64(n, pointer64(c), pointer64(a), pointer64(b))
	case single[T]():
		mulAVX2F32(n, pointer32(c), pointer32(a), pointer32(b))
	default:
		mulAVX2F64(n, pointer64(c), pointer64(a), pointer64(b))
	}
}

func sumVector[T kernels.Float](n int, x *T) float64 {
	switch {
	case active == AVX512 && single[T]():
		return sumAVX512F32(n, pointer32(x))
	case active == AVX512:
		return sumAVX512F64(n, pointer64(x))
	case single[T]():
		return sumAVX2F32(n, pointer32(x))
	default:
		return sumAVX2F64(n, pointer64(x))
	}
}

func deviationsVector[T kernels.Float](n int, x *T, centre T) (sum, squares T) {
	switch {
	case active == AVX512 && single[T]():
		v0, v1 := deviationsAVX512F32(n, pointer32(x), float32(centre))
		return T(v0), T(v1)
	case active == AVX512:
		v0, v1 := deviationsAVX512F64(n, pointer64(x), float64(centre))
		return T(v0), T(v1)
	case single[T]():
		v0, v1 := deviationsAVX2F32(n, pointer32(x), float32(centre))
		return T(v0), T(v1)
	default:
		v0, v1 := deviationsAVX2F64(n, pointer64(x), float64(centre))
		return T(v0), T(v1)
	}
}

func normalizeVector[T kernels.Float](n int, y, x *T, centre, rstd, shift T, gamma, beta *T) {
	switch {
	case active == AVX512 && single[T]():
		normalizeAVX512F32(n, pointer32(y), pointer32(x), float32(centre), float32(rstd), float32(shift), pointer32(gamma), pointer32(beta))
	case active == AVX512:
		normalizeAVX512F64(n, pointer64(y), pointer64(x), float64(centre), float64(rstd), float64(shift), pointer64(gamma), pointer64(beta))
	case single[T]():
		normalizeAVX2F32(n, pointer32(y), pointer32(x), float32(centre), float32(rstd), float32(shift), pointer32(gamma), pointer32(beta))
	default:
		normalizeAVX2F64(n, pointer64(y), pointer64(x), float64(centre), float64(rstd), float64(shift), pointer64(gamma), pointer64(beta))
	}
}

func normalizeDotsVector[T kernels.Float](n int, x, dy, gamma *T, centre, rstd T) (sum, sumX T) {
	switch {
	case active == AVX512 && single[T]():
		v0, v1 := normalizeDotsAVX512F32(n, pointer32(x), pointer32(dy), pointer32(gamma), float32(centre), float32(rstd))
		return T(v0), T(v1)
	case active == AVX512:
		v0, v1 := normalizeDotsAVX512F64(n, pointer64(x), pointer64(dy), pointer64(gamma), float64(centre), float64(rstd))
		return T(v0), T(v1)
	case single[T]():
		v0, v1 := normalizeDotsAVX2F32(n, pointer32(x), pointer32(dy), pointer32(gamma), float32(centre), float32(rstd))
		return T(v0), T(v1)
	default:
		v0, v1 := normalizeDotsAVX2F64(n, pointer64(x), pointer64(dy), pointer64(gamma), float64(centre), float64(rstd))
		return T(v0), T(v1)
	}
}

func normalizeGradVector[T kernels.Float](n int, dx, x, dy, gamma *T, centre, rstd, mean, meanX T, dGamma, dBeta *T) {
	switch {
	case active == AVX512 && single[T]():
		normalizeGradAVX512F32(n, pointer32(dx), pointer32(x), pointer32(dy), pointer32(gamma), float32(centre), float32(rstd), float32(mean), float32(meanX), pointer32(dGamma), pointer32(dBeta))
	case active == AVX512:
		normalizeGradAVX512F64(n, pointer64(dx), pointer64(x), pointer64(dy), pointer64(gamma), float64(centre), float64(rstd), float64(mean), float64(meanX), pointer64(dGamma), pointer64(dBeta))
	case single[T]():
		normalizeGradAVX2F32(n, pointer32(dx), pointer32(x), pointer32(dy), pointer32(gamma), float32(centre), float32(rstd), float32(mean), float32(meanX), pointer32(dGamma), pointer32(dBeta))
	default:
		normalizeGradAVX2F64(n, pointer64(dx), pointer64(x), pointer64(dy), pointer64(gamma), float64(centre), float64(rstd), float64(mean), float64(meanX), pointer64(dGamma), pointer64(dBeta))
	}
}

func greatestVector[T kernels.Float](n int, x *T) T {
	switch {
	case active == AVX512 && single[T]():
		return T(greatestAVX512F32(n, pointer32(x)))
	case active == AVX512:
		return T(greatestAVX512F64(n, pointer64(x)))
	case single[T]():
		return T(greatestAVX2F32(n, pointer32(x)))
	default:
		return T(greatestAVX2F64(n, pointer64(x)))
	}
}

func sumExpVector[T kernels.Float](n int, x *T, most T) T {
	switch {
	case active == AVX512 && single[T]():
		return T(sumExpAVX512F32(n, pointer32(x), float32(most)))
	case active == AVX512:
		return T(sumExpAVX512F64(n, pointer64(x), float64(most)))
	case single[T]():
		return T(sumExpAVX2F32(n, pointer32(x), float32(most)))
	default:
		return T(sumExpAVX2F64(n, pointer64(x), float64(most)))
	}
}

func scaledExpVector[T kernels.Float](n int, y, x *T, lse, scale, less T) {
	switch {
	case active == AVX512 && single[T]():
		scaledExpAVX512F32(n, pointer32(y), pointer32(x), float32(lse), float32(scale), float32(less))
	case active == AVX512:
		scaledExpAVX512F64(n, pointer64(y), pointer64(x), float64(lse), float64(scale), float64(less))
	case single[T]():
		scaledExpAVX2F32(n, pointer32(y), pointer32(x), float32(lse), float32(scale), float32(less))
	default:
		scaledExpAVX2F64(n, pointer64(y), pointer64(x), float64(lse), float64(scale), float64(less))
	}
}

func rotateVector[T kernels.Float](rows, n int, y1, y2 *T, ldy int, x1, x2 *T, ldx int, cos, sin *T, ldt int) {
	switch {
	case active == AVX512 && single[T]():
		rotateAVX512F32(rows, n, pointer32(y1), pointer32(y2), ldy, pointer32(x1), pointer32(x2), ldx, pointer32(cos), pointer32(sin), ldt)
	case active == AVX512:
		rotateAVX512F64(rows, n, pointer64(y1), pointer64(y2), ldy, pointer64(x1), pointer64(x2), ldx, pointer64(cos), pointer64(sin), ldt)
	case single[T]():
		rotateAVX2F32(rows, n, pointer32(y1), pointer32(y2), ldy, pointer32(x1), pointer32(x2), ldx, pointer32(cos), pointer32(sin), ldt)
	default:
		rotateAVX2F64(rows, n, pointer64(y1), pointer64(y2), ldy, pointer64(x1), pointer64(x2), ldx, pointer64(cos), pointer64(sin), ldt)
	}
}

func rotateNeighboursVector[T kernels.Float](rows, n int, y *T, ldy int, x *T, ldx int, cos, sin *T, ldt int) {
	switch {
	case active == AVX512 && single[T]():
		rotateNeighboursAVX512F32(rows, n, pointer32(y), ldy, pointer32(x), ldx, pointer32(cos), pointer32(sin), ldt)
	case active == AVX512:
		rotateNeighboursAVX512F64(rows, n, pointer64(y), ldy, pointer64(x), ldx, pointer64(cos), pointer64(sin), ldt)
	case single[T]():
		rotateNeighboursAVX2F32(rows, n, pointer32(y), ldy, pointer32(x), ldx, pointer32(cos), pointer32(sin), ldt)
	default:
		rotateNeighboursAVX2F64(rows, n, pointer64(y), ldy, pointer64(x), ldx, pointer64(cos), pointer64(sin), ldt)
	}
}
