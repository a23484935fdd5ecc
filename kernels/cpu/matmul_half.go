package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Few rows times a matrix of 16-bit numbers take as long as reading that, once, where it lies: its
// numbers are widened in registers, and all else is float32. As with float32 matrices, all threads
// read at once, and how the sums are cut depends on the problem alone.

// halfProduct is a call of MatMul with few rows of A in float32 and 16-bit numbers in B, of which
// either rows or columns have no gaps.
type halfProduct struct {
	*multiplication[float32]
}

// suitsFewRows reports whether a product is such a call, but for the type of A.
func suitsFewRows(m *kernels.MatMul) bool {
	last := len(m.B.Strides) - 1
	contiguous := last == 1 && min(m.B.Strides[0], m.B.Strides[1]) > 0 && (m.B.Strides[0] == 1 || m.B.Strides[1] == 1)
	rows := m.A.Elements() / max(1, m.A.Shape[len(m.A.Shape)-1])
	return isHalf(m.B.DType) && contiguous && rows > 0 && rows <= fewRows && m.B.Elements() > 0
}

func newHalfProduct(m *kernels.MatMul, epilogue kernels.Activate, c kernels.Tensor) halfProduct {
	return halfProduct{newMultiplication[float32](m, epilogue, c)}
}

func (x halfProduct) run(b *Backend) {
	for item := range x.items {
		one := x
		if x.items > 1 {
			one = x.item(item)
		}
		if one.b.columnStep == 1 {
			one.combineRows(b)
		} else {
			one.multiplyRows(b)
		}
	}
}

// item is one product of a batch whose rows do not follow each other at one stride.
func (x halfProduct) item(n int) halfProduct {
	m := *x.multiplication
	alone := func(s stack[float32]) stack[float32] {
		v := s.item(n)
		return stack[float32]{v.data, layout{nil, nil, v.rowStep, v.columnStep}}
	}
	if m.a, m.c = alone(x.a), alone(x.c); x.hasPre {
		m.pre = alone(x.pre)
	}
	m.items = 1
	return halfProduct{&m}
}

// weight is an element of B.
func (x halfProduct) weight(row, column int) *uint16 {
	const size = 2
	return (*uint16)(unsafe.Add(x.B.Data, size*(row*x.b.rowStep+column*x.b.columnStep)))
}

// work is the product's cost in multiplications and additions, of which reading counts as some.
func (x halfProduct) work() float64 {
	return float64((2*x.rows + flopsPerElement) * x.depth * x.columns)
}

const (
	// halfTask is how many numbers of B a task reads at least, some microseconds of it.
	halfTask = 1 << 16
	// rowsTogether is how many rows of B are read side by side.
	rowsTogether = 8
	// widestCombined is the columns of C that stay in the first-level cache meanwhile.
	widestCombined = 4096
	// leastCombined is the columns of a task, for many threads.
	leastCombined = 512
)

// multiplyRows computes C where the columns of B lie end to end: each element is a row of A times
// one of them.
func (x halfProduct) multiplyRows(b *Backend) {
	width := max(dotsAtOnce, halfTask/x.depth/dotsAtOnce*dotsAtOnce)
	b.inRuns(ceilDiv(x.columns, width), x.work(), func(claim func() (int, bool)) {
		memory := newWorkspace(bytesFor[float32](x.depth) + bytesFor[float32](dotsAtOnce))
		defer memory.release()
		row, dots := take[float32](memory, x.depth), take[float32](memory, dotsAtOnce)
		a, c := x.a.item(0), x.c.item(0)
		for task, ok := claim(); ok; task, ok = claim() {
			r := region{rows: x.rows, column: task * width, columns: min(width, x.columns-task*width)}
			for j := r.column; j < r.column+r.columns; j += dotsAtOnce {
				n := min(dotsAtOnce, r.column+r.columns-j)
				for i := range x.rows {
					left := gather(row, a.data[i*a.rowStep:], a.columnStep)
					simd.HalfDots(x.B.DType, n, x.depth, x.weight(0, j), x.b.columnStep, &left[0], dots)
					store(1, n, c.at(i, j), 0, &dots[0], 0, x.Accumulate)
				}
			}
			x.finish(r, 0, x.rows)
		}
	})
}

// combineRows computes C where the rows of B lie end to end: each row of C is their sum, times the
// elements of a row of A. The sum is in parts, as that of a float32 matrix is.
func (x halfProduct) combineRows(b *Backend) {
	depth := roundUp(ceilDiv(x.depth, max(1, min(mostParts, x.depth/(rowsOfPart*x.rows)))), rowsTogether)
	parts := ceilDiv(x.depth, depth)
	width := min(x.columns, widestCombined)
	if tasks := tasksPerThread * b.threads(); parts*ceilDiv(x.columns, width) < tasks {
		width = min(width, max(leastCombined, roundUp(ceilDiv(x.columns, ceilDiv(tasks, parts)), quad[float32]())))
	}
	memory := newWorkspace(bytesFor[float32](parts * x.rows * x.columns))
	defer memory.release()
	sums := take[float32](memory, parts*x.rows*x.columns)
	a, blocks := x.a.item(0), ceilDiv(x.columns, width)
	b.each(parts*blocks, x.work(), func(task int) {
		part, column := task/blocks, task%blocks*width
		first := part * depth
		for from := first; from < min(first+depth, x.depth); from += rowsTogether {
			rows := min(rowsTogether, first+depth-from, x.depth-from)
			for i := range x.rows {
				simd.HalfCombine(x.B.DType, rows, min(width, x.columns-column), x.weight(from, column), x.b.rowStep,
					a.at(i, from), a.columnStep, &sums[(part*x.rows+i)*x.columns+column], from > first)
			}
		}
	})
	x.addParts(b, sums, parts)
}
