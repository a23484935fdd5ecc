package kernels

// AddKernels add tensors: the residual connections of a transformer.
type AddKernels interface {
	// Add computes c = a + b. All three have one shape and dtype, and contiguous rows; c may be a or b.
	Add(a, b, c Tensor) error
}
