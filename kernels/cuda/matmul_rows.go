//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// rowsArguments is RowsArguments in src/matmul_rows.cuh.
type rowsArguments struct {
	m           matmulArguments
	weights     [mostWeights]rowsWeight
	residual    readable
	residualRow int64
	gamma       readable
	normed      int32
	gammaWide   int32
	eps         float32
	count       int32
	// of NF4
	table            readable
	packed           [mostWeights]readable
	rowBytes, scales int32
}

// rowsWeight is Weight in src/weight.cuh.
type rowsWeight struct {
	bias           readable
	first, columns int32
	biasElement    element
	zero           int32
}

const mostWeights = 3

// fewRows is a call of the kernel: what it is told, and the operands that it moves as boxes.
type fewRows struct {
	matmulRows
	arguments *rowsArguments // by itself: the driver's call may see no pointers of Go's in it
	a         view
	b         []view
	packed    []packedRows // in the place of b
	early     driver.Early
}

// ofFewRows is the kernel for a product that takes as long as reading B, if there is one: of up to
// sixteen rows, and large enough that what a cluster's blocks tell each other does not matter.
func (p *product) ofFewRows() (v matmulRows, ok bool) {
	const (
		large = 1 << 18
		whole = 8 // elements of a load
	)
	g := p.args
	if !p.device.hasMaps() || p.dtype == kernels.F32 || len(p.axes) > 0 || g.rows > mostRows ||
		int64(g.columns)*int64(g.depth) < large || g.depth%whole != 0 || !p.operand(0).mappable(true) {
		return v, false
	}
	b := p.operand(1)
	v = matmulRows{element: elementOf(p.dtype), bRows: !b.mappable(true)}
	return v, !v.bRows || g.columns%whole == 0 && b.mappable(false)
}

// launchRows queues the kernel.
func (p *product) launchRows(v matmulRows) error {
	g := &rowsArguments{m: *p.args, count: 1}
	c := &fewRows{matmulRows: v, arguments: g, a: p.operand(0), b: []view{p.operand(1)}}
	g.weights[0] = rowsWeight{bias: g.m.bias, columns: g.m.columns, biasElement: g.m.biasElement}
	c.early.Writes = []driver.Span{p.output(2).span()}
	if g.m.pre.data != 0 {
		c.early.Writes = append(c.early.Writes, p.output(3).span())
	}
	return p.device.launchRows(c)
}

// launchRows queues the kernel.
func (d *Device) launchRows(c *fewRows) error {
	list := []driver.TensorMap{boxesOf(c.a, true, mostRows)}
	panels, most := 0, 1+mostWeights
	for _, b := range c.b {
		panels += tilesOf(b.firsts, c.columns())
		c.early.Reads = append(c.early.Reads, b.span())
		list = append(list, boxesOf(b, !c.bRows, columnsOfPanel))
	}
	for _, b := range c.packed {
		panels += tilesOf(int32(b.rows), c.columns())
		c.early.Reads = append(c.early.Reads, b.span())
		codes, scales := b.boxes(columnsOfPanel, scalesOfChunk(c.packing))
		list, most = append(list, codes, scales), 1+2*mostWeights
	}
	for len(list) < most {
		list = append(list, list[0])
	}
	var owner *driver.Owner
	if c.packing == kernels.NF4 {
		var err error
		if owner, err = c.tellNF4(d); err != nil {
			return fmt.Errorf("%s: matmul: %w", d.Name(), err)
		}
	}
	var maps []driver.EncodedMap
	for _, m := range list {
		encoded, err := d.Encode(m)
		if err != nil {
			return fmt.Errorf("%s: matmul: %w", d.Name(), err)
		}
		maps = append(maps, encoded)
	}
	if c.gated {
		panels /= 2
	}
	blocks := c.blocksOfPanel(panels, tilesOf(c.a.seconds, c.depth()), d.Multiprocessors)
	s := shapeOf(c.name(), fmt.Sprintf("%s_%d", c.name(), blocks), [3]int{panels * blocks, 1, 1}, c.threads(), c.sharedBytes())
	if c.isPacked() {
		s.Kernel.Entry, s.Cluster = c.name(), blocks
	}
	s.Early = &c.early
	err := d.launch(s, maps, unsafe.Pointer(c.arguments))
	runtime.KeepAlive(owner)
	return err
}

// tellNF4 tells the kernel how matrices of NF4 lie, and what their codes stand for. The caller
// keeps the owner alive until the kernel is queued.
func (c *fewRows) tellNF4(d *Device) (*driver.Owner, error) {
	g := c.arguments
	for n, m := range c.packed {
		g.packed[n], g.rowBytes, g.scales = m.data.Readable(), int32(m.Bytes), int32(m.Scales)
	}
	owner, err := constant(d, slices.Concat(packed.NF4Table[:], packed.NF4ScaleTable[:]))
	if err == nil {
		g.table = owner.At.Readable()
	}
	return owner, err
}

// boxesOf describes an operand in boxes of 64 elements along its second axis, or its first, and of
// some rows across.
func boxesOf(v view, second bool, boxRows int) driver.TensorMap {
	const (
		rowBytes = 128
		unused   = 8 // a step that nobody takes must be a multiple of 16 bytes all the same
	)
	along, across, stride := v.seconds, v.firsts, v.first
	if !second {
		along, across, stride = v.firsts, v.seconds, v.second
	}
	if across == 1 {
		stride = unused
	}
	return newTensorMap(rows[readable]{v.data.Readable(), unused, unused, stride}, [4]int{1, 1, int(across), int(along)}, rowBytes, boxRows, v.element)
}

// blocksOfPanel chooses how many blocks share the depth of a panel, so that the multiprocessors
// are busy for the fewest steps. What a block does besides takes about two.
func (v matmulRows) blocksOfPanel(panels, steps, multiprocessors int) int {
	const (
		most   = 8 // of a cluster
		beside = 2
	)
	best, least := 1, math.MaxInt
	for blocks := 1; blocks <= min(most, steps); blocks++ {
		turns := tilesOf(int32(panels*blocks), multiprocessors)
		if v.isPacked() {
			// A multiprocessor has two blocks, but clusters leave some of these places empty.
			together := 2 * multiprocessors / blocks
			if blocks > 2 {
				together = max(1, together*4/5)
			}
			turns = tilesOf(int32(panels), together)
		}
		if takes := turns * (tilesOf(int32(steps), blocks) + beside); takes < least {
			best, least = blocks, takes
		}
	}
	return best
}

// span is where the tensor lies.
func (v view) span() driver.Span {
	last := int64(v.firsts-1)*v.first + int64(v.seconds-1)*v.second
	return driver.Span{From: v.data, To: v.data + address((last+1)*v.size())}
}

// TakesRowsProduct reports whether the problem is one of few rows of 16 bits, whose weights lie
// alike and can be moved 16 bytes at a time, or are packed.
func (d *Device) TakesRowsProduct(p *kernels.RowsProduct) bool {
	_, ok := d.rowsKernel(p)
	return ok
}

func (d *Device) rowsKernel(p *kernels.RowsProduct) (v matmulRows, ok bool) {
	if !d.hasMaps() || p.Validate() != nil || p.X.DType != kernels.BF16 && p.X.DType != kernels.F16 || len(p.Weights) > mostWeights ||
		p.X.Shape[0] > mostRows || p.X.Shape[0]*p.X.Shape[1]*p.Columns() == 0 {
		return v, false
	}
	x, first := p.X, p.Weights[0]
	v = matmulRows{element: elementOf(x.DType), bRows: first.Strides[0] != 1, gated: p.Gated}
	along, across := 0, 1 // the axis along which 16 bytes lie
	if v.bRows {
		along, across = 1, 0
	}
	ok = movable(x, 1, 0) && (p.Norm == nil || isAligned(p.Norm.Gamma))
	if first.DType.IsPacked() {
		v.packing = first.DType
		for _, w := range p.Weights {
			ok = ok && w.Strides[0] == 1 && isAligned(w) && packedRowsOf(w).copied()
		}
		return v, ok
	}
	for _, w := range p.Weights {
		ok = ok && movable(w, along, across)
	}
	return v, ok
}

// movable reports whether a matrix of 16-bit elements can be moved 16 bytes at a time along an
// axis.
func movable(t kernels.Tensor, along, across int) bool {
	const whole = 8 // elements of 16 bytes
	return t.Strides[along] == 1 && t.Shape[along]%whole == 0 && (t.Shape[across] == 1 || t.Strides[across]%whole == 0) && isAligned(t)
}

// RowsProductForward queues one kernel, or a link of a chain.
func (d *Device) RowsProductForward(p *kernels.RowsProduct, c kernels.Tensor) error {
	const name = "product of rows"
	defer runtime.KeepAlive(p)
	defer runtime.KeepAlive(c)
	if err := p.Check(c); err != nil {
		return d.callError(name, err)
	}
	v, ok := d.rowsKernel(p)
	if !ok {
		return kernels.Unsupported{Device: d.Name(), What: "this " + name}
	}
	g := &rowsArguments{residual: read(p.Residual), count: int32(len(p.Weights))}
	call := &fewRows{matmulRows: v, arguments: g, a: matrix(p.X), early: driver.Early{Writes: []driver.Span{matrix(c).span()}}}
	g.m = matmulArguments{rows: int32(p.X.Shape[0]), columns: int32(p.Columns()), depth: int32(p.X.Shape[1]), items: 1, inner: 1, cElement: elementOf(c.DType)}
	g.m.c.data, g.m.c.row, g.m.c.column = written(c), int64(c.Strides[0]), 1
	if p.Residual.IsSet() {
		g.residualRow = int64(p.Residual.Strides[0])
	}
	if n := p.Norm; n != nil {
		g.normed, g.gamma, g.eps = 1, read(n.Gamma), float32(n.Eps)
		if n.Gamma.DType == kernels.F32 {
			g.gammaWide = 1
		}
		call.early.Reads = spansOf(n.Gamma)
	}
	first := 0
	for i, t := range p.Weights {
		if t.DType.IsPacked() {
			call.packed = append(call.packed, packedRowsOf(t))
		} else {
			call.b = append(call.b, matrix(t.Permute(1, 0)))
		}
		w := &g.weights[i]
		*w = rowsWeight{first: int32(first), columns: int32(t.Shape[1])}
		if p.Biases != nil {
			w.bias, w.biasElement = read(p.Biases[i]), elementOf(p.Biases[i].DType)
		}
		if !p.Gated {
			first += t.Shape[1]
		}
	}
	alone := func() error {
		defer runtime.KeepAlive(p)
		defer runtime.KeepAlive(c)
		return d.launchRows(call)
	}
	if !call.mayLink() {
		return alone()
	}
	return d.queue().Link(driver.Link{Call: &chained{device: d, product: call}, Alone: alone})
}

// matrix is a tensor of two axes as the operand of a product.
func matrix(t kernels.Tensor) view {
	return view{data: address(read(t)), firsts: int32(t.Shape[0]), seconds: int32(t.Shape[1]), first: int64(t.Strides[0]), second: int64(t.Strides[1]), element: elementOf(t.DType)}
}

// spansOf is where tensors lie that are set, and not empty.
func spansOf(tensors ...kernels.Tensor) []driver.Span {
	var list []driver.Span
	for _, t := range tensors {
		if t.IsSet() && t.Elements() > 0 {
			list = append(list, driver.SpanOf(t))
		}
	}
	return list
}
