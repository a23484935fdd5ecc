package kernels

import "fmt"

// DropoutKernels drop elements of a tensor.
type DropoutKernels interface {
	// Dropout computes y = x·keep/(1−p): with x seen as rows of its last axis, the element in row r and column c is
	// kept if d.Keep(0, r, c). The backward kernel is the same, from dy to dx. y may be x itself; x and y have one
	// shape, one dtype and contiguous rows.
	Dropout(d Dropout, x, y Tensor) error
}

// Check returns what is wrong with a call of Dropout.
func (d Dropout) Check(x, y Tensor) error {
	if err := d.Validate(); err != nil {
		return err
	}
	return checkAlike(x, "x", operandList{{"x", x}}, operandList{{"y", y}})
}

// Validate returns an error unless the probability can be one.
func (d Dropout) Validate() error {
	if !(d.P >= 0 && d.P < 1) {
		return fmt.Errorf("dropout is %v, it needs to be in [0, 1)", d.P)
	}
	return nil
}
