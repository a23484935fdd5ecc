package kernels

import (
	"fmt"
	"math"
)

// validateLayout checks what a kernel needs of any tensor that it is given: a stride an axis,
// nothing negative, contiguous rows.
func (t Tensor) validateLayout(name string) error {
	if !t.IsSet() {
		return fmt.Errorf("%s is missing", name)
	}
	for _, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("%s has shape %v, no axis can be negative", name, t.Shape)
		}
	}
	if len(t.Shape) == 0 {
		return nil
	}
	return t.validateStrides(name)
}

// validateFloat checks that a tensor is there and of floats.
func (t Tensor) validateFloat(name string) error {
	if !t.IsSet() {
		return fmt.Errorf("%s is missing", name)
	}
	if !t.DType.IsFloat() {
		return fmt.Errorf("%s is %v, it needs to be of floats", name, t.DType)
	}
	return nil
}

// validateFeatures checks a tensor that holds a vector of floats for each row: at least one axis,
// and at least one element in the last.
func (t Tensor) validateFeatures(name string) error {
	if err := t.validateFloat(name); err != nil {
		return err
	}
	if err := t.validateLayout(name); err != nil {
		return err
	}
	if len(t.Shape) == 0 || t.Shape[len(t.Shape)-1] == 0 {
		return fmt.Errorf("%s has shape %v, it needs at least one element along a last axis", name, t.Shape)
	}
	return nil
}

// validateVector checks a tensor of n elements that goes with the features of another, in that
// one's dtype or the type of its statistics.
func (t Tensor) validateVector(name string, n int, dtype DType, of string) error {
	if len(t.Shape) != 1 || t.Shape[0] != n {
		return fmt.Errorf("%s has shape %v, it needs one value for each of %s's %d features", name, t.Shape, of, n)
	}
	if t.DType != dtype && t.DType != dtype.Wide() {
		return fmt.Errorf("%s is %v, with %s of %v it needs to be %s", name, t.DType, of, dtype, either([2]DType{dtype, dtype.Wide()}))
	}
	return t.validateLayout(name)
}

// validateIndices checks a tensor of indices of a shape.
func (t Tensor) validateIndices(name string) error {
	if err := t.validateLayout(name); err != nil {
		return err
	}
	if t.DType != I32 && t.DType != I64 {
		return fmt.Errorf("%s is %v, it needs to be int32 or int64", name, t.DType)
	}
	return nil
}

// validateNumber checks an option that kernels multiply by in the type that sums of dtype have.
// There it needs to be a normal number, with a factor of 4 to spare, so that its reciprocal and its
// logarithms of another base are normal too. 0 passes.
func validateNumber(name string, x float64, dtype DType) error {
	least, most := 0x1p-124, 0x1p124
	if dtype == F64 {
		least, most = 0x1p-1020, 0x1p1020
	}
	if size := math.Abs(x); x == 0 || size >= least && size <= most {
		return nil
	}
	return fmt.Errorf("%s is %.4g, with %v its magnitude needs to be from %.3g to %.3g", name, x, dtype, least, most)
}
