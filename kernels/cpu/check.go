package cpu

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// operand is a tensor beside the shape that it needs.
type operand struct {
	name   string
	tensor kernels.Tensor
	shape  []int
	kind   operandKind
}

type operandKind int

const (
	needed      operandKind = iota // rows may lie anywhere, each is contiguous
	optional                       // the same, or left out
	strided                        // any strides on any axis
	written                        // as needed, and no two elements may lie in the same place
	dense                          // row-major, or left out
	denseNeeded                    // row-major
)

// checked returns the error of a call of a kernel: what the kernel's own check found, that its first tensor has a dtype
// that this backend does not compute in, or that the environment asks for instructions that there are not.
func checked(kernel string, err error, name string, lead kernels.Tensor) error {
	if err == nil {
		err = simd.Check()
	}
	switch {
	case err != nil:
		return fmt.Errorf("cpu: %s: %w", kernel, err)
	case lead.DType != kernels.F32 && lead.DType != kernels.F64:
		return fmt.Errorf("cpu: %s: %s is %v, this backend computes float32 and float64", kernel, name, lead.DType)
	}
	return nil
}

// checkOperands validates the tensors of a call before it touches memory. The first is there, and its dtype, which
// must be one that this backend computes in, is what all others need.
func checkOperands(kernel string, operands ...operand) error {
	lead := operands[0]
	if d := lead.tensor.DType; d != kernels.F32 && d != kernels.F64 {
		return fmt.Errorf("cpu: %s: %s is %v, this backend computes float32 and float64", kernel, lead.name, d)
	}
	for _, o := range operands {
		if !o.tensor.IsSet() && (o.kind == optional || o.kind == dense) {
			continue
		}
		if !o.tensor.IsSet() {
			return fmt.Errorf("cpu: %s: %s is missing, it needs shape %v", kernel, o.name, o.shape)
		}
		if o.tensor.DType != lead.tensor.DType {
			return fmt.Errorf("cpu: %s: %s is %v, it needs %s's %v", kernel, o.name, o.tensor.DType, lead.name, lead.tensor.DType)
		}
		if err := o.checkLayout(); err != nil {
			return fmt.Errorf("cpu: %s: %w", kernel, err)
		}
	}
	return nil
}

// checkLayout is what an operand needs whatever its dtype.
func (o operand) checkLayout() error {
	layout := [...]kernels.Layout{needed: kernels.Rows, optional: kernels.Rows, strided: kernels.Strided,
		written: kernels.WrittenRows, dense: kernels.Dense, denseNeeded: kernels.Dense}[o.kind]
	return (&kernels.Operand{Name: o.name, Tensor: o.tensor, Shape: o.shape, Layout: layout}).CheckLayout()
}
