//go:build gpu

package cuda

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// This file is for products of one row by packed matrices, with what a model does before and behind
// them: links of a chain, or the kernels of each part one after the other.

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

// boxes describes the codes and the scales in boxes of so many rows.
func (m packedRows) boxes(rowsOfBox int) (codes, scales driver.TensorMap) {
	const codesBytes, scalesBytes = 128, 16
	of := func(from address, columns, stride, rowBytes int, e element) driver.TensorMap {
		return newTensorMap(rows[readable]{from.Readable(), int64(stride), int64(stride), int64(stride)}, [4]int{1, 1, m.rows, columns}, rowBytes, rowsOfBox, e)
	}
	return of(m.data, m.Scales, m.Bytes, codesBytes, elementFloat8), of(m.data+address(m.Scales), m.Columns/packed.Group, m.Bytes/2, scalesBytes, elementF16)
}

// depthOfPackedStep is how much of the depth a chain's step has.
func depthOfPackedStep(d kernels.DType) int {
	if d == kernels.Int8 {
		return 128
	}
	return 256
}

// takesPackedRow reports whether a product is one row of 16 bits by packed matrices of integers.
func (d *Device) takesPackedRow(p *kernels.RowsProduct) bool {
	if !d.hasMaps() || p.Validate() != nil || p.X.DType != kernels.BF16 && p.X.DType != kernels.F16 || len(p.Weights) > mostWeights ||
		p.X.Shape[0] != 1 || !movable(p.X, 1, 0) || p.Columns() == 0 || p.Norm != nil && !isAligned(p.Norm.Gamma) {
		return false
	}
	for _, w := range p.Weights {
		if w.DType != kernels.Int8 && w.DType != kernels.Int4 || w.Strides[0] != 1 || !isAligned(w) {
			return false
		}
	}
	return true
}

// packedRow queues the kernels of each part of a product of packed matrices.
func (d *Device) packedRow(p *kernels.RowsProduct, c kernels.Tensor) error {
	if p.Residual.IsSet() && c.DType != p.X.DType {
		return kernels.Unsupported{Device: d.Name(), What: "a product of packed matrices that adds a residual to wide sums"}
	}
	var blocks []*driver.Block
	defer func() {
		for _, b := range blocks {
			b.Free()
		}
	}()
	row := func(columns int) (kernels.Tensor, error) {
		b, err := d.scratch(columns * p.X.DType.Size())
		if err != nil {
			return kernels.Tensor{}, err
		}
		blocks = append(blocks, b)
		return kernels.Contiguous(b.At.Pointer(), p.X.DType, 1, columns), nil
	}
	x := p.X
	if n := p.Norm; n != nil {
		y, err := row(x.Shape[1])
		if err == nil {
			err = d.NormForward(&kernels.Norm{RMS: true, X: x, Gamma: n.Gamma, Eps: n.Eps}, kernels.NormOutputs{Y: y})
		}
		if err != nil {
			return err
		}
		x = y
	}
	var halves []kernels.Tensor
	first := 0
	for n, w := range p.Weights {
		to, err := c.Slice(1, min(first, p.Columns()-w.Shape[1]), min(first, p.Columns()-w.Shape[1])+w.Shape[1]), error(nil)
		if p.Gated {
			if to, err = row(w.Shape[1]); err != nil {
				return err
			}
			halves = append(halves, to)
		}
		m := kernels.MatMul{A: x, B: w}
		if p.Biases != nil {
			m.Bias = p.Biases[n]
		}
		if err := d.MatMul(&m, kernels.MatMulOutputs{C: to}); err != nil {
			return err
		}
		first += w.Shape[1]
	}
	if p.Gated {
		if err := d.SwiGLU(halves[0], halves[1], c); err != nil {
			return err
		}
	}
	if p.Residual.IsSet() {
		return d.Add(p.Residual, c, c)
	}
	return nil
}
