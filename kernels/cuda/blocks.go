//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

var _ kernels.BlockKernels = (*Device)(nil)

// blockArguments is BlockArguments in src/blocks.cu.
type blockArguments struct {
	lines    lines
	lists    indexList
	fault    fault
	grid     writable
	n, count int32
}

// ListBlocks writes 1 to grid where a list has a block and 0 elsewhere. An index outside of the
// grid is reported by the next call that waits for the device.
func (d *Device) ListBlocks(lists, grid kernels.Tensor) error {
	const kernel = "list blocks"
	if err := kernels.CheckListBlocks(lists, grid); err != nil {
		return d.callError(kernel, err)
	}
	last := len(grid.Shape) - 1
	n, count := lists.Shape[last], grid.Shape[last]
	if max(n, count) > math.MaxInt32 {
		return fmt.Errorf("%s: %s: lists of %d of %d blocks, a GPU takes up to %d", d.Name(), kernel, n, count, math.MaxInt32)
	}
	l, err := linesOf(grid, lists)
	if err != nil {
		return d.failed(kernel, err)
	}
	if grid.Elements() == 0 {
		return d.queue().Spare(1)
	}
	g := &blockArguments{lines: l, lists: indexListOf(lists), grid: written(grid), n: int32(n), count: int32(count)}
	if g.fault, err = d.fault(faultListBlocks); err != nil {
		return d.failed(kernel, err)
	}
	const warpsOfBlock = elementwiseThreads / 32
	blocks := int((l.count + warpsOfBlock - 1) / warpsOfBlock)
	err = d.launch(shapeOf("blocks", "list_blocks", [3]int{blocks, 1, 1}, elementwiseThreads, 0), nil, unsafe.Pointer(g))
	runtime.KeepAlive(lists.Owner)
	runtime.KeepAlive(grid.Owner)
	return err
}
