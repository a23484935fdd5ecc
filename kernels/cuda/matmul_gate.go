//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// matMulGate computes C = silu(A·B)·(A·BUp) and both products in one pass, if there is a kernel for
// that.
func (d *Device) matMulGate(m *kernels.MatMul, e kernels.Gate, out kernels.MatMulOutputs) (queued bool, err error) {
	p := newProduct(d, m, kernels.Activate{Pre: e.Pre}, out.C)
	defer p.release()
	v, ok := p.gates(m, e, out)
	if !ok {
		return false, nil
	}
	return true, p.launchVariant(v, wayHalves)
}

// gates is the kernel that gives a gated product, if there is one for it: large, of 16-bit matrices
// that tensor maps can describe, Up behind Pre at any distance. B and BUp, in the order in which
// they lie, and Pre and Up are a batch of two to it.
func (p *product) gates(m *kernels.MatMul, e kernels.Gate, out kernels.MatMulOutputs) (v matmul90, ok bool) {
	const large = 1 << 20
	g := p.args
	v = matmul90{matmulTile: broadTile, element: elementOf(p.dtype), bRows: !p.operand(1).mappable(true), epilogue: epilogue90{kind: gates}}
	if !p.device.hasMaps() || p.dtype == kernels.F32 || g.cElement != v.element || len(out.C.Shape) != 2 || out.ColumnSums.IsSet() ||
		g.depth == 0 || !p.hasFewFactors() || int(g.rows) <= v.rows() || int64(g.rows)*int64(g.columns) < large ||
		m.B.Strides[0] != e.BUp.Strides[0] || m.B.Strides[1] != e.BUp.Strides[1] || e.Pre.Strides[0] != e.Up.Strides[0] {
		return v, false
	}
	b, between := read(m.B), elementsBetween(read(m.B), read(e.BUp), m.B.DType)
	if p.swapped = between < 0; p.swapped {
		b, between = read(e.BUp), -between
	}
	g.b.data = b
	p.axes = []batchAxis{{size: 2, strides: [4]int64{1: between, 3: elementsBetween(written(e.Pre), written(e.Up), e.Pre.DType)}}}
	return v, p.way() == wayHalves && p.operand(0).mappable(true) && p.operand(1).mappable(!v.bRows)
}

// elementsBetween is how far behind a tensor's data another's lie.
func elementsBetween[A readable | writable](from, to A, dtype kernels.DType) int64 {
	return (int64(to) - int64(from)) / int64(dtype.Size())
}
