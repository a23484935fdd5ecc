//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// groupedArguments is GroupedArguments in src/grouped.cuh.
type groupedArguments struct {
	matmulArguments
	offsets      readable
	biasStep     int64
	groups, zero int32
}

// grouped80Arguments is Arguments in src/matmul_sm80.cu, of grouped products.
type grouped80Arguments struct {
	groupedArguments
	matmul80Schedule
}

// grouped90Arguments is Arguments in src/matmul_sm90.cu, of grouped products.
type grouped90Arguments struct {
	groupedArguments
	matmulSchedule
}

// GroupedMatMul multiplies the rows of each group. How many these are is known on the device alone:
// blocks find their tiles there.
func (d *Device) GroupedMatMul(m *kernels.GroupedMatMul, c kernels.Tensor) error {
	const kernel = "grouped matmul"
	if err := d.checkGrouped(kernel, m, m.Check(c)); err != nil {
		return err
	}
	rows, groups, columns, depth := m.Dims()
	g := &groupedArguments{offsets: read(m.Offsets), groups: int32(groups)}
	g.matmulArguments = matmulArguments{
		bias: read(m.Bias), rows: int32(rows), columns: int32(columns), depth: int32(depth), items: 1, inner: int32(max(1, groups)),
		cElement: elementOf(c.DType), biasElement: elementOf(m.Bias.DType),
	}
	if m.Accumulate {
		g.accumulate = 1
	}
	if m.Bias.IsSet() {
		g.biasStep = int64(m.Bias.Strides[0])
	}
	g.a = stack[readable]{read(m.A), layout{row: int64(m.A.Strides[0]), column: int64(m.A.Strides[1])}}
	g.b = stack[readable]{read(m.B), layout{inner: int64(m.B.Strides[0]), row: int64(m.B.Strides[1]), column: int64(m.B.Strides[2])}}
	g.c = stack[writable]{written(c), layout{row: int64(c.Strides[0]), column: 1}}
	err := d.launchGrouped(g, m.A.DType, groupsOfRows)
	runtime.KeepAlive(m)
	runtime.KeepAlive(c.Owner)
	return err
}

// GroupedMatMulGradient multiplies the rows of each group with the gradients of what they gave.
func (d *Device) GroupedMatMulGradient(m *kernels.GroupedMatMul, dC, dB kernels.Tensor) error {
	const kernel = "grouped matmul gradient"
	if err := d.checkGrouped(kernel, m, m.CheckGradient(dC, dB)); err != nil {
		return err
	}
	rows, groups, columns, depth := m.Dims()
	g := &groupedArguments{offsets: read(m.Offsets), groups: int32(groups)}
	g.matmulArguments = matmulArguments{
		rows: int32(depth), columns: int32(columns), depth: int32(rows), items: int32(groups), inner: int32(max(1, groups)), cElement: elementOf(dB.DType),
	}
	g.a = stack[readable]{read(m.A), layout{row: int64(m.A.Strides[1]), column: int64(m.A.Strides[0])}}
	g.b = stack[readable]{read(dC), layout{row: int64(dC.Strides[0]), column: int64(dC.Strides[1])}}
	g.c = stack[writable]{written(dB), layout{inner: int64(depth) * int64(columns), row: int64(columns), column: 1}}
	err := d.launchGrouped(g, m.A.DType, groupsOfDepth)
	runtime.KeepAlive(m)
	runtime.KeepAlive(dC.Owner)
	runtime.KeepAlive(dB.Owner)
	return err
}

// checkGrouped returns what is wrong with a call.
func (d *Device) checkGrouped(kernel string, m *kernels.GroupedMatMul, err error) error {
	if err != nil {
		return d.callError(kernel, err)
	}
	if entrySuffixes[m.A.DType] == "" || m.B.DType != m.A.DType {
		return kernels.Unsupported{Device: d.Name(), What: fmt.Sprintf("a grouped product of %v and %v", m.A.DType, m.B.DType)}
	}
	rows, groups, columns, depth := m.Dims()
	tiles := func(n int) int { return n/anySide + 1 }
	if blocks := (tiles(rows) + groups*tiles(depth)) * tiles(columns); max(rows, columns, depth, groups, blocks) > math.MaxInt32 {
		return d.callError(kernel, fmt.Errorf("a is %v and b is %v, a GPU computes up to %d rows, columns and tiles", m.A.Shape, m.B.Shape, math.MaxInt32))
	}
	return nil
}

// launchGrouped queues a product: on tensor cores where operands are as these need them.
func (d *Device) launchGrouped(g *groupedArguments, dtype kernels.DType, by groupedBy) error {
	if g.groups == 0 || g.columns == 0 || g.rows == 0 {
		return nil
	}
	p := &product{device: d, dtype: dtype, args: &g.matmulArguments}
	p.axes = []batchAxis{{size: int(g.groups), strides: [4]int64{g.a.inner, g.b.inner, g.c.inner, 0}}}
	a, b := p.operand(0), p.operand(1)
	rowsOfGroup := int(g.rows)
	if by == groupsOfRows {
		rowsOfGroup /= int(g.groups)
	}
	if d.hasMaps() && dtype != kernels.F32 && g.depth > 0 && a.isMappable() && b.isMappable() {
		tile, ok := groupedTile90(g.columns)
		v := matmul90{matmulTile: tile, element: elementOf(dtype), aColumns: !a.mappable(true), bRows: !b.mappable(true), by: by}
		if ok && by.hasKernel(v.aColumns, v.bRows) {
			return p.launchGrouped90(g, v)
		}
	}
	tile := groupedTile(d.SharedMemory, rowsOfGroup)
	v := grouped80{matmul80: matmul80{matmul80Tile: tile, element: elementOf(dtype), aColumns: !a.mappable(true), bRows: !b.mappable(true)}, by: by}
	if dtype != kernels.F32 && g.groups <= mostGroups80 && a.isMappable() && b.isMappable() && by.hasKernel(v.aColumns, v.bRows) {
		arguments := &grouped80Arguments{groupedArguments: *g}
		s := &arguments.matmul80Schedule
		s.across, s.down, s.slices, s.shares = int32(tilesOf(g.columns, v.columns)), int32(tilesOf(g.rows, v.rows)), int32(tilesOf(g.depth, v.depth)), 1
		s.tiles, s.way = s.across*s.down*g.groups, p.way()
		if by == groupsOfRows {
			s.tiles = s.across * (s.down + g.groups) // no more than these
		}
		s.whole = s.tiles
		blocks := min(int(s.tiles), d.Multiprocessors*v.matmul80Tile.blocks)
		return d.launch(shapeOf(v.name(), v.name(), [3]int{blocks, 1, 1}, v.threads(), v.sharedBytes()), nil, unsafe.Pointer(arguments))
	}
	entry, down := "grouped_rows", tilesOf(g.rows, anySide)+int(g.groups)
	if by == groupsOfDepth {
		entry, down = "grouped_depths", tilesOf(g.rows, anySide)*int(g.groups)
	}
	const threads = 256
	s := shapeOf("matmul_any", entry+entrySuffixes[dtype], [3]int{down * tilesOf(g.columns, anySide), 1, 1}, threads, 0)
	return d.launch(s, nil, unsafe.Pointer(g))
}

// launchGrouped90 queues a kernel for sm_90a. Tensor maps can describe the operands.
func (p *product) launchGrouped90(g *groupedArguments, v matmul90) error {
	d, arguments := p.device, &grouped90Arguments{groupedArguments: *g}
	s := &arguments.matmulSchedule
	s.down, s.across, s.slices = int32(tilesOf(g.rows, v.rows())), int32(tilesOf(g.columns, v.columns)), int32(tilesOf(g.depth, sliceDepth))
	s.band, s.way = int32(v.band()), p.way()
	s.tiles = s.across * s.down * g.groups
	if v.by == groupsOfRows {
		s.tiles = s.across * (s.down + g.groups) // no more than these
	}
	maps, err := p.maps(v, s.way)
	if err != nil {
		return err
	}
	blocks := v.cluster * min(d.Multiprocessors/v.cluster, int(s.tiles))
	return d.launch(shapeOf(v.name(), v.name(), [3]int{blocks, 1, 1}, 384, v.sharedBytes()), maps, unsafe.Pointer(arguments))
}

// groupedSumsArguments is GroupedSumsArguments in src/grouped_sums.cu.
type groupedSumsArguments struct {
	x       readable
	out     writable
	offsets readable
	step    int64
	columns int32
	element element
}

// GroupedSumRows sums the rows of each group, whose columns blocks share.
func (d *Device) GroupedSumRows(x, offsets, out kernels.Tensor) error {
	const kernel = "grouped sum of rows"
	if err := d.checked(kernel, kernels.CheckGroupedSumRows(x, offsets, out), x.DType); err != nil {
		return err
	}
	if out.Elements() == 0 {
		return nil
	}
	if out.Shape[0] > math.MaxUint16 || max(x.Shape[0], x.Shape[1]) > math.MaxInt32 {
		return d.callError(kernel, fmt.Errorf("x is %v and out is %v, a GPU sums up to %d groups", x.Shape, out.Shape, math.MaxUint16))
	}
	g := &groupedSumsArguments{
		x: read(x), out: written(out), offsets: read(offsets), step: int64(x.Strides[0]), columns: int32(x.Shape[1]), element: elementOf(out.DType),
	}
	s := shapeOf("grouped_sums", "grouped_sums"+entrySuffixes[x.DType], [3]int{tilesOf(g.columns, 32), out.Shape[0], 1}, 256, 0)
	err := d.launch(s, nil, unsafe.Pointer(g))
	runtime.KeepAlive(x.Owner)
	runtime.KeepAlive(offsets.Owner)
	runtime.KeepAlive(out.Owner)
	return err
}
