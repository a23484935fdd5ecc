//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// matmul90Arguments is Arguments in src/matmul_sm90.cu.
type matmul90Arguments struct {
	matmulArguments
	matmulSchedule
}

// The ways in which results leave a kernel: Way in src/matmul_sm90.cuh.
const (
	wayElements int32 = iota
	wayHalves
	wayFloats
	wayAddedFloats
)

// hasMaps reports whether the device has kernels with tensor maps.
func (d *Device) hasMaps() bool { return d.Major == 9 && d.Minor == 0 && !d.withoutMaps }

// launch90 queues a kernel for sm_90a. Tensor maps can describe the operands.
func (p *product) launch90() error {
	g := p.args
	v := matmul90{element: elementOf(p.dtype), aColumns: !p.operand(0).mappable(true), bRows: !p.operand(1).mappable(true)}
	way := p.way()
	if way == wayHalves {
		v.epilogue.activation = kernels.Activation(g.activation)
	}
	v.matmulTile = p.tile(v)
	if v.epilogue.activation != kernels.NoActivation && v.aColumns {
		v.epilogue.activation, way = kernels.NoActivation, wayElements
	}
	return p.launchVariant(v, way)
}

// launchVariant queues a kernel whose results leave in a way.
func (p *product) launchVariant(v matmul90, way int32) (err error) {
	d, g := p.device, p.args
	arguments := &matmul90Arguments{}
	var clusters int
	columns := g.columns
	if v.epilogue.kind == gates {
		columns *= 2
	}
	if err := p.settleFactors(v); err != nil {
		return err
	}
	if v.epilogue.kind == mirrors {
		arguments.matmulSchedule, clusters, _ = v.scheduleSymmetric(g.rows, g.depth, g.items, d.Multiprocessors)
	} else {
		arguments.matmulSchedule, clusters, _ = v.schedule(g.rows, columns, p.wholeDepth(), g.items, d.Multiprocessors)
	}
	arguments.way, arguments.second, arguments.third = way, arguments.slices, arguments.slices
	if p.swapped {
		arguments.swapped = 1
	}
	if len(p.plus) > 0 {
		arguments.second = int32(tilesOf(g.depth, sliceDepth))
		arguments.third = arguments.second + int32(tilesOf(p.plus[0][0].seconds, sliceDepth))
	}
	blocks := clusters * v.cluster
	if arguments.whole < arguments.tiles {
		const flagBytes = 2 * 4
		partials, err := d.scratch(d.partialBytes(blocks * v.rows() * v.columns * 4))
		if err != nil {
			return fmt.Errorf("%s: matmul: scratch memory: %w", d.Name(), err)
		}
		p.scratch = append(p.scratch, partials)
		flags, err := d.BorrowCounters(d.queue())
		if err != nil {
			return fmt.Errorf("%s: matmul: counters: %w", d.Name(), err)
		}
		defer func() {
			if err == nil {
				d.queue().Counters().Keep(flags) // zero again when the kernel has run
			} else {
				flags.Free()
			}
		}()
		if blocks*flagBytes > driver.CounterBytes {
			return fmt.Errorf("%s: matmul: %d blocks are more than there are flags for", d.Name(), blocks)
		}
		g.partials, g.flags = partials.At, flags.At
	}
	arguments.matmulArguments = *g
	maps, err := p.maps(v, way)
	if err != nil {
		return err
	}
	s := shapeOf(v.name(), v.name(), [3]int{blocks, 1, 1}, 384, v.sharedBytes())
	return d.launch(s, maps, unsafe.Pointer(arguments))
}

// partialBytes is the size of a block for sums that are added up later: the same for all products
// but the largest thin ones, so that they share a block. Memory goes back to who asks for its size.
func (d *Device) partialBytes(bytes int) int {
	return max(bytes, d.Multiprocessors*wideTile.rows()*wideTile.columns*4)
}

// partialsOf is how many bytes a product borrows for sums of parts of its depth.
func (d *Device) partialsOf(m *kernels.MatMul) int {
	if !d.hasMaps() || m.A.DType == kernels.F32 || m.Precision == kernels.PrecisionFloat8 {
		return 0
	}
	p := newProduct(d, m, kernels.Activate{}, kernels.Contiguous(nil, m.A.DType, m.OutputShape()...))
	_, few := p.ofFewRows()
	if g := p.args; !p.placeItems() || g.items*g.rows*g.columns == 0 || few || p.isSmall() {
		return 0
	}
	v := matmul90{element: elementOf(p.dtype), aColumns: !p.operand(0).mappable(true), bRows: !p.operand(1).mappable(true)}
	columns := p.args.columns
	switch m.Epilogue.(type) {
	case kernels.Gate:
		v.matmulTile, columns = broadTile, 2*columns
	case kernels.GateGradient, kernels.TimesSlope:
		v.matmulTile = broadTile
	default:
		v.matmulTile = p.tile(v)
	}
	if s, _, _ := v.schedule(p.args.rows, columns, p.wholeDepth(), p.args.items, d.Multiprocessors); s.whole == s.tiles {
		return 0
	}
	return d.partialBytes(0)
}

// wholeDepth is the depth of all factors, each rounded up to slices where there are several.
func (p *product) wholeDepth() int32 {
	if len(p.plus) == 0 {
		return p.args.depth
	}
	slices := tilesOf(p.args.depth, sliceDepth)
	for _, f := range p.plus {
		slices += tilesOf(f[0].seconds, sliceDepth)
	}
	return int32(slices * sliceDepth)
}

// tile chooses the cut that should take the least time.
func (p *product) tile(v matmul90) matmulTile {
	g := p.args
	switch {
	case g.rowMost != 0 && p.parts == 2:
		return twoPartsTile
	case g.rowMost != 0:
		return onePartTile
	}
	activated := v.epilogue.activation != kernels.NoActivation
	best, least := broadTile, math.Inf(1)
	for _, t := range []matmulTile{broadTile, turnTile, wideTile, sideTile} {
		switch {
		case activated && !t.turns:
			continue // an activation takes a third of the time, which turns hide
		case t.sharesA && (activated || !v.aColumns || !v.bRows || int(g.columns)%t.columns != 0 || len(p.axes)+len(p.plus) > 0):
			continue
		}
		if cycles := t.cycles(g.rows, g.columns, p.wholeDepth(), g.items, p.device.Multiprocessors); cycles < least {
			best, least = t, cycles
		}
	}
	return best
}

// way chooses how results leave: by tensor maps where these can describe the outputs.
func (p *product) way() int32 {
	g := p.args
	switch mapped := p.output(2).mappable(true); {
	case !mapped:
		return wayElements
	case g.cElement != elementF32 && g.accumulate == 0:
		if g.pre.data == 0 || g.preElement != elementF32 && p.output(3).mappable(true) {
			return wayHalves
		}
	case g.cElement == elementF32 && g.pre.data == 0 && g.activation == int32(kernels.NoActivation):
		if g.accumulate != 0 {
			return wayAddedFloats
		}
		return wayFloats
	}
	return wayElements
}

// maps are the tensor maps of A, B, C, Pre, and A and B of further factors. What has none is given
// A's, which is not looked at.
func (p *product) maps(v matmul90, way int32) ([]driver.EncodedMap, error) {
	type box struct {
		view
		along    bool // the second axis is contiguous, rather than the first
		rows     int  // of a box
		rowBytes int
	}
	const rowBytes = 128
	chunkBytes := 2 * v.chunk() // of 16-bit elements
	operands := func(x, y view) (a, b box) {
		a, b = box{x, true, v.rowsOfBox(), rowBytes}, box{y, true, v.columns / v.cluster, rowBytes}
		if v.aColumns {
			a = box{x, false, sliceDepth, rowBytes}
		}
		if v.bRows {
			b = box{y, false, v.boxDepth(), 2 * v.chunkOfB()}
		}
		return a, b
	}
	a, b := operands(p.operand(0), p.operand(1))
	c, pre := a, a
	if way != wayElements {
		const rowsOfWarp = 16
		c = box{p.output(2), true, rowsOfWarp, rowBytes}
		if way == wayHalves {
			c.rowBytes = chunkBytes
		}
		if p.args.pre.data != 0 {
			pre = box{p.output(3), true, rowsOfWarp, chunkBytes}
		}
	}
	boxes := []box{a, b, c, pre, a, b, a, b}
	for n, f := range p.plus {
		boxes[4+2*n], boxes[5+2*n] = operands(f[0], f[1])
	}
	list := make([]driver.EncodedMap, 0, len(boxes))
	for _, x := range boxes {
		const unused = 16 // a step that nobody takes must be a multiple of 16 bytes all the same
		along, across, stride := x.seconds, x.firsts, x.first
		if !x.along {
			along, across, stride = x.firsts, x.seconds, x.second
		}
		strides, shape := [3]int64{unused, unused, stride}, [4]int{1, 1, int(across), int(along)}
		for n, axis := range x.batch {
			if stride := axis.strides[x.index]; stride != 0 && axis.size > 1 {
				shape[1-n], strides[1-n] = axis.size, stride
			}
		}
		if across == 1 {
			strides[2] = unused
		}
		if v.sharesA && x.index == 1 { // columns tile by tile, so that a box ends where its tile does
			shape, strides[1] = [4]int{1, int(along) / v.columns, int(across), v.columns}, int64(v.columns)
		}
		m, err := p.device.Encode(newTensorMap(rows[readable]{x.data.Readable(), strides[0], strides[1], strides[2]}, shape, x.rowBytes, x.rows, x.element))
		if err != nil {
			return nil, fmt.Errorf("%s: matmul: %w", p.device.Name(), err)
		}
		list = append(list, m)
	}
	return list, nil
}
