package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// SumRows computes out_j = Σ_i x_ij over all axes of x but the last, or adds it to out. Threads sum
// chunks of rows, which are then added in their order, so that no sum is longer than it needs to be
// for its error.
func (b *Backend) SumRows(x, out kernels.Tensor, accumulate bool) (err error) {
	defer catch("sum rows", &err)
	if err := checked("sum rows", kernels.CheckSumRows(x, out)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x = h.read(x)
	if accumulate {
		out = h.update(out)
	} else {
		out = h.write(out)
	}
	inTypeOf(x, sumRows[float32], sumRows[float64])(b, x, out, accumulate)
	return nil
}

func sumRows[T kernels.Float](b *Backend, x, out kernels.Tensor, accumulate bool) {
	total := kernels.Host[T](out)
	if !accumulate {
		clear(total)
	}
	if x.Elements() == 0 {
		return
	}
	if len(x.Shape) == 1 {
		x = kernels.Tensor{Data: x.Data, DType: x.DType, Shape: []int{1, x.Shape[0]}, Strides: []int{0, 1}}
	}
	s, rows, n := newStack[T](x), x.Shape[len(x.Shape)-2], len(total)
	items := x.Elements() / (rows * n)
	chunk := max(64, ceilDiv(rows, 64))
	chunks := ceilDiv(rows, chunk)
	memory := newWorkspace(bytesFor[T](items * chunks * n))
	defer memory.release()
	partial := take[T](memory, items*chunks*n)
	b.each(items*chunks, flopsPerElement*float64(x.Elements()), func(task int) {
		m, sum, from := s.item(task/chunks), partial[task*n:][:n], task%chunks*chunk
		copy(sum, m.data[from*m.rowStep:])
		if more := min(chunk, rows-from) - 1; more > 0 {
			simd.AddTile(more, n, &sum[0], 0, m.at(from+1, 0), m.rowStep)
		}
	})
	simd.AddTile(items*chunks, n, &total[0], 0, &partial[0], n)
}

// flopsPerElement is what loading an element costs in terms of arithmetic.
const flopsPerElement = 16
