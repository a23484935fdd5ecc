package kernels

import (
	"fmt"
	"math"
)

// CheckMul returns what is wrong with a call of Mul.
func CheckMul(a, b, c Tensor) error {
	return checkAlike(a, "a", operandList{{"a", a}, {"b", b}}, operandList{{"c", c}})
}

// CheckMulScalar returns what is wrong with a call of MulScalar.
func CheckMulScalar(factor float64, x, y Tensor) error {
	if err := ValidateFactor(factor, x.DType); err != nil {
		return err
	}
	return checkAlike(x, "x", operandList{{"x", x}}, operandList{{"y", y}})
}

// MulKernels multiply elements. All tensors of a call have one shape and dtype, and contiguous
// rows; an output may be one of the inputs. 16-bit elements are multiplied in float32 and rounded
// once.
type MulKernels interface {
	// Mul computes c = a·b, element by element.
	Mul(a, b, c Tensor) error
	// MulScalar computes y = factor·x.
	MulScalar(factor float64, x, y Tensor) error
}

// ValidateFactor returns what is wrong with the factor of MulScalar of tensors of that type.
func ValidateFactor(factor float64, dtype DType) error {
	if math.IsNaN(factor) || math.IsInf(factor, 0) {
		return fmt.Errorf("factor is %v, it needs to be finite", factor)
	}
	return validateNumber("factor", factor, dtype)
}
