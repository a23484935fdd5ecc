//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// This file is for products that add up B's columns beside C: gradients of a layer's weight and
// bias.

// matMulSums computes a product and the sums of B's columns in one pass, if there is a kernel for
// that.
func (d *Device) matMulSums(m *kernels.MatMul, out kernels.MatMulOutputs) (queued bool, err error) {
	epilogue, isActivate := m.Epilogue.(kernels.Activate)
	if m.Epilogue != nil && !isActivate || epilogue.Activation != kernels.NoActivation || epilogue.Pre.IsSet() || out.ColumnSums.IsSet() {
		return false, nil
	}
	p := newProduct(d, m, kernels.Activate{}, out.C)
	defer p.release()
	v, ok := p.summing()
	if !ok {
		return false, nil
	}
	count := v.sumsOfColumn(p.args.rows, p.args.columns, p.args.depth, d.Multiprocessors)
	parts, err := d.scratch(count * int(p.args.columns) * 4)
	if err != nil {
		return true, d.failed("matmul", err)
	}
	p.scratch = append(p.scratch, parts)
	p.args.columnSums = parts.At
	if err := p.launchVariant(v, p.way()); err != nil {
		return true, err
	}
	return true, d.sumParts(p.args.columns, count, false, columnSum{parts.At, out.SumsOfB})
}

// summing is the kernel that adds up B's columns, if there is one for the product: for Hopper, a
// large one of 16-bit matrices without a bias, A's columns contiguous and B's rows. Other products
// keep a pass over B, which takes less of their time the more rows C has. Nothing was measured
// beyond mostRows.
func (p *product) summing() (v matmul90, ok bool) {
	const mostRows = 4096
	g := p.args
	if !p.device.hasMaps() || p.rounds != neverRounds || p.dtype == kernels.F32 || len(p.axes)+len(p.plus) > 0 || g.bias != 0 {
		return v, false
	}
	if _, few := p.ofFewRows(); few || p.isSmall() || g.rows > mostRows || int64(g.rows)*int64(g.columns)*int64(g.depth) == 0 {
		return v, false
	}
	for n := range 2 {
		if x := p.operand(n); x.mappable(true) || !x.mappable(false) {
			return v, false
		}
	}
	v = matmul90{element: elementOf(p.dtype), aColumns: true, bRows: true, sumsB: true}
	v.matmulTile = p.tile(v)
	return v, true
}

// sumsOfColumn is how many sums of a column of B the kernel writes, of parts of the depth: those of
// three warps in each of the first blocks that have tiles below each other, for each piece that a
// tile's depth may be cut into.
func (t matmulTile) sumsOfColumn(rows, columns, depth int32, multiprocessors int) int {
	const warps, mostTurns = 3, 8
	s, clusters, _ := t.schedule(rows, columns, depth, 1, multiprocessors)
	turns := int(s.down)
	switch {
	case s.beside != 0:
		turns = 1
	case !t.sharesA:
		turns *= t.cluster
	}
	parts := 1
	if streamed := int(s.tiles - s.whole); streamed > 0 {
		parts = (clusters+streamed-1)/streamed + 1
	}
	return parts * min(mostTurns, turns) * warps
}
