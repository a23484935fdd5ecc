package reference

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// loadKeys is k and v of one sequence and key head.
func loadKeys[T kernels.Float](a *kernels.Attention, s kernels.Sequence, keyHead int) (k, v [][]T) {
	return loadRows[T](a.K, s.KeyBatch, keyHead, s.K0, s.Sk), loadRows[T](a.V, s.KeyBatch, keyHead, s.K0, s.Sk)
}

// loadRows is n rows of one head of a (batch, heads, length, size) tensor.
func loadRows[T kernels.Float](t kernels.Tensor, batch, head, from, n int) [][]T {
	m := matrix[T](n, t.Shape[3])
	for i := range m {
		for d := range m[i] {
			m[i][d] = T(element(t, t.Offset(batch, head, from+i, d)))
		}
	}
	return m
}

// element returns the element that lies offset elements behind the tensor's first.
func element(t kernels.Tensor, offset int) float64 {
	at := unsafe.Add(t.Data, offset*t.DType.Size())
	switch t.DType {
	case kernels.F32:
		return float64(*(*float32)(at))
	case kernels.F64:
		return *(*float64)(at)
	}
	panic(fmt.Sprintf("reference: tensors need to be float32 or float64, not %v", t.DType))
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

// dotBackwards is dot in the other direction. With it the rounding of δ_i = O_i·dO_i has nothing to do with that of
// dP_ij = dO_i·v_j, as in programs that compute them apart; else the two would cancel exactly in a row that sees one key.
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
