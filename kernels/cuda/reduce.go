//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Sum computes the sum of all elements.
func (d *Device) Sum(x, out kernels.Tensor) error { return d.sum("sum", x, out, 1) }

// Mean computes the mean of all elements.
func (d *Device) Mean(x, out kernels.Tensor) error {
	return d.sum("mean", x, out, float32(1/float64(x.Elements())))
}

// sum adds in float64, in an order that depends on the shape and the device alone.
func (d *Device) sum(kernel string, x, out kernels.Tensor, factor float32) error {
	if err := d.checked(kernel, kernels.CheckReduction(x, out), x.DType); err != nil {
		return err
	}
	e := &elementwise{}
	if err := e.describe(nil, input{"x", x}); err != nil {
		return d.failed(kernel, err)
	}
	blocks := d.elementwiseBlocks(e.count)
	parts, err := d.scratch(max(1, blocks) * 8)
	if err != nil {
		return d.failed(kernel, err)
	}
	defer parts.Free()
	e.data[1] = parts.At
	if blocks > 0 {
		s := shapeOf("reduce", "sum"+entrySuffixes[x.DType], [3]int{blocks, 1, 1}, elementwiseThreads, 0)
		if err := d.launch(s, nil, unsafe.Pointer(e)); err != nil {
			return err
		}
	}
	total := &elementwise{data: [5]address{written(out).Address(), parts.At}, count: int64(blocks), factor: factor}
	err = d.launch(shapeOf("reduce", "sum_f64", [3]int{1, 1, 1}, elementwiseThreads, 0), nil, unsafe.Pointer(total))
	runtime.KeepAlive(x.Owner)
	runtime.KeepAlive(out.Owner)
	return err
}

// Broadcast writes value·factor to every element of x.
func (d *Device) Broadcast(value kernels.Tensor, factor float64, x kernels.Tensor) error {
	const kernel = "broadcast"
	if err := d.checked(kernel, kernels.CheckBroadcast(value, factor, x), x.DType); err != nil {
		return err
	}
	e := &elementwise{factor: float32(factor)}
	if err := e.describe([]output{{"x", x}}); err != nil || e.count == 0 {
		return d.failed(kernel, err)
	}
	e.data[1] = address(read(value))
	suffix := entrySuffixes[x.DType]
	s := shapeOf("elementwise"+suffix, "broadcast"+suffix, [3]int{d.elementwiseBlocks(e.count), 1, 1}, elementwiseThreads, 0)
	err := d.launch(s, nil, unsafe.Pointer(e))
	runtime.KeepAlive(x.Owner)
	runtime.KeepAlive(value.Owner)
	return err
}

// sumRowsArguments is SumRowsArguments in src/reduce.cu.
type sumRowsArguments struct {
	lines lines
	x     readable
	parts address
}

// sumPartsArguments is SumPartsArguments in src/reduce.cu.
type sumPartsArguments struct {
	parts          [3]address
	out            [3]writable
	element        [3]element
	accumulate     int32
	step           int64
	count, columns int32
}

// SumRows computes out_j = Σ_i x_ij over all axes of x but the last, or adds it to out.
func (d *Device) SumRows(x, out kernels.Tensor, accumulate bool) error {
	const kernel = "sum rows"
	if err := d.checked(kernel, kernels.CheckSumRows(x, out), x.DType); err != nil {
		return err
	}
	l, err := linesOf(x)
	if err != nil || l.length == 0 {
		return d.failed(kernel, err)
	}
	g := &sumRowsArguments{lines: l, x: read(x)}
	entry, grid := d.columnGrid("sum_rows", x.DType, &l)
	parts, err := d.scratch(max(1, grid[1]) * int(l.length) * 4)
	if err != nil {
		return d.failed(kernel, err)
	}
	defer parts.Free()
	g.parts = parts.At
	if grid[1] > 0 {
		if err := d.launch(shapeOf("reduce", entry+entrySuffixes[x.DType], grid, 256, 0), nil, unsafe.Pointer(g)); err != nil {
			return err
		}
	}
	err = d.sumParts(l.length, grid[1], accumulate, columnSum{parts.At, out})
	runtime.KeepAlive(x.Owner)
	return err
}

// columnGrid cuts rows into blocks of columns, and into parts that fill the device. The name of the
// entry point is the one for the rows' alignment.
func (d *Device) columnGrid(entry string, dtype kernels.DType, l *lines) (string, [3]int) {
	const warps, lanes, fewestTurns = 8, 32, 4
	columns := lanes
	if l.aligned != 0 {
		columns *= accessBytes / dtype.Size()
	} else {
		entry += "_any"
	}
	blocks := (int(l.length) + columns - 1) / columns
	most := (l.count + warps*fewestTurns - 1) / (warps * fewestTurns)
	parts := min(most, int64(max(1, d.Multiprocessors*4/blocks)))
	return entry, [3]int{blocks, int(parts), 1}
}

// columnSum is parts of the sums of columns, and where they go.
type columnSum struct {
	parts address
	out   kernels.Tensor
}

// sumParts adds parts, of up to three tensors, in one launch.
func (d *Device) sumParts(columns int32, count int, accumulate bool, sums ...columnSum) error {
	g := &sumPartsArguments{step: int64(columns), count: int32(count), columns: columns}
	if accumulate {
		g.accumulate = 1
	}
	for i, s := range sums {
		g.parts[i], g.out[i], g.element[i] = s.parts, written(s.out), elementOf(s.out.DType)
	}
	grid := [3]int{(int(columns) + 31) / 32, len(sums), 1}
	err := d.launch(shapeOf("reduce", "sum_parts", grid, 1024, 0), nil, unsafe.Pointer(g))
	runtime.KeepAlive(sums)
	return err
}
