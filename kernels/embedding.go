package kernels

import "fmt"

// Embedding looks up a row of a table for each id: y_i = table[ids_i].
type Embedding struct {
	Table Tensor // (V, C), of any floats, or packed
	IDs   Tensor // (...), int32 or int64, each from 0 to V−1

	// Accumulate says that EmbeddingBackward adds to what dTable holds.
	Accumulate bool
}

// EmbeddingKernels look up rows, and sum the gradients of the rows that were looked up. An id
// outside the table is an error that names the position and the value.
type EmbeddingKernels interface {
	// EmbeddingForward writes y, (..., C), of the table's dtype, or of a 16-bit one beside a
	// float32 table. Beside a packed table it is float32.
	EmbeddingForward(e *Embedding, y Tensor) error
	// EmbeddingBackward computes dTable_v = Σ dy_i over the positions with ids_i = v, in ascending
	// order of i: zeros for a row that no position looks up. dTable is of dy's dtype, or float32
	// beside a 16-bit dy; sums are float32 in either case. With Accumulate each sum, once it is
	// complete, is added to what dTable holds. The table itself is not read and needs no data.
	EmbeddingBackward(e *Embedding, dy, dTable Tensor) error
}

// OutputShape returns the shape of y: the ids' with the table's row length behind it.
func (e *Embedding) OutputShape() []int {
	return append(append([]int(nil), e.IDs.Shape...), e.Table.Shape[1])
}

// CheckForward returns what is wrong with a call of EmbeddingForward, apart from the ids' values.
func (e *Embedding) CheckForward(y Tensor) error {
	if err := e.Validate(); err != nil {
		return err
	}
	out := writtenLike("y", y, e.OutputShape(), e.Table.DType)
	if e.Table.DType.IsPacked() {
		out.dtypes[0] = F32
	}
	if e.Table.DType == F32 && (y.DType == BF16 || y.DType == F16) {
		out.dtypes[1] = y.DType
	}
	return checkOperands(like("table", e.Table, e.Table.Shape, e.Table.DType), e.ids(), out)
}

// CheckBackward returns what is wrong with a call of EmbeddingBackward, apart from the ids' values.
func (e *Embedding) CheckBackward(dy, dTable Tensor) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if err := dy.validateFloat("dy"); err != nil {
		return err
	}
	sums := writtenLike("dTable", dTable, e.Table.Shape, dy.DType)
	sums.dtypes[1] = dy.DType.Wide()
	return checkOperands(e.ids(), like("dy", dy, e.OutputShape(), dy.DType), sums)
}

// ids is the operand of the ids.
func (e *Embedding) ids() operand { return indices("ids", e.IDs) }

// Validate returns what is wrong with the problem, apart from the ids' values, naming the argument,
// what it was and what it needs to be, or nil.
func (e *Embedding) Validate() error {
	if e == nil {
		return errNoProblem
	}
	if e.Table.DType.IsPacked() {
		if err := e.Table.validatePacked("table"); err != nil {
			return err
		}
	} else if err := e.Table.validateFloat("table"); err != nil {
		return err
	}
	if err := e.Table.validateLayout("table"); err != nil {
		return err
	}
	if len(e.Table.Shape) != 2 || e.Table.Shape[1] == 0 {
		return fmt.Errorf("table has shape %v, it needs two axes (vocabulary, features)", e.Table.Shape)
	}
	return e.IDs.validateIndices("ids")
}
