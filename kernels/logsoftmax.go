package kernels

// LogSoftmaxKernels compute the logarithms of probabilities. Tensors are (..., V), of one dtype,
// with contiguous rows. 16-bit tensors are computed in float32 and rounded once.
type LogSoftmaxKernels interface {
	// LogSoftmaxForward computes y_v = x_v − log Σ_u exp x_u for each row; y may be x itself.
	LogSoftmaxForward(x, y Tensor) error
	// LogSoftmaxBackward computes dx_v = dy_v − exp(y_v)·Σ_u dy_u from what the forward kernel
	// wrote; dx may be dy itself.
	LogSoftmaxBackward(y, dy, dx Tensor) error
}

// CheckLogSoftmaxForward returns what is wrong with a call of LogSoftmaxForward.
func CheckLogSoftmaxForward(x, y Tensor) error {
	if err := x.validateFeatures("x"); err != nil {
		return err
	}
	return checkAlike(x, "x", operandList{{"x", x}}, operandList{{"y", y}})
}

// CheckLogSoftmaxBackward returns what is wrong with a call of LogSoftmaxBackward.
func CheckLogSoftmaxBackward(y, dy, dx Tensor) error {
	if err := y.validateFeatures("y"); err != nil {
		return err
	}
	return checkAlike(y, "y", operandList{{"y", y}, {"dy", dy}}, operandList{{"dx", dx}})
}
