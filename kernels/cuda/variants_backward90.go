//go:build gpu

package cuda

import (
	"fmt"
	"slices"
)

// backward90Tile is how src/attention_backward_sm90.cuh cuts a problem for one size of head.
type backward90Tile struct {
	d, dv           int
	tileQ, tileQMod int // query rows, without and with modified scores
	tileQShort      int // and of a variant for short sequences, if there is one
	tileQFew        int // and of a variant with twice the keys, if there is one
	tileK           int // keys
	columns         int // of the sums of dQ, which come in whole products
}

// backward90Tiles are the sizes that backward kernels for sm_90a are compiled for. tileK and
// columns follow from the size, by BackwardShape and BackwardSums in src; the query rows are what
// registers allow.
var backward90Tiles = []backward90Tile{
	{d: 64, dv: 64, tileQ: 128, tileQMod: 128, tileK: 128, columns: 64},
	{d: 96, dv: 96, tileQ: 80, tileQMod: 64, tileK: 128, columns: 128},
	{d: 128, dv: 128, tileQ: 80, tileQMod: 64, tileQShort: 64, tileK: 128, columns: 128},
	{d: 192, dv: 128, tileQ: 64, tileQMod: 64, tileQFew: 32, tileK: 64, columns: 192},
	{d: 192, dv: 192, tileQ: 64, tileQMod: 64, tileK: 64, columns: 192},
	{d: 256, dv: 256, tileQ: 64, tileQMod: 64, tileK: 64, columns: 256},
}

// backward90Variants are the backward kernels for sm_90a: each size in both 16-bit types, without
// and with modified scores, with slopes or a bias alone, and what backward90Shorter chooses.
func backward90Variants() []variant {
	var list []variant
	for _, t := range backward90Tiles {
		for _, e := range []element{elementBF16, elementF16} {
			list = append(list, t.variant(e, t.tileQ, false, ""), t.variant(e, t.tileQMod, true, "_mod"), t.slopes(e, t.tileQ, "_slopes"), t.bias(e, "_bias"))
			if t.tileQShort > 0 {
				list = append(list, t.variant(e, t.tileQShort, false, "_short"), t.slopes(e, t.tileQShort, "_slopes_short"))
			}
			if t.tileQFew > 0 {
				few := t
				few.tileK *= 2
				list = append(list, few.variant(e, t.tileQFew, false, "_few"))
			}
		}
	}
	return list
}

// backward90Source is the source of the backward kernels.
const backward90Source = "attention_backward_sm90"

func (t backward90Tile) variant(e element, tileQ int, mod bool, suffix string) variant {
	v := variant{
		source: backward90Source, name: backward90Source + "_" + t.suffix(e) + suffix,
		d: t.d, dv: t.dv, element: e, options: options{mod: mod}, tileQ: tileQ, tileK: t.tileK, threads: 384,
		sharedBytes: t.sharedBytes(tileQ, mod), boxes: boxes{boxCols: 64, boxQ: tileQ, boxK: t.tileK},
	}
	if mod {
		v.threads, v.boxBias = 512, tileQ
	} else if t.alone() {
		v.threads = 256
	}
	return v
}

// slopes is the variant for slopes alone. It is like the one without modified scores, and has a
// place for distances, where heads are not wide: those have room for them.
func (t backward90Tile) slopes(e element, tileQ int, suffix string) variant {
	v := t.variant(e, tileQ, false, suffix)
	if v.slopes = true; t.d <= 128 {
		const rowBytes, stages = 32, 2
		v.sharedBytes += rowBytes * (t.tileK + stages*tileQ)
	}
	return v
}

// bias is the variant for a bias alone. It is like the one without modified scores, and has a place
// for the bias.
func (t backward90Tile) bias(e element, suffix string) variant {
	v := t.variant(e, t.tileQ, false, suffix)
	v.options, v.boxBias = options{bias: true}, t.tileQ
	if t.d <= 128 {
		const rowBytes, columns = 128, 64
		v.sharedBytes += rowBytes * t.tileK / columns * t.tileQ
	}
	return v
}

// backward90Shorter is the variant of v's size and type with shorter tiles of queries if there is
// one and the problem's sequences are short or its window narrow, so that what tiles have too much
// at the ends counts, or if it has twice the keys, which halves what is added to the sums of dQ,
// and v would need more than one tile of them; otherwise v. The table has it behind v.
func backward90Shorter(v variant, a *arguments) variant {
	const short, narrow = 1024, 2048
	right := a.right
	if a.causal != 0 {
		right = 0
	}
	windowed := a.left >= 0 && right >= 0 && int(a.left)+int(right) < narrow
	if v.mod || v.d <= 128 && a.longestQ > short && !windowed || v.d > 128 && int(a.longestK) <= v.tileK {
		return v
	}
	table := backwardVariants()[0]
	at := slices.IndexFunc(table, func(w variant) bool {
		return w.d == v.d && w.dv == v.dv && w.element == v.element && w.options == v.options && w.tileQ < v.tileQ
	})
	if at < 0 {
		return v
	}
	return table[at]
}

// backward90AlongBlocks is the variant of v's size and type whose tiles end where blocks of so many
// queries and keys do, if there is one: v, or one that is compiled with the mask. Where blocks have
// 64 keys, two blocks of threads run on a multiprocessor and a tile is 64 keys. Other tiles for
// heads of 64 have 128 queries, since each of two warpgroups makes the sums of dQ for 64.
func backward90AlongBlocks(v variant, queries, keys int) variant {
	t := backward90TileOf(v)
	if v.d <= 128 && queries%64 == 0 && keys%64 == 0 && keys%128 != 0 {
		t.tileK = 64
		return t.variant(v.element, 64, false, "_blocks")
	}
	if v.d <= 64 || queries%v.tileQ == 0 || queries%64 != 0 {
		return v
	}
	return t.variant(v.element, 64, false, "_blocks")
}

func (t backward90Tile) suffix(e element) string {
	size := fmt.Sprintf("d%d", t.d)
	if t.dv != t.d {
		size += fmt.Sprintf("_dv%d", t.dv)
	}
	return size + map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[e]
}

func backward90TileOf(v variant) backward90Tile {
	for _, t := range backward90Tiles {
		if t.d == v.d && t.dv == v.dv {
			return t
		}
	}
	panic("cuda: " + v.name + " is not a backward kernel for sm_90a")
}

// alone reports whether one warpgroup has all of a tile's keys.
func (t backward90Tile) alone() bool { return t.d <= 128 && t.tileK == 64 }

// sharedBytes is BackwardShape::SharedBytes: K and V, two of Q and dO and of dS, of which a
// warpgroup alone has one, two of P for wide heads, otherwise the bias of modified scores, a bit of
// dropout for each of them, LSE and δ, barriers, and what aligning the start may cost. Rows are in
// chunks of 64 columns.
func (t backward90Tile) sharedBytes(tileQ int, mod bool) int {
	const columns, rowBytes, barriers, records, alignment = 64, 128, 256, 2 * 64, 1024
	chunks := (t.d+columns-1)/columns + (t.dv+columns-1)/columns
	buffers := 2 // of dS
	if t.alone() {
		buffers = 1
	}
	rows := chunks*t.tileK + 2*chunks*tileQ + buffers*t.tileK/columns*tileQ
	if t.d > 128 && t.tileK == 64 {
		rows += 2 * tileQ
	} else if mod {
		rows += t.tileK / columns * tileQ
	}
	bytes := rows*rowBytes + 2*tileQ*8 + barriers + records + alignment
	if mod {
		bytes += t.tileK * tileQ / 8
	}
	return bytes
}

// backward90Grid is the number of blocks: they draw tiles of keys until none is left, so there are
// no more than run at a time.
func backward90Grid(v variant, a *arguments, multiprocessors int) [3]int {
	tiles := tilesOf(a.longestK, v.tileK) * int(a.keyHeads) * int(a.sequences)
	return [3]int{max(1, min(tiles, multiprocessors*v.blocks90())), 1, 1}
}

// backward90Scratch is the bytes of dQSum, which need not be zero, and of counters, which are zero
// at launch and again once attention_dq has run.
func backward90Scratch(v variant, a *arguments) (sums, counters int) {
	t := backward90TileOf(v)
	tiles := tilesOf(a.sq, v.tileQ) * int(a.sequences)
	if a.qLens != 0 {
		tiles = int(a.sq)/v.tileQ + int(a.sequences) // each sequence begins with a tile of its own
	}
	tiles *= int(a.heads)
	const queue = 2
	return 4 * tiles * v.tileQ * t.columns, 4 * (queue + tiles)
}
