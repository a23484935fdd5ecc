package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Dropout computes y = x·keep/(1−p), the mask being that of plane 0 at the element's row and
// column.
func (b *Backend) Dropout(d kernels.Dropout, x, y kernels.Tensor) (err error) {
	defer catch("dropout", &err)
	if err := checked("dropout", d.Check(x, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, dropout[float32], dropout[float64])(b, d, x, y)
	return nil
}

func dropout[T kernels.Float](b *Backend, d kernels.Dropout, x, y kernels.Tensor) {
	in, out := rowViewOf[T](x), rowViewOf[T](y)
	b.eachRow(in.n, in.length, func(row int) {
		from, to := unsafe.Slice(in.at(row), in.length), unsafe.Slice(out.at(row), in.length)
		if d.P == 0 {
			copy(to, from)
			return
		}
		for column := 0; column < in.length; column += pieceElements {
			n := min(pieceElements, in.length-column)
			dropRow(d, d.Row+row, column, to[column:][:n], from[column:][:n])
		}
	})
}

// dropRow drops elements of a part of a row that starts at a column, a multiple of
// kernels.DropoutColumns.
func dropRow[T kernels.Float](d kernels.Dropout, row, column int, to, from []T) {
	scale, step := T(d.Scale()), max(simd.Lanes[T](), kernels.DropoutColumns)
	whole := len(from) / step * step
	if whole > 0 {
		simd.Dropout(1, whole, &to[0], &from[0], 0, d, 0, row, column, scale)
	}
	if whole < len(to) {
		var edge [16]T // at least as long as any vector
		copy(edge[:], from[whole:])
		simd.Dropout(1, step, &edge[0], &edge[0], 0, d, 0, row, column+whole, scale)
		copy(to[whole:], edge[:])
	}
}
