package kernels

import (
	"fmt"
	"math"
)

// CheckSoftCap returns what is wrong with a call of SoftCap.
func CheckSoftCap(cap float64, x, y Tensor) error {
	if err := ValidateCap(cap, x.DType); err != nil {
		return err
	}
	return checkAlike(x, "x", operandList{{"x", x}}, operandList{{"y", y}})
}

// CheckSoftCapBackward returns what is wrong with a call of SoftCapBackward.
func CheckSoftCapBackward(cap float64, y, dy, dx Tensor) error {
	if err := ValidateCap(cap, y.DType); err != nil {
		return err
	}
	return checkAlike(y, "y", operandList{{"y", y}, {"dy", dy}}, operandList{{"dx", dx}})
}

// SoftCapKernels bound every element to ±cap, smoothly. All tensors of a call have one shape and
// dtype, and contiguous rows; an output may be one of the inputs. 16-bit tensors are computed in
// float32 and rounded once.
type SoftCapKernels interface {
	// SoftCap computes y = cap·tanh(x/cap).
	SoftCap(cap float64, x, y Tensor) error
	// SoftCapBackward computes dx = dy·(1 − (y/cap)²).
	SoftCapBackward(cap float64, y, dy, dx Tensor) error
}

// ValidateCap returns what is wrong with the bound of SoftCap of tensors of that type.
func ValidateCap(cap float64, dtype DType) error {
	if !(cap > 0) || math.IsInf(cap, 0) {
		return fmt.Errorf("cap is %v, it needs to be positive", cap)
	}
	return validateNumber("cap", cap, dtype)
}
