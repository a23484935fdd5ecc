//go:build gpu

package cuda

import "unsafe"

// matmul80Arguments is Arguments in src/matmul_sm80.cu.
type matmul80Arguments struct {
	matmulArguments
	matmul80Schedule
}

// launch80 queues a kernel for any device since Ampere, and the one that adds up shares where the
// last tiles have some. Tensor maps could describe the operands, so that they can be read 16 bytes
// at a time.
func (p *product) launch80() error {
	d, g := p.device, p.args
	v := matmul80{element: elementOf(p.dtype), aColumns: !p.operand(0).mappable(true), bRows: !p.operand(1).mappable(true)}
	v.matmul80Tile = p.tile80()
	if _, err := p.blocks(v.rows, v.columns); err != nil {
		return err
	}
	arguments := &matmul80Arguments{matmul80Schedule: v.schedule(g.rows, g.columns, g.depth, g.items, d.Multiprocessors)}
	arguments.way = p.way()
	if shares := arguments.pieces() - int(arguments.whole); shares > 0 {
		var err error
		if g.partials, err = p.borrow(shares * v.rows * v.columns * 4); err != nil {
			return err
		}
	}
	arguments.matmulArguments = *g
	blocks := min(arguments.pieces(), d.Multiprocessors*v.matmul80Tile.blocks)
	s := shapeOf(v.name(), v.name(), [3]int{blocks, 1, 1}, v.threads(), v.sharedBytes())
	if err := d.launch(s, nil, unsafe.Pointer(arguments)); err != nil || arguments.shared() == 0 {
		return err
	}
	s = shapeOf(v.name(), v.name()+"_sums", [3]int{arguments.shared() * v.groups(), 1, 1}, v.threads(), 0)
	return d.launch(s, nil, unsafe.Pointer(arguments))
}

// tile80 chooses the cut: the larger one, where the device has room for it and the product has more
// rows than the smaller.
func (p *product) tile80() matmul80Tile {
	deep, flat := deep80, flat80
	if p.args.rowMost != 0 {
		deep, flat = deepPart, flatPart
	}
	switch {
	case p.args.rowMost != 0 && p.parts == 2:
		return twoParts80
	case deep.fits(p.device.SharedMemory) && int(p.args.rows) > flat.rows:
		return deep
	}
	return flat
}
