//go:build gpu

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// rowsArguments is RowsArguments in src/matmul_rows.cu.
type rowsArguments struct {
	m           matmulArguments
	weights     [mostWeights]rowsWeight
	residual    readable
	residualRow int64
	gamma       readable
	normed      int32
	gammaWide   int32
	eps         float32
	count       int32
	gated, zero int32
}

// rowsWeight is Weight in src/matmul_rows.cu.
type rowsWeight struct {
	data, bias     readable
	row, column    int64
	first, columns int32
	biasElement    element
	zero           int32
}

const mostWeights = 3

// ofFewRows is the kernel for a product that takes as long as reading B, if there is one: of up to
// sixteen rows, and large enough that the cluster's two barriers do not matter.
func (p *product) ofFewRows() (v matmulRows, ok bool) {
	const (
		large = 1 << 18
		whole = 8 // elements of a load
	)
	g := p.args
	if !p.device.hasMaps() || p.dtype == kernels.F32 || len(p.axes) > 0 || g.rows > mostRows ||
		int64(g.columns)*int64(g.depth) < large || g.depth%whole != 0 || !p.operand(0).mappable(true) {
		return v, false
	}
	b := p.operand(1)
	v = matmulRows{element: elementOf(p.dtype), bRows: !b.mappable(true)}
	return v, !v.bRows || g.columns%whole == 0 && b.mappable(false)
}

// launchRows queues the kernel.
func (p *product) launchRows(v matmulRows) error {
	g := &rowsArguments{m: *p.args, count: 1}
	g.weights[0] = rowsWeight{data: g.m.b.data, bias: g.m.bias, row: g.m.b.row, column: g.m.b.column, columns: g.m.columns, biasElement: g.m.biasElement}
	return p.device.launchRows(v, g)
}

// launchRows queues the kernel. As many blocks share the depth as it takes to keep the device busy.
func (d *Device) launchRows(v matmulRows, g *rowsArguments) error {
	const (
		busy = 300 // blocks
		most = 8   // of a cluster
	)
	clusters, cluster, suffix := 0, 1, ""
	for _, w := range g.weights[:g.count] {
		clusters += tilesOf(w.columns, columnsOfCluster)
	}
	if g.gated != 0 {
		clusters = tilesOf(g.m.columns, columnsOfCluster/2)
	}
	for clusters*cluster < busy && cluster < most {
		cluster *= 2
	}
	if g.normed != 0 {
		suffix = "_norm"
	}
	s := shapeOf(v.name(), fmt.Sprintf("%s%s_%d", v.name(), suffix, cluster), [3]int{clusters * cluster, 1, 1}, threadsOfRows, 0)
	s.Dependent = true
	return d.launch(s, nil, unsafe.Pointer(g))
}

// TakesRowsProduct reports whether the problem is one of few rows of 16 bits, whose weights lie
// alike and can be moved 16 bytes at a time. Every block reads all rows that are normalised, so
// there may be few of them.
func (d *Device) TakesRowsProduct(p *kernels.RowsProduct) bool {
	_, ok := d.rowsKernel(p)
	return ok
}

func (d *Device) rowsKernel(p *kernels.RowsProduct) (v matmulRows, ok bool) {
	const mostNormed = 4
	if !d.hasMaps() || p.Validate() != nil || p.X.DType != kernels.BF16 && p.X.DType != kernels.F16 || len(p.Weights) > mostWeights ||
		p.X.Shape[0] > mostRows || p.Norm != nil && p.X.Shape[0] > mostNormed || p.X.Shape[0]*p.X.Shape[1]*p.Columns() == 0 {
		return v, false
	}
	x, first := p.X, p.Weights[0]
	v = matmulRows{element: elementOf(x.DType), bRows: first.Strides[0] != 1}
	along, across := 0, 1 // the axis along which 16 bytes lie
	if v.bRows {
		along, across = 1, 0
	}
	ok = movable(x, 1, 0) && (p.Norm == nil || isAligned(p.Norm.Gamma))
	for _, w := range p.Weights {
		ok = ok && movable(w, along, across) && (!p.Gated || w.Strides[across] == first.Strides[across])
	}
	return v, ok
}

// movable reports whether a matrix of 16-bit elements can be moved 16 bytes at a time along an
// axis.
func movable(t kernels.Tensor, along, across int) bool {
	const whole = 8 // elements of 16 bytes
	return t.Strides[along] == 1 && t.Shape[along]%whole == 0 && (t.Shape[across] == 1 || t.Strides[across]%whole == 0) && isAligned(t)
}

// RowsProductForward queues one kernel.
func (d *Device) RowsProductForward(p *kernels.RowsProduct, c kernels.Tensor) error {
	const name = "product of rows"
	defer runtime.KeepAlive(p)
	defer runtime.KeepAlive(c)
	if err := p.Check(c); err != nil {
		return d.callError(name, err)
	}
	v, ok := d.rowsKernel(p)
	if !ok {
		return kernels.Unsupported{Device: d.Name(), What: "this " + name}
	}
	g := &rowsArguments{residual: read(p.Residual), count: int32(len(p.Weights))}
	g.m = matmulArguments{rows: int32(p.X.Shape[0]), columns: int32(p.Columns()), depth: int32(p.X.Shape[1]), items: 1, inner: 1, cElement: elementOf(c.DType)}
	g.m.a.data, g.m.a.row, g.m.a.column = read(p.X), int64(p.X.Strides[0]), 1
	g.m.c.data, g.m.c.row, g.m.c.column = written(c), int64(c.Strides[0]), 1
	if p.Residual.IsSet() {
		g.residualRow = int64(p.Residual.Strides[0])
	}
	if p.Gated {
		g.gated = 1
	}
	if n := p.Norm; n != nil {
		g.normed, g.gamma, g.eps = 1, read(n.Gamma), float32(n.Eps)
		if n.Gamma.DType == kernels.F32 {
			g.gammaWide = 1
		}
	}
	first := 0
	for i, t := range p.Weights {
		w := &g.weights[i]
		*w = rowsWeight{data: read(t), row: int64(t.Strides[0]), column: int64(t.Strides[1]), first: int32(first), columns: int32(t.Shape[1])}
		if p.Biases != nil {
			w.bias, w.biasElement = read(p.Biases[i]), elementOf(p.Biases[i].DType)
		}
		if !p.Gated {
			first += t.Shape[1]
		}
	}
	return d.launchRows(v, g)
}
