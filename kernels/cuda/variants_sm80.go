//go:build gpu

package cuda

import (
	"slices"
	"strconv"

	"github.com/stheno-ml/stheno/kernels"
)

// The kernels for compute capability 8.0 and newer, src/attention_*_sm80.cu: they do everything, on
// any layout. Each is compiled with the tiles that stand here.

// tile80 is how the kernels cut a problem for one size of head, d = dv.
type tile80 struct {
	d            int
	tileQ, tileK int // rows of q and of k
	threads      int
}

// A block of most of these fits in 99 KB of shared memory, what the smallest GPUs have, and two
// share a multiprocessor where there is twice as much. Backward of heads over 128 needs 83 to 151
// KB: the kernels for heads of any size serve where that does not fit.
var (
	forward80Tiles16 = []tile80{
		{d: 32, tileQ: 128, tileK: 64, threads: 128},
		{d: 64, tileQ: 128, tileK: 128, threads: 128},
		{d: 96, tileQ: 128, tileK: 64, threads: 128},
		{d: 128, tileQ: 128, tileK: 48, threads: 128},
		{d: 192, tileQ: 64, tileK: 64, threads: 128},
		{d: 256, tileQ: 64, tileK: 64, threads: 128},
	}
	forward80Tiles32 = []tile80{
		{d: 32, tileQ: 128, tileK: 64, threads: 128},
		{d: 64, tileQ: 128, tileK: 32, threads: 128},
		{d: 96, tileQ: 128, tileK: 32, threads: 128},
		{d: 128, tileQ: 128, tileK: 32, threads: 128},
		{d: 192, tileQ: 64, tileK: 32, threads: 128},
		{d: 256, tileQ: 64, tileK: 16, threads: 128},
	}
	forward80TilesTF = []tile80{
		{d: 32, tileQ: 128, tileK: 64, threads: 128},
		{d: 64, tileQ: 128, tileK: 64, threads: 128},
		{d: 96, tileQ: 128, tileK: 32, threads: 128},
		{d: 128, tileQ: 128, tileK: 32, threads: 128},
		{d: 192, tileQ: 64, tileK: 32, threads: 128},
		{d: 256, tileQ: 64, tileK: 16, threads: 128},
	}

	backward80Tiles16 = []tile80{
		{d: 32, tileQ: 64, tileK: 128, threads: 128},
		{d: 64, tileQ: 64, tileK: 128, threads: 128},
		{d: 96, tileQ: 64, tileK: 64, threads: 128},
		{d: 128, tileQ: 64, tileK: 64, threads: 128},
		{d: 192, tileQ: 32, tileK: 128, threads: 256},
		{d: 256, tileQ: 64, tileK: 64, threads: 256},
	}
	// Devices that hold such blocks take them, for scores of 16 bits that are not modified: with
	// four places a step's tiles arrive during the one before, and with 128 keys what is added to
	// dQ halves.
	backward80TilesRoomy = []tile80{
		{d: 128, tileQ: 64, tileK: 128, threads: 256},
		{d: 256, tileQ: 64, tileK: 64, threads: 256},
	}
	backward80Tiles32 = []tile80{
		{d: 32, tileQ: 64, tileK: 64, threads: 128},
		{d: 64, tileQ: 32, tileK: 64, threads: 128},
		{d: 96, tileQ: 32, tileK: 32, threads: 128},
		{d: 128, tileQ: 32, tileK: 32, threads: 128},
		{d: 192, tileQ: 32, tileK: 32, threads: 128},
		{d: 256, tileQ: 32, tileK: 32, threads: 128},
	}
	backward80TilesTF = []tile80{
		{d: 32, tileQ: 64, tileK: 64, threads: 128},
		{d: 64, tileQ: 32, tileK: 128, threads: 128},
		{d: 96, tileQ: 32, tileK: 64, threads: 128},
		{d: 128, tileQ: 32, tileK: 64, threads: 128},
		{d: 192, tileQ: 32, tileK: 32, threads: 128},
		{d: 256, tileQ: 32, tileK: 32, threads: 128},
	}

	// Modified scores take registers: smaller tiles, and no rows of keys whole.
	forward80TilesMod16 = []tile80{
		{d: 32, tileQ: 128, tileK: 64, threads: 128},
		{d: 64, tileQ: 128, tileK: 64, threads: 128},
		{d: 96, tileQ: 128, tileK: 64, threads: 128},
		{d: 128, tileQ: 128, tileK: 48, threads: 128},
		{d: 192, tileQ: 64, tileK: 64, threads: 128},
		{d: 256, tileQ: 64, tileK: 64, threads: 128},
	}
	backward80TilesMod16 = []tile80{
		{d: 32, tileQ: 64, tileK: 64, threads: 128},
		{d: 64, tileQ: 64, tileK: 64, threads: 128},
		{d: 96, tileQ: 64, tileK: 64, threads: 128},
		{d: 128, tileQ: 64, tileK: 64, threads: 128},
		{d: 192, tileQ: 64, tileK: 64, threads: 256},
		{d: 256, tileQ: 64, tileK: 64, threads: 256},
	}
)

// wide80 is how these kernels cut a problem. They know modified scores, and serve all.
type wide80 struct {
	forward, backward tile80 // d is a part
}

// A block fits in 99 KB, and of 16 bits alone on its multiprocessor it is given all of its memory.
// Forward keeps what it computes in registers, 288 columns of it: all heads
// up to 576 have two parts.
var (
	wide80Tiles16 = wide80{
		forward:  tile80{d: 288, tileQ: 128, tileK: 64, threads: 256},
		backward: tile80{d: 192, tileQ: 64, tileK: 64, threads: 256},
	}
	wide80Tiles32 = wide80{
		forward:  tile80{d: 288, tileQ: 64, tileK: 32, threads: 128},
		backward: tile80{d: 192, tileQ: 32, tileK: 32, threads: 128},
	}
)

// pieceBytes80 are two places for pieces of 64 columns of so many rows: Pieces in
// src/attention_sm80.cuh.
func pieceBytes80(rows int, e arithmetic80) int { return 2 * rows * rowBytes80(64, e.bytes) }

// wideVariants80 are the variants of one kernel for heads of any size. of chooses the kernel's
// tiles, bytes is the least dynamic shared memory of a block, which may keep more.
func wideVariants80(kernel string, keeps bool, of func(w wide80) tile80, bytes func(t tile80, e arithmetic80) int) (list []variant) {
	source := "attention_" + kernel + "_sm80"
	for _, e := range arithmetics80 {
		t := of(wide80Tiles16)
		if e.scaled() {
			t = of(wide80Tiles32)
		}
		l := layout80{places: 2}
		list = append(list, variant{
			source: source, name: source + "_wide_" + e.name, d: kernels.MaxHeadDim, dv: kernels.MaxHeadDim,
			parts: parts{part: t.d, keeps: keeps && !e.scaled()}, element: e.element, options: options{mod: true},
			tileQ: t.tileQ, tileK: t.tileK, threads: t.threads, sharedBytes: bytes(t, e), defines: append(l.defines(), "TILE_WIDE=1"),
		})
	}
	return list
}

// columns is how many columns of a head a block computes.
func (v variant) columns() int {
	if v.part > 0 {
		return v.part
	}
	return v.d
}

// partsOf is how many parts of their columns heads of a size have.
func (v variant) partsOf(columns int32) int {
	if v.part == 0 {
		return 1
	}
	return tilesOf(columns, v.part)
}

// arithmetic80 is a kind of arithmetic: bytes has an element in device memory, operand in shared
// memory where it is multiplied.
type arithmetic80 struct {
	element        element
	name           string
	bytes, operand int
}

var arithmetics80 = []arithmetic80{
	{element: elementBF16, name: "bf16", bytes: 2, operand: 2},
	{element: elementF16, name: "f16", bytes: 2, operand: 2},
	{element: elementF32, name: "f32", bytes: 4, operand: 4},
	{element: elementTF32, name: "tf32", bytes: 4, operand: 2},
}

// scaled tells that operands are multiplied by powers of two: E::SCALED. staged tells that they
// take less room than what arrives.
func (e arithmetic80) scaled() bool { return e.bytes == 4 }
func (e arithmetic80) staged() bool { return e.operand < e.bytes }

// layout80 is how a block lays out its shared memory.
type layout80 struct {
	places   int  // forward: for tiles of k and v; backward: for tiles of q and dO
	swizzled bool // the tiles of q, k, v and dO are permuted instead of padded
	byKeys   bool // backward: a warp computes the scores of whole rows of keys
}

// defines tells the layout to the compiler.
func (l layout80) defines() []string {
	number := map[bool]int{true: 1}
	return []string{
		"TILE_PLACES=" + strconv.Itoa(l.places), "TILE_SWIZZLED=" + strconv.Itoa(number[l.swizzled]), "TILE_BY_KEYS=" + strconv.Itoa(number[l.byKeys]),
	}
}

// variants80 are the variants of one kernel with or without modified scores. layout also returns a
// block's dynamic shared memory.
func variants80(kernel string, mod bool, tiles16, tiles32, tilesTF []tile80, layout func(t tile80, e arithmetic80, mod bool) (layout80, int)) []variant {
	var list []variant
	source := "attention_" + kernel + "_sm80"
	for _, e := range arithmetics80 {
		tiles := tiles16
		switch e.element {
		case elementF32:
			tiles = tiles32
		case elementTF32:
			tiles = tilesTF
		}
		for _, t := range tiles {
			l, bytes := layout(t, e, mod)
			v := variant{
				source: source, name: source + "_d" + strconv.Itoa(t.d) + "_" + e.name,
				d: t.d, dv: t.d, element: e.element, options: options{mod: mod},
				tileQ: t.tileQ, tileK: t.tileK, threads: t.threads, sharedBytes: bytes, defines: l.defines(),
			}
			if mod {
				v.name += "_mod"
			}
			list = append(list, v)
		}
	}
	return list
}

// rowBytes80 is a row of a padded tile in shared memory: Tile::STRIDE. Permuted tiles have no
// padding.
func rowBytes80(columns, bytes int) int { return columns*bytes + 16 }

// forward80Variants are the forward kernels. A block has q, k and v in shared memory; where k and v
// are staged, they have room to arrive too, and in three sizes what arrives next has a tile more.
// Tiles are not permuted where their addresses, which take registers and instructions, cost more
// than the copies gain.
func forward80Variants() []variant {
	layout := func(t tile80, e arithmetic80, mod bool) (l layout80, bytes int) {
		l = layout80{places: 2, swizzled: !e.scaled() && !mod && t.d != 128}
		if !e.scaled() && (t.d == 128 || !mod && (t.d == 96 || t.d == 192)) {
			l.places = 3
		}
		if l.swizzled {
			return l, (t.tileQ + l.places*t.tileK) * t.d * e.operand
		}
		bytes = (t.tileQ + l.places*t.tileK) * rowBytes80(t.d, e.operand)
		if e.staged() {
			bytes += 2 * t.tileK * rowBytes80(t.d, e.bytes)
		}
		return l, bytes
	}
	wide := func(t tile80, e arithmetic80) int {
		v := t.tileK * rowBytes80(t.d, e.bytes)
		return max(pieceBytes80(t.tileQ+t.tileK, e)+v, t.tileQ*rowBytes80(t.d, e.operand))
	}
	return slices.Concat(variants80("forward", false, forward80Tiles16, forward80Tiles32, forward80TilesTF, layout),
		variants80("forward", true, forward80TilesMod16, forward80Tiles32, forward80TilesTF, layout),
		wideVariants80("forward", true, func(w wide80) tile80 { return w.forward }, wide))
}

// backward80Layout is that of the backward kernels. A block has k, v, P and dS in shared memory,
// byKeys without P, and two to four tiles of q and dO; scaled dS twice, because one has the powers
// of q and one those of k. Tiles are permuted where that was measured to be faster, by 2 to 5 %.
// Scores go by keys where registers suffice for that and scores are not modified: with tiles of 128
// keys, what is added to dQ, which the second level cache limits, halves.
func backward80Layout(t tile80, e arithmetic80, mod bool) (l layout80, bytes int) {
	l = layout80{places: 2, swizzled: !e.scaled() && !mod && (t.d == 96 || t.d == 256), byKeys: !e.scaled() && !mod && t.tileK == 128}
	squares := 2 * t.tileQ * rowBytes80(t.tileK, e.operand)
	switch {
	case e.scaled():
		squares = 3 * t.tileQ * rowBytes80(t.tileK, e.operand)
	case l.byKeys:
		l.places, squares = 3, t.tileK*rowBytes80(t.tileQ, e.operand)
	case t.d < 128:
		l.places = 4
	}
	if l.swizzled {
		return l, (l.places*t.tileQ+2*t.tileK)*t.d*e.operand + squares
	}
	return l, l.places*t.tileQ*rowBytes80(t.d, e.bytes) + 2*t.tileK*rowBytes80(t.d, e.operand) + squares
}

// backward80Variants are the backward kernels. Those of the most shared memory come first: of the
// kernels for a size the first that fits is chosen.
func backward80Variants() []variant {
	wide := func(t tile80, e arithmetic80) int {
		squares := 2
		if e.scaled() {
			squares = 3
		}
		return t.tileK*rowBytes80(t.d, e.operand) + 2*t.tileQ*rowBytes80(t.d, e.bytes) + squares*t.tileQ*rowBytes80(t.tileK, e.operand)
	}
	roomy := variants80("backward", false, backward80TilesRoomy, nil, nil, func(t tile80, e arithmetic80, mod bool) (layout80, int) {
		l := layout80{places: 4, swizzled: true}
		return l, (l.places*t.tileQ+2*t.tileK)*t.d*e.operand + 2*t.tileQ*rowBytes80(t.tileK, e.operand)
	})
	for i := range roomy {
		roomy[i].name += "_roomy"
	}
	return slices.Concat(roomy, variants80("backward", false, backward80Tiles16, backward80Tiles32, backward80TilesTF, backward80Layout),
		variants80("backward", true, backward80TilesMod16, backward80Tiles32, backward80TilesTF, backward80Layout),
		wideVariants80("backward", true, func(w wide80) tile80 { return w.backward }, wide))
}

// dBias80Variants are the kernels for the deterministic gradient of a bias that several scores
// share. They serve whatever backward kernel was chosen. A block has q, dO, k and v in shared
// memory.
func dBias80Variants() []variant {
	layout := func(t tile80, e arithmetic80, mod bool) (layout80, int) {
		l, _ := backward80Layout(t, e, mod)
		return l, 2*t.tileQ*rowBytes80(t.d, e.bytes) + 2*t.tileK*rowBytes80(t.d, e.operand)
	}
	wide := func(t tile80, e arithmetic80) int { return pieceBytes80(t.tileQ+t.tileK, e) }
	return append(variants80("dbias", true, backward80TilesMod16, backward80Tiles32, backward80TilesTF, layout),
		wideVariants80("dbias", false, func(w wide80) tile80 { return w.backward }, wide)...)
}

// forward80Grid is a block for each tile of queries and part of o.
func forward80Grid(v variant, a *arguments, multiprocessors int) [3]int {
	return [3]int{tilesOf(a.longestQ, v.tileQ) * v.partsOf(a.dv) * int(a.heads) * int(a.sequences), 1, 1}
}

// backward80Grid is a block for each tile of keys and part of the gradients.
func backward80Grid(v variant, a *arguments, multiprocessors int) [3]int {
	return [3]int{tilesOf(a.longestK, v.tileK) * v.partsOf(max(a.d, a.dv)) * int(a.keyHeads) * int(a.sequences), 1, 1}
}

// backward80Scratch is the memory in bytes that the sums of dQ and the counters need, both zero at
// launch: querySlot in src/attention_backward_sm80.cuh. The kernel leaves the counters zero.
func backward80Scratch(v variant, a *arguments) (sums, counters int) {
	slots := int(a.sequences) * tilesOf(a.sq, v.tileQ)
	if a.qLens != 0 {
		slots = int(a.sq)/v.tileQ + int(a.sequences)
	}
	slots *= int(a.heads) * v.partsOf(max(a.d, a.dv))
	return slots * v.tileQ * v.columns() * 4, slots * 4
}

// dBias80Grid is a block for each tile of the bias.
func dBias80Grid(v variant, a *arguments) [3]int {
	columns, rows, heads, sequences := 1, 1, 1, 1
	if a.dBiasColumn != 0 {
		columns = tilesOf(a.longestK, v.tileK)
	}
	if a.dBiasRow != 0 {
		rows = tilesOf(a.longestQ, v.tileQ)
	}
	if a.dBiasHead != 0 {
		heads = int(a.heads)
	}
	if a.dBiasSequence != 0 {
		sequences = int(a.sequences)
	}
	return [3]int{columns * rows * heads * sequences, 1, 1}
}
