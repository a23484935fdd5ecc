//go:build gpu

package cuda

import "strconv"

// The kernels for compute capability 8.0 and newer, src/attention_*_sm80.cu: they do everything, on any layout. Each is
// compiled with the tiles that stand here.

// tile80 is how the kernels cut a problem for one size of head, d = dv.
type tile80 struct {
	d            int
	tileQ, tileK int // rows of q and of k
	threads      int
}

// A block of most of these fits in 99 KB of shared memory, what the smallest GPUs have, and two share a multiprocessor where
// there is twice as much. Backward needs 107 to 150 KB for heads over 128.
var (
	forward80Tiles16 = []tile80{{32, 128, 64, 128}, {64, 128, 128, 128}, {96, 128, 96, 128}, {128, 128, 64, 128}, {192, 128, 32, 128}, {256, 64, 64, 128}}
	forward80Tiles32 = []tile80{{32, 128, 64, 128}, {64, 128, 64, 128}, {96, 128, 32, 128}, {128, 128, 32, 128}, {192, 64, 32, 128}, {256, 64, 16, 128}}

	// Modified scores take registers.
	forward80TilesMod16 = []tile80{{32, 128, 64, 128}, {64, 128, 64, 128}, {96, 128, 64, 128}, {128, 128, 64, 128}, {192, 64, 64, 128}, {256, 64, 64, 128}}

	backward80Tiles16 = []tile80{{32, 64, 64, 128}, {64, 64, 64, 128}, {96, 64, 64, 128}, {128, 64, 64, 128}, {192, 64, 64, 256}, {256, 64, 64, 256}}
	backward80Tiles32 = []tile80{{32, 64, 64, 128}, {64, 32, 64, 128}, {96, 32, 32, 128}, {128, 32, 32, 128}, {192, 32, 32, 128}, {256, 32, 32, 128}}
)

// elements80 are the kinds of arithmetic, with their names.
var elements80 = []struct {
	element element
	name    string
	bytes   int
}{{elementBF16, "bf16", 2}, {elementF16, "f16", 2}, {elementF32, "f32", 4}, {elementTF32, "tf32", 4}}

// variants80 are the variants of one kernel with or without modified scores. shared is a block's dynamic shared memory.
func variants80(kernel string, mod bool, tiles16, tiles32 []tile80, shared func(t tile80, bytes int) int) []variant {
	var list []variant
	for _, e := range elements80 {
		tiles := tiles16
		if e.bytes == 4 {
			tiles = tiles32
		}
		for _, t := range tiles {
			v := variant{
				name: "attention_" + kernel + "_sm80_d" + strconv.Itoa(t.d) + "_" + e.name,
				d:    t.d, dv: t.d, element: e.element, mod: mod,
				tileQ: t.tileQ, tileK: t.tileK, threads: t.threads, sharedBytes: shared(t, e.bytes),
			}
			if mod {
				v.name += "_mod"
			}
			list = append(list, v)
		}
	}
	return list
}

// rowBytes80 is a row of a tile in shared memory: Tile::STRIDE.
func rowBytes80(columns, bytes int) int { return columns*bytes + 16 }

// forward80Variants are the forward kernels. A block has q, k and v in shared memory.
func forward80Variants() []variant {
	shared := func(t tile80, bytes int) int { return (t.tileQ + 2*t.tileK) * rowBytes80(t.d, bytes) }
	return append(variants80("forward", false, forward80Tiles16, forward80Tiles32, shared),
		variants80("forward", true, forward80TilesMod16, forward80Tiles32, shared)...)
}

// backward80Variants are the backward kernels. A block has q, dO, k, v, P and dS in shared memory.
func backward80Variants() []variant {
	shared := func(t tile80, bytes int) int {
		return 2*(t.tileQ+t.tileK)*rowBytes80(t.d, bytes) + 2*t.tileQ*rowBytes80(t.tileK, bytes)
	}
	return append(variants80("backward", false, backward80Tiles16, backward80Tiles32, shared),
		variants80("backward", true, backward80Tiles16, backward80Tiles32, shared)...)
}

// dBias80Variants are the kernels for the deterministic gradient of a bias that several scores share. They serve whatever
// backward kernel was chosen. A block has q, dO, k and v in shared memory.
func dBias80Variants() []variant {
	return variants80("dbias", true, backward80Tiles16, backward80Tiles32, func(t tile80, bytes int) int {
		return 2 * (t.tileQ + t.tileK) * rowBytes80(t.d, bytes)
	})
}

// tilesOf80 is how many tiles of size cover n.
func tilesOf80(n int32, size int) int { return (int(n) + size - 1) / size }

// forward80Grid is a block for each tile of queries.
func forward80Grid(v variant, a *arguments, multiprocessors int) [3]int {
	return [3]int{tilesOf80(a.longestQ, v.tileQ) * int(a.heads) * int(a.sequences), 1, 1}
}

// backward80Grid is a block for each tile of keys.
func backward80Grid(v variant, a *arguments, multiprocessors int) [3]int {
	return [3]int{tilesOf80(a.longestK, v.tileK) * int(a.keyHeads) * int(a.sequences), 1, 1}
}

// backward80Scratch is the memory in bytes that the sums of dQ and the counters need, both zero at launch: querySlot in
// src/attention_backward_sm80.cuh. The kernel leaves the counters zero.
func backward80Scratch(v variant, a *arguments) (sums, counters int) {
	slots := int(a.sequences) * tilesOf80(a.sq, v.tileQ)
	if a.qLens != 0 {
		slots = int(a.sq)/v.tileQ + int(a.sequences)
	}
	slots *= int(a.heads)
	return slots * v.tileQ * v.d * 4, slots * 4
}

// dQ80Launch is the kernel that turns the sums that v left into dQ. It is in v's module.
func dQ80Launch(v variant, a *arguments) launchShape {
	bytes := 2
	if v.element == elementF32 || v.element == elementTF32 {
		bytes = 4
	}
	return launchShape{
		kernel:  kernelName{v.name, "attention_dq"},
		grid:    [3]int{tilesOf80(a.longestQ, v.tileQ) * int(a.heads) * int(a.sequences), 1, 1},
		threads: v.threads, sharedBytes: v.tileQ * rowBytes80(v.d, bytes),
	}
}

// dBias80Grid is a block for each tile of the bias.
func dBias80Grid(v variant, a *arguments) [3]int {
	rows, heads, sequences := 1, 1, 1
	if a.dBiasRow != 0 {
		rows = tilesOf80(a.longestQ, v.tileQ)
	}
	if a.dBiasHead != 0 {
		heads = int(a.heads)
	}
	if a.dBiasSequence != 0 {
		sequences = int(a.sequences)
	}
	return [3]int{tilesOf80(a.longestK, v.tileK) * rows * heads * sequences, 1, 1}
}
