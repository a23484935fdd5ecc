//go:build gpu

package cuda

import "fmt"

// listedVariant is one compiled kernel of attention to listed keys, forward or backward.
type listedVariant struct {
	module   string
	source   string  // of src, without .cu
	element  element // of the tensors
	d        int     // size of a head that it is compiled for; it also serves smaller ones
	rowWarps int     // warps that share a tile of keys
	blocks   int     // of 16 heads, of each of these
	splits   int     // tiles of a list that are computed at once
	keys     int     // of a tile
	stages   int     // tiles of a set of warps that there is room for
	together int     // blocks that run on a multiprocessor at least
	hopper   bool    // it adds four sums at once, which Hopper can
}

// listedTile is a variant's cut.
type listedTile struct{ d, rowWarps, blocks, splits, keys, stages, together int }

var listedElements = map[element]string{elementF32: "f32", elementBF16: "bf16", elementF16: "f16"}

func listedVariants(source string, halves, floats []listedTile, hopper bool) (list []listedVariant) {
	arch := ""
	if hopper {
		arch = "_sm90"
	}
	for _, e := range []element{elementF32, elementBF16, elementF16} {
		tiles := halves
		if e == elementF32 {
			tiles = floats
		}
		for _, t := range tiles {
			list = append(list, listedVariant{
				module: fmt.Sprintf("%s_%s_%d_%dx%d%s", source, listedElements[e], t.d, t.rowWarps, 16*t.blocks, arch), source: source, element: e,
				d: t.d, rowWarps: t.rowWarps, blocks: t.blocks, splits: t.splits, keys: t.keys, stages: t.stages, together: max(1, t.together), hopper: hopper,
			})
		}
	}
	return list
}

// listedForwardVariants are in the order of the sizes of heads, and then of the warps.
func listedForwardVariants() []listedVariant {
	return listedVariants("listedkeys_forward", []listedTile{
		{64, 1, 1, 4, 16, 3, 1}, {64, 1, 2, 4, 32, 2, 1}, {64, 2, 2, 2, 32, 3, 1}, {64, 4, 2, 1, 32, 4, 1},
		{128, 1, 1, 4, 16, 2, 1}, {128, 1, 2, 4, 16, 2, 1}, {128, 2, 2, 2, 32, 2, 1}, {128, 4, 2, 1, 32, 3, 1},
		{256, 1, 1, 2, 16, 2, 1}, {256, 2, 1, 1, 32, 2, 1}, {256, 4, 1, 1, 16, 2, 1},
	}, []listedTile{{64, 1, 1, 2, 16, 2, 1}, {128, 1, 1, 2, 16, 2, 1}, {256, 1, 1, 1, 16, 1, 1}}, false)
}

// listedBackwardVariants are those of listed backward kernels, in the same order.
func listedBackwardVariants(hopper bool) []listedVariant {
	return listedVariants("listedkeys_backward", []listedTile{
		{64, 1, 1, 4, 16, 3, 1}, {64, 2, 1, 2, 32, 2, 1}, {64, 4, 1, 1, 64, 2, 1}, {64, 8, 1, 1, 64, 2, 1},
		{128, 1, 1, 4, 16, 2, 1}, {128, 2, 1, 2, 16, 2, 1}, {128, 4, 1, 1, 32, 2, 1}, {128, 8, 1, 1, 32, 2, 1},
		{256, 1, 1, 2, 16, 2, 1}, {256, 2, 1, 1, 16, 2, 1}, {256, 4, 1, 1, 16, 2, 1},
	}, []listedTile{{64, 1, 1, 2, 16, 2, 1}, {128, 1, 1, 2, 16, 2, 1}, {256, 1, 1, 1, 16, 1, 1}}, hopper)
}

func (v *listedVariant) threads() int { return 32 * v.rowWarps * v.splits }
func (v *listedVariant) rows() int    { return 16 * v.rowWarps * v.blocks }

// elementBytes is the size of an operand's element.
func (v *listedVariant) elementBytes() int {
	if v.element == elementF32 {
		return 4
	}
	return 2
}

// columnBlocks are the blocks that share a query's rows: floats of large heads leave no room for
// the sums of all columns.
func (v *listedVariant) columnBlocks() int {
	if v.element == elementF32 && v.d > 128 {
		return v.d / 128
	}
	return 1
}

// sharedBytes is the room for a block's tiles, and in their place for what its sets of warps have
// summed: src/listedkeys.cuh.
func (v *listedVariant) sharedBytes(backward bool) int {
	const padding, padded = 16, 4
	row, tiles := v.d*v.elementBytes()+padding, v.stages*v.splits*v.keys
	sums, bytes := v.splits*v.rows()*(v.d+padded)*4, (v.rows()+2*tiles)*row+4*tiles
	if backward {
		bytes += v.rows()*row + 2*v.splits*v.rows()*(v.keys*v.elementBytes()+padding)
	} else {
		sums += 2 * v.splits * v.rows() * 4
	}
	return max(bytes, sums)
}

func (v *listedVariant) compiled() compiledModule {
	m := compiledModule{Name: v.module, Source: v.source + ".cu", Arch: "compute_80"}
	if v.hopper {
		m.Arch = "compute_90a"
	}
	m.Defines = []string{
		fmt.Sprintf("HEAD_DIM=%d", v.d), fmt.Sprintf("ROW_WARPS=%d", v.rowWarps), fmt.Sprintf("ROW_BLOCKS=%d", v.blocks),
		fmt.Sprintf("TILE_SPLITS=%d", v.splits),
		fmt.Sprintf("TILE_K=%d", v.keys), fmt.Sprintf("TILE_STAGES=%d", v.stages), fmt.Sprintf("LEAST_BLOCKS=%d", v.together),
		"ELEMENT_" + [...]string{elementF32: "F32", elementBF16: "BF16", elementF16: "F16"}[v.element],
	}
	return m
}

// listedRowsTiles are what kernels for sm_90a are compiled for: 64 heads or 128 share a tile.
var listedRowsTiles = []forward90Tile{
	{d: 64, dv: 64, groups: 1, tileK: 128, stages: 2, stagesQ: 2}, {d: 64, dv: 64, groups: 2, tileK: 128, stages: 3, stagesQ: 2},
	{d: 128, dv: 128, groups: 1, tileK: 64, stages: 2, stagesQ: 2}, {d: 128, dv: 128, groups: 2, tileK: 128, stages: 2, stagesQ: 2},
	{d: 256, dv: 256, groups: 2, tileK: 64, stages: 2, stagesQ: 1},
}

// listedRowsVariants are the kernels for sm_90a whose tiles have the heads of a query.
func listedRowsVariants() (list []variant) {
	for _, t := range listedRowsTiles {
		for _, e := range []element{elementBF16, elementF16} {
			v := t.variant("forward", e, map[int]string{1: "_of64", 2: "_of128"}[t.groups])
			const source = "listedkeys_forward_sm90"
			v.name, v.source = source+v.name[len(v.source):], source
			list = append(list, v)
		}
	}
	return list
}
