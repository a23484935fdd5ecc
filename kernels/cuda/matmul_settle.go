//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// view is one of a product's tensors as two axes: a side, rows of A, C and Pre or columns of B, and
// what lies along it.
type view struct {
	index           int // among a, b, c and pre
	data            address
	firsts, seconds int32 // sizes
	first, second   int64 // strides, in elements
	element         element
	batch           []batchAxis
}

// operand is A, by rows and depth, or B, by columns and depth.
func (p *product) operand(index int) view {
	g := p.args
	v := view{index, address(g.a.data), g.rows, p.depthOfOperands(), g.a.row, g.a.column, elementOf(p.dtype), p.axes}
	if p.rounds == hasRounded {
		v.element = elementFloat8
	}
	if index == 1 {
		v.data, v.firsts, v.first, v.second = address(g.b.data), g.columns, g.b.column, g.b.row
	}
	return v
}

// depthOfOperands counts all parts of split operands.
func (p *product) depthOfOperands() int32 { return max(p.args.depth, p.args.lowDepth*int32(p.parts)) }

// output is C or Pre, by rows and columns.
func (p *product) output(index int) view {
	g := p.args
	v := view{index, g.c.data.Address(), g.rows, g.columns, g.c.row, g.c.column, g.cElement, p.axes}
	if index == 3 {
		v.data, v.first, v.second, v.element = g.pre.data.Address(), g.pre.row, g.pre.column, g.preElement
	}
	return v
}

func (v view) size() int64 {
	switch v.element {
	case elementF32:
		return 4
	case elementFloat8:
		return 1
	}
	return 2
}

// isMappable reports whether a tensor map can describe the tensor, either of its axes contiguous.
func (v view) isMappable() bool { return v.mappable(true) || v.mappable(false) }

// mappable reports whether a tensor map can describe the tensor with the second axis contiguous, or
// the first: it begins at a multiple of 16 bytes, and so do all its rows.
func (v view) mappable(second bool) bool {
	along, across, length, rows := v.second, v.first, v.seconds, v.firsts
	if !second {
		along, across, length, rows = v.first, v.second, v.firsts, v.seconds
	}
	fits := func(n int, stride int64) bool {
		const most = 1 << 40
		bytes := stride * v.size()
		return n == 1 || bytes > 0 && bytes%16 == 0 && bytes < most
	}
	if v.data%16 != 0 || along != 1 && length > 1 || !fits(int(rows), across) {
		return false
	}
	for _, axis := range v.batch {
		if stride := axis.strides[v.index]; stride != 0 && !fits(axis.size, stride) {
			return false
		}
	}
	return true
}

// settle makes operands that the kernels on tensor cores can read: 16-bit or 8-bit ones, which a
// tensor map can describe. Others are copied.
func (p *product) settle() error {
	if p.rounds == willRound {
		return p.castOperands()
	}
	if p.dtype != kernels.F32 {
		for index := range 2 {
			if v := p.operand(index); !v.isMappable() {
				if err := p.align(v); err != nil {
					return err
				}
			}
		}
		return nil
	}
	const multiple = sliceDepth
	g := p.args
	padded := (g.depth + multiple - 1) / multiple * multiple
	var split [2]stack[readable]
	for index, most := range []*address{&g.rowMost, &g.columnMost} {
		var err error
		if split[index], *most, err = p.split(p.operand(index), padded); err != nil {
			return err
		}
	}
	p.dtype, g.lowDepth = kernels.F16, padded
	p.replace(0, split[0])
	p.replace(1, split[1])
	return nil
}

// operands are A and B.
func (p *product) operands() [2]*stack[readable] { return [2]*stack[readable]{&p.args.a, &p.args.b} }

// replace puts an operand of (items, sides, depth) in the place of A or B.
func (p *product) replace(index int, to stack[readable]) {
	*p.operands()[index] = to
	for n, stride := range []int64{to.inner, to.outer} {
		if n < len(p.axes) {
			p.axes[n].strides[index] = stride
		}
	}
}

// items is how many matrices an operand has: one where all items share it.
func (p *product) items(v view) int {
	items := 1
	for _, axis := range v.batch {
		if axis.strides[v.index] != 0 {
			return int(p.args.items)
		}
	}
	return items
}

// stackOf is row-major sides in scratch memory, as A or B.
func (p *product) stackOf(v view, data address, side, depth, item int64) stack[readable] {
	s := stack[readable]{data.Readable(), layout{row: side, column: depth}}
	if v.index == 1 {
		s.row, s.column = depth, side
	}
	if p.items(v) > 1 {
		s.inner, s.outer = item, item*int64(p.args.inner)
	}
	return s
}

// align copies an operand to rows that begin at multiples of 16 bytes. The axis that is contiguous,
// if one is, stays so.
func (p *product) align(v view) error {
	const multiple = 8 // of 16-bit elements
	padded := func(n int32) int64 { return (int64(n) + multiple - 1) / multiple * multiple }
	g := p.args
	first, second, item := padded(v.seconds), int64(1), padded(v.seconds)*int64(v.firsts)
	if v.first == 1 && v.firsts > 1 {
		first, second, item = 1, padded(v.firsts), padded(v.firsts)*int64(v.seconds)
	}
	at, err := p.borrow(p.items(v) * int(item) * p.dtype.Size())
	if err != nil {
		return err
	}
	to, from := p.stackOf(v, at, first, second, item), *p.operands()[v.index]
	shape := []int{p.items(v) / int(g.inner), int(g.inner), int(v.firsts), int(v.seconds)}
	if p.items(v) == 1 {
		shape[0], shape[1] = 1, 1
	}
	tensor := func(s stack[readable], first, second int64) kernels.Tensor {
		return kernels.Tensor{Data: address(s.data).Pointer(), DType: p.dtype, Shape: shape, Strides: []int{int(s.outer), int(s.inner), int(first), int(second)}}
	}
	if err := p.device.copies([]pair{{tensor(to, first, second), tensor(from, v.first, v.second)}}); err != nil {
		return err
	}
	p.replace(v.index, to)
	return nil
}

// splitting is Splitting in src/matmul_split.cu.
type splitting struct {
	from                      readable
	outer, inner, side, depth int64
	to, most                  address
	sides, depths, padded     int32
	items, innerItems, parts  int32
}

// split makes float16 parts of a float32 operand, and the largest magnitude of each of its sides.
func (p *product) split(v view, padded int32) (parts stack[readable], most address, err error) {
	g, d := p.args, p.device
	from, items := *p.operands()[v.index], p.items(v)
	side := int64(padded) * int64(p.parts)
	to, err := p.borrow(items * int(v.firsts) * int(side) * kernels.F16.Size())
	if err != nil {
		return parts, 0, err
	}
	mostBytes := items * int(v.firsts) * 4
	if most, err = p.borrow(mostBytes); err != nil {
		return parts, 0, err
	}
	if err := d.zero(most, mostBytes); err != nil {
		return parts, 0, err
	}
	s := &splitting{
		from: from.data, outer: from.outer, inner: from.inner, side: v.first, depth: v.second, to: to, most: most,
		sides: v.firsts, depths: v.seconds, padded: padded, items: int32(items), innerItems: g.inner, parts: int32(p.parts),
	}
	const sides, depths, threads = 32, 64, 256
	blocks := tilesOf(v.firsts, sides) * tilesOf(padded, depths) * items
	if blocks > math.MaxInt32 {
		return parts, 0, fmt.Errorf("%s: matmul: operands of %d×%d×%d are too large for one launch", d.Name(), items, v.firsts, v.seconds)
	}
	for _, entry := range []string{"matmul_largest", "matmul_split"} {
		shape := shapeOf("matmul_split", entry, [3]int{blocks, 1, 1}, threads, 0)
		if err := d.launch(shape, nil, unsafe.Pointer(s)); err != nil {
			return parts, 0, err
		}
	}
	return p.stackOf(v, to, side, 1, side*int64(v.firsts)), most, nil
}

// borrow gives memory that lasts for the call.
func (p *product) borrow(bytes int) (address, error) {
	b, err := p.device.scratch(bytes)
	if err != nil {
		return 0, fmt.Errorf("%s: matmul: scratch memory: %w", p.device.Name(), err)
	}
	p.scratch = append(p.scratch, b)
	return b.At, nil
}
