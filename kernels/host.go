package kernels

import "unsafe"

// This file moves elements in the host's memory, of any type and at any strides, for all who copy
// from it or to it.

// CopyHost writes the elements of src into dst, which has the same shape, rounded to dst's type.
// Both lie on the host, and are of one type or of floats both.
func CopyHost(dst, src Tensor) { eachRow(dst, src, copyRow) }

// FillHost sets every element of a tensor on the host to x, rounded to its type.
func FillHost(t Tensor, x float64) {
	eachRow(t, t, func(to, _ row) {
		for i := range to.n {
			setElement(to.at(i), to.dtype, x)
		}
	})
}

// HostElement is the element that lies offset elements behind the first of a tensor on the host.
func HostElement(t Tensor, offset int) float64 {
	return elementAt(unsafe.Add(t.Data, offset*t.DType.Size()), t.DType)
}

// row is a run of elements at one distance.
type row struct {
	data   unsafe.Pointer
	dtype  DType
	n      int
	stride int // in elements
}

func (r row) at(i int) unsafe.Pointer { return unsafe.Add(r.data, i*r.stride*r.dtype.Size()) }

// eachRow goes through two tensors of one shape along their last axes, taken together with those
// that go on from them in both.
func eachRow(a, b Tensor, do func(a, b row)) {
	if a.Elements() == 0 {
		return
	}
	last := len(a.Shape) - 1
	if last < 0 {
		do(row{a.Data, a.DType, 1, 1}, row{b.Data, b.DType, 1, 1})
		return
	}
	n, outer := a.Shape[last], last
	goesOn := func(t Tensor) bool { return t.Strides[outer-1] == n*t.Strides[last] }
	for outer > 0 && goesOn(a) && goesOn(b) {
		outer--
		n *= a.Shape[outer]
	}
	index := make([]int, outer)
	for {
		do(row{unsafe.Add(a.Data, a.Offset(index...)*a.DType.Size()), a.DType, n, a.Strides[last]},
			row{unsafe.Add(b.Data, b.Offset(index...)*b.DType.Size()), b.DType, n, b.Strides[last]})
		axis := outer - 1
		for axis >= 0 && index[axis] == a.Shape[axis]-1 {
			index[axis] = 0
			axis--
		}
		if axis < 0 {
			return
		}
		index[axis]++
	}
}

func copyRow(to, from row) {
	size := to.dtype.Size()
	switch {
	case to.dtype == from.dtype && (to.stride == 1 && from.stride == 1 || to.n == 1):
		copy(unsafe.Slice((*byte)(to.data), to.n*size), unsafe.Slice((*byte)(from.data), to.n*size))
	case to.dtype == from.dtype:
		for i := range to.n {
			copy(unsafe.Slice((*byte)(to.at(i)), size), unsafe.Slice((*byte)(from.at(i)), size))
		}
	case to.stride == 1 && from.stride == 1 && convertRow(to, from):
	default:
		for i := range to.n {
			setElement(to.at(i), to.dtype, elementAt(from.at(i), from.dtype))
		}
	}
}

// convertRow converts elements that lie end to end between float32 and a 16-bit type, each pair of
// types in a loop that the compiler can inline the conversion into. It reports whether the types
// are such a pair.
func convertRow(to, from row) bool {
	switch {
	case to.dtype == F32 && from.dtype == BF16:
		out := elements[float32](to)
		for i, x := range elements[BFloat16](from) {
			out[i] = x.Float32()
		}
	case to.dtype == F32 && from.dtype == F16:
		out := elements[float32](to)
		for i, x := range elements[Float16](from) {
			out[i] = x.Float32()
		}
	case to.dtype == BF16 && from.dtype == F32:
		out := elements[BFloat16](to)
		for i, x := range elements[float32](from) {
			out[i] = ToBFloat16(x)
		}
	case to.dtype == F16 && from.dtype == F32:
		out := elements[Float16](to)
		for i, x := range elements[float32](from) {
			out[i] = ToFloat16(x)
		}
	default:
		return false
	}
	return true
}

// elements is a row whose elements lie end to end.
func elements[T any](r row) []T { return unsafe.Slice((*T)(r.data), r.n) }

// elementAt is one element, as a number that every type but int64 converts to without rounding.
func elementAt(at unsafe.Pointer, dtype DType) float64 {
	switch dtype {
	case F32:
		return float64(*(*float32)(at))
	case F64:
		return *(*float64)(at)
	case BF16:
		return float64((*(*BFloat16)(at)).Float32())
	case F16:
		return float64((*(*Float16)(at)).Float32())
	case I32:
		return float64(*(*int32)(at))
	case Bool:
		return float64(*(*uint8)(at))
	}
	return float64(*(*int64)(at))
}

// setElement rounds a number to an element. A float64 that becomes a 16-bit number is rounded to
// float32 on the way.
func setElement(at unsafe.Pointer, dtype DType, x float64) {
	switch dtype {
	case F32:
		*(*float32)(at) = float32(x)
	case F64:
		*(*float64)(at) = x
	case BF16:
		*(*BFloat16)(at) = ToBFloat16(float32(x))
	case F16:
		*(*Float16)(at) = ToFloat16(float32(x))
	case I32:
		*(*int32)(at) = int32(x)
	case I64:
		*(*int64)(at) = int64(x)
	}
}
