package blas

import (
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Implementation implements gonum's blas.Float32, Float64, Complex64 and Complex128, which is what
// gorgonia.Use and tensor.Use take. Like gonum's own it panics at arguments that do not fit
// together, with gonum's messages. It may be used from several goroutines at once.
type Implementation struct{ gonum.Implementation }

// New returns the implementation. Where STHENO_SIMD asks for instructions that there are not it
// returns an error, which Sgemm and Dgemm could only panic with.
func New() (Implementation, error) { return Implementation{}, simd.Check() }

var backend = cpu.New()

// Sgemm computes C = α·op(A)·op(B) + β·C, with op the transpose or nothing, in float32. C is m×n,
// op(A) m×k, op(B) k×n; all are row-major, their rows lda, ldb and ldc elements apart.
func (i Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	// With α = 0 and β = 1 gonum checks the arguments and does nothing.
	i.Implementation.Sgemm(tA, tB, m, n, k, 0, a, lda, b, ldb, 1, c, ldc)
	gemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dgemm is [Implementation.Sgemm] in float64.
func (i Implementation) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	i.Implementation.Dgemm(tA, tB, m, n, k, 0, a, lda, b, ldb, 1, c, ldc)
	gemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

func gemm[T kernels.Float](tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	if m == 0 || n == 0 {
		return
	}
	if beta != 0 && beta != 1 {
		for i := range m {
			for j := range n {
				c[i*ldc+j] *= beta
			}
		}
	}
	if (alpha == 0 || k == 0) && beta != 0 {
		return
	}
	p := kernels.MatMul{A: operand(tA, m, k, a, lda), B: operand(tB, k, n, b, ldb), Accumulate: beta != 0}
	if alpha == 0 {
		p.A, p.B = operand(blas.NoTrans, m, 0, a, 0), operand(blas.NoTrans, 0, n, b, n) // C = 0, whatever A and B hold
	} else if alpha != 1 {
		scaled := scale(&p.A, alpha)
		defer release(scaled)
	}
	if err := backend.MatMul(&p, kernels.MatMulOutputs{C: operand(blas.NoTrans, m, n, c, ldc)}); err != nil {
		panic(err) // the arguments have been checked, and New has checked the environment
	}
}

// operand is the rows × columns matrix op(x) where it lies.
func operand[T kernels.Float](t blas.Transpose, rows, columns int, x []T, stride int) kernels.Tensor {
	view := kernels.Of(x, len(x))
	view.Shape, view.Strides = []int{rows, columns}, []int{stride, 1}
	if t != blas.NoTrans {
		view.Strides = []int{1, stride}
	}
	return view
}

// scale makes t a row-major copy of itself, multiplied by a factor, in the memory that it gives.
func scale[T kernels.Float](t *kernels.Tensor, factor T) *[]T {
	memory, _ := pool[T]().Get().(*[]T)
	if memory == nil {
		memory = new([]T)
	}
	rows, columns, from := t.Shape[0], t.Shape[1], kernels.Host[T](*t)
	if cap(*memory) < rows*columns {
		*memory = make([]T, rows*columns)
	}
	to := (*memory)[:rows*columns]
	for i := range rows {
		for j := range columns {
			to[i*columns+j] = factor * from[i*t.Strides[0]+j*t.Strides[1]]
		}
	}
	*t = kernels.Of(to, rows, columns)
	return memory
}

func release[T kernels.Float](memory *[]T) { pool[T]().Put(memory) }

var single, double sync.Pool

// pool holds the memory for scaled operands, by element type.
func pool[T kernels.Float]() *sync.Pool {
	if kernels.DTypeOf[T]() == kernels.F32 {
		return &single
	}
	return &double
}
