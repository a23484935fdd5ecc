package cpu

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// MatMul computes a product and its epilogue.
//
// C is cut into blocks of columns. The part of B that belongs to a block is packed into the
// second-level cache, a slice of the depth at a time. Against it go strips of rows of A, small
// enough to stay there too with their part of C. A task is a block of columns and a run of strips.
// How the depth is cut depends on the problem alone. The number of threads changes only where C is
// cut, and that only where it changes no sum: every element is summed in one order.
func (b *Backend) MatMul(m *kernels.MatMul, out kernels.MatMulOutputs) (err error) {
	defer catch("matmul", &err)
	if err := checked("matmul", m.Check(out)); err != nil {
		return err
	}
	epilogue, isActivate := m.Epilogue.(kernels.Activate)
	if m.Epilogue != nil && !isActivate || out.ColumnSums.IsSet() || out.SumsOfB.IsSet() {
		return kernels.MatMulApart(b, m, out)
	}
	if len(m.Plus) > 0 {
		h := halves{b: b} // so that the sum is rounded once
		defer h.round()
		if m.Accumulate {
			out.C = h.update(out.C)
		} else {
			out.C = h.write(out.C)
		}
		return kernels.MatMulApart(b, m, out)
	}
	if m.B.DType.IsPacked() {
		return b.multiplyPacked(m, epilogue, out.C)
	}
	b.multiply(m, epilogue, out.C)
	return nil
}

// multiply computes a product that has no epilogue but an activation.
func (b *Backend) multiply(m *kernels.MatMul, epilogue kernels.Activate, c kernels.Tensor) {
	if m.Precision == kernels.PrecisionFloat8 {
		b.multiplyFloat8(m, epilogue, c)
		return
	}
	few := suitsFewRows(m)
	if !few && suitsTiles(m) {
		b.multiplyTiles(m, epilogue, c)
		return
	}
	if isHalf(m.B.DType) {
		h := halves{b: b}
		defer h.round()
		wide := *m
		wide.A, wide.Bias = h.read(m.A), h.read(m.Bias)
		if epilogue.Pre = h.write(epilogue.Pre); m.Accumulate {
			c = h.update(c)
		} else {
			c = h.write(c)
		}
		if few {
			newHalfProduct(&wide, epilogue, c).run(b)
			return
		}
		wide.B = h.read(m.B)
		m = &wide
	}
	inTypeOf(m.A, multiply[float32], multiply[float64])(b, m, epilogue, c)
}

func multiply[T kernels.Float](b *Backend, m *kernels.MatMul, epilogue kernels.Activate, c kernels.Tensor) {
	x := newMultiplication[T](m, epilogue, c)
	x.b.data = kernels.Host[T](m.B)
	if x.outer(b) {
		return
	}
	x.choose()
	if parts := x.parts(); parts > 1 {
		x.runInParts(b, parts)
		return
	}
	x.run(b)
}

// multiplication is one call: a stack of products, all of rows × depth times depth × columns.
type multiplication[T kernels.Float] struct {
	*kernels.MatMul
	a, b, c, pre         stack[T]
	bias                 []T
	packed               *packedMatrix // in place of b's data; nil for none
	activation           kernels.Activation
	rows, columns, depth int
	items                int
	hasPre               bool
	ways
}

// ways is how a product is computed: it depends on the problem, and on the threads where it changes
// no sum.
type ways struct {
	cut          cut
	copyA, packB bool
	holdsB       bool // a worker keeps all slices of a packed block
	rowsAreDots  bool // C has few rows and B's columns are contiguous
}

// stack is a batch of matrices of one shape, each at any stride.
type stack[T kernels.Float] struct {
	data []T
	layout
}

// layout is how the matrices of a batch lie.
type layout struct {
	shape, strides      []int // of the batch axes
	rowStep, columnStep int
}

// cut says how a product is cut: the columns of a block, the depth of a slice, the rows of a strip,
// and the rows of A that are copied at once, which are whole strips.
type cut struct{ width, depth, strip, copied int }

// newMultiplication describes a call, but for the elements of B, which may be of another type, and
// for how the product is cut.
func newMultiplication[T kernels.Float](m *kernels.MatMul, epilogue kernels.Activate, c kernels.Tensor) *multiplication[T] {
	x := &multiplication[T]{
		MatMul: m, a: newStack[T](m.A), b: stack[T]{layout: layoutOf(m.B)}, c: newStack[T](c),
		activation: epilogue.Activation, hasPre: epilogue.Pre.IsSet(),
	}
	x.rows, x.columns, x.depth = m.Dims()
	if x.hasPre {
		x.pre = newStack[T](epilogue.Pre)
	}
	if m.Bias.IsSet() {
		x.bias = kernels.Host[T](m.Bias)
	}
	moving := []*layout{&x.a.layout, &x.c.layout}
	if x.hasPre {
		moving = append(moving, &x.pre.layout)
	}
	x.rows = fold(x.rows, &x.b.layout, moving...)
	x.items = x.a.items()
	return x
}

func newStack[T kernels.Float](t kernels.Tensor) stack[T] {
	return stack[T]{kernels.Host[T](t), layoutOf(t)}
}

func layoutOf(t kernels.Tensor) layout {
	last := len(t.Shape) - 1
	return layout{t.Shape[:last-1], t.Strides[:last-1], t.Strides[last-1], t.Strides[last]}
}

// view is one matrix.
type view[T kernels.Float] struct {
	data                []T
	rowStep, columnStep int
}

func (s *stack[T]) item(n int) view[T] {
	return view[T]{s.data[s.offset(n):], s.rowStep, s.columnStep}
}

func (s view[T]) at(row, column int) *T { return &s.data[row*s.rowStep+column*s.columnStep] }

// items is how many matrices there are.
func (l *layout) items() int {
	n := 1
	for _, d := range l.shape {
		n *= d
	}
	return n
}

// offset is where an item of the batch starts.
func (l *layout) offset(item int) int {
	n := 0
	for axis := len(l.shape) - 1; axis >= 0; axis-- {
		n += item % l.shape[axis] * l.strides[axis]
		item /= l.shape[axis]
	}
	return n
}

// fold makes the last batch axes more rows of one product, and returns their number, where all
// items share B, and the rows of A, which is the first of moving, and of the outputs go on from
// item to item at one stride.
func fold(rows int, b *layout, moving ...*layout) int {
	a := moving[0]
	for axis := len(a.shape) - 1; axis >= 0; axis-- {
		d := a.shape[axis]
		follow := axis >= len(b.shape) || b.strides[axis] == 0
		for _, l := range moving {
			follow = follow && (rows == 1 || l.strides[axis] == rows*l.rowStep)
		}
		if d != 1 && !follow {
			break
		}
		for _, l := range moving {
			if rows == 1 {
				l.rowStep = l.strides[axis]
			}
			l.dropAxis()
		}
		if axis < len(b.shape) {
			b.dropAxis()
		}
		rows *= d
	}
	return rows
}

// dropAxis forgets the last batch axis.
func (l *layout) dropAxis() {
	last := len(l.shape) - 1
	l.shape, l.strides = l.shape[:last], l.strides[:last]
}

// choose decides how the product is cut and which operands are copied: from the problem alone.
func (x *multiplication[T]) choose() {
	size, panel := kernels.DTypeOf[T]().Size(), simd.Panel[T]()
	x.rowsAreDots = x.packed == nil && x.b.rowStep == 1 && x.rows <= fewDots && x.depth >= 32
	x.packB = x.packed != nil || x.b.columnStep != 1 || x.rows > fewRows
	transposedA := x.a.columnStep != 1 && x.rows > 1 && x.columns > 2*panel
	x.copyA = transposedA && !(x.a.rowStep == 1 && x.a.columnStep*size <= nearBytes)
	x.cut = cut{depth: sliceBytes / size, strip: stripRows, copied: stripRows}
	if transposedA {
		// Slices less deep, for each column of A lies on lines of its own, and wide blocks, for A
		// is copied for each.
		x.cut.depth, x.cut.copied = transposedDepth, 8*stripRows
	}
	least, most := 4*panel, blockBytes/size/x.cut.depth
	if !x.packB {
		// B is read where it lies, once or twice: some of its rows side by side, rather than a
		// panel's width of many, into a part of C that stays in the first-level cache.
		least, most, x.cut.depth = 4096/size, widestRead/size, 8
	}
	widest := most
	if !transposedA || !x.packB {
		// Two blocks where there are columns enough, for two threads.
		widest = min(most, max(least, roundUp(ceilDiv(x.columns, 2), panel)))
	}
	x.cut.width, x.cut.depth = evenly(x.columns, widest, quad[T]()), evenly(x.depth, x.cut.depth, 8)
	x.hold(blockBytes)
}

// quad is the number of columns, or any multiple of it, behind which a product can be cut in two
// without changing how a row is summed: the vector kernel takes up to four vectors at a time.
func quad[T kernels.Float]() int { return 4 * simd.Lanes[T]() }

// hold decides whether a worker keeps all slices of a block, which is so if they take no more than
// so many bytes.
func (x *multiplication[T]) hold(most int) {
	width := roundUp(min(x.cut.width, x.columns), simd.Panel[T]())
	x.holdsB = x.packB && width*x.depth*kernels.DTypeOf[T]().Size() <= most
}

// depthOfB is the rows of B that a worker keeps packed.
func (x *multiplication[T]) depthOfB() int {
	if x.holdsB {
		return x.depth
	}
	return x.cut.depth
}

const (
	// leastWidth is how many bytes of a row of B a thread reads at least.
	leastWidth = 1024
	// fewRows is the number of rows for which copying B costs more than it saves.
	fewRows = 16
	// fewDots is the number of columns, less than a vector, that are cheaper as dot products with
	// the rows of A than as a vector, and the number of rows that are cheaper as dot products with
	// the columns of B than B is to transpose.
	fewDots = 3
	// widestRead is the bytes of a row of B that are read where they lie for a part of C that stays
	// in the first-level cache.
	widestRead = 16384
	// blockBytes is the size of a packed slice of a block of B: with what goes by, about half of
	// the second-level cache, for a neighbour on the same core has the rest.
	blockBytes = 512 << 10
	// heldBytes is how much of B more than two threads keep packed each, so that the rows of a
	// rectangle can go in parts, and others can help whoever is slow.
	heldBytes = 4 << 20
	// nearBlockBytes is how much of B stays in the second-level cache over all its slices: more of
	// it is read slice by slice, by as many rows as a run has.
	nearBlockBytes = 1 << 20
	// sliceBytes is how deep the sums in registers go, for C is loaded and stored once a slice: a
	// block of B has four panels then.
	sliceBytes = 4608
	// transposedDepth is how deep they go where A is copied.
	transposedDepth = 128
	// nearBytes is how far apart the columns of a transposed A may lie to be read there, as they
	// would lie when copied.
	nearBytes = 768
	// stripRows is the number of rows that go against a block of B at once: whole blocks of every
	// vector kernel, and so few that the pages of A and C that they lie on fit into the first level
	// of the address translation.
	stripRows = 24
)

// evenly cuts n into equal parts of at most most, each a multiple of unit.
func evenly(n, most, unit int) int {
	parts := max(1, ceilDiv(n, most))
	return max(unit, roundUp(ceilDiv(n, parts), unit))
}

// run hands out the blocks of C.
func (x *multiplication[T]) run(b *Backend) {
	if x.items*x.rows*x.columns == 0 {
		return
	}
	work := x.FLOPs() + flopsPerElement*float64(x.items*(x.rows*x.depth+x.depth*x.columns+x.rows*x.columns))
	g := x.grid(b.workers(x.items*x.rows*x.columns, work))
	do := func(w *scratch[T], band, item, block, run int) {
		row, column := band*g.bandRows+run*g.runRows, block*x.cut.width
		end := min(row+g.runRows, (band+1)*g.bandRows, x.rows)
		if row < end {
			x.do(w, region{item: item, row: row, rows: end - row, column: column, columns: min(x.cut.width, x.columns-column)})
		}
	}
	if g.shared {
		b.inGroups(x.items*g.blocks, g.bands, g.runs, work, func(claim func() (int, bool)) {
			w := x.newScratch()
			defer w.memory.release()
			for task, ok := claim(); ok; task, ok = claim() {
				do(w, task/g.runs%g.bands, task/g.runs/g.bands/g.blocks, task/g.runs/g.bands%g.blocks, task%g.runs)
			}
		})
		return
	}
	b.inRuns(g.bands*x.items*g.blocks*g.runs, work, func(claim func() (int, bool)) {
		w := x.newScratch()
		defer w.memory.release()
		for task, ok := claim(); ok; task, ok = claim() {
			do(w, task/g.runs/g.blocks/x.items, task/g.runs/g.blocks%x.items, task/g.runs%g.blocks, task%g.runs)
		}
	})
}

// grid is how the blocks of C are cut into tasks: its rows into a band for each thread, so that a
// thread mostly reads and writes the rows that it also has in the kernels before and after, and the
// rows of a band into runs. Where C is wider than high, two threads have blocks of columns instead,
// for packing the same of B twice costs more, and more threads have rectangles, whose runs are
// short: threads of many are not equally fast, and the last of them ends the product.
type grid struct {
	blocks, bands, bandRows, runs, runRows int
	shared                                 bool // the bands of a block are a group, for whoever has packed its B
}

func (x *multiplication[T]) grid(threads int) grid {
	few, wide := x.items < threads, x.packB && x.columns >= x.rows
	if x.copyA {
		wide = x.columns >= 2*x.rows // for the rows of A are copied twice then
	}
	g := grid{bands: 1, bandRows: x.rows, runs: 1, runRows: x.rows}
	many := few && threads > 2
	switch {
	case many && x.rowsAreDots:
		x.cut.width = min(x.cut.width, max(quad[T](), roundUp(ceilDiv(x.columns, 2*tasksPerThread*threads), quad[T]())))
	case many && !x.packB:
		// Each thread reads columns of its own, of enough rows side by side.
		blocks := roundUp(ceilDiv(x.columns, x.cut.width), threads)
		x.cut.width = min(x.cut.width, max(leastWidth/kernels.DTypeOf[T]().Size(), roundUp(ceilDiv(x.columns, blocks), quad[T]())))
	case many:
		g.bands = x.rectangles(threads)
	case few && wide && x.columns <= x.cut.width:
		x.cut.width = min(x.cut.width, roundUp(ceilDiv(x.columns, threads), quad[T]()))
	}
	if x.hold(blockBytes); many {
		x.hold(heldBytes)
	}
	g.blocks = ceilDiv(x.columns, x.cut.width)
	if threads == 1 || !many && x.items*g.blocks >= tasksPerThread*threads {
		return g
	}
	if few && !many && !(wide && g.blocks%threads == 0) {
		g.bands = max(1, min(threads, x.rows/x.leastRun()))
	}
	g.bandRows = x.bandRows(g.bands)
	g.shared = many && x.packB && x.holdsB
	if near := x.depth*x.cut.width*kernels.DTypeOf[T]().Size() <= nearBlockBytes; g.shared && near {
		g.runRows = min(g.bandRows, x.cut.strip)
		if x.copyA {
			g.runRows = min(g.bandRows, 4*x.cut.strip)
		}
		g.runs = ceilDiv(g.bandRows, g.runRows)
		return g
	}
	runs := max(1, min(g.bandRows/x.leastRun(), ceilDiv(tasksPerThread*threads, x.items*g.blocks*g.bands)))
	g.runRows = min(g.bandRows, roundUp(ceilDiv(g.bandRows, runs), simd.GemmRows()))
	g.runs = ceilDiv(g.bandRows, g.runRows)
	return g
}

// rectangles cuts C into rectangles for more than two threads: it sets the width of a block and
// returns the number of bands.
func (x *multiplication[T]) rectangles(threads int) (bands int) {
	// A is read where it lies while sums are under way, but B is packed before, by those who help
	// others twice.
	cost := rectangleCost{ofA: 2, ofB: 40}
	if x.copyA {
		cost = rectangleCost{ofA: 28, ofB: 12}
	}
	bands, x.cut.width = cost.rectangles(threads, x.items, x.rows, x.columns, simd.GemmRows(), quad[T](), x.cut.width)
	return bands
}

// rectangleCost is what reading, copying or packing an element of A and of B costs, in
// multiplications.
type rectangleCost struct{ ofA, ofB int }

// rectangles cuts items of rows × columns into bands and blocks, of whole units but for the last
// and no wider than widest, of all ways in that one in which the busiest thread has the least to
// do. It leaves out numbers of them that give the same heights or widths again: all divisions would
// take as long as a small product.
func (c rectangleCost) rectangles(threads, items, rows, columns, rowUnit, columnUnit, widest int) (bands, width int) {
	best, fewest, before := math.MaxInt, ceilDiv(columns, widest), 0
	for blocks := fewest; blocks <= max(fewest, 2*threads); blocks++ {
		w := roundUp(ceilDiv(columns, blocks), columnUnit)
		if w == before {
			continue
		}
		before = w
		across, last := items*ceilDiv(columns, w), 0
		for n := 1; n <= min(threads, ceilDiv(rows, rowUnit)); n++ {
			height := roundUp(ceilDiv(rows, n), rowUnit)
			if height == last {
				continue
			}
			last = height
			tasks := ceilDiv(rows, height) * across
			if cost := ceilDiv(tasks, threads) * (height*w + c.ofB*w + c.ofA*height); cost < best {
				best, bands, width = cost, n, w
			}
		}
	}
	return bands, width
}

// bandRows is the number of rows of one of so many bands.
func (x *multiplication[T]) bandRows(bands int) int {
	return min(x.rows, roundUp(ceilDiv(x.rows, bands), simd.GemmRows()))
}

// tasksPerThread evens out threads that are not equally fast.
const tasksPerThread = 4

// leastRun is the number of rows that are worth packing a block of B for. A block that is packed as
// a whole is packed once for all the runs of a worker that follow each other.
func (x *multiplication[T]) leastRun() int {
	if x.depth <= x.cut.depth || x.holdsB {
		return 2 * x.cut.strip
	}
	return 8 * x.cut.strip
}

// region is a part of one item's C.
type region struct{ item, row, rows, column, columns int }

// scratch is what a worker needs for itself.
type scratch[T kernels.Float] struct {
	memory  *workspace
	b       []T          // a packed slice of a block of B, or all its slices
	a       []T          // copied rows of A
	tile    []T          // results on their way to C
	vector  []T          // a row of A or columns of B, made contiguous
	columns [fewDots][]T // of B, in vector or where they lie

	// What b holds, for the next run of strips: rows [from, to) of the block of B that starts at an
	// offset and a column.
	block    [2]int
	from, to int
}

func (x *multiplication[T]) newScratch() *scratch[T] {
	width := simd.Panel[T]() // for the columns that are less than a vector
	if x.packB {
		width = roundUp(min(x.cut.width, x.columns), width)
	}
	var (
		b      = width * x.depthOfB()
		a      int
		tile   = max(min(x.cut.strip, x.rows)*simd.Lanes[T](), dotsAtOnce)
		vector = fewDots * x.depth
	)
	if x.copyA {
		a = x.cut.copied * x.cut.depth
	}
	w := &scratch[T]{memory: newWorkspace(bytesFor[T](b) + bytesFor[T](a) + bytesFor[T](tile) + bytesFor[T](vector))}
	w.b, w.a, w.tile, w.vector = take[T](w.memory, b), take[T](w.memory, a), take[T](w.memory, tile), take[T](w.memory, vector)
	return w
}

// do computes a region of C, slice by slice.
func (x *multiplication[T]) do(w *scratch[T], r region) {
	if x.depth == 0 {
		x.empty(r)
		return
	}
	if x.rowsAreDots {
		x.dotRows(w, r)
		x.finish(r, r.row, r.rows)
		return
	}
	product := r // what is not done by dot products
	if rest := r.columns % simd.Lanes[T](); x.packed == nil && rest <= fewDots && x.a.columnStep == 1 {
		product.columns -= rest
	}
	a, c := x.a.item(r.item), x.c.item(r.item)
	last := x.lastColumnsOfB(w, r, product.columns)
	for from := 0; from < x.depth; from += x.cut.depth {
		depth := min(x.cut.depth, x.depth-from)
		b := x.sliceOfB(w, product, from, depth)
		for row := r.row; row < r.row+r.rows; row += x.cut.copied {
			left := view[T]{a.data[row*a.rowStep+from*a.columnStep:], a.rowStep, a.columnStep}
			copied := min(x.cut.copied, r.row+r.rows-row)
			if x.copyA {
				left = copyRowsOfA(w.a, left, copied, depth)
			}
			for i := 0; i < copied; i += x.cut.strip {
				rows := min(x.cut.strip, copied-i)
				b.multiply(strip[T]{
					a: left.at(i, 0), rowStep: left.rowStep, columnStep: left.columnStep,
					c: c.at(row+i, r.column), stride: c.rowStep, rows: rows, accumulate: x.Accumulate || from > 0,
				}, depth, product.columns, w.tile)
				if from+depth == x.depth {
					x.dotColumns(w, last, a, c, row+i, rows, r.column+product.columns)
					x.finish(r, row+i, rows)
				}
			}
		}
	}
}

// empty is a product without depth.
func (x *multiplication[T]) empty(r region) {
	c := x.c.item(r.item)
	for row := r.row; row < r.row+r.rows && !x.Accumulate; row++ {
		clear(c.data[row*c.rowStep+r.column:][:r.columns])
	}
	x.finish(r, r.row, r.rows)
}

// finish does what follows the product, on some rows of a region.
func (x *multiplication[T]) finish(r region, row, rows int) {
	c := x.c.item(r.item)
	if x.Bias.IsSet() {
		simd.AddTile(rows, r.columns, c.at(row, r.column), c.rowStep, &x.bias[r.column], 0)
	}
	if !x.hasPre && x.activation == kernels.NoActivation {
		return
	}
	for i := row; i < row+rows; i++ {
		out := c.data[i*c.rowStep+r.column:][:r.columns]
		if x.hasPre {
			pre := x.pre.item(r.item)
			copy(pre.data[i*pre.rowStep+r.column:], out)
		}
		if x.activation != kernels.NoActivation {
			simd.Activate(x.activation, len(out), &out[0], &out[0])
		}
	}
}

// lastColumnsOfB is the columns of B of a region from the given one on, made contiguous.
func (x *multiplication[T]) lastColumnsOfB(w *scratch[T], r region, from int) [][]T {
	b := x.b.item(r.item)
	for j := from; j < r.columns; j++ {
		i := j - from
		w.columns[i] = gather(w.vector[i*x.depth:][:x.depth], b.data[(r.column+j)*b.columnStep:], b.rowStep)
	}
	return w.columns[:r.columns-from]
}

// dotColumns computes columns of C from the given one on, in some rows of A that the vector kernel
// has just brought into the cache. Each is a column of B.
func (x *multiplication[T]) dotColumns(w *scratch[T], columns [][]T, a, c view[T], row, rows, from int) {
	for j, column := range columns {
		dots, out := w.tile[:rows], c.at(row, from+j)
		simd.Dots(rows, x.depth, a.at(row, 0), a.rowStep, &column[0], 0, dots)
		for i, dot := range dots {
			if to := offset(out, i*c.rowStep); x.Accumulate {
				*to += dot
			} else {
				*to = dot
			}
		}
	}
}

// dotRows computes a region of few rows, of which each element is a row of A times a column of B.
func (x *multiplication[T]) dotRows(w *scratch[T], r region) {
	a, b, c := x.a.item(r.item), x.b.item(r.item), x.c.item(r.item)
	for j := r.column; j < r.column+r.columns; j += dotsAtOnce {
		dots := w.tile[:min(dotsAtOnce, r.column+r.columns-j)]
		for row := r.row; row < r.row+r.rows; row++ {
			left := gather(w.vector[:x.depth], a.data[row*a.rowStep:], a.columnStep)
			simd.Dots(len(dots), x.depth, b.at(0, j), b.columnStep, &left[0], 0, dots)
			store(1, len(dots), c.at(row, j), 0, &dots[0], 0, x.Accumulate)
		}
	}
}

// dotsAtOnce is the number of dot products of a call with a row of A: few enough for the columns of
// B to stay in the cache for the next row, and for the call to be short.
const dotsAtOnce = 16

// store writes a tile to C, or adds it.
func store[T kernels.Float](rows, columns int, c *T, stride int, tile *T, tileStride int, accumulate bool) {
	if accumulate {
		simd.AddTile(rows, columns, c, stride, tile, tileStride)
		return
	}
	for i := range rows {
		copy(unsafe.Slice(offset(c, i*stride), columns), unsafe.Slice(offset(tile, i*tileStride), columns))
	}
}
