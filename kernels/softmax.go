package kernels

// SoftmaxKernels compute probabilities. Tensors are (..., V), of one dtype, with contiguous rows.
// 16-bit tensors are computed in float32 and rounded once.
type SoftmaxKernels interface {
	// SoftmaxForward computes y_v = exp x_v / Σ_u exp x_u for each row; y may be x itself.
	SoftmaxForward(x, y Tensor) error
	// SoftmaxBackward computes dx_v = y_v·(dy_v − Σ_u y_u·dy_u) from what the forward kernel wrote;
	// dx may be dy itself.
	SoftmaxBackward(y, dy, dx Tensor) error
}

// CheckSoftmaxForward returns what is wrong with a call of SoftmaxForward.
func CheckSoftmaxForward(x, y Tensor) error { return CheckLogSoftmaxForward(x, y) }

// CheckSoftmaxBackward returns what is wrong with a call of SoftmaxBackward.
func CheckSoftmaxBackward(y, dy, dx Tensor) error { return CheckLogSoftmaxBackward(y, dy, dx) }
