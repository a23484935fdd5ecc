package simd

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// pointwiseVector reports whether there is a vector kernel for the operation: there is none for
// logarithms, sines and cosines.
func pointwiseVector[T kernels.Float](op score.Op, rows, n int, to *T, ldt int, x, y, z Points[T]) bool {
	mx, my, mz := x.mask(), y.mask(), z.mask()
	switch op {
	case OpMulAdd:
		mulAddPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my, z.At, z.Stride, mz)
	case OpSubMul:
		subMulPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my, z.At, z.Stride, mz)
	case OpMulNonzero:
		mulNonzeroPointsVector(rows, n, to, ldt, x.At, x.Stride, mx, y.At, y.Stride, my)
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
	case score.OpLog, score.OpSin, score.OpCos:
		return false
	default:
		panic(fmt.Sprintf("simd.Pointwise: %v is no operation on floats", op))
	}
	return true
}
