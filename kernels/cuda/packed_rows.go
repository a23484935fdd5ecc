//go:build gpu

package cuda

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// This file says how kernels of a few rows read packed matrices.

// packedRows is a packed matrix, of which a column of the product is a row.
type packedRows struct {
	packed.Row
	data address
	rows int
}

func packedRowsOf(t kernels.Tensor) packedRows {
	r, _ := packed.RowOf(t.DType, t.Shape[0]) // the problem was checked
	return packedRows{Row: r, data: address(read(t)), rows: t.Shape[1]}
}

// span is where the matrix lies.
func (m packedRows) span() driver.Span {
	return driver.Span{From: m.data, To: m.data + address(m.rows*m.Bytes)}
}

// copied reports whether boxes of scales begin at multiples of 16 bytes, as copies need it. Of NF4
// they begin behind floats, which are four in rows of 128 to 16,448 columns.
func (m packedRows) copied() bool {
	const block, nested = 64, 256
	blocks := m.Columns / block
	return m.DType != kernels.NF4 || (2+(blocks+nested-2)/nested+1)%4 == 0
}

// boxes describes the codes and the scales in boxes of so many rows, and of so many bytes of
// scales.
func (m packedRows) boxes(rowsOfBox, scalesBytes int) (codes, scales driver.TensorMap) {
	const codesBytes = 128
	of := func(from address, columns, stride, rowBytes int, e element) driver.TensorMap {
		return newTensorMap(rows[readable]{from.Readable(), int64(stride), int64(stride), int64(stride)}, [4]int{1, 1, m.rows, columns}, rowBytes, rowsOfBox, e)
	}
	codes = of(m.data, m.Scales, m.Bytes, codesBytes, elementFloat8)
	if m.DType == kernels.NF4 { // their place among a row's scales depends on its length
		return codes, of(m.data, m.Bytes, m.Bytes, scalesBytes, elementFloat8)
	}
	return codes, of(m.data+address(m.Scales), m.Columns/packed.Group, m.Bytes/2, scalesBytes, elementF16)
}
