//go:build gpu

package cuda

import (
	"math"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// A row of K and V that is gathered serves the heads of one query, and the L2 cache brings only so
// many rows a second. Full attention shares a row among the queries of a tile. It is the faster way
// where lists have a good part of the keys: a bias of −∞ then hides those that a list lacks.

// listedPlanes is ListedPlanes in src/listedkeys_planes.cu.
type listedPlanes struct {
	lists              indexList
	fault              fault
	strides            [3]int64
	bias, gather       address
	first              [3]int32
	heads, rows        int32
	listHeads, queries int32
	keys, n, stride    int32
	hidden             int32
	zero               int32
}

// listedNumbers is ListedNumbers there.
type listedNumbers struct {
	rows                       rows[readable]
	heads, length, size, count int32
	each                       int32
	large                      uint32
	wide, zero                 int32
}

// listedExtremes is ListedExtremes there.
type listedExtremes struct {
	list   [5]listedNumbers
	gather address
}

// bytesOfPlanes is how many bytes the bias of a part of the problem may take.
var bytesOfPlanes = 512 << 20

// listedWay is how attention to listed keys is computed. Tests choose it.
type listedWay int

const (
	listedFaster   listedWay = iota
	listedGathered           // by the kernels for any device
	listedOfRows             // by those whose tiles have the heads of a query, where there are some
	listedDense              // by full attention, where it can
)

var waysOfLists = listedFaster

// denseLists is a problem that full attention computes, in parts.
type denseLists struct {
	*kernels.ListedAttention
	device *Device
	planes listedPlanes // what all parts have in common
	parts  []listedPart
	memory *driver.Block // the bias of a part, and behind it gather
	gather address       // a flag: the kernels that gather keys have to compute the problem
}

// listedPart is some batch items, key heads and queries.
type listedPart struct {
	batch, batches, head, heads, row, rows int
}

// queries is the part's of a tensor that has q's batch items, heads and rows.
func (p listedPart) queries(t kernels.Tensor, group int) kernels.Tensor {
	return t.Slice(0, p.batch, p.batch+p.batches).Slice(1, p.head*group, (p.head+p.heads)*group).Slice(2, p.row, p.row+p.rows)
}

// keys is the part's of K, V or a gradient of these.
func (p listedPart) keys(t kernels.Tensor) kernels.Tensor {
	if t.Shape[0] > 1 {
		t = t.Slice(0, p.batch, p.batch+p.batches)
	}
	return t.Slice(1, p.head, p.head+p.heads)
}

// densely begins to compute the problem by full attention; it returns nil if that is not possible,
// not faster, or has no room. The caller frees the memory. numbers are what pairs that no list has
// may give a NaN of.
func (d *Device) densely(a *kernels.ListedAttention, g *listedArguments, cost *listedCost, numbers ...kernels.Tensor) (*denseLists, error) {
	if !d.worthDense(a, cost) {
		return nil, nil
	}
	const multiple = 8 // of 16-bit elements, which a tensor map needs
	stride := (a.K.Shape[2] + multiple - 1) / multiple * multiple
	hidden := map[kernels.DType]int32{kernels.BF16: 0xff80, kernels.F16: 0xfc00}
	c := &denseLists{ListedAttention: a, device: d, planes: listedPlanes{
		lists: g.lists, fault: g.fault, strides: [3]int64{g.listBatch, g.listHead, g.listRow}, listHeads: int32(a.Lists.Shape[1]),
		queries: g.queries, keys: g.keys, n: g.n, stride: int32(stride), hidden: hidden[a.Q.DType],
	}}
	extremes := &listedExtremes{}
	for i, t := range numbers {
		if !extremes.list[i].describe(t) {
			return nil, nil
		}
	}
	if c.parts = c.cut(cost == &backwardCost); c.parts == nil {
		return nil, nil
	}
	bytes := 0
	for _, p := range c.parts {
		batches, heads := c.planesOf(p)
		bytes = max(bytes, batches*heads*p.rows*stride*a.Q.DType.Size())
	}
	flag := (bytes + 15) / 16 * 16
	var err error
	if c.memory, err = d.scratch(flag + kernels.I32.Size()); err != nil {
		return nil, nil // gathering needs less
	}
	c.gather = c.memory.At + address(flag)
	c.planes.bias, c.planes.gather, extremes.gather = c.memory.At, c.gather, c.gather
	if err = d.zero(c.gather, kernels.I32.Size()); err == nil {
		grid := [3]int{2 * d.Multiprocessors, len(numbers), 1}
		err = d.launch(shapeOf("listedkeys_planes", "listed_extremes", grid, 256, 0), nil, unsafe.Pointer(extremes))
	}
	if err != nil {
		c.memory.Free()
		return nil, err
	}
	return c, nil
}

// listedCost is what attention to listed keys takes on an H200, in seconds. Of full attention: what
// is done once, a score, or if that is more, a score for each element of a head, and an element of
// the bias. Of gathering: a list, and a row of K and V, of it an element, and of that one head's.
type listedCost struct{ once, score, ofHead, cell, list, row, element, head float64 }

var (
	forwardCost  = listedCost{once: 90e-6, score: 7.4e-13, ofHead: 7.6e-15, cell: 8e-13, list: 5e-9, row: 2e-11, element: 5.1e-13, head: 1.1e-14}
	rowsCost     = listedCost{once: 90e-6, score: 7.4e-13, ofHead: 7.6e-15, cell: 8e-13, list: 5e-9, row: 2e-11, element: 5.1e-13, head: 0.85e-14}
	backwardCost = listedCost{once: 120e-6, score: 14.5e-13, ofHead: 19e-15, cell: 8e-13, list: 3e-9, element: 3.15e-12, head: 5.6e-14}
)

// worthDense reports whether full attention serves the problem and takes less time.
func (d *Device) worthDense(a *kernels.ListedAttention, cost *listedCost) bool {
	q, k, l := a.Q.Shape, a.K.Shape, a.Lists.Shape
	empty := min(q[0], q[1], q[2], q[3], k[1], k[2], l[3], a.V.Shape[3]) == 0
	if empty || !d.hasMaps() || a.Q.DType == kernels.F32 || math.Abs(a.Plain().EffectiveScale()) > 1<<20 || l[0]*l[1] > math.MaxUint16 {
		return false
	}
	if waysOfLists != listedFaster {
		return waysOfLists == listedDense
	}
	const rowsOfTile = 128
	size, group := float64(max(q[3], a.V.Shape[3])), float64(q[1]/k[1])
	// Few tiles leave multiprocessors idle: of queries forward, of keys backward.
	tiles := q[0] * q[1] * q[2]
	if cost == &backwardCost {
		tiles = k[0] * k[1] * k[2]
	}
	idle := max(1, float64(d.Multiprocessors*rowsOfTile)/float64(tiles))
	dense := cost.once + idle*max(cost.score, cost.ofHead*size)*float64(q[0]*q[1]*q[2]*k[2]) + cost.cell*float64(l[0]*l[1]*q[2]*k[2])
	gather := float64(q[0]*k[1]*q[2]) * (cost.list + float64(l[3])*(cost.row+size*max(cost.element, cost.head*group)))
	return dense < gather
}

// describe says where the numbers of a tensor are, and reports whether a kernel can count them.
func (n *listedNumbers) describe(t kernels.Tensor) bool {
	shape, r := t.Shape, rows[readable]{data: read(t)}
	isStatistic, pieces, large := len(shape) == 3, 1, uint32(0x5780) // 2^48 in bfloat16
	if isStatistic {
		shape = append(slices.Clone(shape), 1)
	}
	r.batch, r.head, r.row = int64(t.Strides[0]), int64(t.Strides[1]), int64(t.Strides[2])
	if !isStatistic && shape[3]%8 == 0 && describable([]kernels.Tensor{t}) {
		pieces = 8
	}
	switch t.DType {
	case kernels.F16:
		large = 0x7c00
	case kernels.F32:
		large = 0x57800000
	}
	count := shape[0] * shape[1] * shape[2] * shape[3] / pieces
	*n = listedNumbers{
		rows: r, heads: int32(shape[1]), length: int32(shape[2]), size: int32(shape[3]), each: int32(pieces), large: large,
		count: int32(min(count, math.MaxInt32)), wide: flag(t.DType == kernels.F32),
	}
	return count <= math.MaxInt32
}

// cut cuts the problem into parts, so that their biases have room: batch items, key heads of a
// batch item, or queries. A backward kernel needs all queries, and all batch items that share keys;
// nil says that there is no room for them.
func (c *denseLists) cut(backward bool) (parts []listedPart) {
	q, k, l := c.Q.Shape, c.K.Shape, c.Lists.Shape
	row := int(c.planes.stride) * c.Q.DType.Size()
	room := max(1, bytesOfPlanes/(row*q[2]))
	batches, heads, rows := q[0], k[1], q[2]
	if l[1] > 1 {
		if heads = min(heads, room); q[1] > k[1] {
			heads = 1 // a bias is of each head or of all of them
		}
	}
	if heads < k[1] {
		batches = 1 // statistics of some heads of several batch items do not lie together
	} else if l[0] > 1 {
		batches = min(batches, max(1, room/l[1]))
	}
	if row*rows > bytesOfPlanes {
		const ofTile = 128
		rows = max(1, bytesOfPlanes/(row*ofTile)) * ofTile
	}
	if backward && (rows < q[2] || batches < q[0] && k[0] == 1) {
		return nil
	}
	for b := 0; b < q[0]; b += batches {
		for h := 0; h < k[1]; h += heads {
			for r := 0; r < q[2]; r += rows {
				parts = append(parts, listedPart{b, min(batches, q[0]-b), h, min(heads, k[1]-h), r, min(rows, q[2]-r)})
			}
		}
	}
	return parts
}

// group is how many query heads read a key head.
func (c *denseLists) group() int { return c.Q.Shape[1] / c.K.Shape[1] }

// planesOf are the batch items and key heads that a part's lists differ in.
func (c *denseLists) planesOf(p listedPart) (batches, heads int) {
	return min(p.batches, c.Lists.Shape[0]), min(p.heads, c.Lists.Shape[1])
}

// each makes the bias of each part and calls compute with full attention of it.
func (c *denseLists) each(compute func(p listedPart, a *kernels.Attention) error) error {
	d, group, stride := c.device, c.group(), int(c.planes.stride)
	for _, p := range c.parts {
		batches, heads := c.planesOf(p)
		g := c.planes
		g.first, g.heads, g.rows = [3]int32{int32(p.batch), int32(p.head), int32(p.row)}, int32(heads), int32(p.rows)
		if err := d.launch(shapeOf("listedkeys_planes", "listed_planes", [3]int{p.rows, batches * heads, 1}, 256, 0), nil, unsafe.Pointer(&g)); err != nil {
			return err
		}
		bias := kernels.Contiguous(c.memory.At.Pointer(), c.Q.DType, batches, heads, p.rows, stride).Slice(3, 0, c.K.Shape[2])
		a := &kernels.Attention{
			Q: p.queries(c.Q, group), K: p.keys(c.K), V: p.keys(c.V), Bias: bias, Scale: c.Scale, Guarantees: kernels.Guarantees{Deterministic: c.Deterministic},
		}
		if err := compute(p, a); err != nil {
			return err
		}
	}
	return nil
}

// forward computes what AttentionForward does.
func (c *denseLists) forward(out kernels.AttentionOutputs) error {
	group := c.group()
	return c.each(func(p listedPart, a *kernels.Attention) error {
		part := kernels.AttentionOutputs{O: p.queries(out.O, group)}
		if !out.LSE.IsSet() {
			return c.device.AttentionForward(a, part)
		}
		lse := p.queries(out.LSE, group)
		if part.LSE = lse; lse.IsRowMajor() {
			return c.device.AttentionForward(a, part)
		}
		memory, err := c.device.scratch(lse.Elements() * lse.DType.Size())
		if err != nil {
			return err
		}
		defer memory.Free()
		part.LSE = kernels.Contiguous(memory.At.Pointer(), lse.DType, lse.Shape...)
		if err := c.device.AttentionForward(a, part); err != nil {
			return err
		}
		return c.device.copies([]pair{{lse, part.LSE}})
	})
}

// backward computes what AttentionBackward does.
func (c *denseLists) backward(g kernels.AttentionGradients) error {
	group := c.group()
	return c.each(func(p listedPart, a *kernels.Attention) error {
		return c.device.AttentionBackward(a, kernels.AttentionGradients{
			DO: p.queries(g.DO, group), LSE: p.queries(g.LSE, group), Delta: p.queries(g.Delta, group),
			DQ: p.queries(g.DQ, group), DK: p.keys(g.DK), DV: p.keys(g.DV),
		})
	})
}
