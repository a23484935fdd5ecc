//go:build gpu

package cuda

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// This file is for products that are gradients of what an activation was applied to, and of what
// this was multiplied by, and for the sums of their columns.

// sloping is such an epilogue: C = (A·B + bias)·act'(Z), or both gradients of silu(Z)·Up where Up
// is set.
type sloping struct {
	activation kernels.Activation
	z, up, dUp kernels.Tensor
}

// matMulSloped computes a product with such an epilogue, and the sums of C's columns, in one pass,
// if there is a kernel for that.
func (d *Device) matMulSloped(m *kernels.MatMul, e sloping, out kernels.MatMulOutputs) (queued bool, err error) {
	p := newProduct(d, m, kernels.Activate{Activation: e.activation, Pre: e.z}, out.C)
	defer p.release()
	v, ok := p.sloped(e, out)
	if !ok {
		return false, nil
	}
	return true, p.launchSloped(v, out.ColumnSums)
}

// GateGradientsInPlace reports whether one pass computes the product and both gradients, which lie
// as Z and Up do: it reads of these what it writes.
func (d *Device) GateGradientsInPlace(m *kernels.MatMul, c kernels.Tensor) bool {
	const multiple = 8 // of elements, at which tensor maps begin
	e, ok := m.Epilogue.(kernels.GateGradient)
	if !ok || m.Precision == kernels.PrecisionFloat8 || len(c.Shape) != 2 || c.Shape[1]%multiple != 0 ||
		!slices.Equal(c.Strides, e.Z.Strides) || !slices.Equal(c.Strides, e.Up.Strides) {
		return false
	}
	p := newProduct(d, m, kernels.Activate{Activation: kernels.SiLU, Pre: e.Z}, c)
	_, ok = p.sloped(sloping{activation: kernels.SiLU, z: e.Z, up: e.Up, dUp: e.Up}, kernels.MatMulOutputs{C: c})
	return ok
}

// sloped is the kernel that multiplies results by act'(Z) as they leave, if there is one for the
// product: a large one of 16-bit tensors that tensor maps can describe. A gated one takes Up for
// the item behind Z of a batch, and DUp for the one behind C.
func (p *product) sloped(e sloping, out kernels.MatMulOutputs) (v matmul90, ok bool) {
	const large = 1 << 20
	g := p.args
	v = matmul90{matmulTile: broadTile, element: elementOf(p.dtype), epilogue: epilogue90{timesSlope, e.activation}}
	if e.up.IsSet() {
		v.epilogue, v.bRows = epilogue90{kind: gateGradients}, !p.operand(1).mappable(true)
	}
	ok = p.device.hasMaps() && p.rounds == neverRounds && p.dtype != kernels.F32 && hasSlope(e.activation) && len(p.axes) == 0 && p.hasFewFactors() && g.bias == 0 &&
		g.depth > 0 && int64(g.rows)*int64(g.columns) >= large && g.cElement == v.element && g.preElement == v.element
	if ok && e.up.IsSet() {
		ok = !out.ColumnSums.IsSet() && p.pairs(e.z, e.up, out.C, e.dUp)
	}
	return v, ok && p.way() == wayHalves && p.operand(0).mappable(true) && p.operand(1).mappable(!v.bRows)
}

// pairs makes Z and Up, and C and DUp, a batch of two, if they are matrices whose rows lie alike.
func (p *product) pairs(z, up, c, dUp kernels.Tensor) bool {
	if len(c.Shape) != 2 || z.Strides[0] != up.Strides[0] || c.Strides[0] != dUp.Strides[0] {
		return false
	}
	ofGradients, ofInputs := elementsBetween(written(c), written(dUp), c.DType), elementsBetween(read(z), read(up), z.DType)
	if c.Data == nil { // of an estimate
		ofGradients, ofInputs = int64(c.Shape[1]), int64(c.Shape[1])
	}
	p.axes = []batchAxis{{size: 2, strides: [4]int64{2: ofGradients, 3: ofInputs}}}
	return true
}

// launchSloped queues the product and adds up the sums of columns that its warps give, if those are
// wanted.
func (p *product) launchSloped(v matmul90, columnSums kernels.Tensor) error {
	const warps = 4 // that share the rows of a tile
	g := p.args
	if !columnSums.IsSet() {
		return p.launchVariant(v, wayHalves)
	}
	count := tilesOf(g.rows, v.rows()) * warps
	parts, err := p.device.scratch(count * int(g.columns) * 4)
	if err != nil {
		return p.device.failed("matmul", err)
	}
	p.scratch = append(p.scratch, parts)
	g.columnSums = parts.At
	if err := p.launchVariant(v, wayHalves); err != nil {
		return err
	}
	return p.device.sumParts(g.columns, count, false, columnSum{parts.At, columnSums})
}
