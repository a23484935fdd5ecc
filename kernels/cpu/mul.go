package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Mul computes c = a·b, element by element.
func (b *Backend) Mul(left, right, product kernels.Tensor) (err error) {
	defer catch("mul", &err)
	if err := checked("mul", kernels.CheckMul(left, right, product)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	left, right, product = h.read(left), h.read(right), h.write(product)
	inTypeOf(left, mul[float32], mul[float64])(b, left, right, product)
	return nil
}

func mul[T kernels.Float](b *Backend, left, right, product kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) { simd.Mul(n, at[2], at[0], at[1]) }, left, right, product)
}

// MulScalar computes y = factor·x.
func (b *Backend) MulScalar(factor float64, x, y kernels.Tensor) (err error) {
	defer catch("mul scalar", &err)
	if err := checked("mul scalar", kernels.CheckMulScalar(factor, x, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, mulScalar[float32], mulScalar[float64])(b, factor, x, y)
	return nil
}

func mulScalar[T kernels.Float](b *Backend, factor float64, x, y kernels.Tensor) {
	factors := []T{T(factor)}
	eachPiece(b, func(n int, at [5]*T) { simd.ScaleRows(1, n, at[1], n, at[0], n, factors) }, x, y)
}
