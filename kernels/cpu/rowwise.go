package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// How the kernels that go through tensors row by row, or element by element, cut their work.
const (
	// taskElements is how many elements a task of a row by row kernel works on: enough to pay for
	// being claimed, few enough for its tensors to stay in the second-level cache.
	taskElements = 1 << 14
	// leastElements is how many are worth claiming.
	leastElements = 1 << 11
	// pieceElements is how many elements one call of a vector kernel works on, which keeps it well
	// under 100 µs.
	pieceElements = 1 << 12
	// elementFLOPs is what moving and computing an element costs next to a matrix product's
	// multiplications.
	elementFLOPs = 32
)

// rowsPerTask is how many rows of a length make a task, of n.
func (b *Backend) rowsPerTask(n, length int) int {
	return max(1, b.perTask(n*length)/max(1, length))
}

// perTask is how many of n elements, that do not depend on each other, make a task: fewer than
// taskElements where there would be too few tasks for the threads.
func (b *Backend) perTask(n int) int {
	return min(taskElements, max(leastElements, roundUp(ceilDiv(n, 2*b.threads()), leastElements)))
}

// eachRow calls do for every row of n, in tasks that threads share.
func (b *Backend) eachRow(n, length int, do func(row int)) {
	per := b.rowsPerTask(n, length)
	b.each(ceilDiv(n, per), elementFLOPs*float64(n)*float64(length), func(task int) {
		for row := task * per; row < min(n, (task+1)*per); row++ {
			do(row)
		}
	})
}

// pastBytes is the size of results from which on they are stored past the caches: before anything
// reads them, what a cache holds of them would be gone.
const pastBytes = 16 << 20

// eachRowOf calls do for every row of results, with memory of the worker's for a row that is no
// longer than a piece, and whether results are to be stored past the caches.
func eachRowOf[T kernels.Float](b *Backend, results *rowView[T], do func(row int, beside *T, past bool)) {
	n, length := results.n, results.length
	past := simd.CanPast() && n*length*int(unsafe.Sizeof(T(0))) >= pastBytes
	per := b.rowsPerTask(n, length)
	b.inRuns(ceilDiv(n, per), elementFLOPs*float64(n)*float64(length), func(claim func() (int, bool)) {
		memory := newWorkspace(bytesFor[T](pieceElements))
		defer memory.release()
		beside := unsafe.SliceData(take[T](memory, pieceElements))
		for task, ok := claim(); ok; task, ok = claim() {
			for row := task * per; row < min(n, (task+1)*per); row++ {
				do(row, beside, past)
			}
		}
		if past {
			simd.EndPast()
		}
	})
}

// eachPiece cuts the rows of tensors of one shape into pieces and calls do with the length of each
// and where it starts in each tensor, nil for a tensor that is left out. Rows do not matter: where
// all tensors are row-major, all elements are one row.
func eachPiece[T kernels.Float](b *Backend, do func(n int, at [5]*T), tensors ...kernels.Tensor) {
	tensors = asOneRow(tensors)
	var all [5]rowView[T]
	for i, t := range tensors {
		all[i] = rowViewOf[T](t)
	}
	n, length := all[0].n, all[0].length
	inRow := func(row, from, to int) {
		var at [5]*T
		for i := range tensors {
			at[i] = all[i].at(row)
		}
		for ; from < to; from += pieceElements {
			var piece [5]*T
			for i, p := range at {
				if p != nil {
					piece[i] = offset(p, from)
				}
			}
			do(min(pieceElements, to-from), piece)
		}
	}
	per := b.perTask(n * length)
	if length <= per {
		b.eachRow(n, length, func(row int) { inRow(row, 0, length) })
		return
	}
	perRow := ceilDiv(length, per)
	b.each(n*perRow, elementFLOPs*float64(n)*float64(length), func(task int) {
		from := task % perRow * per
		inRow(task/perRow, from, min(length, from+per))
	})
}

// asOneRow is row-major tensors of one shape as tensors with a single axis; others stay what they
// are.
func asOneRow(tensors []kernels.Tensor) []kernels.Tensor {
	flat := make([]kernels.Tensor, len(tensors))
	for i, t := range tensors {
		if !t.IsSet() {
			continue
		}
		if !t.IsRowMajor() {
			return tensors
		}
		flat[i] = kernels.Contiguous(t.Data, t.DType, t.Elements())
	}
	return flat
}
