package kernels

// CheckAdd returns what is wrong with a call of Add.
func CheckAdd(a, b, c Tensor) error {
	return checkAlike(a, "a", operandList{{"a", a}, {"b", b}}, operandList{{"c", c}})
}

// AddKernels add tensors: the residual connections of a transformer.
type AddKernels interface {
	// Add computes c = a + b. All three have one shape and dtype, and contiguous rows; c may be a or b.
	// 16-bit elements are added in float32 and rounded once.
	Add(a, b, c Tensor) error
}
