//go:build gpu

package cuda

import (
	"fmt"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

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

// launchRows queues the kernel. As many blocks share the depth as it takes to keep the device busy.
func (p *product) launchRows(v matmulRows) error {
	const (
		busy = 300 // blocks
		most = 8   // of a cluster
	)
	clusters, cluster := tilesOf(p.args.columns, columnsOfCluster), 1
	for clusters*cluster < busy && cluster < most {
		cluster *= 2
	}
	entry := fmt.Sprintf("%s_%d", v.name(), cluster)
	s := shapeOf(v.name(), entry, [3]int{clusters * cluster, 1, 1}, threadsOfRows, 0)
	return p.device.launch(s, nil, unsafe.Pointer(p.args))
}
