package reference

import (
	"fmt"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// elements returns a tensor of any strides in the precision of T, row-major.
func elements[T kernels.Float](t kernels.Tensor) []T {
	list := make([]T, t.Elements())
	if t.DType.IsPacked() {
		wide := widened(t)
		eachOffset(t, func(i, offset int) { list[i] = T(wide[offset]) })
		return list
	}
	eachOffset(t, func(i, offset int) { list[i] = T(element(t, offset)) })
	return list
}

// widened returns a packed matrix in float32, in the order of its memory.
func widened(t kernels.Tensor) []float32 {
	columns := max(t.Strides[0], t.Strides[1])
	row, err := packed.RowOf(t.DType, columns)
	if err != nil {
		panic(fmt.Sprintf("reference: %v", err))
	}
	rows := t.Elements() / columns
	wide, err := packed.Widen(t.DType, unsafe.Slice((*byte)(t.Data), rows*row.Bytes), rows, columns)
	if err != nil {
		panic(fmt.Sprintf("reference: %v", err))
	}
	return wide
}

// vector returns an optional tensor of n elements, all of a value where it is left out.
func vector[T kernels.Float](t kernels.Tensor, n int, otherwise T) []T {
	if t.IsSet() {
		return elements[T](t)
	}
	list := make([]T, n)
	for i := range list {
		list[i] = otherwise
	}
	return list
}

// indices returns a tensor of int32 or int64, row-major.
func indices(t kernels.Tensor) []int {
	list := make([]int, t.Elements())
	eachOffset(t, func(i, offset int) {
		switch t.DType {
		case kernels.I32:
			list[i] = int(kernels.Host[int32](t)[offset])
		case kernels.I64:
			list[i] = int(kernels.Host[int64](t)[offset])
		default:
			panic(fmt.Sprintf("reference: indices need to be int32 or int64, not %v", t.DType))
		}
	})
	return list
}

// eachOffset goes through a tensor in row-major order: i counts, offset is where the element lies.
func eachOffset(t kernels.Tensor, do func(i, offset int)) {
	for i := range t.Elements() {
		offset, rest := 0, i
		for axis := len(t.Shape) - 1; axis >= 0; axis-- {
			offset += rest % t.Shape[axis] * t.Strides[axis]
			rest /= t.Shape[axis]
		}
		do(i, offset)
	}
}

// lastAxis returns the length of a tensor's rows.
func lastAxis(t kernels.Tensor) int { return t.Shape[len(t.Shape)-1] }
