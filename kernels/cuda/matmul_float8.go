//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// This file is for products of operands that are rounded to 8 bits. Tensor cores read those along
// the depth alone, so both are copied: rounded, their depth contiguous.

// casting is Casting in src/float8.cu.
type casting struct {
	from                      readable
	outer, inner, side, depth int64
	to, most                  address
	sides, depths, padded     int32
	innerItems, warps, run    int32
	across                    address
}

// castOperands rounds both operands to 8 bits, but for what was rounded ahead of the product.
func (p *product) castOperands() error {
	g := p.args
	padded := int32(kernels.Float8Stride(int(g.depth)))
	var cast [2]stack[readable]
	for index, most := range []*address{&g.rowMost, &g.columnMost} {
		v := p.operand(index)
		if given := p.rounded[index]; given.IsSet() {
			if v.data = address(read(given.Numbers)); v.data%16 != 0 {
				return fmt.Errorf("%s: matmul: an operand that was rounded ahead lies at %#x, it needs to be at a multiple of 16 bytes", p.device.Name(), v.data)
			}
			cast[index], *most = p.stackOf(v, v.data, int64(padded), 1, p.apart), address(read(given.Most))
			continue
		}
		if !v.isMappable() {
			if err := p.align(v); err != nil {
				return err
			}
			v = p.operand(index)
		}
		var err error
		if cast[index], *most, err = p.cast(v, padded); err != nil {
			return err
		}
	}
	p.rounds, p.parts, g.lowDepth = hasRounded, 1, padded
	p.replace(0, cast[0])
	p.replace(1, cast[1])
	return nil
}

// cast rounds an operand, and finds the largest magnitude of each of its sides.
func (p *product) cast(v view, padded int32) (to stack[readable], most address, err error) {
	from, items := *p.operands()[v.index], p.items(v)
	at, err := p.borrow(items * int(v.firsts) * int(padded))
	if err != nil {
		return to, 0, err
	}
	if most, err = p.borrow(items * int(v.firsts) * 4); err != nil {
		return to, 0, err
	}
	c := newCast(p.device, p.dtype, v, items)
	c.from, c.outer, c.inner, c.innerItems, c.to, c.most = from.data, from.outer, from.inner, p.args.inner, at, most
	if v.mappable(true) {
		err = c.rows()
	} else if err = c.findMost(); err == nil {
		err = c.columns()
	}
	side := int64(padded)
	return p.stackOf(v, at, side, 1, side*int64(v.firsts)), most, err
}

// cast is the rounding of sides, of one matrix or of several.
type cast struct {
	*casting // apart, as all that C is shown
	device   *Device
	module   string
	view     view
	items    int
}

func newCast(d *Device, dtype kernels.DType, v view, items int) *cast {
	c := &cast{device: d, module: "float8_" + map[kernels.DType]string{kernels.F32: "f32", kernels.BF16: "bf16", kernels.F16: "f16"}[dtype], view: v, items: items}
	c.casting = &casting{
		from: v.data.Readable(), side: v.first, depth: v.second, sides: v.firsts, depths: v.seconds,
		padded: int32(kernels.Float8Stride(int(v.seconds))), innerItems: 1,
	}
	return c
}

func (c *cast) launch(entry string, grid [3]int, threads int) error {
	const mostBlocks = math.MaxUint16 // along the second and the third axis of a grid
	if max(grid[1], grid[2]) > mostBlocks {
		return fmt.Errorf("%s: operands of %d×%d×%d in 8 bits are too large for one launch", c.device.Name(), c.items, c.sides, c.depths)
	}
	return c.device.launch(shapeOf(c.module, entry, grid, threads, 0), nil, unsafe.Pointer(c.casting))
}

const castThreads = 256

// rows casts sides whose depth is contiguous.
func (c *cast) rows() error {
	if done, err := c.rowsOnce(); done || err != nil {
		return err
	}
	const warps, ofWarp = 8, 8 * 32 * accessBytes // that a warp keeps
	bytes := int(c.depths) * int(c.view.size())
	for c.warps = 1; c.warps < warps && int(c.warps)*ofWarp < bytes; c.warps *= 2 {
	}
	return c.launch("float8_rows", [3]int{tilesOf(c.sides, warps/int(c.warps)), c.items, 1}, castThreads)
}

// rowsOnce casts the sides of one matrix that fit into the registers of a block. It finds the
// largest magnitudes across them too, if asked to.
func (c *cast) rowsOnce() (done bool, err error) {
	if c.items > 1 || int(c.depths)*int(c.view.size())%accessBytes != 0 {
		return false, nil
	}
	shape, ok := c.piecesOf("float8_rows_", 1, 4)
	if !ok {
		return false, nil
	}
	return true, c.device.launch(shape, nil, unsafe.Pointer(c.casting))
}

// piecesOf is how a kernel of castRows in src/float8.cu is started, whose threads have at least so
// many pieces of a side, if they can hold a whole one. Sides of few pieces are held several at
// once, `together` pieces of them.
func (c *cast) piecesOf(entry string, least, together int) (s driver.Launch, ok bool) {
	pieces := int(c.padded) * int(c.view.size()) / accessBytes
	for _, k := range castPieces {
		const warp, resident = 32, 768 // threads of a multiprocessor that there are registers for
		threads := (pieces + k.each*warp - 1) / (k.each * warp) * warp
		if threads > k.threads || k.each < least {
			continue
		}
		blocks := min(tilesOf(c.sides, max(1, together/k.each)), c.device.Multiprocessors*max(1, resident/threads))
		return shapeOf(c.module, fmt.Sprint(entry, k.each), [3]int{blocks, 1, 1}, threads, 0), true
	}
	return s, false
}

// castPieces are the kernels of castRows: how much of a side a thread has, and the most threads.
var castPieces = []struct{ each, threads int }{{1, 384}, {2, 384}, {4, 352}, {8, 512}}

// findMost finds the largest magnitudes of sides that are contiguous.
func (c *cast) findMost() error {
	const depths, longest = 128, 2048
	c.run = longest
	for c.run > depths && tilesOf(c.sides, castSides)*tilesOf(c.depths, int(c.run))*c.items < 4*c.device.Multiprocessors {
		c.run /= 2
	}
	if err := c.device.zero(c.most, c.items*int(c.sides)*4); err != nil {
		return err
	}
	return c.launch("float8_largest", [3]int{tilesOf(c.sides, castSides), tilesOf(c.depths, int(c.run)), c.items}, castThreads)
}

const castSides = 64

// columns casts sides that are contiguous, of which the largest magnitudes are known.
func (c *cast) columns() error {
	const depths = 128
	return c.launch("float8_columns", [3]int{tilesOf(c.sides, castSides), tilesOf(c.padded, depths), c.items}, castThreads)
}

// RoundFloat8 rounds a matrix ahead of products. It is read once, where a side fits into the
// registers of a block.
func (d *Device) RoundFloat8(x kernels.Tensor, r kernels.Float8Rounding) error {
	const name = "round float8"
	if err := kernels.CheckRoundFloat8(x, r); err != nil {
		return d.callError(name, err)
	}
	if !d.hasMaps() {
		return kernels.Unsupported{Device: d.Name(), What: "a product in PrecisionFloat8"}
	}
	if max(x.Shape[0], x.Shape[1]) > math.MaxInt32 {
		return d.callError(name, fmt.Errorf("x has shape %v, a GPU computes up to %d rows and columns", x.Shape, math.MaxInt32))
	}
	if x.Elements() == 0 {
		return nil
	}
	aligned, block, err := d.alignedRows(x)
	if err != nil {
		return d.failed(name, err)
	}
	if block != nil {
		defer block.Free()
	}
	rows := view{
		data: address(read(aligned)), firsts: int32(x.Shape[0]), seconds: int32(x.Shape[1]),
		first: int64(aligned.Strides[0]), second: 1, element: elementOf(x.DType),
	}
	c := newCast(d, x.DType, rows, 1)
	c.to, c.most = written(r.Rows.Numbers).Address(), written(r.Rows.Most).Address()
	if r.ColumnMost.IsSet() {
		c.across = written(r.ColumnMost).Address()
		if err := d.zero(c.across, x.Shape[1]*4); err != nil {
			return err
		}
	}
	if done, err := c.rowsOnce(); done || err != nil {
		return err
	}
	if err := c.rows(); err != nil || !r.ColumnMost.IsSet() {
		return err
	}
	rows.firsts, rows.seconds, rows.first, rows.second = rows.seconds, rows.firsts, rows.second, rows.first
	across := newCast(d, x.DType, rows, 1)
	across.most = c.across
	return across.findMost()
}

// turning is Turning in src/float8_turn.cu.
type turning struct {
	from                            readable
	to                              writable
	rowMost, columnMost             readable
	rows, columns, stride, toStride int32
}

// TurnFloat8 rounds the columns of a matrix from its rows.
func (d *Device) TurnFloat8(rows, columns kernels.Float8Sides) error {
	const name = "turn float8"
	if err := kernels.CheckTurnFloat8(rows, columns); err != nil {
		return d.callError(name, err)
	}
	if !d.hasMaps() {
		return kernels.Unsupported{Device: d.Name(), What: "a product in PrecisionFloat8"}
	}
	shape := rows.Numbers.Shape
	if rows.Numbers.Elements() == 0 {
		return nil
	}
	for _, o := range []operand{{"rows.numbers", rows.Numbers}, {"columns.numbers", columns.Numbers}} {
		if at := read(o.tensor); at%accessBytes != 0 {
			return d.callError(name, fmt.Errorf("%s lies at %#x, it needs to be at a multiple of 16 bytes", o.name, at))
		}
	}
	const side, threads, mostBlocks = 128, 256, math.MaxUint16
	if max(shape[0], shape[1]) > mostBlocks*side {
		return d.callError(name, fmt.Errorf("rows.numbers has shape %v, a GPU turns up to %d rows and columns", shape, mostBlocks*side))
	}
	t := &turning{
		from: read(rows.Numbers), to: written(columns.Numbers), rowMost: read(rows.Most), columnMost: read(columns.Most),
		rows: int32(shape[0]), columns: int32(shape[1]), stride: int32(kernels.Float8Stride(shape[1])), toStride: int32(kernels.Float8Stride(shape[0])),
	}
	grid := [3]int{tilesOf(t.columns, side), tilesOf(t.toStride, side), 1}
	err := d.launch(shapeOf("float8_turn", "float8_turn", grid, threads, 0), nil, unsafe.Pointer(t))
	runtime.KeepAlive(rows)
	runtime.KeepAlive(columns)
	return err
}

// gating is Gating in src/float8.cu.
type gating struct {
	casting
	up, dy                   readable
	made                     writable
	upSide, dySide, madeSide int64
}

// swigluFloat8 computes silu(gate)·up, or with dy its gradients side by side, and rounds that, in
// one pass where there is a kernel for it: one of 16-bit matrices whose rows are aligned.
func (d *Device) swigluFloat8(gate, up, dy, made kernels.Tensor, r kernels.Float8Rounding) (done bool, err error) {
	g := &gating{}
	entry, least, columns := "float8_swiglu_", 1, gate.Shape[1]
	if dy.IsSet() {
		entry, least = "float8_swiglu_backward_", 2 // a piece of either gradient
	}
	if made.DType == kernels.F32 || columns%16 != 0 || made.Elements() == 0 || max(made.Shape[0], made.Shape[1]) > math.MaxInt32 {
		return false, nil
	}
	aligned := func(t kernels.Tensor) bool {
		return !t.IsSet() || read(t)%accessBytes == 0 && (t.Shape[0] == 1 || t.Strides[0]*t.DType.Size()%accessBytes == 0)
	}
	if !aligned(gate) || !aligned(up) || !aligned(dy) || !aligned(made) {
		return false, nil
	}
	rows := view{
		data: address(read(gate)), firsts: int32(made.Shape[0]), seconds: int32(made.Shape[1]),
		first: int64(made.Strides[0]), second: 1, element: elementOf(made.DType),
	}
	c := newCast(d, made.DType, rows, 1)
	shape, ok := c.piecesOf(entry, least, 2)
	if !ok {
		return false, nil
	}
	c.side, c.to, c.most = int64(gate.Strides[0]), written(r.Rows.Numbers).Address(), written(r.Rows.Most).Address()
	if r.ColumnMost.IsSet() {
		c.across = written(r.ColumnMost).Address()
		if err := d.zero(c.across, made.Shape[1]*4); err != nil {
			return true, err
		}
	}
	g.casting, g.up, g.upSide, g.madeSide = *c.casting, read(up), int64(up.Strides[0]), int64(made.Strides[0])
	if !r.Alone {
		g.made = written(made)
	}
	if dy.IsSet() {
		g.dy, g.dySide = read(dy), int64(dy.Strides[0])
	}
	return true, d.launch(shape, nil, unsafe.Pointer(g))
}

// gateGradientFloat8 computes a product of operands of 8 bits, the gradients of the gate behind it,
// and what those are rounded to.
func (d *Device) gateGradientFloat8(m *kernels.MatMul, e kernels.GateGradient, out kernels.MatMulOutputs) (queued bool, err error) {
	both, ok := kernels.SideBySide(out.C, e.DUp)
	if !ok || !e.Rounding.IsSet() || len(m.Plus) > 0 || out.ColumnSums.IsSet() {
		return false, nil
	}
	plain := *m
	plain.Epilogue = nil
	if err := d.MatMul(&plain, kernels.MatMulOutputs{C: out.C}); err != nil {
		return true, err
	}
	done, err := d.swigluFloat8(e.Z, e.Up, out.C, both, e.Rounding)
	if done || err != nil {
		return true, err
	}
	if err := d.SwiGLUBackward(e.Z, e.Up, out.C, out.C, e.DUp); err != nil {
		return true, err
	}
	return true, d.RoundFloat8(both, e.Rounding)
}

// alignedRows is a matrix whose rows begin at multiples of 16 bytes: the given one, without a
// block, or a copy in one that the caller frees.
func (d *Device) alignedRows(x kernels.Tensor) (kernels.Tensor, *driver.Block, error) {
	size := x.DType.Size()
	if rows := x.Shape[0]; read(x)%accessBytes == 0 && (rows == 1 || x.Strides[0]*size%accessBytes == 0) {
		return x, nil, nil
	}
	columns := (x.Shape[1]*size + accessBytes - 1) / accessBytes * accessBytes / size
	block, err := d.scratch(x.Shape[0] * columns * size)
	if err != nil {
		return x, nil, err
	}
	copied := kernels.Tensor{Data: block.At.Pointer(), DType: x.DType, Shape: x.Shape, Strides: []int{columns, 1}}
	return copied, block, d.copies([]pair{{copied, x}})
}

// launchFloat8 queues a product of operands of 8 bits.
func (p *product) launchFloat8() error {
	v := matmul90{matmulTile: float8Tile, element: elementBF16}
	way := p.way()
	if way == wayHalves && p.args.cElement != v.element {
		way = wayElements
	}
	return p.launchVariant(v, way)
}

// gateFloat8 computes a gated product of operands of 8 bits: both products are a batch that shares
// A, which is rounded once. It does so where B and BUp, Pre and Up, and what B and BUp were rounded
// to lie alike.
func (d *Device) gateFloat8(m *kernels.MatMul, e kernels.Gate, out kernels.MatMulOutputs) (queued bool, err error) {
	p := newProduct(d, m, kernels.Activate{}, e.Pre)
	defer p.release()
	g := p.args
	factors, products := elementsBetween(read(m.B), read(e.BUp), m.B.DType), elementsBetween(written(e.Pre), written(e.Up), e.Pre.DType)
	first, second := m.RoundedB, e.RoundedBUp
	if factors < 0 {
		factors, products = -factors, -products
		g.b.data, g.c.data = read(e.BUp), written(e.Up)
		first, second, p.rounded[1] = second, first, second
	}
	alike := factors > 0 && products > 0 && m.B.Strides[0] == e.BUp.Strides[0] && m.B.Strides[1] == e.BUp.Strides[1] && e.Pre.Strides[0] == e.Up.Strides[0]
	if first.IsSet() {
		p.apart = elementsBetween(read(first.Numbers), read(second.Numbers), kernels.F8)
		mosts := elementsBetween(read(first.Most), read(second.Most), kernels.F32)
		alike = alike && p.apart > 0 && p.apart%accessBytes == 0 && mosts == int64(g.columns)
	}
	if !alike || len(p.plus) > 0 || len(out.C.Shape) != 2 || out.ColumnSums.IsSet() {
		return false, nil
	}
	p.axes = []batchAxis{{size: 2, strides: [4]int64{1: factors, 2: products}}}
	if err := p.run(); err != nil {
		return true, err
	}
	if e.Rounding.IsSet() {
		done, err := d.swigluFloat8(e.Pre, e.Up, kernels.Tensor{}, out.C, e.Rounding)
		if done || err != nil {
			return true, err
		}
	}
	if err := d.SwiGLU(e.Pre, e.Up, out.C); err != nil || !e.Rounding.IsSet() {
		return true, err
	}
	return true, d.RoundFloat8(out.C, e.Rounding)
}
