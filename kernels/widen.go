package kernels

import (
	"fmt"
	"slices"
)

// Widener is a [Backend] that can make floats of packed matrices.
type Widener interface {
	// WidensFor reports whether a product of so many rows by a packed matrix begins with that, so
	// that several such products are faster with floats that are there.
	WidensFor(rows int) bool
	// Widen writes a packed matrix into to, a matrix of 16 bits or float32 that lies as it does:
	// rows end to end, or the transpose of that. A number is rounded once.
	Widen(packed, to Tensor) error
}

// CheckWiden returns what is wrong with a call of Widen.
func CheckWiden(packed, to Tensor) error {
	if !packed.DType.IsPacked() {
		return fmt.Errorf("packed is %v, it needs to be a packed matrix", packed.DType)
	}
	if err := packed.validatePacked("packed"); err != nil {
		return err
	}
	if !to.DType.IsFloat() || to.DType == F64 || !slices.Equal(to.Shape, packed.Shape) || !slices.Equal(to.Strides, packed.Strides) {
		return fmt.Errorf("to is %v of shape %v and strides %v, it needs to be floats of at most 32 bits with packed's shape %v and strides %v",
			to.DType, to.Shape, to.Strides, packed.Shape, packed.Strides)
	}
	return nil
}
