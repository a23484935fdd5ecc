//go:build gpu

package cuda

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// lines is Lines in src/elements.cuh: the rows of tensors whose axes but the last are the same.
type lines struct {
	dims          [maxLineAxes]int64
	strides       [4][maxLineAxes]int64
	count         int64
	axes, length  int32
	aligned, zero int32
}

const maxLineAxes = 5

// linesOf describes rows of tensors. The length is that of the first tensor's rows. Integers, of
// which there is one a row, do not count for the alignment.
func linesOf(tensors ...kernels.Tensor) (lines, error) {
	first := tensors[0]
	last := len(first.Shape) - 1
	l := lines{count: 1, length: 1, aligned: 1}
	if last >= 0 {
		if first.Shape[last] > math.MaxInt32 {
			return l, fmt.Errorf("rows have %d elements, a GPU computes up to %d", first.Shape[last], math.MaxInt32)
		}
		l.length = int32(first.Shape[last])
	}
	joined, err := joinAxes(tensors, max(last, 0), maxLineAxes)
	if err != nil {
		return l, err
	}
	l.axes = int32(joined.count)
	for n, size := range joined.dims[:joined.count] {
		at := joined.count - 1 - n
		l.dims[at] = size
		l.count *= size
		for i := range tensors {
			l.strides[i][at] = joined.strides[i][n]
		}
	}
	for i, t := range tensors {
		if t.DType.IsInteger() {
			continue
		}
		size := int64(t.DType.Size())
		if int64(read(t))%accessBytes != 0 || int64(l.length)*size%accessBytes != 0 {
			l.aligned = 0
		}
		for _, stride := range l.strides[i][:joined.count] {
			if stride*size%accessBytes != 0 {
				l.aligned = 0
			}
		}
	}
	return l, nil
}

// axes are those of several tensors of one shape, from the innermost.
type axes struct {
	count   int
	dims    [maxAxes]int64
	strides [mostOperands][maxAxes]int64
}

// joinAxes finds as few axes as possible for the first ones of tensors: an axis of one element is
// left out, and one that begins where the axis inside it ends is joined to that.
func joinAxes(tensors []kernels.Tensor, first, most int) (a axes, err error) {
	shape := tensors[0].Shape
	for axis := first - 1; axis >= 0; axis-- {
		size, inside := int64(shape[axis]), a.count-1
		if size == 1 {
			continue
		}
		joins := inside >= 0
		for i, t := range tensors {
			joins = joins && int64(t.Strides[axis]) == a.strides[i][inside]*a.dims[inside]
		}
		if joins {
			a.dims[inside] *= size
			continue
		}
		if a.count == most {
			return a, fmt.Errorf("a tensor of shape %v has more than %d axes that lie apart", shape, most)
		}
		a.dims[a.count] = size
		for i, t := range tensors {
			a.strides[i][a.count] = int64(t.Strides[axis])
		}
		a.count++
	}
	if a.count == 0 {
		a.count, a.dims[0] = 1, 1
	}
	return a, nil
}

// asRows is a tensor of one number for each row, as rows of one element.
func asRows(t kernels.Tensor) kernels.Tensor {
	t.Shape = append(append([]int(nil), t.Shape...), 1)
	t.Strides = append(append([]int(nil), t.Strides...), 1)
	return t
}

// parameter is Parameter in src/elements.cuh.
type parameter struct {
	data       readable
	wide, zero int32
}

func parameterOf(t kernels.Tensor) parameter {
	p := parameter{data: read(t)}
	if t.DType == kernels.F32 {
		p.wide = 1
	}
	return p
}

// indexList is Indices in src/elements.cuh.
type indexList struct {
	data       readable
	wide, zero int32
}

func indexListOf(t kernels.Tensor) indexList {
	x := indexList{data: read(t)}
	if t.DType == kernels.I64 {
		x.wide = 1
	}
	return x
}

// failed names the device and the kernel in an error, if there is one.
func (d *Device) failed(kernel string, err error) error {
	if err == nil {
		return nil
	}
	return d.callError(kernel, err)
}
