package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// EmbeddingForward copies the table's row of each id.
func (b *Backend) EmbeddingForward(e *kernels.Embedding, y kernels.Tensor) (err error) {
	const kernel = "embedding forward"
	defer catch(kernel, &err)
	if err := checked(kernel, e.CheckForward(y)); err != nil {
		return err
	}
	ids, err := newLookup(kernel, e)
	if err != nil {
		return err
	}
	defer ids.memory.release()
	h := halves{b: b}
	defer h.round()
	y = h.write(y)
	inTypeOf(y, embed[float32], embed[float64])(b, ids.list, e.Table, y)
	return nil
}

func embed[T kernels.Float](b *Backend, ids []int64, table, y kernels.Tensor) {
	n, to := table.Shape[1], rowViewOf[T](y)
	if table.DType.IsPacked() {
		row, err := packed.RowOf(table.DType, n)
		if err != nil {
			panic(err) // the call was checked
		}
		b.eachRow(len(ids), n, func(i int) {
			from := unsafe.Slice((*byte)(unsafe.Add(table.Data, int(ids[i])*row.Bytes)), row.Bytes)
			row.Widen(unsafe.Slice((*float32)(unsafe.Pointer(to.at(i))), n), from)
		})
		return
	}
	if isHalf(table.DType) {
		// The rows that are looked up, each for itself, rather than the whole table.
		b.eachRow(len(ids), n, func(row int) {
			id := int(ids[row])
			kernels.CopyHost(kernels.Contiguous(unsafe.Pointer(to.at(row)), y.DType, 1, n), table.Slice(0, id, id+1))
		})
		return
	}
	from := rowViewOf[T](table)
	b.eachRow(len(ids), n, func(row int) {
		copy(unsafe.Slice(to.at(row), n), unsafe.Slice(from.at(int(ids[row])), n))
	})
}

// EmbeddingBackward adds up the gradients of each of the table's rows.
func (b *Backend) EmbeddingBackward(e *kernels.Embedding, dy, dTable kernels.Tensor) (err error) {
	const kernel = "embedding backward"
	defer catch(kernel, &err)
	if err := checked(kernel, e.CheckBackward(dy, dTable)); err != nil {
		return err
	}
	ids, err := newLookup(kernel, e)
	if err != nil {
		return err
	}
	defer ids.memory.release()
	h := halves{b: b}
	defer h.round()
	dy = h.read(dy)
	if !e.Accumulate {
		inTypeOf(dy, scatter[float32], scatter[float64])(b, ids.list, dy, h.write(dTable))
		return nil
	}
	sums, before := h.scratch(dTable, dy.DType), h.read(dTable)
	inTypeOf(dy, scatter[float32], scatter[float64])(b, ids.list, dy, sums)
	return b.Add(before, sums, h.write(dTable))
}

// scatter adds row by row in the order of the ids. Threads share the columns: none waits for
// another, whichever ids are frequent, and every element's sum has one order however many threads
// there are.
func scatter[T kernels.Float](b *Backend, ids []int64, dy, dTable kernels.Tensor) {
	from, to := rowViewOf[T](dy), rowViewOf[T](dTable)
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
	list, memory, err := indicesOf(kernel, e.IDs, e.Table.Shape[0])
	return lookup{list, memory}, err
}
