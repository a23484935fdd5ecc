package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Mul computes c = a·b, element by element.
func (b *Backend) Mul(left, right, product kernels.Tensor) error {
	if err := checked("mul", kernels.CheckMul(left, right, product), "a", left); err != nil {
		return err
	}
	if left.DType == kernels.F32 {
		eachPiece(b, func(n int, at [5]*float32) { simd.Mul(n, at[2], at[0], at[1]) }, left, right, product)
	} else {
		eachPiece(b, func(n int, at [5]*float64) { simd.Mul(n, at[2], at[0], at[1]) }, left, right, product)
	}
	return nil
}

// MulScalar computes y = factor·x.
func (b *Backend) MulScalar(factor float64, x, y kernels.Tensor) error {
	if err := checked("mul scalar", kernels.CheckMulScalar(factor, x, y), "x", x); err != nil {
		return err
	}
	if x.DType == kernels.F32 {
		mulScalar[float32](b, factor, x, y)
	} else {
		mulScalar[float64](b, factor, x, y)
	}
	return nil
}

func mulScalar[T kernels.Float](b *Backend, factor float64, x, y kernels.Tensor) {
	factors := []T{T(factor)}
	eachPiece(b, func(n int, at [5]*T) { simd.ScaleRows(1, n, at[1], n, at[0], n, factors) }, x, y)
}
