//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// check finds what the device cannot do of a valid problem, whose heads may be so large, and
// decides what to compute in.
func (c *attention) check(largest int) error {
	a := c.Attention
	if what := unserved(a, largest); what != "" {
		return kernels.Unsupported{Device: c.device.Name(), What: what}
	}
	c.dtype, c.element = a.Q.DType, elementOf(a.Q.DType)
	switch {
	case a.Q.DType != kernels.F32:
	case a.Precision == kernels.PrecisionBFloat16:
		c.dtype, c.element = kernels.BF16, elementBF16
	case a.Precision == kernels.PrecisionFloat16:
		c.dtype, c.element = kernels.F16, elementF16
	case a.Precision == kernels.PrecisionTF32:
		c.element = elementTF32
	}
	return nil
}

// unserved names what the kernels do not know of a valid problem, or returns "".
func unserved(a *kernels.Attention, largest int) string {
	const mostRows = 1 << 30
	switch {
	case a.Bias.IsSet() && isSlopedElsewhere(a):
		return "attention of a part of a larger problem with slopes and a bias"
	case slices.ContainsFunc(a.Places, func(p kernels.Place) bool { return max(p.Sequence, p.Row, p.Column) > mostRows }):
		return fmt.Sprintf("attention of a part of a larger problem with more than %d sequences or rows", mostRows)
	case len(a.Tables) > mostTables || axesOf(a.Tables) > mostAxes:
		return fmt.Sprintf("attention that looks up more than %d tables, or tables of more than %d axes together", mostTables, mostAxes)
	case slices.ContainsFunc(a.Tables, isLong):
		return "attention that looks up tables of more than 2³¹ elements"
	case entrySuffixes[a.Q.DType] == "":
		return fmt.Sprintf("attention of %v", a.Q.DType)
	case max(a.Q.Shape[3], a.V.Shape[3]) > largest:
		return fmt.Sprintf("attention with heads of more than %d", largest)
	case max(a.Q.Shape[0]*a.Q.Shape[1], a.Q.Shape[2], a.K.Shape[0]*a.K.Shape[1], a.K.Shape[2]) > mostRows:
		return fmt.Sprintf("attention with more than %d heads or rows", mostRows)
	}
	return ""
}

// isLong reports whether offsets in a tensor need more than 32 bits.
func isLong(t kernels.Tensor) bool {
	last := 0
	for axis, n := range t.Shape {
		last += (n - 1) * t.Strides[axis]
	}
	return last > math.MaxInt32
}
