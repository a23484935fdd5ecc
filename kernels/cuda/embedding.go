//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// embeddingArguments is EmbeddingArguments in src/embedding.cu.
type embeddingArguments struct {
	lines                   lines
	ids                     indexList
	fault                   fault
	from                    readable
	to                      writable
	step                    int64
	vocabulary, width       int32
	found, places, frequent address
}

// embeddingBackward is EmbeddingBackward there.
type embeddingBackward struct {
	arguments      embeddingArguments
	frequentBlocks int32
	parts          int32 // of a row, each of which a warp adds up
}

// embeddingModule is the module for the types of the table, or its gradient, and of the rows that
// are looked up, or theirs.
func embeddingModule(table, rows kernels.Tensor) string {
	return "embedding" + entrySuffixes[table.DType] + entrySuffixes[rows.DType]
}

// describeEmbedding tells the kernels of rows of y or dy, and of the table or its gradient.
func (d *Device) describeEmbedding(kernel string, which faultKernel, e *kernels.Embedding, rows, table kernels.Tensor) (*embeddingArguments, error) {
	if table.Shape[0] > math.MaxInt32 || rows.Elements()/rows.Shape[len(rows.Shape)-1] > math.MaxInt32 {
		return nil, fmt.Errorf("%s: %s: table has shape %v and ids has shape %v, a GPU computes up to %d rows of each",
			d.Name(), kernel, table.Shape, e.IDs.Shape, math.MaxInt32)
	}
	l, err := linesOf(rows, asRows(e.IDs))
	if err != nil {
		return nil, d.failed(kernel, err)
	}
	g := &embeddingArguments{lines: l, ids: indexListOf(e.IDs), step: int64(table.Strides[0]), vocabulary: int32(table.Shape[0]), width: 1}
	if g.fault, err = d.fault(which); err != nil {
		return nil, d.failed(kernel, err)
	}
	both, err := linesOf(table)
	if err != nil {
		return nil, d.failed(kernel, err)
	}
	if l.aligned != 0 && both.aligned != 0 {
		g.width = int32(accessBytes / max(table.DType.Size(), rows.DType.Size()))
	}
	return g, nil
}

// EmbeddingForward copies the table's row of each id.
func (d *Device) EmbeddingForward(e *kernels.Embedding, y kernels.Tensor) error {
	const kernel = "embedding forward"
	if err := d.checked(kernel, e.CheckForward(y), e.Table.DType); err != nil {
		return err
	}
	if y.Elements() == 0 {
		return nil
	}
	g, err := d.describeEmbedding(kernel, faultEmbedding, e, y, e.Table)
	if err != nil {
		return err
	}
	g.from, g.to = read(e.Table), written(y)
	threads := g.lines.count * int64(g.lines.length/g.width)
	s := shapeOf(embeddingModule(e.Table, y), "embedding_forward", [3]int{d.elementwiseBlocks(threads), 1, 1}, elementwiseThreads, 0)
	err = d.launch(s, nil, unsafe.Pointer(g))
	runtime.KeepAlive(e)
	runtime.KeepAlive(y.Owner)
	return err
}

// EmbeddingBackward adds up the gradients of each of the table's rows. A first kernel notes for
// each row the positions that look it up, up to a number; a second adds them for a row a warp, in
// ascending order, and for the rows with more positions goes through all ids. Nothing is sorted,
// and nothing depends on which position was noted first.
func (d *Device) EmbeddingBackward(e *kernels.Embedding, dy, dTable kernels.Tensor) error {
	const kernel = "embedding backward"
	if err := d.checked(kernel, e.CheckBackward(dy, dTable), dy.DType); err != nil {
		return err
	}
	if dTable.Elements() == 0 {
		return nil
	}
	g, err := d.describeEmbedding(kernel, faultEmbeddingBackward, e, dy, dTable)
	if err != nil {
		return err
	}
	const mostPlaces, perBlock = 32, 32
	g.from, g.to = read(dy), written(dTable)
	vocabulary := int(g.vocabulary)
	frequent := 1 + int(g.lines.count)/mostPlaces
	counts, err := d.scratch(4 * (vocabulary + frequent))
	if err != nil {
		return d.failed(kernel, err)
	}
	defer counts.Free()
	places, err := d.scratch(4 * mostPlaces * vocabulary)
	if err != nil {
		return d.failed(kernel, err)
	}
	defer places.Free()
	g.found, g.frequent, g.places = counts.At, counts.At+address(4*vocabulary), places.At
	if err := d.zero(counts.At, 4*(vocabulary+1)); err != nil {
		return err
	}
	if g.lines.count > 0 {
		s := shapeOf(embeddingModule(dTable, dy), "embedding_find", [3]int{d.elementwiseBlocks(g.lines.count), 1, 1}, elementwiseThreads, 0)
		if err := d.launch(s, nil, unsafe.Pointer(g)); err != nil {
			return err
		}
	}
	b := &embeddingBackward{arguments: *g, frequentBlocks: int32(min(2*d.Multiprocessors, frequent*int(g.lines.length))), parts: 1}
	const chunks, enough = 3, 64 // of 32·width columns that a warp adds up together; warps of a multiprocessor
	if vocabulary < enough*d.Multiprocessors {
		b.parts = (g.lines.length + chunks*32*g.width - 1) / (chunks * 32 * g.width)
	}
	blocks := int(b.frequentBlocks) + (vocabulary*int(b.parts)+perBlock-1)/perBlock
	s := shapeOf(embeddingModule(dTable, dy), "embedding_backward", [3]int{blocks, 1, 1}, perBlock*32, 0)
	err = d.launch(s, nil, unsafe.Pointer(b))
	runtime.KeepAlive(e)
	runtime.KeepAlive(dy.Owner)
	runtime.KeepAlive(dTable.Owner)
	return err
}
