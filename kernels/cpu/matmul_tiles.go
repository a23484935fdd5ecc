package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// tiledProduct is a call of MatMul whose operands are bfloat16 or rounded to it, for processors
// that multiply tiles of such numbers.
//
// A task is some rows of a rectangle of C. Its columns of B are packed as tiles once; then go
// strips of rows of A, packed too, whose part of C is gathered in float32, completed and written.
// An element is summed along the whole depth, in steps of whole tiles: how C is cut changes no sum.
type tiledProduct struct {
	*kernels.MatMul
	a, b, c, pre         tiledOperand
	bias                 []float32
	activation           kernels.Activation
	rows, columns, depth int
	items                int
	steps                int // of the depth
	width, bandRows      int // of a rectangle
	runRows              int // of a part of it, which is a task
}

// tiledOperand is a batch of matrices of float32 or bfloat16.
type tiledOperand struct {
	layout
	data  unsafe.Pointer
	dtype kernels.DType
}

func newTiledOperand(t kernels.Tensor) tiledOperand {
	if !t.IsSet() {
		return tiledOperand{}
	}
	return tiledOperand{layoutOf(t), t.Data, t.DType}
}

// at is an element of an item.
func (o *tiledOperand) at(item, row, column int) unsafe.Pointer {
	return unsafe.Add(o.data, (o.offset(item)+row*o.rowStep+column*o.columnStep)*o.dtype.Size())
}

// suitsTiles reports whether a product may be made of tiles and gains by it.
func suitsTiles(m *kernels.MatMul) bool {
	const least = 1 << 14 // multiplications
	rounded := m.A.DType == kernels.BF16 || m.A.DType == kernels.F32 && m.Precision == kernels.PrecisionBFloat16
	if !rounded || m.B.DType == kernels.F16 || !simd.HasTiles() {
		return false
	}
	_, columns, _ := m.Dims()
	contiguous := func(t kernels.Tensor) bool {
		last := len(t.Strides) - 1
		return t.Strides[last] == 1 || t.Strides[last-1] == 1
	}
	return m.A.Elements()*columns >= least && contiguous(m.A) && contiguous(m.B)
}

func (b *Backend) multiplyTiles(m *kernels.MatMul, epilogue kernels.Activate, c kernels.Tensor) {
	h := halves{b: b}
	defer h.round()
	x := &tiledProduct{
		MatMul: m, a: newTiledOperand(m.A), b: newTiledOperand(m.B), c: newTiledOperand(c),
		pre: newTiledOperand(epilogue.Pre), activation: epilogue.Activation,
	}
	if m.Bias.IsSet() {
		x.bias = kernels.Host[float32](h.read(m.Bias))
	}
	x.rows, x.columns, x.depth = m.Dims()
	moving := []*layout{&x.a.layout, &x.c.layout}
	if x.hasPre() {
		moving = append(moving, &x.pre.layout)
	}
	x.rows = fold(x.rows, &x.b.layout, moving...)
	x.items, x.steps = x.a.items(), ceilDiv(x.depth, simd.TileDepth)
	x.run(b)
}

func (x *tiledProduct) hasPre() bool { return x.pre.data != nil }

const (
	// tiledWidth is the greatest width of a rectangle, so that a strip of C stays near.
	tiledWidth = 512
	// tiledSteps is how many steps of the depth a block of A takes at once, to be read again and
	// again from near.
	tiledSteps = 32
)

// tiledBlockBytes is the size of the tiles of B that a worker keeps: half of the second-level cache
// that processors with such units have at least.
func tiledBlockBytes() int {
	if simd.Active() == simd.BFMMLA {
		return 1 << 19
	}
	return 1 << 20
}

func (x *tiledProduct) run(b *Backend) {
	const faster = 4 // than vectors
	work := x.FLOPs()/faster + flopsPerElement*float64(x.items*(x.rows*x.depth+x.depth*x.columns+x.rows*x.columns))
	threads := b.workers(x.items*x.rows*x.columns, work)
	widest := min(tiledWidth, max(simd.TileLines, tiledBlockBytes()/2/(x.steps*simd.TileDepth)/simd.TileLines*simd.TileLines))
	var bands int
	bands, x.width = rectangleCost{ofA: 40, ofB: 60}.rectangles(threads, x.items, x.rows, x.columns, simd.TileLines, simd.TileLines, widest)
	x.bandRows = roundUp(ceilDiv(x.rows, bands), simd.TileLines)
	blocks := ceilDiv(x.columns, x.width)
	x.runRows = x.bandRows
	if threads > 1 {
		x.runRows = simd.TileLines
	}
	runs := ceilDiv(x.bandRows, x.runRows)
	// The bands of a block are a group, for whoever has packed its B.
	b.inGroups(x.items*blocks, bands, runs, work, func(claim func() (int, bool)) {
		w := x.newScratch()
		defer w.memory.release()
		for task, ok := claim(); ok; task, ok = claim() {
			run, band, block, item := task%runs, task/runs%bands, task/runs/bands%blocks, task/runs/bands/blocks
			row, column := band*x.bandRows+run*x.runRows, block*x.width
			if end := min(row+x.runRows, (band+1)*x.bandRows, x.rows); row < end {
				x.do(w, region{item: item, row: row, rows: end - row, column: column, columns: min(x.width, x.columns-column)})
			}
		}
	})
}

// tiledScratch is what a worker needs for itself.
type tiledScratch struct {
	memory *workspace
	a, b   []uint16
	c      rows[float32]
	packed [2]int // the item and the column whose tiles b holds
}

func (x *tiledProduct) newScratch() *tiledScratch {
	// Rows of C lie apart from each other in the cache's sets.
	a, b, stride := x.steps*simd.TileStep, x.width/simd.TileLines*x.steps*simd.TileStep, x.width+cacheLine/4
	words := func(n int) int { return roundUp(2*n, cacheLine) }
	memory := newWorkspace(words(a) + words(b) + bytesFor[float32](simd.TileLines*stride))
	return &tiledScratch{
		memory: memory, a: takeWords(memory, a), b: takeWords(memory, b),
		c: rows[float32]{take[float32](memory, simd.TileLines*stride), stride}, packed: [2]int{-1, -1},
	}
}

// takeWords hands out the next n 16-bit words of a workspace.
func takeWords(w *workspace, n int) []uint16 {
	words := take[kernels.BFloat16](w, n)
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// do computes a rectangle of C.
func (x *tiledProduct) do(w *tiledScratch, r region) {
	block := x.steps * simd.TileStep
	if packed := [2]int{x.b.offset(r.item), r.column}; packed != w.packed {
		for j := 0; j < r.columns; j += simd.TileLines {
			simd.PackTiles(w.b[j/simd.TileLines*block:], simd.Tiled{
				Data: x.b.at(r.item, 0, r.column+j), Float32: x.b.dtype == kernels.F32, LineStep: x.b.columnStep, DepthStep: x.b.rowStep,
				Lines: min(simd.TileLines, r.columns-j), Depth: x.depth,
			}, true)
		}
		w.packed = packed
	}
	blocks := ceilDiv(r.columns, simd.TileLines)
	for row := r.row; row < r.row+r.rows; row += simd.TileLines {
		n := min(simd.TileLines, r.row+r.rows-row)
		simd.PackTiles(w.a, simd.Tiled{
			Data: x.a.at(r.item, row, 0), Float32: x.a.dtype == kernels.F32, LineStep: x.a.rowStep, DepthStep: x.a.columnStep, Lines: n, Depth: x.depth,
		}, false)
		for step := 0; step < x.steps; step += tiledSteps {
			steps, at := min(tiledSteps, x.steps-step), step*simd.TileStep
			simd.TileProduct(1, blocks, steps, &w.a[at], 0, &w.b[at], block-steps*simd.TileStep, w.c.at(0), w.c.stride, step > 0)
		}
		x.finish(w.c, r, row, n)
	}
}

// finish does what follows the product, on some rows of a rectangle that c has, and writes them.
func (x *tiledProduct) finish(c rows[float32], r region, row, n int) {
	if x.bias != nil {
		simd.AddTile(n, r.columns, c.at(0), c.stride, &x.bias[r.column], 0)
	}
	for i := range n {
		out := c.data[i*c.stride:][:r.columns]
		if x.hasPre() {
			x.pre.write(r.item, row+i, r.column, out, false)
		}
		if x.activation != kernels.NoActivation {
			simd.Activate(x.activation, len(out), &out[0], &out[0])
		}
		x.c.write(r.item, row+i, r.column, out, x.Accumulate)
	}
}

// write stores a part of a row, or adds it to what is there. What is given may be lost.
func (o *tiledOperand) write(item, row, column int, numbers []float32, add bool) {
	at := o.at(item, row, column)
	if o.dtype == kernels.F32 {
		to := (*float32)(at)
		if add {
			simd.AddTile(1, len(numbers), to, 0, &numbers[0], 0)
		} else {
			copy(unsafe.Slice(to, len(numbers)), numbers)
		}
		return
	}
	to := (*kernels.BFloat16)(at)
	if add {
		for i, before := range unsafe.Slice(to, len(numbers)) {
			numbers[i] += before.Float32()
		}
	}
	simd.RoundRow(len(numbers), to, &numbers[0])
}
