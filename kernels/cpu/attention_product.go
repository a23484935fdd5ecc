package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// product is out += left · right where a mask cuts left: row i of left is zero outside the columns
// from lo+i up to hi+i. Element (i, j) of left lies at i·rowStep + j·columnStep.
type product[T kernels.Float] struct {
	left                *T
	rowStep, columnStep int
	right, out          rows[T]
}

// blockRows is a multiple of the rows that the vector kernel multiplies at once, with either
// instruction set.
const blockRows = 12

// addProduct adds the product of n rows and the given number of columns, into vectors of out.
// Blocks of so many rows skip the columns that none of them sees. Where the right side holds a NaN
// or an Inf that a row may not see, exact multiplies each row with its own columns alone.
func addProduct[T kernels.Float](vectors int, p product[T], n, columns, lo, hi, block int, exact bool) {
	if lo+n-1 <= 0 && hi >= columns {
		p.add(vectors, 0, n, 0, columns)
		return
	}
	if exact {
		block = 1
	}
	for i := 0; i < n; i += block {
		height := min(block, n-i)
		p.add(vectors, i, height, max(0, lo+i), min(columns, hi+i+height-1))
	}
}

func (p product[T]) add(vectors, i, n, from, to int) {
	if from >= to {
		return
	}
	left := offset(p.left, i*p.rowStep+from*p.columnStep)
	panel := simd.Panel[T]()
	simd.Gemm(n, vectors, to-from, left, p.rowStep, p.columnStep, p.right.at(from), p.right.stride, panel, p.out.at(i), p.out.stride, true)
}
