package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// rows is a matrix in the host's memory whose rows lie stride elements apart.
type rows[T kernels.Float] struct {
	data   []T
	stride int
}

func (r rows[T]) at(i int) *T { return &r.data[i*r.stride] }

// from is the rows from i on: none behind the last, where an empty sequence may lie.
func (r rows[T]) from(i int) rows[T] {
	return rows[T]{r.data[min(i*r.stride, len(r.data)):], r.stride}
}

// matrix is one head of one sequence, its first row at length index start.
func matrix[T kernels.Float](t kernels.Tensor, batch, head, start int) rows[T] {
	data := kernels.Host[T](t)
	if data == nil {
		return rows[T]{nil, t.Strides[2]}
	}
	return rows[T]{data[t.Offset(batch, head):], t.Strides[2]}.from(start)
}

// multipliable reports whether rows of a tensor can be a matrix product's operand where they lie:
// whole vectors, near enough to each other for the address translation, and not in the same few
// sets of the cache.
func multipliable[T kernels.Float](t kernels.Tensor) bool {
	const farthest = 2048 // bytes; half of what maps to the same set of a 32 KiB cache
	return t.Shape[3]%simd.Lanes[T]() == 0 && t.Strides[2]*t.DType.Size() <= farthest
}

// copyRows copies n rows of d elements to dst, whose columns up to padded become zero.
func copyRows[T kernels.Float](dst []T, src rows[T], n, d, padded int) rows[T] {
	for i := range n {
		row := dst[i*padded : (i+1)*padded]
		copy(row, src.data[i*src.stride:][:d])
		clear(row[d:])
	}
	return rows[T]{dst, padded}
}

// finite reports whether a matrix of n rows holds neither NaN nor Inf. Kernels ask it only under a
// mask: within a tile that the mask cuts, a hidden value is multiplied by zero, which would spread
// a NaN to rows that do not see it.
func finite[T kernels.Float](m rows[T], n, d int) bool {
	return n == 0 || simd.Finite(n, d, m.at(0), m.stride)
}
