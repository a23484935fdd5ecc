//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// This file is for products that are symmetric: one half is computed and written twice.

// matMulSymmetric computes a symmetric product in one pass, if there is a kernel for that: a large
// one of float16 that tensor maps can describe.
func (d *Device) matMulSymmetric(m *kernels.MatMul, e kernels.Symmetric, out kernels.MatMulOutputs) (queued bool, err error) {
	p := newProduct(d, m, kernels.Activate{Pre: e.Pre}, out.C)
	defer p.release()
	p.args.diagonal = float32(e.Diagonal)
	v, ok := p.symmetric()
	if !ok || out.ColumnSums.IsSet() || out.C.Elements() == 0 || !p.placeItems() {
		return false, nil
	}
	return true, p.launchVariant(v, wayHalves)
}

// symmetric is the kernel for a symmetric product, if there is one.
func (p *product) symmetric() (v matmul90, ok bool) {
	const large = 512 // rows, of which a quarter is not computed
	g := p.args
	v = matmul90{matmulTile: turnTile, element: elementF16, epilogue: epilogue90{kind: mirrors}}
	if g.rows != g.columns { // items share B, and so are rows of one product
		return v, false
	}
	if !p.device.hasMaps() || p.dtype != kernels.F16 || p.rounds != neverRounds || g.rows < large || g.depth == 0 || p.way() != wayHalves {
		return v, false
	}
	v.aColumns = !p.operand(0).mappable(true)
	v.bRows = v.aColumns
	return v, p.operand(0).mappable(!v.aColumns) && p.operand(1).mappable(!v.bRows)
}
