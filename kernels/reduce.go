package kernels

import (
	"fmt"
	"math"
)

// CheckReduction returns what is wrong with a call of Sum or Mean.
func CheckReduction(x, out Tensor) error {
	if err := x.validateFloat("x"); err != nil {
		return err
	}
	return checkOperands(like("x", x, x.Shape, x.DType), wide("out", out, scalar, x.DType))
}

// CheckBroadcast returns what is wrong with a call of Broadcast.
func CheckBroadcast(value Tensor, factor float64, x Tensor) error {
	if math.IsNaN(factor) {
		return fmt.Errorf("factor is %v, it needs to be a number", factor)
	}
	if err := x.validateFloat("x"); err != nil {
		return err
	}
	return checkOperands(wide("value", value, scalar, x.DType), writtenLike("x", x, x.Shape, x.DType))
}

// ReduceKernels reduce a tensor to a scalar, a tensor without axes, and broadcast a scalar to a
// tensor. Sums are added in an order that depends on the shape alone, and about as exact as in
// float64. The scalar is float32 beside a 16-bit tensor, and of its dtype otherwise.
type ReduceKernels interface {
	// Sum computes the sum of all elements of x; of none, 0.
	Sum(x, out Tensor) error
	// Mean computes the sum divided by the number of elements; of none, NaN.
	Mean(x, out Tensor) error
	// Broadcast writes value·factor, value being a scalar, to every element of x: the gradient of
	// Sum with a factor of 1, of Mean with 1/n.
	Broadcast(value Tensor, factor float64, x Tensor) error
}
