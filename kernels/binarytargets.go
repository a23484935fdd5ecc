package kernels

// CheckBinaryTargets returns what is wrong with a call of BinaryTargets.
func CheckBinaryTargets(targets, y Tensor) error {
	return checkAlike(targets, "targets", operandList{{"targets", targets}}, operandList{{"y", y}})
}

// BinaryTargetKernels look at the targets of a binary cross-entropy.
type BinaryTargetKernels interface {
	// BinaryTargets copies targets to y, which may be targets, and is an error where one is not
	// from 0 to 1. A device may tell of it when it is next waited for.
	BinaryTargets(targets, y Tensor) error
}
