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

// linesOf describes rows of tensors. The length is that of the first tensor's rows. Integers, of which there is one a row, do
// not count for the alignment.
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
	var dims [maxLineAxes]int64 // from the innermost
	var strides [4][maxLineAxes]int64
	axes := 0
	for axis := last - 1; axis >= 0; axis-- {
		size := int64(first.Shape[axis])
		l.count *= size
		if size == 1 {
			continue
		}
		joins := axes > 0
		for i, t := range tensors {
			joins = joins && int64(t.Strides[axis]) == strides[i][axes-1]*dims[axes-1]
		}
		if joins {
			dims[axes-1] *= size
			continue
		}
		if axes == maxLineAxes {
			return l, fmt.Errorf("a tensor of shape %v has more than %d axes that lie apart", first.Shape, maxLineAxes)
		}
		dims[axes] = size
		for i, t := range tensors {
			strides[i][axes] = int64(t.Strides[axis])
		}
		axes++
	}
	if axes == 0 {
		dims[0], axes = 1, 1
	}
	l.axes = int32(axes)
	for n := range axes {
		l.dims[axes-1-n] = dims[n]
		for i := range tensors {
			l.strides[i][axes-1-n] = strides[i][n]
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
		for _, stride := range l.strides[i][:axes] {
			if stride*size%accessBytes != 0 {
				l.aligned = 0
			}
		}
	}
	return l, nil
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
