package kernels

import (
	"fmt"
	"slices"
)

// IndexedKernels take elements out of rows by their indices, and put them back. Tensors of elements
// have one dtype and contiguous rows; indices are int32 or int64. An index outside the row is an
// error that names the position and the value.
type IndexedKernels interface {
	// TopK writes the k largest elements of each row of x, (..., n), to values, (..., k), the
	// largest first, and their indices in the row to ids, (..., k). Of equal elements the one of
	// the lowest index comes first. A NaN counts as larger than any number.
	TopK(x, values, ids Tensor) error
	// Gather writes y_j = x[ids_j] for each row: x is (..., n), ids and y are (..., k).
	Gather(x, ids, y Tensor) error
	// Scatter writes y_i = Σ x_j over the j with ids_j = i, in ascending order of j, for each row;
	// 0 where there is none. x and ids are (..., k), y is (..., n).
	Scatter(x, ids, y Tensor) error
}

// CheckTopK returns what is wrong with a call of TopK.
func CheckTopK(x, values, ids Tensor) error {
	if err := x.validateFeatures("x"); err != nil {
		return err
	}
	k := 0
	if len(values.Shape) == len(x.Shape) {
		k = values.Shape[len(x.Shape)-1]
	}
	shape, err := TopKShape(x, k)
	if err != nil {
		return err
	}
	written := indices("ids", ids)
	written.shape, written.layout = shape, writtenRows
	return checkOperands(like("x", x, x.Shape, x.DType), writtenLike("values", values, shape, x.DType), written)
}

// TopKShape is the shape of the k largest elements of each row of x.
func TopKShape(x Tensor, k int) ([]int, error) {
	last := len(x.Shape) - 1
	if k < 1 || k > x.Shape[last] {
		return nil, fmt.Errorf("k is %d, it needs to be from 1 to %d: x has shape %v", k, x.Shape[last], x.Shape)
	}
	return withRows(x.Shape, k), nil
}

// CheckGather returns what is wrong with a call of Gather, apart from the ids' values.
func CheckGather(x, ids, y Tensor) error {
	if err := ValidateIndexed("x", x, ids); err != nil {
		return err
	}
	return checkOperands(like("x", x, x.Shape, x.DType), indices("ids", ids), writtenLike("y", y, ids.Shape, x.DType))
}

// CheckScatter returns what is wrong with a call of Scatter, apart from the ids' values.
func CheckScatter(x, ids, y Tensor) error {
	if err := ValidateIndexed("y", y, ids); err != nil {
		return err
	}
	return checkOperands(like("x", x, ids.Shape, y.DType), indices("ids", ids), writtenLike("y", y, y.Shape, y.DType))
}

// ValidateIndexed returns what is wrong with indices of elements of rows, apart from their values.
func ValidateIndexed(name string, rows, ids Tensor) error {
	if err := rows.validateFeatures(name); err != nil {
		return err
	}
	if err := ids.validateIndices("ids"); err != nil {
		return err
	}
	last := len(rows.Shape) - 1
	if len(ids.Shape) != last+1 || !slices.Equal(ids.Shape[:last], rows.Shape[:last]) {
		return fmt.Errorf("ids has shape %v, it needs those axes of %s, %v, but for the last", ids.Shape, name, rows.Shape)
	}
	return nil
}

// withRows is a shape with rows of another length.
func withRows(shape []int, length int) []int {
	last := len(shape) - 1
	return append(slices.Clone(shape[:last]), length)
}
