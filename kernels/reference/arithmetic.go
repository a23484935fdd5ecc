package reference

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Arithmetic is how an unfused program computes, the yardstick of a kernel's error: in T, with
// every matrix stored between one step and the next. Its functions round on the way what the
// program keeps in a coarser type; those that are nil round nothing.
type Arithmetic[T kernels.Float] struct {
	Operand func(T) T // of a factor of a matrix product
	Result  func(T) T // of an element of a matrix, or of another tensor but logsumexps and δ
}

func (m Arithmetic[T]) operand(x T) T {
	if m.Operand == nil {
		return x
	}
	return m.Operand(x)
}

func (m Arithmetic[T]) result(x T) T {
	if m.Result == nil {
		return x
	}
	return m.Result(x)
}

// operands returns what a row of factors becomes, which may be the row itself.
func (m Arithmetic[T]) operands(x []T) []T { return rounded(x, m.Operand) }

// results returns what a row of results becomes, which may be the row itself.
func (m Arithmetic[T]) results(x []T) []T { return rounded(x, m.Result) }

func rounded[T kernels.Float](x []T, round func(T) T) []T {
	if round == nil {
		return x
	}
	y := make([]T, len(x))
	for i := range x {
		y[i] = round(x[i])
	}
	return y
}

// loadKeys is k and v of one sequence and key head.
func (m Arithmetic[T]) loadKeys(a *kernels.Attention, s kernels.Sequence, keyHead int) (k, v [][]T) {
	return m.loadRows(a.K, s.KeyBatch, keyHead, s.K0, s.Sk), m.loadRows(a.V, s.KeyBatch, keyHead, s.K0, s.Sk)
}

// loadRows is n rows of one head of a (batch, heads, length, size) tensor, as factors.
func (m Arithmetic[T]) loadRows(t kernels.Tensor, batch, head, from, n int) [][]T {
	rows := matrix[T](n, t.Shape[3])
	for i := range rows {
		for d := range rows[i] {
			rows[i][d] = m.operand(T(element(t, t.Offset(batch, head, from+i, d))))
		}
	}
	return rows
}

// element returns the element that lies offset elements behind the tensor's first.
func element(t kernels.Tensor, offset int) float64 {
	if !t.DType.IsFloat() {
		panic(fmt.Sprintf("reference: tensors need to be of floats, not %v", t.DType))
	}
	return kernels.HostElement(t, offset)
}

func matrix[T kernels.Float](rows, size int) [][]T {
	m, all := make([][]T, rows), make([]T, rows*size)
	for i := range m {
		m[i] = all[i*size:][:size]
	}
	return m
}

// load returns x in the precision of T; nil stays nil.
func load[T, From kernels.Float](x []From) []T {
	if x == nil {
		return nil
	}
	y := make([]T, len(x))
	for i := range x {
		y[i] = T(x[i])
	}
	return y
}

func copyTo[T kernels.Float](to []float64, from []T) {
	for i, x := range from {
		to[i] = float64(x)
	}
}

// addTo adds in the arithmetic of T to numbers that came from it.
func addTo[T kernels.Float](to []float64, from []T) {
	for i, x := range from {
		to[i] = float64(T(to[i]) + x)
	}
}

// rowMajor returns the strides of a row-major tensor.
func rowMajor(shape []int) []int { return kernels.Contiguous(nil, kernels.F64, shape...).Strides }

func exp[T kernels.Float](x T) T { return T(math.Exp(float64(x))) }

func dot[T kernels.Float](x, y []T) T {
	var sum T
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// dotBackwards is dot in the other direction. With it the rounding of δ_i = O_i·dO_i has nothing to
// do with that of dP_ij = dO_i·v_j, as in programs that compute them apart; else the two would
// cancel exactly in a row that sees one key.
func dotBackwards[T kernels.Float](x, y []T) T {
	var sum T
	for i := len(x) - 1; i >= 0; i-- {
		sum += x[i] * y[i]
	}
	return sum
}

// add is y += factor·x.
func add[T kernels.Float](y []T, factor T, x []T) {
	for i := range y {
		y[i] += factor * x[i]
	}
}
