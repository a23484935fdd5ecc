package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// outer computes products of a column and a row, which is how a tensor is repeated along an axis,
// and reports whether it did so. Each is a line of C for each number of one of the two. There is
// nothing to sum, and C is written once.
func (x *multiplication[T]) outer(b *Backend) bool {
	if x.depth != 1 || x.items*x.rows*x.columns == 0 || x.Accumulate || x.packed != nil || x.bias != nil || x.hasPre || x.activation != kernels.NoActivation {
		return false
	}
	lines, length := x.rows, x.columns
	lineOf, along, step := x.a, x.b, x.b.columnStep
	lineStep, cLine, cStep := x.a.rowStep, x.c.rowStep, x.c.columnStep
	if length == 1 { // lines along the column
		lines, length = length, lines
		lineOf, along, step = x.b, x.a, x.a.rowStep
		lineStep, cLine, cStep = x.b.columnStep, x.c.columnStep, x.c.rowStep
	}
	if step != 1 && length > 1 || cStep != 1 && length > 1 {
		return false
	}
	b.eachRow(x.items*lines, length, func(i int) {
		item, line := i/lines, i%lines
		factor := [1]T{lineOf.data[lineOf.offset(item)+line*lineStep]}
		from, to := &along.data[along.offset(item)], &x.c.data[x.c.offset(item)+line*cLine]
		for at := 0; at < length; at += pieceElements {
			simd.ScaleRows(1, min(pieceElements, length-at), offset(to, at), 0, offset(from, at), 0, factor[:])
		}
	})
	return true
}
