package kernels

// Backend is what a device must be able to compute. An op looks at where its inputs live, takes that backend, and calls
// one method; it never asks which device it is. Methods are safe for concurrent use, block until their outputs may be
// read by the next call on the same backend, and return errors that name what was wrong; they never panic on a problem
// that they cannot solve.
//
// A new kernel is one interface in its own file and one line here.
type Backend interface {
	// Name is what the device is called in messages: "cpu", "cuda:0".
	Name() string
	// Alloc returns a row-major tensor in the device's memory. Its contents are undefined.
	Alloc(dtype DType, shape ...int) (Tensor, error)

	AttentionKernels
	MatMulKernels
	ActivationKernels
	AddKernels
	CrossEntropyKernels
	DropoutKernels
	EmbeddingKernels
	LayerNormKernels
	OptimizerKernels
	ReduceKernels
	RMSNormKernels
	RoPEKernels
}
