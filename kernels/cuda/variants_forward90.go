//go:build gpu

package cuda

import "fmt"

// forward90Tile is how src/attention_forward_sm90.cuh cuts a problem for one size of head.
type forward90Tile struct {
	d, dv   int
	groups  int // of 64 query rows, a warpgroup each
	tileK   int // keys
	stages  int // key tiles, and value tiles, in shared memory at a time
	stagesQ int // tiles of queries there
	bias    int // pieces of a mapped bias there, each the tile's rows of 128 bytes
}

// forward90Tiles are the sizes that forward kernels for sm_90a are compiled for, and forward90ModTiles the same sizes for
// modified scores: those kernels need places for the bias. The tiles stand in src/attention_forward_sm90.cu too.
var (
	forward90Tiles = []forward90Tile{
		{64, 64, 3, 128, 3, 2, 0},
		{96, 96, 3, 96, 3, 1, 0},
		{128, 128, 2, 128, 2, 2, 0},
		{192, 128, 2, 128, 2, 1, 0},
		{192, 192, 2, 96, 2, 1, 0},
		{256, 256, 2, 64, 2, 1, 0},
	}
	forward90ModTiles = []forward90Tile{
		{64, 64, 3, 128, 3, 1, 3},
		{96, 96, 2, 128, 2, 1, 3},
		{128, 128, 2, 128, 2, 1, 3},
		{192, 128, 2, 64, 3, 1, 2},
		{192, 192, 2, 64, 2, 1, 4},
		{256, 256, 2, 64, 2, 1, 1},
	}
)

// forward90Variants are the forward kernels for sm_90a: each size in both 16-bit types, without and with modified scores.
func forward90Variants() []variant {
	var list []variant
	for i := range forward90Tiles {
		for _, e := range []element{elementBF16, elementF16} {
			list = append(list, forward90Tiles[i].variant(e, false), forward90ModTiles[i].variant(e, true))
		}
	}
	return list
}

func (t forward90Tile) variant(e element, mod bool) variant {
	name := fmt.Sprintf("attention_forward_sm90_d%d", t.d)
	if t.dv != t.d {
		name += fmt.Sprintf("_dv%d", t.dv)
	}
	name += map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[e]
	if mod {
		name += "_mod"
	}
	v := variant{
		name: name, d: t.d, dv: t.dv, element: e, mod: mod,
		tileQ: 64 * t.groups, tileK: t.tileK, threads: 128 * (t.groups + 1), sharedBytes: t.sharedBytes(),
		boxCols: 64, boxQ: 64, boxK: t.tileK,
	}
	if mod {
		v.boxBias = v.tileQ
	}
	return v
}

// sharedBytes is ForwardShape::SharedBytes: Q and the rings of K and V in chunks of 64 columns, a piece for each warp's rows
// of O, the pieces of the bias, barriers, and what aligning the start may cost.
func (t forward90Tile) sharedBytes() int {
	const columns, rowBytes, barriers, alignment = 64, 128, 256, 1024
	chunks, chunksV := (t.d+columns-1)/columns, (t.dv+columns-1)/columns
	rows := 64*t.groups*(t.stagesQ*chunks+1+t.bias) + t.stages*t.tileK*(chunks+chunksV)
	return rowBytes*rows + barriers + alignment
}

// forward90Grid is the number of blocks: they draw tiles until none is left, so there are no more than run at a time.
func forward90Grid(v variant, a *arguments, multiprocessors int) [3]int {
	tiles := (int(a.longestQ) + v.tileQ - 1) / v.tileQ * int(a.heads) * int(a.sequences)
	return [3]int{max(1, min(tiles, multiprocessors)), 1, 1}
}
