package kernels

import "fmt"

// Embedding looks up a row of a table for each id: y_i = table[ids_i].
type Embedding struct {
	Table Tensor // (V, C)
	IDs   Tensor // (...), int32 or int64, each from 0 to V−1
}

// EmbeddingKernels look up rows, and sum the gradients of the rows that were looked up. An id outside the table is an
// error that names the position and the value.
type EmbeddingKernels interface {
	// EmbeddingForward writes y, (..., C).
	EmbeddingForward(e *Embedding, y Tensor) error
	// EmbeddingBackward computes dTable_v = Σ dy_i over the positions with ids_i = v, in ascending order of i: zeros
	// for a row that no position looks up. The table itself is not read and needs no data.
	EmbeddingBackward(e *Embedding, dy, dTable Tensor) error
}

// OutputShape returns the shape of y: the ids' with the table's row length behind it.
func (e *Embedding) OutputShape() []int {
	return append(append([]int(nil), e.IDs.Shape...), e.Table.Shape[1])
}

// Validate returns what is wrong with the problem, apart from the ids' values, naming the argument, what it was and what
// it needs to be, or nil.
func (e *Embedding) Validate() error {
	if err := e.Table.validateLayout("table"); err != nil {
		return err
	}
	if len(e.Table.Shape) != 2 || e.Table.Shape[1] == 0 {
		return fmt.Errorf("table has shape %v, it needs two axes (vocabulary, features)", e.Table.Shape)
	}
	return e.IDs.validateIndices("ids")
}
