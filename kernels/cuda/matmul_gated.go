//go:build gpu

package cuda

import (
	"runtime"

	"github.com/stheno-ml/stheno/kernels"
)

// matMulGated computes C = silu(A·B)·(A·BUp) and both products: in one pass where there is a kernel for that, and otherwise one after
// the other.
func (d *Device) matMulGated(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	p := newProduct(d, m, out)
	defer p.release()
	v, ok := p.gates(m, out)
	if !ok {
		return kernels.MatMulGated(d, m, out)
	}
	err := p.launchVariant(v, wayHalves)
	runtime.KeepAlive(m)
	runtime.KeepAlive(out)
	return err
}

// gates is the kernel that gives a gated product, if there is one for it: large, of 16-bit matrices that tensor maps can describe, BUp
// behind B and Up behind Pre at any distance. They are a batch of two to it.
func (p *product) gates(m *kernels.MatMul, out kernels.MatMulOutputs) (v matmul90, ok bool) {
	const large = 1 << 20
	g := p.args
	v = matmul90{matmulTile: broadTile, element: elementOf(p.dtype), bRows: true, gates: true}
	if !p.device.hasMaps() || p.dtype == kernels.F32 || g.cElement != v.element || len(out.C.Shape) != 2 || out.ColumnSums.IsSet() ||
		g.depth == 0 || int(g.rows) <= v.rows() || int64(g.rows)*int64(g.columns) < large ||
		m.B.Strides[0] != m.BUp.Strides[0] || m.B.Strides[1] != m.BUp.Strides[1] || out.Pre.Strides[0] != out.Up.Strides[0] {
		return v, false
	}
	p.axes = []batchAxis{{size: 2, strides: [4]int64{1: elementsBetween(m.B, m.BUp), 3: elementsBetween(out.Pre, out.Up)}}}
	g.activation = int32(kernels.NoActivation) // it is in the kernel
	return v, p.way() == wayHalves && p.operand(0).mappable(true) && p.operand(1).mappable(false)
}

// elementsBetween is how far behind a tensor's data another's lie.
func elementsBetween(from, to kernels.Tensor) int64 {
	return (int64(addressOf(to)) - int64(addressOf(from))) / int64(from.DType.Size())
}
