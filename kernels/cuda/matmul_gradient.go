//go:build gpu

package cuda

import (
	"runtime"

	"github.com/stheno-ml/stheno/kernels"
)

// This file is for products that are gradients of what an activation was applied to, and for the sums of their columns.

// matMulGradient computes C = (A·B + bias)·act'(Z) and the sums of C's columns: in one pass where there is a kernel for that, and
// otherwise one after the other.
func (d *Device) matMulGradient(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	p := newProduct(d, m, kernels.MatMulOutputs{C: out.C, Pre: m.Z})
	defer p.release()
	if v, ok := p.slope(m); ok {
		err := p.launchSloped(v, out.ColumnSums)
		runtime.KeepAlive(m)
		runtime.KeepAlive(out)
		return err
	}
	plain := *m
	if plain.Z = (kernels.Tensor{}); m.Z.IsSet() {
		plain.Activation = kernels.NoActivation
	}
	if err := d.MatMul(&plain, kernels.MatMulOutputs{C: out.C, Pre: out.Pre}); err != nil {
		return err
	}
	if m.Z.IsSet() {
		if err := d.ActivateBackward(m.Activation, m.Z, out.C, out.C); err != nil {
			return err
		}
	}
	if !out.ColumnSums.IsSet() {
		return nil
	}
	return d.SumRows(out.C, out.ColumnSums, false)
}

// slope is the kernel that multiplies results by act'(Z) as they leave, if there is one for the product: a large one of 16-bit tensors
// that tensor maps can describe.
func (p *product) slope(m *kernels.MatMul) (v matmul90, ok bool) {
	const large = 1 << 20
	g, activation := p.args, matmulActivations[m.Activation]
	v = matmul90{matmulTile: broadTile, element: elementOf(p.dtype), slope: activation}
	ok = m.Z.IsSet() && p.device.hasMaps() && p.dtype != kernels.F32 && hasSlope(activation) && len(p.axes) == 0 && !m.Bias.IsSet() &&
		g.depth > 0 && int64(g.rows)*int64(g.columns) >= large &&
		g.cElement == v.element && g.preElement == v.element && p.way() == wayHalves && p.operand(0).mappable(true) && p.operand(1).mappable(true)
	return v, ok
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
