package simd

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// OpMulAdd is x·y + z, which the language of scores does not have.
const OpMulAdd = score.Op(math.MaxUint8)

// Points is an operand of [Pointwise]: a tile, or a vector for each row (Same), whose lanes are equal and stand for all columns.
type Points[T kernels.Float] struct {
	At     *T
	Stride int
	Same   bool
}

func (p Points[T]) mask() int {
	if p.Same {
		return 0
	}
	return -1
}

// Pointwise computes each element of a tile from those of up to three others at the same place, by an operation on floats of the
// language of scores. Conditions are 0 and not 0; comparisons give 0 and 1. to may be one of the operands.
func Pointwise[T kernels.Float](op score.Op, rows, n int, to *T, ldt int, x, y, z Points[T]) {
	if rows <= 0 || n <= 0 {
		return
	}
	if active != Generic && pointwiseVector(op, rows, n, to, ldt, x, y, z) {
		return
	}
	for i := range rows {
		out := row(to, i, ldt, n)
		for j := range out {
			a := *at(x.At, i*x.Stride+j&x.mask())
			b, c := a, a
			if y.At != nil {
				b = *at(y.At, i*y.Stride+j&y.mask())
			}
			if z.At != nil {
				c = *at(z.At, i*z.Stride+j&z.mask())
			}
			out[j] = point(op, a, b, c)
		}
	}
}

func point[T kernels.Float](op score.Op, x, y, z T) T {
	holds := false
	switch op {
	case OpMulAdd:
		return x*y + z
	case score.OpSelect:
		if x != 0 {
			return y
		}
		return z
	case score.OpLess:
		holds = x < y
	case score.OpLessEqual:
		holds = x <= y
	case score.OpEqual:
		holds = x == y
	default:
		return score.Real(op, x, y)
	}
	if holds {
		return 1
	}
	return 0
}

// pointwiseVector reports whether there is a vector kernel for the operation: there is none for logarithms.
func pointwiseVector[T kernels.Float](op score.Op, rows, n int, to *T, ldt int, x, y, z Points[T]) bool {
	mx, my, mz := x.mask(), y.mask(), z.mask()
	switch op {
	case OpMulAdd:
		mulAddPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my, z.At, z.Stride, mz)
	case score.OpSelect:
		selectPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my, z.At, z.Stride, mz)
	case score.OpAdd:
		addPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my)
	case score.OpSub:
		subPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my)
	case score.OpMul:
		mulPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my)
	case score.OpDiv:
		divPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my)
	case score.OpMin:
		minPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my)
	case score.OpMax:
		maxPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my)
	case score.OpLess:
		lessPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my)
	case score.OpLessEqual:
		lessEqualPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my)
	case score.OpEqual:
		equalPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my)
	case score.OpNeg:
		negPointsVector(rows, n, to, ldt, x.At, x.Stride, mx)
	case score.OpAbs:
		absPointsVector(rows, n, to, ldt, x.At, x.Stride, mx)
	case score.OpExp:
		expPointsVector(rows, n, to, ldt, x.At, x.Stride, mx)
	case score.OpTanh:
		tanhPointsVector(rows, n, to, ldt, x.At, x.Stride, mx)
	case score.OpSigmoid:
		sigmoidPointsVector(rows, n, to, ldt, x.At, x.Stride, mx)
	case score.OpLog:
		return false
	default:
		panic(fmt.Sprintf("simd.Pointwise: %v is no operation on floats", op))
	}
	return true
}
