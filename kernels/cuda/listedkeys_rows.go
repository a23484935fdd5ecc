//go:build gpu

package cuda

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// listedRows is ListedRows in src/listedkeys_forward_sm90.cu.
type listedRows struct {
	attention arguments
	lists     address
}

// listedCompact is ListedCompact in src/listedkeys_planes.cu.
type listedCompact struct {
	lists                        indexList
	fault                        fault
	listBatch, listHead, listRow int64
	count                        int64
	to, lengths                  address
	heads, queries, keys, n      int32
}

// listedRowsVariant is the kernel for a problem, if there is one. Fewer heads would leave more of a
// tile empty than gathering leaves time for.
func (d *Device) listedRowsVariant(a *kernels.ListedAttention, o kernels.Tensor) (v variant, ok bool) {
	const leastHeads, multiple = 8, 8
	q, k, l := a.Q.Shape, a.K.Shape, a.Lists.Shape
	group, size := q[1]/max(1, k[1]), max(q[3], a.V.Shape[3])
	aligned := q[3]%multiple == 0 && a.V.Shape[3]%multiple == 0 && describable([]kernels.Tensor{a.Q, a.K, a.V, o})
	fits := waysOfLists == listedOfRows || waysOfLists == listedFaster && group >= leastHeads
	if !fits || a.Q.DType == kernels.F32 || q[2]*l[3] == 0 || !aligned || a.Plain().EffectiveScale() <= 0 || !d.hasMaps() {
		return v, false
	}
	for _, w := range listedRowsVariants() {
		if w.element == elementOf(a.Q.DType) && w.d >= size && (!ok || w.d == v.d && v.tileQ < group) {
			v, ok = w, true
		}
	}
	return v, ok
}

// forwardOfRows computes what ListedForward does.
func (d *Device) forwardOfRows(v variant, a *kernels.ListedAttention, of *listedArguments, out kernels.AttentionOutputs) error {
	q, k, l := a.Q.Shape, a.K.Shape, a.Lists.Shape
	queries, group, n := q[2], q[1]/k[1], l[3]
	lists := l[0] * l[1] * queries
	memory, err := d.scratch((lists*n + lists + queries*group) * kernels.I32.Size())
	if err != nil {
		return err
	}
	defer memory.Free()
	at := func(elements int) address { return memory.At + address(elements*kernels.I32.Size()) }
	c := &listedCompact{
		lists: of.lists, fault: of.fault, listBatch: of.listBatch, listHead: of.listHead, listRow: of.listRow, count: int64(lists),
		to: at(0), lengths: at(lists * n), heads: int32(l[1]), queries: of.queries, keys: of.keys, n: of.n,
	}
	const threads = 256
	if err := d.launch(shapeOf("listedkeys_planes", "listed_compact", [3]int{tilesOf(int32(lists), threads/32), 1, 1}, threads, 0), nil, unsafe.Pointer(c)); err != nil {
		return err
	}
	// A query is a sequence, and the heads that share its list are its rows.
	rowsOf := func(t kernels.Tensor, batch, head int) kernels.Tensor {
		return t.Slice(0, batch, batch+1).Slice(1, head*group, (head+1)*group).Permute(2, 0, 1, 3)
	}
	lse := kernels.Contiguous(at(lists*n+lists).Pointer(), kernels.F32, queries, 1, group)
	for b := range q[0] {
		for h := range k[1] {
			keys := func(t kernels.Tensor) rows[readable] {
				batch := min(b, t.Shape[0]-1)
				r := rowsRead(t.Slice(0, batch, batch+1).Slice(1, h, h+1))
				r.batch = 0
				return r
			}
			list := (min(b, l[0]-1)*l[1] + min(h, l[1]-1)) * queries
			view := rowsOf(a.Q, b, h)
			g := &listedRows{lists: at(list * n), attention: arguments{
				q: rowsRead(view), k: keys(a.K), v: keys(a.V), o: rowsWritten(rowsOf(out.O, b, h)), keyLengths: at(lists*n + list).Readable(),
				sequences: int32(queries), heads: 1, keyHeads: 1, sq: int32(group), sk: int32(n), longestQ: int32(group), longestK: int32(n),
				d: of.d, dv: of.dv, scale: of.scale, left: -1, right: -1, keepScale: 1,
			}}
			if out.LSE.IsSet() {
				g.attention.lse = written(lse)
			}
			boxes := g.attention.q
			boxes.head = 8 // a step that nobody takes must be a multiple of 16 bytes all the same
			if queries == 1 {
				boxes.batch = 8
			}
			m, err := d.Encode(newTensorMap(boxes, [4]int(view.Shape), 2*v.boxCols, v.boxQ, elementOf(a.Q.DType)))
			if err != nil {
				return err
			}
			if err := d.launch(shapeOf(v.name, v.name, forward90Grid(v, &g.attention, d.Multiprocessors), v.threads, v.sharedBytes), []driver.EncodedMap{m}, unsafe.Pointer(g)); err != nil {
				return err
			}
			if out.LSE.IsSet() {
				to := out.LSE.Slice(0, b, b+1).Slice(1, h*group, (h+1)*group)
				if err := d.copies([]pair{{to, lse.Permute(1, 2, 0)}}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
