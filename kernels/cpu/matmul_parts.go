package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Few rows times a matrix, which is most of what predicting a token costs, take as long as reading
// the matrix. All threads read at once, whatever its shape, where they have its rows and not its
// columns: parts of the sum
//
//	C = Σ_p A[:, p]·B[p, :]
//
// each a product of its own over some rows of B that lie one after the other. The parts are added
// in their order, and how many there are depends on the problem alone, so the sum does not depend
// on the threads.

const (
	// mostParts is enough for the threads that the memory can serve, and few enough for the parts'
	// sums to stay in the cache.
	mostParts = 8
	// rowsOfPart is how many rows of B a part has at least for each row of C, so that adding parts
	// costs little beside reading B.
	rowsOfPart = 32
)

// parts is into how many parts the sum is cut: 1 where that gains nothing.
func (x *multiplication[T]) parts() int {
	if x.packB || x.rowsAreDots || x.items != 1 || x.rows == 0 || x.columns < simd.Lanes[T]() {
		return 1
	}
	for n := min(mostParts, x.depth/(rowsOfPart*x.rows)); n > 1; n-- {
		if x.depth%n == 0 {
			return n
		}
	}
	return 1
}

// runInParts is run with the sum in so many parts.
func (x *multiplication[T]) runInParts(b *Backend, parts int) {
	sums := x.rows * x.columns
	memory := newWorkspace(bytesFor[T](parts * sums))
	defer memory.release()
	product := *x.MatMul
	product.Bias, product.Accumulate = kernels.Tensor{}, false
	p := multiplication[T]{MatMul: &product, rows: x.rows, columns: x.columns, depth: x.depth / parts, items: parts}
	p.a = x.a.inParts(parts, p.depth*x.a.columnStep)
	p.b = x.b.inParts(parts, p.depth*x.b.rowStep)
	p.c = stack[T]{take[T](memory, parts*sums), layout{[]int{parts}, []int{sums}, x.columns, 1}}
	p.choose()
	p.cut.width = evenly(p.columns, widestRead/kernels.DTypeOf[T]().Size(), quad[T]())
	p.run(b)
	x.addParts(b, p.c.data, parts)
}

// addParts completes C, the only one, from sums that are row-major and lie one behind the other.
func (x *multiplication[T]) addParts(b *Backend, sums []T, parts int) {
	const columns = 2048 // of a task
	b.each(ceilDiv(x.columns, columns), flopsPerElement*float64(len(sums)), func(task int) {
		r := region{rows: x.rows, column: task * columns, columns: min(columns, x.columns-task*columns)}
		c := x.c.item(0)
		store(r.rows, r.columns, c.at(0, r.column), c.rowStep, &sums[r.column], x.columns, x.Accumulate)
		for i := 1; i < parts; i++ {
			simd.AddTile(r.rows, r.columns, c.at(0, r.column), c.rowStep, &sums[i*x.rows*x.columns+r.column], x.columns)
		}
		x.finish(r, 0, r.rows)
	})
}

// inParts is one matrix as a stack of parts of it.
func (s *stack[T]) inParts(parts, step int) stack[T] {
	m := s.item(0)
	return stack[T]{m.data, layout{[]int{parts}, []int{step}, m.rowStep, m.columnStep}}
}
