//go:build gpu

package cuda

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// tensorChecks holds what is wrong with the first tensor that is not what it needs to be.
type tensorChecks struct{ err error }

func (c *tensorChecks) check(name string, t kernels.Tensor, shape []int, dtype kernels.DType, kind tensorKind) {
	if c.err == nil {
		c.err = checkTensor(name, t, shape, dtype, kind)
	}
}

type tensorKind int

const (
	readRows tensorKind = iota // each row contiguous
	writtenRows
	denseKind    // row-major
	optionalKind // row-major, or left out
)

// check finds what is wrong with the problem or the tensors that go with it, and decides what to compute in.
func (c *attention) check(more func(*tensorChecks)) error {
	a := c.Attention
	if err := a.Validate(); err != nil {
		return err
	}
	if a.Score != nil || a.Mask != nil {
		return kernels.Unsupported{Device: c.device.Name(), What: "attention with a score or a mask of one's own"}
	}
	c.dtype, c.element = a.Q.DType, elementOf(a.Q.DType)
	switch {
	case a.Q.DType == kernels.BF16 || a.Q.DType == kernels.F16:
	case a.Q.DType != kernels.F32:
		return fmt.Errorf("q is %v, a GPU computes float32, bfloat16 and float16", a.Q.DType)
	case a.Precision == kernels.PrecisionBFloat16:
		c.dtype, c.element = kernels.BF16, elementBF16
	case a.Precision == kernels.PrecisionFloat16:
		c.dtype, c.element = kernels.F16, elementF16
	case a.Precision == kernels.PrecisionTF32:
		c.element = elementTF32
	}
	if d, dv := a.Q.Shape[3], a.V.Shape[3]; d > largestHead || dv > largestHead {
		return fmt.Errorf("heads have sizes of %d and %d, a GPU computes them up to %d", d, dv, largestHead)
	}
	const mostRows = 1 << 30
	for _, t := range []kernels.Tensor{a.Q, a.K} {
		if t.Shape[0]*t.Shape[1] > mostRows || t.Shape[2] > mostRows {
			return fmt.Errorf("the problem has shape %v, a GPU computes up to %d heads and as many rows", t.Shape, mostRows)
		}
	}
	var tensors tensorChecks
	tensors.check("q", a.Q, a.Q.Shape, a.Q.DType, readRows)
	tensors.check("k", a.K, a.K.Shape, a.Q.DType, readRows)
	tensors.check("v", a.V, a.V.Shape, a.Q.DType, readRows)
	if a.Bias.IsSet() {
		tensors.check("bias", a.Bias, a.Bias.Shape, a.Bias.DType, readRows)
	}
	if a.Sinks.IsSet() {
		tensors.check("sinks", a.Sinks, a.Sinks.Shape, a.Sinks.DType, readRows)
	}
	more(&tensors)
	return tensors.err
}

func checkTensor(name string, t kernels.Tensor, shape []int, dtype kernels.DType, kind tensorKind) error {
	switch {
	case !t.IsSet() && kind == optionalKind:
		return nil
	case !t.IsSet():
		return fmt.Errorf("%s is missing, it needs shape %v", name, shape)
	case t.DType != dtype:
		return fmt.Errorf("%s is %v, it needs to be %v", name, t.DType, dtype)
	case !slices.Equal(t.Shape, shape) || len(t.Strides) != len(t.Shape):
		return fmt.Errorf("%s has shape %v and strides %v, it needs shape %v", name, t.Shape, t.Strides, shape)
	case slices.ContainsFunc(t.Strides, func(s int) bool { return s < 0 }):
		return fmt.Errorf("%s has strides %v, none can be negative", name, t.Strides)
	case t.Data == nil && t.Elements() > 0:
		return fmt.Errorf("%s has shape %v but no data", name, t.Shape)
	case t.IsRowMajor():
		return nil
	case kind >= denseKind:
		return fmt.Errorf("%s has strides %v for shape %v, it needs to be row-major", name, t.Strides, t.Shape)
	}
	if last := len(t.Shape) - 1; kind == writtenRows && t.Elements() > 0 {
		if t.Shape[last] > 1 && t.Strides[last] != 1 {
			return fmt.Errorf("%s has a stride of %d along its last axis, which needs to be contiguous", name, t.Strides[last])
		}
		if t.Overlaps() {
			return fmt.Errorf("%s has strides %v for shape %v, so that elements of it would lie in the same place", name, t.Strides, t.Shape)
		}
	}
	return nil
}
