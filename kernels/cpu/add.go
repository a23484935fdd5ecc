package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Add computes c = a + b.
func (b *Backend) Add(left, right, sum kernels.Tensor) (err error) {
	defer catch("add", &err)
	if err := checked("add", kernels.CheckAdd(left, right, sum)); err != nil {
		return err
	}
	b.add(left, right, sum)
	return nil
}

// Accumulate adds each tensor of x to the one in its place in sums.
func (b *Backend) Accumulate(sums, x []kernels.Tensor) (err error) {
	defer catch("accumulate", &err)
	if err := checked("accumulate", kernels.CheckAccumulate(sums, x)); err != nil {
		return err
	}
	if isFloat32(sums) {
		accumulate[float32](b, sums, x)
	} else {
		accumulate[float64](b, sums, x)
	}
	return nil
}

func accumulate[T kernels.Float](b *Backend, sums, x []kernels.Tensor) {
	p := newPieces(sums)
	defer p.release()
	p.each(b, func(_, i, from, n int) {
		sum := place[T](sums[i], from)
		simd.Add(n, sum, sum, place[T](x[i], from))
	})
}

// add computes sum = left + right. Either may have 16 bits beside a sum of float32.
func (b *Backend) add(left, right, sum kernels.Tensor) {
	h := halves{b: b}
	defer h.round()
	left, right, sum = h.read(left), h.read(right), h.write(sum)
	inTypeOf(sum, add[float32], add[float64])(b, left, right, sum)
}

func add[T kernels.Float](b *Backend, left, right, sum kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) { simd.Add(n, at[2], at[0], at[1]) }, left, right, sum)
}
