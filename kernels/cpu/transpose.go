package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// A copy whose rows become columns is made block by block: rows that are some power of two apart,
// as those of most matrices are, would push one another out of the caches. A block is widened into
// a place of its own, in the second-level cache, and leaves it eight columns at a time, each of
// which is written from its beginning to its end; for 16 bits to a second place, which is rounded.
const (
	turnedRows    = 256
	turnedColumns = 64
)

// exchangesAxes reports whether a copy is one of rows without gaps that become columns without
// gaps, of types that float32 holds.
func exchangesAxes(dst, src kernels.Tensor) bool {
	holds := func(d kernels.DType) bool { return d.IsFloat() && d != kernels.F64 }
	return len(src.Shape) == 2 && src.Strides[1] == 1 && dst.Strides[0] == 1 && dst.Shape[0] > 1 && dst.Shape[1] > 1 &&
		holds(dst.DType) && holds(src.DType)
}

// exchangeAxes is that copy: element (i, j) of src goes to place j·stride + i of dst.
func (b *Backend) exchangeAxes(dst, src kernels.Tensor) {
	rows, columns := src.Shape[0], src.Shape[1]
	across := ceilDiv(columns, turnedColumns)
	b.each(ceilDiv(rows, turnedRows)*across, elementFLOPs*float64(rows*columns), func(task int) {
		top, left := task/across*turnedRows, task%across*turnedColumns
		high, wide := min(turnedRows, rows-top), min(turnedColumns, columns-left)
		w := newWorkspace(2 * bytesFor[float32](turnedRows*turnedColumns))
		defer w.release()
		block := take[float32](w, turnedRows*turnedColumns)
		for i := range high {
			row := unsafe.Add(src.Data, ((top+i)*src.Strides[0]+left)*src.DType.Size())
			widenRow(block[i*turnedColumns:][:wide], row, src.DType)
		}
		if dst.DType == kernels.F32 {
			to := (*float32)(unsafe.Add(dst.Data, (left*dst.Strides[1]+top)*dst.DType.Size()))
			simd.Transpose(high, wide, to, dst.Strides[1], &block[0], turnedColumns)
			return
		}
		turned := take[float32](w, turnedRows*turnedColumns)
		simd.Transpose(high, wide, &turned[0], turnedRows, &block[0], turnedColumns)
		for j := range wide {
			row := unsafe.Add(dst.Data, ((left+j)*dst.Strides[1]+top)*dst.DType.Size())
			roundRow(row, dst.DType, turned[j*turnedRows:][:high])
		}
	})
}

// widenRow writes elements of a type, from a place on, as float32.
func widenRow(to []float32, from unsafe.Pointer, dtype kernels.DType) {
	if dtype == kernels.BF16 {
		simd.WidenRow(len(to), &to[0], (*kernels.BFloat16)(from))
		return
	}
	kernels.CopyHost(kernels.Of(to, len(to)), kernels.Tensor{Data: from, DType: dtype, Shape: []int{len(to)}, Strides: []int{1}})
}

// roundRow writes float32 as elements of a type, from a place on.
func roundRow(to unsafe.Pointer, dtype kernels.DType, from []float32) {
	if dtype == kernels.BF16 {
		simd.RoundRow(len(from), (*kernels.BFloat16)(to), &from[0])
		return
	}
	kernels.CopyHost(kernels.Tensor{Data: to, DType: dtype, Shape: []int{len(from)}, Strides: []int{1}}, kernels.Of(from, len(from)))
}
