package kernels

// ReduceKernels reduce a tensor to a scalar, a tensor without axes, and broadcast a scalar to a tensor. Sums are added
// in an order that depends on the shape alone, and about as exact as in float64.
type ReduceKernels interface {
	// Sum computes the sum of all elements of x; of none, 0.
	Sum(x, out Tensor) error
	// Mean computes the sum divided by the number of elements; of none, NaN.
	Mean(x, out Tensor) error
	// Broadcast writes value·factor, value being a scalar, to every element of x: the gradient of Sum with a factor of
	// 1, of Mean with 1/n.
	Broadcast(value Tensor, factor float64, x Tensor) error
}
