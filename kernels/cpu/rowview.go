package cpu

import "github.com/stheno-ml/stheno/kernels"

// rowView is a tensor seen as rows of its last axis, numbered in row-major order.
type rowView[T kernels.Float] struct {
	data           []T
	shape, strides []int // of the other axes; neighbours that one stride steps through are one
	n, length      int
}

// rowViewOf returns the view of a tensor with contiguous rows. A tensor that is left out, or
// without elements, has none.
func rowViewOf[T kernels.Float](t kernels.Tensor) rowView[T] {
	v := rowView[T]{data: kernels.Host[T](t), length: 1}
	if v.data == nil {
		return v
	}
	last := len(t.Shape) - 1
	if last >= 0 {
		v.length = t.Shape[last]
	}
	v.n = t.Elements() / v.length
	for axis := range last {
		if end := len(v.shape) - 1; end >= 0 && v.strides[end] == t.Shape[axis]*t.Strides[axis] {
			v.shape[end] *= t.Shape[axis]
			v.strides[end] = t.Strides[axis]
			continue
		}
		v.shape, v.strides = append(v.shape, t.Shape[axis]), append(v.strides, t.Strides[axis])
	}
	return v
}

// at returns the first element of a row; nil where the tensor is left out.
func (v *rowView[T]) at(row int) *T {
	if v.data == nil {
		return nil
	}
	offset := 0
	for axis := len(v.shape) - 1; axis > 0; axis-- {
		offset += row % v.shape[axis] * v.strides[axis]
		row /= v.shape[axis]
	}
	if len(v.shape) > 0 {
		offset += row * v.strides[0]
	}
	return &v.data[offset]
}
