package kernels

// AddKernels add tensors: residual connections, parts of gradients, and the gradients of several
// runs. A product that accumulates adds by itself ([MatMul]).
type AddKernels interface {
	// Add computes c = a + b. All three have one shape and contiguous rows; c may be a or b. They
	// have one dtype, or a and c are float32 and b has 16 bits. 16-bit elements are added in
	// float32 and rounded once.
	Add(a, b, c Tensor) error
	// Accumulate adds each tensor of x to the one in its place in sums, all in one pass. The lists
	// are as those of [OptimizerKernels].
	Accumulate(sums, x []Tensor) error
}

// CheckAdd returns what is wrong with a call of Add.
func CheckAdd(a, b, c Tensor) error {
	if err := a.validateFloat("a"); err != nil {
		return err
	}
	left, right, sum := like("a", a, a.Shape, a.DType), like("b", b, a.Shape, a.DType), writtenLike("c", c, a.Shape, a.DType)
	if a.DType == F32 && b.DType.Wide() == F32 {
		right.dtypes[1] = b.DType
	}
	return checkOperands(left, right, sum)
}

// CheckAccumulate returns what is wrong with a call of Accumulate.
func CheckAccumulate(sums, x []Tensor) error {
	return checkLists(tensorList{"sums", sums}, tensorList{"x", x})
}
