package cpu

import "github.com/stheno-ml/stheno/kernels"

var _ kernels.BlockKernels = (*Backend)(nil)

// ListBlocks writes 1 to grid where a list has a block and 0 elsewhere.
func (b *Backend) ListBlocks(lists, grid kernels.Tensor) error {
	const kernel = "list blocks"
	if err := checked(kernel, kernels.CheckListBlocks(lists, grid)); err != nil {
		return err
	}
	n, count := lists.Shape[len(lists.Shape)-1], grid.Shape[len(grid.Shape)-1]
	chosen := make([]int64, lists.Elements())
	if err := readIndices(chosen, kernel, "lists", lists, indexRange{count, &noIndex, "no block"}); err != nil {
		return err
	}
	out := kernels.Host[int32](grid)
	clear(out)
	for at, i := range chosen {
		if i >= 0 {
			out[at/n*count+int(i)] = 1
		}
	}
	return nil
}
