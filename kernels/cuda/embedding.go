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
	arguments                         embeddingArguments
	list, order, starts, rows, counts address
	adds                              int32
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
	if err := d.checked(kernel, e.CheckForward(y), y.DType); err != nil {
		return err
	}
	if y.Elements() == 0 {
		return nil
	}
	if e.Table.DType.IsPacked() {
		return d.lookUpPacked(kernel, e, y)
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

// packedLookup is PackedLookup in src/packed_embedding.cu.
type packedLookup struct {
	table packedMatrix
	lines lines
	ids   indexList
	fault fault
	to    writable
}

// lookUpPacked queues the forward pass for a packed table.
func (d *Device) lookUpPacked(kernel string, e *kernels.Embedding, y kernels.Tensor) error {
	const threads = 256
	table, owner, err := d.packedOf(e.Table)
	if err != nil {
		return d.failed(kernel, err)
	}
	l, err := linesOf(y, asRows(e.IDs))
	if err != nil {
		return d.failed(kernel, err)
	}
	g := &packedLookup{table: table, lines: l, ids: indexListOf(e.IDs), to: written(y)}
	if g.fault, err = d.fault(faultEmbedding); err != nil {
		return d.failed(kernel, err)
	}
	entry := "packed_embedding" + map[kernels.DType]string{kernels.Int8: "_int8", kernels.Int4: "_int4", kernels.NF4: "_nf4"}[e.Table.DType]
	blocks := min((l.count+threads/32-1)/(threads/32), int64(8*d.Multiprocessors))
	err = d.launch(shapeOf("packed_embedding", entry, [3]int{int(blocks), 1, 1}, threads, 0), nil, unsafe.Pointer(g))
	runtime.KeepAlive(owner)
	runtime.KeepAlive(e)
	runtime.KeepAlive(y.Owner)
	return err
}

// EmbeddingBackward adds up the gradients of each of the table's rows, in ascending order of the
// positions that look it up. A first kernel notes for each row these positions, up to a number. A
// second adds them for a row a warp, and lists all positions of the rows that have more. A third
// adds these for a part of a row a block, and clears the rows that nothing looks up. The order in
// which positions are noted does not matter.
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
	const mostPlaces, counters, warps, blocksAtOnce = 32, 5, 16, 2
	g.from, g.to = read(dy), written(dTable)
	positions, vocabulary := int(g.lines.count), int(g.vocabulary)
	frequent := positions / mostPlaces // at most
	zeroed := vocabulary + counters + 1
	notes, err := d.scratch(4 * (zeroed + 2*frequent + 2*positions + min(positions, vocabulary)))
	if err != nil {
		return d.failed(kernel, err)
	}
	defer notes.Free()
	places, err := d.scratch(4 * mostPlaces * vocabulary)
	if err != nil {
		return d.failed(kernel, err)
	}
	defer places.Free()
	next := notes.At
	part := func(n int) address { // of notes
		next += address(4 * n)
		return next - address(4*n)
	}
	b := &embeddingBackward{adds: flag(e.Accumulate)}
	g.found, b.counts, g.frequent = part(vocabulary), part(counters), part(1+frequent)
	b.starts, b.list, b.order, b.rows = part(frequent), part(positions), part(positions), part(min(positions, vocabulary))
	g.places = places.At
	b.arguments = *g
	if err := d.zero(g.found, 4*zeroed); err != nil {
		return err
	}
	module := embeddingModule(dTable, dy)
	if positions > 0 {
		s := shapeOf(module, "embedding_find", [3]int{d.elementwiseBlocks(g.lines.count), 1, 1}, elementwiseThreads, 0)
		if err := d.launch(s, nil, unsafe.Pointer(b)); err != nil {
			return err
		}
		s = shapeOf(module, "embedding_rare", [3]int{blocksAtOnce * d.Multiprocessors, 1, 1}, warps*32, 0)
		if err := d.launch(s, nil, unsafe.Pointer(b)); err != nil {
			return err
		}
	}
	err = d.launch(shapeOf(module, "embedding_frequent", [3]int{blocksAtOnce * d.Multiprocessors, 1, 1}, warps*32, 0), nil, unsafe.Pointer(b))
	runtime.KeepAlive(e)
	runtime.KeepAlive(dy.Owner)
	runtime.KeepAlive(dTable.Owner)
	return err
}
