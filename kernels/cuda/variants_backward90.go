//go:build gpu

package cuda

import "fmt"

// backward90Tile is how src/attention_backward_sm90.cuh cuts a problem for one size of head.
type backward90Tile struct {
	d, dv           int
	tileQ, tileQMod int // query rows, without and with modified scores
	tileK           int // keys
	columns         int // of the sums of dQ, which come in whole products
}

// backward90Tiles are the sizes that backward kernels for sm_90a are compiled for. tileK and columns follow from the size, by
// BackwardShape and BackwardSums in src; the query rows are what registers allow.
var backward90Tiles = []backward90Tile{
	{64, 64, 128, 128, 128, 64},
	{96, 96, 80, 64, 128, 128},
	{128, 128, 80, 64, 128, 128},
	{192, 128, 64, 64, 64, 192},
	{192, 192, 64, 64, 64, 192},
	{256, 256, 64, 64, 64, 256},
}

// backward90Variants are the backward kernels for sm_90a: each size in both 16-bit types, without and with modified scores.
func backward90Variants() []variant {
	var list []variant
	for _, t := range backward90Tiles {
		for _, e := range []element{elementBF16, elementF16} {
			for _, mod := range []bool{false, true} {
				v := variant{
					name: "attention_backward_sm90_" + t.suffix(e),
					d:    t.d, dv: t.dv, element: e, mod: mod,
					tileQ: t.tileQ, tileK: t.tileK, threads: 384, boxCols: 64, boxK: t.tileK,
				}
				if mod {
					v.name += "_mod"
					v.tileQ = t.tileQMod
				}
				v.boxQ = v.tileQ
				v.sharedBytes = t.sharedBytes(v.tileQ)
				list = append(list, v)
			}
		}
	}
	return list
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

// sharedBytes is BackwardShape::SharedBytes: K and V, two of Q and dO and of dS, two of P where keys are 64, otherwise dQ in
// float32, LSE and δ, barriers, and what aligning the start may cost. Rows are in chunks of 64 columns.
func (t backward90Tile) sharedBytes(tileQ int) int {
	const columns, rowBytes, barriers, records, alignment = 64, 128, 256, 2 * 64, 1024
	chunks := (t.d+columns-1)/columns + (t.dv+columns-1)/columns
	rows := chunks*t.tileK + 2*chunks*tileQ + 2*t.tileK/columns*tileQ
	bytes := rows*rowBytes + 2*tileQ*8 + barriers + records + alignment
	if t.tileK == 64 {
		return bytes + 2*tileQ*rowBytes
	}
	return bytes + tileQ*t.columns*4
}

// backward90Serves is false for the one problem that the kernels have no room for in shared memory: sums in a fixed order
// together with a soft cap for heads of more than 128.
func backward90Serves(a *arguments) bool {
	return a.deterministic == 0 || a.softCap == 0 || max(a.d, a.dv) <= 128
}

// backward90Grid is the number of blocks: they draw tiles of keys until none is left, so there are no more than run at a
// time.
func backward90Grid(v variant, a *arguments, multiprocessors int) [3]int {
	tiles := (int(a.longestK) + v.tileK - 1) / v.tileK * int(a.keyHeads) * int(a.sequences)
	return [3]int{max(1, min(tiles, multiprocessors)), 1, 1}
}

// backward90Scratch is the bytes of dQSum and of counters, both zero at launch. Counters are left zero; the sums are not.
func backward90Scratch(v variant, a *arguments) (sums, counters int) {
	t := backward90TileOf(v)
	tiles := (int(a.sq) + v.tileQ - 1) / v.tileQ * int(a.sequences)
	if a.qLens != 0 {
		tiles = int(a.sq)/v.tileQ + int(a.sequences) // each sequence begins with a tile of its own
	}
	tiles *= int(a.heads)
	counters = 2 // of the queue
	if a.deterministic != 0 {
		counters += tiles * max(2, t.columns/64) // one for each product
	}
	return 4 * tiles * v.tileQ * t.columns, 4 * counters
}

// dQ90Launch is the kernel that turns the sums that v left into dQ. It is in v's module.
func dQ90Launch(v variant, a *arguments) launchShape {
	return launchShape{
		kernel:  kernelName{v.name, "attention_dq"},
		grid:    [3]int{(int(a.longestQ) + v.tileQ - 1) / v.tileQ * int(a.sequences), int(a.heads), 1},
		threads: 256,
	}
}
