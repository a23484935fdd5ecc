package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// EmbeddingForward copies the table's row of each id.
func (b *Backend) EmbeddingForward(e *kernels.Embedding, y kernels.Tensor) error {
	const kernel = "embedding forward"
	if err := checked(kernel, e.CheckForward(y), "y", y); err != nil {
		return err
	}
	ids, err := newLookup(kernel, e)
	if err != nil {
		return err
	}
	defer ids.memory.release()
	if e.Table.DType == kernels.F32 {
		embed[float32](b, ids.list, e.Table, y)
	} else {
		embed[float64](b, ids.list, e.Table, y)
	}
	return nil
}

func embed[T kernels.Float](b *Backend, ids []int64, table, y kernels.Tensor) {
	from, to := linesOf[T](table), linesOf[T](y)
	b.eachRow(len(ids), from.length, func(row int) {
		copy(unsafe.Slice(to.at(row), from.length), unsafe.Slice(from.at(int(ids[row])), from.length))
	})
}

// EmbeddingBackward adds up the gradients of each of the table's rows.
func (b *Backend) EmbeddingBackward(e *kernels.Embedding, dy, dTable kernels.Tensor) error {
	const kernel = "embedding backward"
	if err := checked(kernel, e.CheckBackward(dy, dTable), "dy", dy); err != nil {
		return err
	}
	ids, err := newLookup(kernel, e)
	if err != nil {
		return err
	}
	defer ids.memory.release()
	if dy.DType == kernels.F32 {
		scatter[float32](b, ids.list, dy, dTable)
	} else {
		scatter[float64](b, ids.list, dy, dTable)
	}
	return nil
}

// scatter adds row by row in the order of the ids. Threads share the columns: none waits for another, whichever ids
// are frequent, and every element's sum has one order however many threads there are.
func scatter[T kernels.Float](b *Backend, ids []int64, dy, dTable kernels.Tensor) {
	from, to := linesOf[T](dy), linesOf[T](dTable)
	b.eachRow(to.n, to.length, func(row int) { clear(unsafe.Slice(to.at(row), to.length)) })
	n := dTable.Shape[1]
	width := roundUp(ceilDiv(n, b.threads()), cacheLine)
	b.each(ceilDiv(n, width), elementFLOPs*float64(len(ids))*float64(n), func(task int) {
		first := task * width
		for row, id := range ids {
			simd.AddTile(1, min(width, n-first), offset(to.at(int(id)), first), 0, offset(from.at(row), first), 0)
		}
	})
}

// lookup is the ids of a call, checked.
type lookup struct {
	list   []int64
	memory *workspace
}

// newLookup checks the ids. Its memory is the caller's to release.
func newLookup(kernel string, e *kernels.Embedding) (lookup, error) {
	memory := newWorkspace(bytesFor[int64](e.IDs.Elements()))
	list := take[int64](memory, e.IDs.Elements())
	if err := readIndices(list, kernel, "ids", e.IDs, e.Table.Shape[0], func(int) bool { return false }); err != nil {
		memory.release()
		return lookup{}, err
	}
	return lookup{list, memory}, nil
}
