package reference

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
)

// MatMul computes act(A·B + Σ Aᵢ·Bᵢ + bias), and what the activation is applied to: c and pre are
// (batch..., m, n), row-major. Where the problem accumulates, initial is what C held, row-major;
// otherwise it is not read. Of epilogues it knows [kernels.Activate] alone: the others are
// [Activation] and [SwiGLU] of a product.
func MatMul[T kernels.Float](m *kernels.MatMul, initial []T) (c, pre []T) {
	rows, columns, depth := m.Dims()
	a, b := operands[T](m)
	bias := vector[T](m.Bias, columns, 0)
	epilogue, _ := m.Epilogue.(kernels.Activate)
	items := 1
	for _, d := range m.A.Shape[:len(m.A.Shape)-2] {
		items *= d
	}
	shared := len(m.B.Shape) == 2
	type factors struct {
		a, b  []T
		depth int
	}
	var plus []factors
	for _, f := range m.Plus {
		plus = append(plus, factors{elements[T](f.A), elements[T](f.B), f.B.Shape[0]})
	}
	c, pre = make([]T, items*rows*columns), make([]T, items*rows*columns)
	eachRow(items*rows, func(row int) {
		right := b
		if !shared {
			right = b[row/rows*depth*columns:]
		}
		sums, c := pre[row*columns:][:columns], c[row*columns:][:columns]
		addProduct(sums, a[row*depth:][:depth], right)
		for _, f := range plus {
			addProduct(sums, f.a[row*f.depth:][:f.depth], f.b)
		}
		for j := range sums {
			sums[j] += bias[j]
			if m.Accumulate {
				sums[j] += initial[row*columns+j]
			}
			c[j], _ = activate(epilogue.Activation, sums[j])
		}
	})
	return c, pre
}

// eachRow calls do for every row, from as many goroutines as there are processors.
func eachRow(rows int, do func(row int)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(rows, runtime.GOMAXPROCS(0)) {
		wait.Go(func() {
			for row := int(next.Add(1)) - 1; row < rows; row = int(next.Add(1)) - 1 {
				do(row)
			}
		})
	}
	wait.Wait()
}

// addProduct adds a row times a matrix to sums, in the order of the row's elements.
func addProduct[T kernels.Float](sums, row, matrix []T) {
	for p, x := range row {
		for j, y := range matrix[p*len(sums):][:len(sums)] {
			sums[j] += x * y
		}
	}
}

// operands are the elements of A and B, rounded for kernels.PrecisionFloat8.
func operands[T kernels.Float](m *kernels.MatMul) (left, right []T) {
	left, right = elements[T](m.A), elements[T](m.B)
	if _, columns, depth := m.Dims(); m.Precision == kernels.PrecisionFloat8 {
		for at := 0; at < len(left); at += depth {
			roundToFloat8(left[at:], depth, 1)
		}
		for at := 0; at < len(right); at += depth * columns {
			for column := range columns {
				roundToFloat8(right[at+column:], depth, columns)
			}
		}
	}
	return left, right
}

// RoundFloat8 gives what a side of an operand is in kernels.PrecisionFloat8.
func RoundFloat8[T kernels.Float](side []T) []T {
	rounded := slices.Clone(side)
	roundToFloat8(rounded, len(rounded), 1)
	return rounded
}

// roundToFloat8 rounds numbers that lie so many steps apart, by the scale of the largest.
func roundToFloat8[T kernels.Float](list []T, count, step int) {
	var most float32
	for i := range count {
		if x := math.Abs(float64(list[i*step])); x <= math.MaxFloat32 {
			most = max(most, float32(x))
		}
	}
	up, down := kernels.Float8Scale(most)
	for i := range count {
		list[i*step] = T(kernels.ToFloat8(float32(list[i*step])*up).Float32() * down)
	}
}

// SumRows computes out_j = Σ_i x_ij over all axes of x but the last.
func SumRows[T kernels.Float](x kernels.Tensor) []T {
	values, n := elements[T](x), lastAxis(x)
	out := make([]T, n)
	for i, v := range values {
		out[i%n] += v
	}
	return out
}
