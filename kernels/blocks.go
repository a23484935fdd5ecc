package kernels

import "fmt"

// BlockKernels is a device that makes of lists of blocks of keys, one for each block of queries, a
// table that a mask looks up.
type BlockKernels interface {
	// ListBlocks writes 1 to grid where a list has a block and 0 elsewhere. lists is int32 or
	// int64, (..., n): indices of the last axis of grid, (..., count), which is int32 and
	// row-major. A block that a list has several times counts once, and −1 is no block. Another
	// index outside of the grid is an error that names its place.
	ListBlocks(lists, grid Tensor) error
}

// CheckListBlocks returns what is wrong with a call of ListBlocks, apart from the indices.
func CheckListBlocks(lists, grid Tensor) error {
	if err := lists.validateIndices("lists"); err != nil {
		return err
	}
	if len(lists.Shape) == 0 || len(grid.Shape) != len(lists.Shape) {
		return fmt.Errorf("grid has shape %v, it needs as many axes as lists, which has shape %v", grid.Shape, lists.Shape)
	}
	return checkOperands(indices("lists", lists), operand{name: "grid", tensor: grid,
		shape: withRows(lists.Shape, grid.Shape[len(grid.Shape)-1]), dtypes: [2]DType{I32}, layout: dense})
}
