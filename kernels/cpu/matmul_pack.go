package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// panels is a slice of a block of B as the vector kernel reads it.
type panels[T kernels.Float] struct {
	first           *T // whole vectors of columns; nil where there are none
	step, panelStep int
	rest            *T // the columns that are less than a vector, padded to one, Panel apart; nil where there are none
}

// sliceOfB makes the rows [from, from+depth) of B ready for a region's columns: packed, or where
// they lie.
func (x *multiplication[T]) sliceOfB(w *scratch[T], r region, from, depth int) panels[T] {
	panel, lanes := simd.Panel[T](), simd.Lanes[T]()
	whole := r.columns / lanes * lanes
	b := x.b.item(r.item)
	if !x.packB {
		p := panels[T]{step: b.rowStep, panelStep: panel}
		if whole > 0 {
			p.first = b.at(from, r.column)
		}
		if whole < r.columns {
			packPanels(w.b, view[T]{b.data[from*b.rowStep+r.column+whole:], b.rowStep, 1}, r.columns-whole, depth)
			p.rest = &w.b[0]
		}
		return p
	}
	if r.columns == 0 {
		return panels[T]{}
	}
	if block := [2]int{x.b.offset(r.item), r.column}; block != w.block {
		w.block, w.from, w.to = block, 0, 0
	}
	to := w.b
	if x.holdsB {
		to = to[from*roundUp(r.columns, panel):]
	}
	if from < w.from || from >= w.to {
		if x.packed != nil {
			x.packed.panels(any(to).([]float32), from, depth, r.column, r.columns)
		} else {
			packPanels(to, view[T]{b.data[from*b.rowStep+r.column*b.columnStep:], b.rowStep, b.columnStep}, r.columns, depth)
		}
		if w.to = from + depth; !x.holdsB {
			w.from = from
		}
	}
	p := panels[T]{step: panel, panelStep: depth * panel}
	if whole > 0 {
		p.first = &to[0]
	}
	if whole < r.columns {
		p.rest = &to[whole/panel*p.panelStep+whole%panel]
	}
	return p
}

// packPanels copies a matrix to panels, one behind the other, the columns that the last one lacks
// zero.
func packPanels[T kernels.Float](dst []T, b view[T], columns, depth int) {
	panel := simd.Panel[T]()
	if b.rowStep == 1 && b.columnStep != 1 {
		simd.PackTransposed(dst, b.data, columns, depth, b.columnStep)
		return
	}
	rows := depth
	if b.columnStep == 1 {
		rows = packedRows
	}
	for p := 0; p < depth; p += rows {
		n := min(rows, depth-p)
		for j := 0; j < columns; j += panel {
			width := min(panel, columns-j)
			to := dst[j*depth+p*panel:][:n*panel]
			if width < panel {
				clear(to) // also what lies beyond the last vector, for a denormal there would slow the product
			}
			if b.columnStep == 1 {
				copyTile(n, width, &to[0], panel, &b.data[p*b.rowStep+j], b.rowStep)
				continue
			}
			for i := range n {
				for k := range width {
					to[i*panel+k] = b.data[(p+i)*b.rowStep+(j+k)*b.columnStep]
				}
			}
		}
	}
}

// packedRows are the rows of B that are packed at once: a panel has two lines of a row's page, and
// the next panel reads the next two while the processor expects them.
const packedRows = 32

// copyTile copies rows of columns elements.
func copyTile[T kernels.Float](rows, columns int, dst *T, dstStride int, src *T, srcStride int) {
	ones := ones[T]()
	for i := 0; i < rows; i += len(ones) {
		n := min(len(ones), rows-i)
		simd.ScaleRows(n, columns, offset(dst, i*dstStride), dstStride, offset(src, i*srcStride), srcStride, ones[:n])
	}
}

// ones is a factor of 1 for each of some rows of a copy.
func ones[T kernels.Float]() []T {
	if kernels.DTypeOf[T]() == kernels.F32 {
		return any(ones32[:]).([]T)
	}
	return any(ones64[:]).([]T)
}

// rowsOfOnes is how many rows are copied at once.
const rowsOfOnes = 384

var ones32, ones64 = func() (single [rowsOfOnes]float32, double [rowsOfOnes]float64) {
	for i := range single {
		single[i], double[i] = 1, 1
	}
	return single, double
}()

// copyRowsOfA copies rows of A, whose columns are contiguous or whose elements all lie apart, near
// to each other: as columns.
func copyRowsOfA[T kernels.Float](dst []T, a view[T], rows, depth int) view[T] {
	if a.rowStep == 1 {
		copyTile(depth, rows, &dst[0], rows, &a.data[0], a.columnStep)
		return view[T]{dst, 1, rows}
	}
	for p := range depth {
		for i := range rows {
			dst[p*rows+i] = a.data[i*a.rowStep+p*a.columnStep]
		}
	}
	return view[T]{dst, 1, rows}
}

// gather is a vector made contiguous in dst, or where it lies if it is.
func gather[T kernels.Float](dst, src []T, stride int) []T {
	if stride == 1 {
		return src
	}
	for i := range dst {
		dst[i] = src[i*stride]
	}
	return dst
}

// strip is some rows of A, and of C where their product goes.
type strip[T kernels.Float] struct {
	a                   *T
	rowStep, columnStep int
	c                   *T
	stride, rows        int
	accumulate          bool
}

// multiply computes a strip of C from the slice, or adds to it. tile has room for a vector of each
// row.
func (b panels[T]) multiply(s strip[T], depth, columns int, tile []T) {
	lanes := simd.Lanes[T]()
	vectors := columns / lanes
	for v, n := 0, vectorsAtOnce(s.rows*depth*lanes); v < vectors; v += n {
		simd.Gemm(s.rows, min(n, vectors-v), depth, s.a, s.rowStep, s.columnStep,
			offset(b.first, v/2*b.panelStep), b.step, b.panelStep, offset(s.c, v*lanes), s.stride, s.accumulate)
	}
	if b.rest != nil {
		simd.Gemm(s.rows, 1, depth, s.a, s.rowStep, s.columnStep, b.rest, simd.Panel[T](), 0, &tile[0], lanes, false)
		store(s.rows, columns%lanes, offset(s.c, vectors*lanes), s.stride, &tile[0], lanes, s.accumulate)
	}
}

// vectorsAtOnce is a number of vectors for one call of the vector kernel, which cannot be
// preempted: at most about a tenth of a millisecond of work, or two panels. It is a multiple of
// four, as the kernel takes them.
func vectorsAtOnce(perVector int) int {
	const most = 2 << 20 // multiplications
	return max(4, most/max(1, perVector)&^3)
}
