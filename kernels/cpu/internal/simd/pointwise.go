package simd

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// Operations that the language of scores does not have.
const (
	OpMulAdd     = score.Op(math.MaxUint8 - iota) // x·y + z
	OpSubMul                                      // z − x·y
	OpMulNonzero                                  // x·y where x is not 0, 0 elsewhere, whatever y is
)

// Points is an operand of [Pointwise]: a tile, or a vector for each row (Same), whose lanes are
// equal and stand for all columns.
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

// Pointwise computes each element of a tile from those of up to three others at the same place, by
// an operation on floats of the language of scores. Conditions are 0 and not 0; comparisons give 0
// and 1. to may be one of the operands.
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
	case OpSubMul:
		return z - x*y
	case OpMulNonzero:
		if x == 0 {
			return x
		}
		return x * y
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
