package kernels

// Backend is what a device must be able to do and to compute. An op looks at where its inputs live,
// takes that backend, and calls one method. It never asks which device it is.
//
// Methods are safe for concurrent use. They validate a problem before they touch memory, and return
// errors that name what was wrong. They never panic on a problem that they cannot solve: what a
// device cannot compute is an [Unsupported].
//
// The tensors of a kernel are float32 or float64, or bfloat16 or float16. What a kernel sums up (a
// logsumexp, the statistics of a norm, a loss) has the type that [DType.Wide] gives for them:
// float32 beside 16-bit tensors. Each kernel's own file says which of its tensors may differ from
// the others.
//
// A new kernel is one interface in its own file and one line here.
type Backend interface {
	Device

	AttentionKernels
	MatMulKernels
	MergeKernels
	ActivationKernels
	AddKernels
	BinaryTargetKernels
	ChoiceKernels
	CrossEntropyKernels
	DropoutKernels
	EmbeddingKernels
	FunctionKernels
	GateKernels
	GroupedKernels
	IndexedKernels
	KeyMaskKernels
	NormKernels
	LogSoftmaxKernels
	MulKernels
	OptimizerKernels
	PositionKernels
	ReduceKernels
	RoPEKernels
	RouteKernels
	ScoresKernels
	SoftCapKernels
	SoftmaxKernels
}

// GradientsInPlace is a [Backend] that can write the gradients of a [GateGradient] over what they
// are of. Elsewhere, and where it cannot, C and DUp overlap no input.
type GradientsInPlace interface {
	// GateGradientsInPlace reports whether a product with such an epilogue may have C where Z is,
	// and DUp where Up is. It goes by shapes, strides and types.
	GateGradientsInPlace(m *MatMul, c Tensor) bool
}

// Borrower is a [Backend] whose kernels borrow large memory of the device for a call. It tells how
// much, in bytes, by shapes and types alone.
type Borrower interface {
	// Occupies is how many bytes of the device a tensor of so many takes.
	Occupies(bytes int) int
	MatMulBorrows(m *MatMul) int
	LinearCrossEntropyBorrows(c *LinearCrossEntropy, out LinearCrossEntropyOutputs) int
}
