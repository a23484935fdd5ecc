//go:build gpu

package cuda

import (
	"fmt"
	"slices"
)

// forward90Tile is how src/attention_forward_sm90.cuh cuts a problem for one size of head.
type forward90Tile struct {
	d, dv   int
	groups  int  // of 64 query rows, a warpgroup each
	tileK   int  // keys
	stages  int  // key tiles, and value tiles, in shared memory at a time
	stagesQ int  // tiles of queries there
	bias    int  // pieces of a mapped bias there, each the tile's rows of 128 bytes
	heads   int  // that a tile has, one for each group, or 0: it has one
	slants  bool // there is a place for the distances of slopes
}

// forward90Tiles are the sizes that forward kernels for sm_90a are compiled for, and
// forward90ModTiles the same sizes for modified scores: those kernels need places for the bias.
var (
	forward90Tiles = []forward90Tile{
		{d: 64, dv: 64, groups: 3, tileK: 128, stages: 3, stagesQ: 2},
		{d: 96, dv: 96, groups: 3, tileK: 96, stages: 3, stagesQ: 1},
		{d: 128, dv: 128, groups: 2, tileK: 128, stages: 2, stagesQ: 2},
		{d: 192, dv: 128, groups: 2, tileK: 128, stages: 2, stagesQ: 1},
		{d: 192, dv: 192, groups: 2, tileK: 96, stages: 2, stagesQ: 1},
		{d: 256, dv: 256, groups: 2, tileK: 64, stages: 2, stagesQ: 1},
	}
	forward90ModTiles = []forward90Tile{
		{d: 64, dv: 64, groups: 3, tileK: 128, stages: 3, stagesQ: 1, bias: 3},
		{d: 96, dv: 96, groups: 2, tileK: 128, stages: 2, stagesQ: 1, bias: 3},
		{d: 128, dv: 128, groups: 2, tileK: 128, stages: 2, stagesQ: 1, bias: 3},
		{d: 192, dv: 128, groups: 2, tileK: 64, stages: 3, stagesQ: 1, bias: 2},
		{d: 192, dv: 192, groups: 2, tileK: 64, stages: 2, stagesQ: 1, bias: 4},
		{d: 256, dv: 256, groups: 2, tileK: 64, stages: 2, stagesQ: 1, bias: 1},
	}
	// forward90LongTiles are what forward90Longer chooses.
	forward90LongTiles = []forward90Tile{
		{d: 128, dv: 128, groups: 3, tileK: 80, stages: 2, stagesQ: 1},
	}
	// forward90WindowTiles are what it chooses for windows.
	forward90WindowTiles = []forward90Tile{
		{d: 128, dv: 128, groups: 3, tileK: 64, stages: 3, stagesQ: 2},
	}
	// forward90DropoutTiles are for dropout alone, which is drawn for 64 keys at a time.
	forward90DropoutTiles = []forward90Tile{
		{d: 64, dv: 64, groups: 3, tileK: 128, stages: 3, stagesQ: 2},
		{d: 96, dv: 96, groups: 2, tileK: 128, stages: 2, stagesQ: 2},
		{d: 128, dv: 128, groups: 2, tileK: 128, stages: 2, stagesQ: 2},
		{d: 192, dv: 128, groups: 2, tileK: 128, stages: 2, stagesQ: 1},
		{d: 192, dv: 192, groups: 2, tileK: 64, stages: 3, stagesQ: 1},
		{d: 256, dv: 256, groups: 2, tileK: 64, stages: 2, stagesQ: 1},
	}
)

// forward90Variants are the forward kernels for sm_90a: each size in both 16-bit types, without and
// with modified scores, what forward90Longer chooses, those with dropout or a bias alone, and those
// with soft cap and slopes alone, or slopes alone, which have the tiles of plain scores.
func forward90Variants() []variant {
	var list []variant
	for _, tiles := range []struct {
		sizes          []forward90Tile
		kernel, suffix string
		knows          options
	}{
		{forward90Tiles, "forward", "", options{}}, {forward90ModTiles, "forward", "_mod", options{mod: true}},
		{forward90LongTiles, "forward", "_long", options{}}, {forward90WindowTiles, "forward", "_window", options{}}, {forward90DropoutTiles, "forward_dropout", "", options{drops: true}},
		{forward90Tiles, "forward", "_unbiased", options{unbiased: true}}, {forward90Tiles, "forward", "_slopes", options{slopes: true}},
		{forward90LongTiles, "forward", "_slopes_long", options{slopes: true}}, {forward90ModTiles, "forward", "_bias", options{bias: true}},
	} {
		for _, t := range tiles.sizes {
			// Slopes come by product where shared memory has room for the distances.
			t.slants = tiles.knows.slopes && !(t.d == 192 && t.dv == 128)
			for _, e := range []element{elementBF16, elementF16} {
				v := t.variant(tiles.kernel, e, tiles.suffix)
				if v.options = tiles.knows; v.mod || v.bias {
					v.boxBias = v.tileQ
				}
				list = append(list, v)
			}
		}
	}
	return list
}

func (t forward90Tile) variant(kernel string, e element, suffix string) variant {
	source := "attention_" + kernel + "_sm90"
	name := fmt.Sprintf("%s_d%d", source, t.d)
	if t.dv != t.d {
		name += fmt.Sprintf("_dv%d", t.dv)
	}
	name += map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[e] + suffix
	return variant{
		source: source, name: name, d: t.d, dv: t.dv, element: e,
		tileQ: 64 * t.groups / max(1, t.heads), tileK: t.tileK, threads: 128 * (t.groups + 1), sharedBytes: t.sharedBytes(),
		boxes:   boxes{boxCols: 64, boxQ: 64, boxK: t.tileK},
		defines: t.defines(),
	}
}

func (t forward90Tile) defines() []string {
	list := []string{fmt.Sprintf("STAGES=%d", t.stages), fmt.Sprintf("STAGES_Q=%d", t.stagesQ), fmt.Sprintf("STAGES_BIAS=%d", t.bias), fmt.Sprintf("TILE_HEADS=%d", max(1, t.heads))}
	if t.slants {
		list = append(list, "SLANTS=1")
	}
	return list
}

// sharedBytes is ForwardShape::SharedBytes: Q and the rings of K and V in chunks of 64 columns, a
// piece for each warp's rows of O, the pieces of the bias, the distances of slopes, barriers, and
// what aligning the start may cost.
func (t forward90Tile) sharedBytes() int {
	const columns, rowBytes, barriers, alignment = 64, 128, 320, 1024
	chunks, chunksV := (t.d+columns-1)/columns, (t.dv+columns-1)/columns
	rows := 64*t.groups*(t.stagesQ*chunks+1+t.bias) + t.stages*t.tileK*(chunks+chunksV)
	slants := 0
	if t.slants {
		slants = 32 * t.tileK
	}
	return rowBytes*rows + slants + barriers + alignment
}

// forward90Longer is the variant of v's size and type with larger tiles of queries if there is one,
// sequences are long and see each other whole or through a narrow window, and the device's
// multiprocessors have enough of these tiles to be busy to the end; otherwise v. A row of a larger
// tile takes some 7 % less time, but a mask cuts more off it. Those for windows have fewer keys.
func forward90Longer(v variant, a *arguments, multiprocessors int) variant {
	const long, narrow = 2048, 4096
	sq, sk := int(a.sq), int(a.sk)
	if a.qLens != 0 {
		sq, sk = sq/int(a.sequences), sk/int(a.sequences)
	}
	tiles := forward90LongTiles
	if a.causal != 0 || a.left >= 0 || a.right >= 0 {
		ends := a.causal != 0 || a.right >= 0
		if v.options != (options{}) || a.left < 0 || !ends || int(a.left)+max(0, int(a.right)) > narrow {
			return v
		}
		tiles = forward90WindowTiles
	}
	if v.mod || v.bias || v.drops || v.unbiased || min(sq, sk) < long {
		return v
	}
	t := slices.IndexFunc(tiles, func(t forward90Tile) bool { return t.d == v.d && t.dv == v.dv })
	if t < 0 {
		return v
	}
	table := forwardVariants()[0]
	at := slices.IndexFunc(table, func(w variant) bool {
		return w.d == v.d && w.dv == v.dv && w.element == v.element && w.options == v.options && w.tileQ == 64*tiles[t].groups && w.tileK == tiles[t].tileK
	})
	// The rows of the multiprocessor that has most, as if all tiles took the same time.
	most := func(v variant) int {
		return (forward90TilesOf(v, a) + multiprocessors - 1) / multiprocessors * v.tileQ
	}
	if w := table[at]; 100*most(w) < 106*most(v) {
		return w
	}
	return v
}

// forward90BlockTiles are for masks of blocks of 64 queries: two or three blocks of threads run on
// a multiprocessor, and each has the keys that its 64 queries see.
var forward90BlockTiles = []forward90Tile{
	{d: 64, dv: 64, groups: 1, tileK: 64, stages: 3, stagesQ: 1},
	{d: 96, dv: 96, groups: 1, tileK: 128, stages: 1, stagesQ: 2},
	{d: 128, dv: 128, groups: 1, tileK: 64, stages: 2, stagesQ: 2},
}

// forward90AlongBlocks is the variant of v's size and type whose tiles end where blocks of so many
// queries do, or else have 128, and 64 keys or twice as many. It is compiled with the mask. Blocks
// of 64 queries make a tile with those of the next head where pairs of heads share keys and mask.
func forward90AlongBlocks(v variant, queries int, pairs bool) variant {
	tables := [][]forward90Tile{forward90DropoutTiles}
	short := queries%128 != 0 && queries%64 == 0
	if short && !pairs {
		tables = [][]forward90Tile{forward90BlockTiles, forward90DropoutTiles}
	}
	for _, t := range slices.Concat(tables...) {
		if t.d == v.d && t.dv == v.dv {
			if t.groups = min(t.groups, 2); short && pairs {
				t.heads = t.groups
			}
			return t.variant("forward", v.element, "_blocks")
		}
	}
	return v
}

// forward90Grid is the number of blocks: they draw tiles until none is left, so there are no more
// than run at a time.
func forward90Grid(v variant, a *arguments, multiprocessors int) [3]int {
	return [3]int{max(1, min(forward90TilesOf(v, a), multiprocessors*v.blocks90())), 1, 1}
}

// blocks90 is how many blocks of a kernel for sm_90a run on a multiprocessor at a time: Blocks of
// its shape in src.
func (v variant) blocks90() int {
	const oneGroup = 256 // beside the one that loads
	switch {
	case v.threads > oneGroup:
		return 1
	case v.source != backward90Source && v.d <= 64 && v.tileK == 64:
		return 3
	}
	return 2
}

// forward90TilesOf is how many tiles a problem has, at most if its sequences differ in length.
func forward90TilesOf(v variant, a *arguments) int {
	return tilesOf(a.longestQ, v.tileQ) * int(a.heads) * int(a.sequences)
}
