package ops

import (
	"fmt"
	"slices"
	"strconv"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// home is a place where values live: the backend that computes there, and what an op needs besides. A device becomes
// usable by ops when homeOf finds its home.
type home struct {
	kernels.Backend
	// value makes a row-major tensor of this place's memory a value that owns the memory.
	value func(kernels.Tensor) *tensor.Dense
	// data is the element at index 0, ..., 0 of a value, the number of elements from there to the value's end, and what
	// keeps the memory alive if Go does not.
	data func(*tensor.Dense) (at unsafe.Pointer, elements int, owner any)
	// copy writes src, of any strides, into dst, which is row-major.
	copy func(dst, src kernels.Tensor) error
	// zero writes zeros into a row-major tensor.
	zero func(kernels.Tensor) error
	// scale multiplies a row-major tensor by a factor.
	scale func(t kernels.Tensor, factor float64) error
	// number reads a tensor without axes, and scalar makes one.
	number func(kernels.Tensor) (float64, error)
	scalar func(x float64, dtype kernels.DType) (kernels.Tensor, error)
}

// homeOf finds where a value lives.
func homeOf(t *tensor.Dense) (*home, error) {
	if !t.IsNativelyAccessible() {
		return deviceHomeOf(t)
	}
	return host, nil
}

// homeOfAll finds the one place where all values live. The names are for the message.
func homeOfAll(names []string, values []gorgonia.Value) (*home, error) {
	var common *home
	for i, v := range values {
		h, err := homeOfValue(names[i], v)
		if err != nil {
			return nil, err
		}
		if common != nil && h != common {
			return nil, errTwoHomes(names[i], h, names[0], common)
		}
		common = h
	}
	return common, nil
}

// homeOfValue finds where the value of a named input lives.
func homeOfValue(name string, v gorgonia.Value) (*home, error) {
	t, ok := v.(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("%s's value is a %T, it needs to be a *tensor.Dense", name, v)
	}
	h, err := homeOf(t)
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	return h, nil
}

func errTwoHomes(name string, at *home, lead string, common *home) error {
	return fmt.Errorf("%s is on %s, %s is on %s: all inputs need one place", name, at.Name(), lead, common.Name())
}

// view describes a value to a kernel. The value must have the shape and type that its node promised. The view is good while
// neither the shape nor the value is changed, that is for the run of an op.
func (h *home) view(v gorgonia.Value, dtype kernels.DType, shape []int) (kernels.Tensor, error) {
	t, ok := v.(*tensor.Dense)
	if !ok {
		return kernels.Tensor{}, fmt.Errorf("is a %T, it needs to be a *tensor.Dense", v)
	}
	if dtypeOf(t.Dtype()) != dtype && indexDTypeOf(t.Dtype()) != dtype || !slices.Equal(t.Shape(), shape) {
		return kernels.Tensor{}, fmt.Errorf("is %v of shape %v, its node promised %v of shape %v", t.Dtype(), []int(t.Shape()), dtype, shape)
	}
	strides := t.Strides()
	if len(strides) != len(shape) {
		return kernels.Tensor{}, fmt.Errorf("has %d strides for its %d axes", len(strides), len(shape))
	}
	at, elements, owner := h.data(t)
	last := 0
	for axis, d := range shape {
		if d == 0 {
			return kernels.Tensor{}, fmt.Errorf("has shape %v, no axis can be empty", shape)
		}
		last += (d - 1) * strides[axis]
	}
	if last >= elements {
		return kernels.Tensor{}, fmt.Errorf("has strides %v for shape %v, which reach beyond its %d elements", strides, shape, elements)
	}
	return kernels.Tensor{Data: at, DType: dtype, Shape: shape, Strides: strides, Owner: owner}, nil
}

// contiguous is a view of the value, or of a row-major copy if the value's last axes, of the given number, are not
// row-major themselves.
func (h *home) contiguous(v gorgonia.Value, dtype kernels.DType, shape []int, axes int) (kernels.Tensor, error) {
	t, err := h.view(v, dtype, shape)
	if err != nil || isRowMajor(t, axes) {
		return t, err
	}
	return h.clone(t)
}

// isRowMajor tells whether the last axes of a tensor, of the given number, have the strides of a row-major one.
func isRowMajor(t kernels.Tensor, axes int) bool {
	stride := 1
	for axis := len(t.Shape) - 1; axis >= len(t.Shape)-axes; axis-- {
		if t.Strides[axis] != stride {
			return false
		}
		stride *= t.Shape[axis]
	}
	return true
}

// clone is a row-major copy.
func (h *home) clone(t kernels.Tensor) (kernels.Tensor, error) {
	dst, err := h.Alloc(t.DType, t.Shape...)
	if err != nil {
		return dst, err
	}
	return dst, h.copy(dst, t)
}

// buffer is memory that an op keeps from one run to the next.
type buffer struct {
	home  *home
	owner *tensor.Dense
	t     kernels.Tensor
}

// get gives the buffer's memory, allocated anew if the place, type or shape changed.
func (b *buffer) get(h *home, dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	if b.home == h && b.t.DType == dtype && slices.Equal(b.t.Shape, shape) {
		return b.t, nil
	}
	t, err := h.Alloc(dtype, shape...)
	if err != nil {
		return kernels.Tensor{}, err
	}
	*b = buffer{home: h, owner: h.value(t), t: t}
	return t, nil
}

// host is Go's memory and the CPU.
var host = &home{
	Backend: cpu.New(),
	value: func(t kernels.Tensor) *tensor.Dense {
		if t.DType == kernels.F64 {
			return tensor.New(tensor.WithShape(t.Shape...), tensor.WithBacking(kernels.Host[float64](t)))
		}
		return tensor.New(tensor.WithShape(t.Shape...), tensor.WithBacking(kernels.Host[float32](t)))
	},
	data: func(t *tensor.Dense) (unsafe.Pointer, int, any) {
		switch t.Dtype() {
		case tensor.Float32:
			return first(t.Float32s())
		case tensor.Float64:
			return first(t.Float64s())
		case tensor.Int:
			return first(t.Ints())
		case tensor.Int32:
			return first(t.Int32s())
		case tensor.Int64:
			return first(t.Int64s())
		}
		return nil, 0, nil
	},
	copy: func(dst, src kernels.Tensor) error {
		switch dst.DType {
		case kernels.F64:
			hostCopy(kernels.Host[float64](dst), src)
		case kernels.F32:
			hostCopy(kernels.Host[float32](dst), src)
		case kernels.I64:
			hostCopy(kernels.Host[int64](dst), src)
		case kernels.I32:
			hostCopy(kernels.Host[int32](dst), src)
		}
		return nil
	},
	zero: func(t kernels.Tensor) error {
		if t.DType == kernels.F64 {
			clear(kernels.Host[float64](t))
		} else {
			clear(kernels.Host[float32](t))
		}
		return nil
	},
	scale: func(t kernels.Tensor, factor float64) error {
		if t.DType == kernels.F64 {
			hostScale(kernels.Host[float64](t), factor)
		} else {
			hostScale(kernels.Host[float32](t), float32(factor))
		}
		return nil
	},
	number: func(t kernels.Tensor) (float64, error) {
		if t.DType == kernels.F64 {
			return kernels.Host[float64](t)[0], nil
		}
		return float64(kernels.Host[float32](t)[0]), nil
	},
	scalar: func(x float64, dtype kernels.DType) (kernels.Tensor, error) {
		if dtype == kernels.F64 {
			return kernels.Of([]float64{x}), nil
		}
		return kernels.Of([]float32{float32(x)}), nil
	},
}

func first[T any](data []T) (unsafe.Pointer, int, any) {
	return unsafe.Pointer(unsafe.SliceData(data)), len(data), nil
}

func hostScale[T kernels.Float](data []T, factor T) {
	for i := range data {
		data[i] *= factor
	}
}

// hostCopy fills dst with the elements of src in row-major order and gives what is left of dst.
func hostCopy[T kernels.Element](dst []T, src kernels.Tensor) []T {
	data := kernels.Host[T](src)
	if slices.Equal(src.Strides, kernels.Contiguous(nil, src.DType, src.Shape...).Strides) {
		return dst[copy(dst, data):]
	}
	if len(src.Shape) == 1 {
		for i := range src.Shape[0] {
			dst[i] = data[i*src.Strides[0]]
		}
		return dst[src.Shape[0]:]
	}
	for i := range src.Shape[0] {
		part := src.Slice(0, i, i+1)
		dst = hostCopy(dst, kernels.Tensor{Data: part.Data, DType: src.DType, Shape: src.Shape[1:], Strides: src.Strides[1:]})
	}
	return dst
}

// dtypeOf is the kernels' name of a Gorgonia type, NoDType for types that no kernel computes in.
func dtypeOf(d tensor.Dtype) kernels.DType {
	switch d {
	case tensor.Float32:
		return kernels.F32
	case tensor.Float64:
		return kernels.F64
	}
	return kernels.NoDType
}

// indexDTypeOf is the kernels' name of a Gorgonia type of integers, NoDType for types that no kernel takes as indices.
func indexDTypeOf(d tensor.Dtype) kernels.DType {
	switch {
	case d == tensor.Int32, d == tensor.Int && strconv.IntSize == 32:
		return kernels.I32
	case d == tensor.Int64, d == tensor.Int:
		return kernels.I64
	}
	return kernels.NoDType
}
