package kernels

import (
	"fmt"
	"math"
	"strings"
)

// Function is a function that is applied to every element, without a parameter:
//
//	Exp   eˣ
//	Log   the natural logarithm of x
//	Sqrt  √x
//	Abs   |x|, whose slope at 0 is 0
type Function int

// The values of [Function], which says what each computes.
const (
	Exp Function = iota
	Log
	Sqrt
	Abs
)

var functionNames = [...]string{"Exp", "Log", "Sqrt", "Abs"}

// Functions lists all functions.
func Functions() []Function {
	list := make([]Function, len(functionNames))
	for i := range list {
		list[i] = Function(i)
	}
	return list
}

func (f Function) String() string {
	if f >= 0 && int(f) < len(functionNames) {
		return functionNames[f]
	}
	return fmt.Sprintf("Function(%d)", int(f))
}

// Validate returns an error unless the function is one of the known ones.
func (f Function) Validate() error {
	if last := len(functionNames) - 1; f < 0 || int(f) > last {
		return fmt.Errorf("function is %d, it needs to be %s or %s", int(f), strings.Join(functionNames[:last], ", "), functionNames[last])
	}
	return nil
}

// CheckForward returns what is wrong with a call of Apply.
func (f Function) CheckForward(x, y Tensor) error {
	if err := f.Validate(); err != nil {
		return err
	}
	return checkAlike(x, "x", operandList{{"x", x}}, operandList{{"y", y}})
}

// CheckBackward returns what is wrong with a call of ApplyBackward.
func (f Function) CheckBackward(x, dy, dx Tensor) error {
	if err := f.Validate(); err != nil {
		return err
	}
	return checkAlike(x, "x", operandList{{"x", x}, {"dy", dy}}, operandList{{"dx", dx}})
}

// CheckAddScalar returns what is wrong with a call of AddScalar.
func CheckAddScalar(number float64, x, y Tensor) error {
	if err := ValidateSummand(number); err != nil {
		return err
	}
	return checkAlike(x, "x", operandList{{"x", x}}, operandList{{"y", y}})
}

// ValidateSummand returns what is wrong with the number of AddScalar.
func ValidateSummand(number float64) error {
	if math.IsNaN(number) || math.IsInf(number, 0) {
		return fmt.Errorf("number is %v, it needs to be finite", number)
	}
	return nil
}

// CheckDiv returns what is wrong with a call of Div.
func CheckDiv(a, b, c Tensor) error {
	return checkAlike(a, "a", operandList{{"a", a}, {"b", b}}, operandList{{"c", c}})
}

// CheckDivBackward returns what is wrong with a call of DivBackward.
func CheckDivBackward(a, b, dc, da, db Tensor) error {
	return checkAlike(a, "a", operandList{{"a", a}, {"b", b}, {"dc", dc}}, operandList{{"da", da}, {"db", db}})
}

// FunctionKernels compute functions of elements, quotients, and sums with a number. All tensors of
// a call have one shape and dtype, and contiguous rows; an output may be one of the inputs. 16-bit
// elements are computed in float32 and rounded once.
type FunctionKernels interface {
	// Apply computes y = f(x).
	Apply(f Function, x, y Tensor) error
	// ApplyBackward computes dx = dy·f'(x).
	ApplyBackward(f Function, x, dy, dx Tensor) error
	// AddScalar computes y = x + number.
	AddScalar(number float64, x, y Tensor) error
	// Div computes c = a/b, element by element.
	Div(a, b, c Tensor) error
	// DivBackward computes da = dc/b and db = −dc·a/b².
	DivBackward(a, b, dc, da, db Tensor) error
}
