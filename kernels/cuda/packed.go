//go:build gpu

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// This file is for products of packed matrices. They become floats in registers where A has few
// rows, and otherwise in scratch memory, once for a product.

// packedMatrix is Packed in src/packed.cuh.
type packedMatrix struct {
	data                            readable
	scaleTable                      address
	numbers                         [16]float32
	rows, columns, rowBytes, scales int32
}

// packedOf tells kernels of a packed matrix, or of the one that t is the transpose of. Its owner is
// alive until the work that reads it is queued.
func (d *Device) packedOf(t kernels.Tensor) (m packedMatrix, owner *driver.Owner, err error) {
	rows, columns := t.Shape[0], t.Shape[1]
	if t.Strides[0] == 1 {
		rows, columns = columns, rows
	}
	r, err := packed.RowOf(t.DType, columns)
	if err != nil {
		return m, nil, err
	}
	m = packedMatrix{data: read(t), rows: int32(rows), columns: int32(columns), rowBytes: int32(r.Bytes), scales: int32(r.Scales)}
	m.numbers, _ = r.Table()
	if t.DType == kernels.NF4 {
		if owner, err = constant(d, packed.NF4ScaleTable[:]); err != nil {
			return m, nil, err
		}
		m.scaleTable = owner.At
	}
	return m, owner, nil
}

// packedProduct is PackedProduct in src/packed_rows.cu.
type packedProduct struct {
	matmulArguments
	b packedMatrix
}

// matMulPackedRows queues a product of few 16-bit rows, if it is one: the rows of the packed matrix
// lie along the depth.
func (d *Device) matMulPackedRows(m *kernels.MatMul, out kernels.MatMulOutputs) (queued bool, err error) {
	const few, many, threads = 2, 4, 256 // groups of eight columns of a block
	epilogue, isActivate := m.Epilogue.(kernels.Activate)
	if m.A.DType == kernels.F32 || m.B.Strides[0] != 1 || m.Epilogue != nil && !isActivate || epilogue.Activation > lastActivated || out.ColumnSums.IsSet() {
		return false, nil
	}
	p := newProduct(d, m, epilogue, out.C)
	defer p.release()
	g := p.args
	if len(p.axes) > 0 || g.rows > mostRows || !p.operand(0).mappable(true) {
		return false, nil
	}
	if len(p.plus) > 0 {
		return true, kernels.MatMulApart(d, m, out)
	}
	if g.rows == 0 || g.columns == 0 {
		return true, nil
	}
	b, owner, err := d.packedOf(m.B)
	if err != nil {
		return true, d.failed("matmul", err)
	}
	groups := few
	if tilesOf(g.columns, 8*many) >= 2*d.Multiprocessors {
		groups = many
	}
	entry := fmt.Sprintf("%s_%d", map[kernels.DType]string{kernels.Int8: "packed_rows_int8", kernels.Int4: "packed_rows_int4", kernels.NF4: "packed_rows_nf4"}[m.B.DType], groups)
	s := shapeOf("packed_rows"+entrySuffixes[p.dtype], entry, [3]int{tilesOf(g.columns, 8*groups), 1, 1}, threads, 0)
	err = d.launch(s, nil, unsafe.Pointer(&packedProduct{*g, b}))
	runtime.KeepAlive(owner)
	return true, err
}

// matMulPacked queues a product of a packed B, in the type of A.
func (d *Device) matMulPacked(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	if queued, err := d.matMulPackedRows(m, out); queued || err != nil {
		runtime.KeepAlive(m)
		runtime.KeepAlive(out)
		return err
	}
	wide := *m
	b, block, err := d.widened(m.B, m.A.DType)
	if err != nil {
		return d.failed("matmul", err)
	}
	defer block.Free()
	wide.B = b
	if gate, ok := m.Epilogue.(kernels.Gate); ok {
		up, block, err := d.widened(gate.BUp, m.A.DType)
		if err != nil {
			return d.failed("matmul", err)
		}
		defer block.Free()
		gate.BUp = up
		wide.Epilogue = gate
	}
	return d.MatMul(&wide, out)
}

// MatMulBorrows is the memory of packed matrices that become floats for a product, and of sums of
// parts of its depth.
func (d *Device) MatMulBorrows(m *kernels.MatMul) (bytes int) {
	bytes = d.partialsOf(m)
	if !m.B.DType.IsPacked() || m.A.Shape[len(m.A.Shape)-2] <= mostRows {
		return bytes
	}
	bytes += m.B.Elements() * m.A.DType.Size()
	if gate, ok := m.Epilogue.(kernels.Gate); ok {
		bytes += gate.BUp.Elements() * m.A.DType.Size()
	}
	return bytes
}

// widening is Widening in src/packed.cu.
type widening struct {
	from   packedMatrix
	to     address
	stride int64
}

// widened gives a packed matrix, or its transpose, as floats in scratch memory. The caller frees it
// when what reads it is queued.
func (d *Device) widened(t kernels.Tensor, dtype kernels.DType) (wide kernels.Tensor, block *driver.Block, err error) {
	if block, err = d.scratch(t.Elements() * dtype.Size()); err != nil {
		return wide, nil, fmt.Errorf("scratch memory: %w", err)
	}
	wide = kernels.Tensor{Data: block.At.Pointer(), DType: dtype, Shape: t.Shape, Strides: t.Strides}
	if err := d.widen(t, dtype, block.At); err != nil {
		block.Free()
		return wide, nil, err
	}
	return wide, block, nil
}

// WidensFor reports whether products of so many rows do not read packed matrices as they are.
func (d *Device) WidensFor(rows int) bool { return rows > mostRows }

// Widen makes floats of a packed matrix.
func (d *Device) Widen(t, to kernels.Tensor) error {
	if err := kernels.CheckWiden(t, to); err != nil {
		return d.callError("widen", err)
	}
	if to.Elements() == 0 {
		return nil
	}
	defer runtime.KeepAlive(t)
	defer runtime.KeepAlive(to)
	if err := d.widen(t, to.DType, written(to).Address()); err != nil {
		return d.failed("widen", err)
	}
	return nil
}

// widen queues the kernel that writes a packed matrix, as it lies, to an address.
func (d *Device) widen(t kernels.Tensor, dtype kernels.DType, to address) error {
	const (
		threads = 256
		ofWarp  = 1024 // elements of a row
	)
	m, owner, err := d.packedOf(t)
	if err != nil {
		return err
	}
	entry := map[kernels.DType]string{kernels.Int8: "widen_int8", kernels.Int4: "widen_int4", kernels.NF4: "widen_nf4"}[t.DType] + entrySuffixes[dtype]
	blocks := (int(m.rows)*tilesOf(m.columns, ofWarp) + threads/32 - 1) / (threads / 32)
	g := &widening{m, to, int64(m.columns)}
	err = d.launch(shapeOf("packed", entry, [3]int{blocks, 1, 1}, threads, 0), nil, unsafe.Pointer(g))
	runtime.KeepAlive(owner)
	return err
}
