package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Add computes c = a + b.
func (b *Backend) Add(left, right, sum kernels.Tensor) error {
	if err := checked("add", kernels.CheckAdd(left, right, sum), "a", left); err != nil {
		return err
	}
	if left.DType == kernels.F32 {
		eachPiece(b, func(n int, at [5]*float32) { simd.Add(n, at[2], at[0], at[1]) }, left, right, sum)
	} else {
		eachPiece(b, func(n int, at [5]*float64) { simd.Add(n, at[2], at[0], at[1]) }, left, right, sum)
	}
	return nil
}
