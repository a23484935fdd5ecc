package simd

import "github.com/stheno-ml/stheno/kernels"

// The same for the kernels of optimisers: each function runs the assembly for the active level and the element type.

func adamwVector[T kernels.Float](n int, w, g, m, v *T, scale, rest1, beta2, rest2, root, epsilon, decay, rate T) {
	switch {
	case active == AVX512 && single[T]():
		adamwAVX512F32(n, pointer32(w), pointer32(g), pointer32(m), pointer32(v), float32(scale), float32(rest1), float32(beta2), float32(rest2), float32(root), float32(epsilon), float32(decay), float32(rate))
	case active == AVX512:
		adamwAVX512F64(n, pointer64(w), pointer64(g), pointer64(m), pointer64(v), float64(scale), float64(rest1), float64(beta2), float64(rest2), float64(root), float64(epsilon), float64(decay), float64(rate))
	case single[T]():
		adamwAVX2F32(n, pointer32(w), pointer32(g), pointer32(m), pointer32(v), float32(scale), float32(rest1), float32(beta2), float32(rest2), float32(root), float32(epsilon), float32(decay), float32(rate))
	default:
		adamwAVX2F64(n, pointer64(w), pointer64(g), pointer64(m), pointer64(v), float64(scale), float64(rest1), float64(beta2), float64(rest2), float64(root), float64(epsilon), float64(decay), float64(rate))
	}
}

func sgdVector[T kernels.Float](n int, w, g *T, scale, pull, decay, rate T) {
	switch {
	case active == AVX512 && single[T]():
		sgdAVX512F32(n, pointer32(w), pointer32(g), float32(scale), float32(pull), float32(decay), float32(rate))
	case active == AVX512:
		sgdAVX512F64(n, pointer64(w), pointer64(g), float64(scale), float64(pull), float64(decay), float64(rate))
	case single[T]():
		sgdAVX2F32(n, pointer32(w), pointer32(g), float32(scale), float32(pull), float32(decay), float32(rate))
	default:
		sgdAVX2F64(n, pointer64(w), pointer64(g), float64(scale), float64(pull), float64(decay), float64(rate))
	}
}

func sgdMomentumVector[T kernels.Float](n int, w, g, m *T, scale, pull, momentum, decay, rate, ahead T) {
	switch {
	case active == AVX512 && single[T]():
		sgdMomentumAVX512F32(n, pointer32(w), pointer32(g), pointer32(m), float32(scale), float32(pull), float32(momentum), float32(decay), float32(rate), float32(ahead))
	case active == AVX512:
		sgdMomentumAVX512F64(n, pointer64(w), pointer64(g), pointer64(m), float64(scale), float64(pull), float64(momentum), float64(decay), float64(rate), float64(ahead))
	case single[T]():
		sgdMomentumAVX2F32(n, pointer32(w), pointer32(g), pointer32(m), float32(scale), float32(pull), float32(momentum), float32(decay), float32(rate), float32(ahead))
	default:
		sgdMomentumAVX2F64(n, pointer64(w), pointer64(g), pointer64(m), float64(scale), float64(pull), float64(momentum), float64(decay), float64(rate), float64(ahead))
	}
}

func lionVector[T kernels.Float](n int, w, g, m *T, scale, beta1, rest1, beta2, rest2, decay, rate T) {
	switch {
	case active == AVX512 && single[T]():
		lionAVX512F32(n, pointer32(w), pointer32(g), pointer32(m), float32(scale), float32(beta1), float32(rest1), float32(beta2), float32(rest2), float32(decay), float32(rate))
	case active == AVX512:
		lionAVX512F64(n, pointer64(w), pointer64(g), pointer64(m), float64(scale), float64(beta1), float64(rest1), float64(beta2), float64(rest2), float64(decay), float64(rate))
	case single[T]():
		lionAVX2F32(n, pointer32(w), pointer32(g), pointer32(m), float32(scale), float32(beta1), float32(rest1), float32(beta2), float32(rest2), float32(decay), float32(rate))
	default:
		lionAVX2F64(n, pointer64(w), pointer64(g), pointer64(m), float64(scale), float64(beta1), float64(rest1), float64(beta2), float64(rest2), float64(decay), float64(rate))
	}
}

func sumSquaresVector[T kernels.Float](n int, x *T) float64 {
	switch {
	case active == AVX512 && single[T]():
		return sumSquaresAVX512F32(n, pointer32(x))
	case active == AVX512:
		return sumSquaresAVX512F64(n, pointer64(x))
	case single[T]():
		return sumSquaresAVX2F32(n, pointer32(x))
	default:
		return sumSquaresAVX2F64(n, pointer64(x))
	}
}
