package kernels

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"
)

// DType is the type of a tensor's elements.
type DType uint8

// The element types that tensors may have. Which of them a kernel accepts is the backend's to say.
const (
	NoDType DType = iota // the zero value, of no tensor
	F32
	F64
	BF16
	F16
	I32 // of indices, like I64
	I64
	Bool // a byte, 0 or 1: of masks

	// The types of packed matrices, which are weights in less memory than 16 bits: see package
	// packed for how they lie. Their elements have no addresses of their own, so that Size is 0,
	// and such a matrix has the strides (columns, 1) or, as its transpose, (1, columns).
	Int8 // blocks of 32 numbers of eight bits and a scale
	Int4 // the same of four bits
	NF4  // blocks of 64 of the sixteen numbers of QLoRA

	F8 // a [Float8]: of operands that were rounded ahead of their products
)

var dtypeNames = [...]string{"no dtype", "float32", "float64", "bfloat16", "float16", "int32", "int64", "bool", "int8 in blocks", "int4 in blocks", "NF4 in blocks", "float8"}
var dtypeSizes = [...]int{0, 4, 8, 2, 2, 4, 8, 1, 0, 0, 0, 1}

func (d DType) String() string {
	if int(d) < len(dtypeNames) {
		return dtypeNames[d]
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Size returns the number of bytes of one element, 0 for the types of packed matrices.
func (d DType) Size() int {
	if int(d) < len(dtypeSizes) {
		return dtypeSizes[d]
	}
	return 0
}

// Wide is the type of what is summed up beside tensors of type d, such as statistics, losses and
// logsumexps: float32 for 16-bit floats, d itself for all others.
func (d DType) Wide() DType {
	if d == BF16 || d == F16 {
		return F32
	}
	return d
}

// IsFloat reports whether the type is one of floats.
func (d DType) IsFloat() bool { return d >= F32 && d <= F16 }

// IsPacked reports whether the type is one of packed matrices.
func (d DType) IsPacked() bool { return d >= Int8 && d <= NF4 }

// Block is how many elements of a row of a packed matrix are packed together, 0 for other types.
func (d DType) Block() int {
	switch d {
	case Int8, Int4:
		return 32
	case NF4:
		return 64
	}
	return 0
}

// IsInteger reports whether the type is one of integers, of which indices are.
func (d DType) IsInteger() bool { return d == I32 || d == I64 }

// Tensor is a typed, strided view of memory on the host or on a device. The zero value is no
// tensor, which is how an optional argument is left out. With Data nil it is a description alone,
// enough for validation.
type Tensor struct {
	Data    unsafe.Pointer // the element at index 0, ..., 0
	DType   DType
	Shape   []int
	Strides []int // in elements, one an axis; 0 broadcasts the axis
	Owner   any   // keeps memory alive that Go's collector does not know, a device's; nil for the host's
}

// Float is the set of element types that host kernels compute in.
type Float interface{ float32 | float64 }

// Element is the set of Go types that host tensors may have as elements: floats, and the integers
// of indices.
type Element interface {
	Float | BFloat16 | Float16 | int32 | int64
}

// DTypeOf returns the DType of T.
func DTypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case BFloat16:
		return BF16
	case Float16:
		return F16
	case int32:
		return I32
	}
	return I64
}

// Contiguous returns a row-major tensor of the given shape at data.
func Contiguous(data unsafe.Pointer, dtype DType, shape ...int) Tensor {
	t := Tensor{Data: data, DType: dtype}
	t.Shape, t.Strides = axes(len(shape))
	copy(t.Shape, shape)
	stride := 1
	for axis := len(shape) - 1; axis >= 0; axis-- {
		t.Strides[axis] = stride
		stride *= shape[axis]
	}
	return t
}

// axes is room for a shape and strides, in one piece of memory.
func axes(n int) (shape, strides []int) {
	both := make([]int, 2*n)
	return both[:n:n], both[n:]
}

// Of returns the row-major tensor of the given shape over data. As indexing does, it panics where
// data holds fewer elements, or an axis is negative.
func Of[T Element](data []T, shape ...int) Tensor {
	t := Contiguous(unsafe.Pointer(unsafe.SliceData(data)), DTypeOf[T](), shape...)
	if t.Elements() > len(data) || slices.ContainsFunc(shape, func(d int) bool { return d < 0 }) {
		panic(fmt.Sprintf("kernels.Of: shape %v needs %d elements, data has %d", shape, t.Elements(), len(data)))
	}
	return t
}

// IsSet reports whether the tensor is there at all: the zero Tensor stands for an argument left
// out.
func (t Tensor) IsSet() bool { return t.DType != NoDType }

// Elements returns the number of elements of the shape: [math.MaxInt], which no memory holds, where
// it is more than an int counts.
func (t Tensor) Elements() int {
	n, overflows := uint64(1), false
	for _, d := range t.Shape {
		if d == 0 {
			return 0
		}
		high, low := bits.Mul64(n, uint64(d)) // kernels ask for each head: a division by d would take too long
		overflows = overflows || high != 0 || low > math.MaxInt
		n = low
	}
	if overflows {
		return math.MaxInt
	}
	return int(n)
}

// Permute returns the view whose axis i is t's axis order[i].
func (t Tensor) Permute(order ...int) Tensor {
	p := Tensor{Data: t.Data, DType: t.DType, Owner: t.Owner}
	p.Shape, p.Strides = axes(len(order))
	for i, axis := range order {
		p.Shape[i], p.Strides[i] = t.Shape[axis], t.Strides[axis]
	}
	return p
}

// Slice returns the view of the indices [from, to) of one axis. A view without elements begins
// where t does: what lies behind t's last element may be another's memory.
func (t Tensor) Slice(axis, from, to int) Tensor {
	s := Tensor{DType: t.DType, Owner: t.Owner}
	s.Shape, s.Strides = axes(len(t.Shape))
	copy(s.Shape, t.Shape)
	copy(s.Strides, t.Strides)
	s.Shape[axis] = to - from
	if s.Data = t.Data; t.Data != nil && s.Elements() > 0 {
		s.Data = unsafe.Add(t.Data, from*t.Strides[axis]*t.DType.Size())
	}
	return s
}

// Unflatten returns the view whose axis is split in two, the second of size inner, which must
// divide the axis.
func (t Tensor) Unflatten(axis, inner int) Tensor {
	s := Tensor{Data: t.Data, DType: t.DType, Owner: t.Owner}
	s.Shape = append(s.Shape, t.Shape[:axis]...)
	s.Shape = append(append(s.Shape, t.Shape[axis]/inner, inner), t.Shape[axis+1:]...)
	s.Strides = append(s.Strides, t.Strides[:axis]...)
	s.Strides = append(append(s.Strides, t.Strides[axis]*inner, t.Strides[axis]), t.Strides[axis+1:]...)
	return s
}

// Reshape returns a row-major tensor of as many elements under another shape.
func (t Tensor) Reshape(shape ...int) Tensor {
	s := Contiguous(t.Data, t.DType, shape...)
	s.Owner = t.Owner
	return s
}

// Offset returns the number of elements between the tensor's first element and the one at the given
// index.
func (t Tensor) Offset(index ...int) int {
	n := 0
	for axis, i := range index {
		n += i * t.Strides[axis]
	}
	return n
}

// Host returns the host memory from the tensor's first element to its last, as a slice: index it
// with Offset. It must be of type T and hold no negative stride. A tensor without elements has
// none: Host returns nil.
func Host[T Element](t Tensor) []T {
	if t.Data == nil || t.Elements() == 0 {
		return nil
	}
	last := 0
	for axis, d := range t.Shape {
		last += (d - 1) * t.Strides[axis]
	}
	return unsafe.Slice((*T)(t.Data), last+1)
}
