//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
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
}

// castOperands rounds both operands to 8 bits.
func (p *product) castOperands() error {
	const multiple = 16 // bytes
	g := p.args
	padded := (g.depth + multiple - 1) / multiple * multiple
	var cast [2]stack[readable]
	for index, most := range []*address{&g.rowMost, &g.columnMost} {
		v := p.operand(index)
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
	g, d := p.args, p.device
	from, items := *p.operands()[v.index], p.items(v)
	at, err := p.borrow(items * int(v.firsts) * int(padded))
	if err != nil {
		return to, 0, err
	}
	mostBytes := items * int(v.firsts) * 4
	if most, err = p.borrow(mostBytes); err != nil {
		return to, 0, err
	}
	c := &casting{
		from: from.data, outer: from.outer, inner: from.inner, side: v.first, depth: v.second, to: at, most: most,
		sides: v.firsts, depths: v.seconds, padded: padded, innerItems: g.inner,
	}
	const mostBlocks = math.MaxUint16 // along the second and the third axis of a grid
	module := "float8_" + map[kernels.DType]string{kernels.F32: "f32", kernels.BF16: "bf16", kernels.F16: "f16"}[p.dtype]
	launch := func(entry string, grid [3]int) error {
		const threads = 256
		if max(grid[1], grid[2]) > mostBlocks {
			return fmt.Errorf("%s: matmul: operands of %d×%d×%d are too large for one launch", d.Name(), items, v.firsts, v.seconds)
		}
		return d.launch(shapeOf(module, entry, grid, threads, 0), nil, unsafe.Pointer(c))
	}
	if v.mappable(true) {
		const warps, ofWarp = 8, 8 * 32 * accessBytes // that a warp keeps
		bytes := int(v.seconds) * int(v.size())
		for c.warps = 1; c.warps < warps && int(c.warps)*ofWarp < bytes; c.warps *= 2 {
		}
		err = launch("float8_rows", [3]int{tilesOf(v.firsts, warps/int(c.warps)), items, 1})
	} else {
		const sides, depths, longest = 64, 128, 2048
		c.run = longest
		for c.run > depths && tilesOf(v.firsts, sides)*tilesOf(v.seconds, int(c.run))*items < 4*d.Multiprocessors {
			c.run /= 2
		}
		err = d.zero(most, mostBytes)
		if err == nil {
			err = launch("float8_largest", [3]int{tilesOf(v.firsts, sides), tilesOf(v.seconds, int(c.run)), items})
		}
		if err == nil {
			err = launch("float8_columns", [3]int{tilesOf(v.firsts, sides), tilesOf(padded, depths), items})
		}
	}
	side := int64(padded)
	return p.stackOf(v, at, side, 1, side*int64(v.firsts)), most, err
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
// A, which is rounded once. It does so where B and BUp, and Pre and Up, lie alike.
func (d *Device) gateFloat8(m *kernels.MatMul, e kernels.Gate, out kernels.MatMulOutputs) (queued bool, err error) {
	p := newProduct(d, m, kernels.Activate{}, e.Pre)
	defer p.release()
	g := p.args
	factors, products := elementsBetween(read(m.B), read(e.BUp), m.B.DType), elementsBetween(written(e.Pre), written(e.Up), e.Pre.DType)
	if factors < 0 {
		factors, products = -factors, -products
		g.b.data, g.c.data = read(e.BUp), written(e.Up)
	}
	alike := factors > 0 && products > 0 && m.B.Strides[0] == e.BUp.Strides[0] && m.B.Strides[1] == e.BUp.Strides[1] && e.Pre.Strides[0] == e.Up.Strides[0]
	if !alike || len(p.plus) > 0 || len(out.C.Shape) != 2 || out.ColumnSums.IsSet() {
		return false, nil
	}
	p.axes = []batchAxis{{size: 2, strides: [4]int64{1: factors, 2: products}}}
	if err := p.run(); err != nil {
		return true, err
	}
	return true, d.SwiGLU(e.Pre, e.Up, out.C)
}
