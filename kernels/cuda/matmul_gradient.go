//go:build gpu

package cuda

import (
	"runtime"

	"github.com/stheno-ml/stheno/kernels"
)

// This file is for products that are gradients of what an activation was applied to, and of what this was multiplied by, and for the
// sums of their columns.

// matMulGradient computes C = (A·B + bias)·act'(Z), or both gradients of silu(Z)·Up, and the sums of C's columns: in one pass where
// there is a kernel for that, and otherwise one after the other.
func (d *Device) matMulGradient(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	p := newProduct(d, m, kernels.MatMulOutputs{C: out.C, Pre: m.Z})
	defer p.release()
	if v, ok := p.sloped(m, out); ok {
		err := p.launchSloped(v, out.ColumnSums)
		runtime.KeepAlive(m)
		runtime.KeepAlive(out)
		return err
	}
	plain := *m
	if plain.Z, plain.Up = (kernels.Tensor{}), (kernels.Tensor{}); m.Z.IsSet() {
		plain.Activation = kernels.NoActivation
	}
	err := d.MatMul(&plain, kernels.MatMulOutputs{C: out.C, Pre: out.Pre})
	switch {
	case err != nil:
	case m.Up.IsSet():
		err = d.SwiGLUBackward(m.Z, m.Up, out.C, out.C, out.DUp)
	case m.Z.IsSet():
		err = d.ActivateBackward(m.Activation, m.Z, out.C, out.C)
	}
	if err != nil {
		return err
	}
	if !out.ColumnSums.IsSet() {
		return nil
	}
	return d.SumRows(out.C, out.ColumnSums, false)
}

// sloped is the kernel that multiplies results by act'(Z) as they leave, if there is one for the product: a large one of 16-bit tensors
// that tensor maps can describe. A gated one takes Up for the item behind Z of a batch, and DUp for the one behind C.
func (p *product) sloped(m *kernels.MatMul, out kernels.MatMulOutputs) (v matmul90, ok bool) {
	const large = 1 << 20
	g, activation := p.args, matmulActivations[m.Activation]
	v = matmul90{matmulTile: broadTile, element: elementOf(p.dtype), slope: activation, gated: m.Up.IsSet()}
	ok = m.Z.IsSet() && p.device.hasMaps() && p.dtype != kernels.F32 && hasSlope(activation) && len(p.axes) == 0 && !m.Bias.IsSet() &&
		g.depth > 0 && int64(g.rows)*int64(g.columns) >= large && g.cElement == v.element && g.preElement == v.element
	if ok && v.gated {
		ok = !out.ColumnSums.IsSet() && p.pairs(m.Z, m.Up, out.C, out.DUp)
	}
	return v, ok && p.way() == wayHalves && p.operand(0).mappable(true) && p.operand(1).mappable(true)
}

// pairs makes Z and Up, and C and DUp, a batch of two, if they are matrices whose rows lie alike.
func (p *product) pairs(z, up, c, dUp kernels.Tensor) bool {
	if len(c.Shape) != 2 || z.Strides[0] != up.Strides[0] || c.Strides[0] != dUp.Strides[0] {
		return false
	}
	p.axes = []batchAxis{{size: 2, strides: [4]int64{2: elementsBetween(c, dUp), 3: elementsBetween(z, up)}}}
	return true
}

// launchSloped queues the product and adds up the sums of columns that its warps give, if those are wanted.
func (p *product) launchSloped(v matmul90, columnSums kernels.Tensor) error {
	const warps = 4 // that share the rows of a tile
	g := p.args
	if !columnSums.IsSet() {
		return p.launchVariant(v, wayHalves)
	}
	count := tilesOf(g.rows, v.rows()) * warps
	parts, err := p.device.memory.get(count * int(g.columns) * 4)
	if err != nil {
		return p.device.failed("matmul", err)
	}
	p.scratch = append(p.scratch, parts)
	g.columnSums = parts.at
	if err := p.launchVariant(v, wayHalves); err != nil {
		return err
	}
	return p.device.sumParts(g.columns, count, false, columnSum{parts.at, columnSums})
}
