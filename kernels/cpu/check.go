package cpu

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
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
	t := o.tensor
	if !slices.Equal(t.Shape, o.shape) || len(t.Strides) != len(t.Shape) {
		return fmt.Errorf("%s has shape %v and strides %v, it needs shape %v", o.name, t.Shape, t.Strides, o.shape)
	}
	for _, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("%s has shape %v, no axis can be negative", o.name, t.Shape)
		}
	}
	stride := 1
	for axis := len(t.Shape) - 1; axis >= 0; axis-- {
		if t.Strides[axis] < 0 {
			return fmt.Errorf("%s has strides %v, none can be negative", o.name, t.Strides)
		}
		fixed := o.kind >= dense || o.kind != strided && axis == len(t.Shape)-1 && axis > 0
		if fixed && t.Shape[axis] > 1 && t.Strides[axis] != stride {
			return fmt.Errorf("%s has strides %v for shape %v, it needs a stride of %d on axis %d", o.name, t.Strides, t.Shape, stride, axis)
		}
		stride *= t.Shape[axis]
	}
	if o.kind == written && t.Elements() > 0 && overlaps(t) {
		return fmt.Errorf("%s has strides %v for shape %v, so that elements of it would lie in the same place", o.name, t.Strides, t.Shape)
	}
	if t.Data == nil && t.Elements() > 0 {
		return fmt.Errorf("%s has shape %v but no data", o.name, t.Shape)
	}
	return nil
}

// overlaps tells whether elements share a place: whether some axis steps less far than the axes inside it reach.
func overlaps(t kernels.Tensor) bool {
	axes := make([]int, 0, len(t.Shape))
	for axis, d := range t.Shape {
		if d > 1 {
			axes = append(axes, axis)
		}
	}
	slices.SortFunc(axes, func(a, b int) int { return t.Strides[a] - t.Strides[b] })
	reach := 0
	for _, axis := range axes {
		if t.Strides[axis] <= reach {
			return true
		}
		reach += (t.Shape[axis] - 1) * t.Strides[axis]
	}
	return false
}
