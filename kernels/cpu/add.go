package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Add computes c = a + b.
func (b *Backend) Add(left, right, sum kernels.Tensor) error {
	if err := checked("add", kernels.CheckAdd(left, right, sum)); err != nil {
		return err
	}
	b.add(left, right, sum)
	return nil
}

func (b *Backend) add(left, right, sum kernels.Tensor) {
	h := halves{b: b}
	defer h.round()
	left, right, sum = h.read(left), h.read(right), h.write(sum)
	inTypeOf(left, add[float32], add[float64])(b, left, right, sum)
}

func add[T kernels.Float](b *Backend, left, right, sum kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) { simd.Add(n, at[2], at[0], at[1]) }, left, right, sum)
}
