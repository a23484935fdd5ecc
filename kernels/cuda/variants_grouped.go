//go:build gpu

package cuda

import (
	"fmt"
	"math"
)

// groupedBy is what belongs to groups: GROUPED in src/matmul_sm80.cu and src/matmul_sm90.cu.
type groupedBy int

const (
	ungrouped groupedBy = iota
	groupsOfRows
	groupsOfDepth
)

// suffix is what it adds to a kernel's name.
func (by groupedBy) suffix() string { return [...]string{"", "_rows", "_depths"}[by] }

// hasKernel reports whether there is a kernel of the layouts.
func (by groupedBy) hasKernel(aColumns, bRows bool) bool {
	if by == groupsOfRows {
		return !aColumns
	}
	return aColumns && bRows
}

// grouped80 is one compiled kernel of grouped products, for any device since Ampere.
type grouped80 struct {
	matmul80
	by groupedBy
}

// grouped80Variants are the layouts that layers of experts have: rows times weights, rows of
// gradients times transposed weights, and transposed rows times rows of gradients.
func grouped80Variants() []grouped80 {
	var list []grouped80
	for _, tile := range []matmul80Tile{deep80, flat80} {
		for _, e := range []element{elementBF16, elementF16} {
			for _, bRows := range []bool{false, true} {
				list = append(list, grouped80{matmul80{tile, e, false, bRows}, groupsOfRows})
			}
			list = append(list, grouped80{matmul80{tile, e, true, true}, groupsOfDepth})
		}
	}
	return list
}

// mostGroups80 is MOST_GROUPS in src/matmul_sm80.cu.
const mostGroups80 = 256

// deepGroups is how many rows of C a group needs to have for the larger tiles, of which the last
// ones of a group are filled in part.
var deepGroups = 768

// groupedTile chooses the cut: the larger one, where the device has room for it and groups are
// large.
func groupedTile(sharedMemory, rowsOfGroup int) matmul80Tile {
	const ofGroups = 4 * 2 * (mostGroups80 + 1) // bytes of where they begin
	if rowsOfGroup >= deepGroups && deep80.fits(sharedMemory-ofGroups) {
		return deep80
	}
	return flat80
}

func (v grouped80) name() string {
	return v.matmul80.name() + v.by.suffix()
}

func (v grouped80) module() compiledModule {
	m := v.matmul80.module()
	m.Name = v.name()
	m.Defines[0] = "KERNEL=" + m.Name
	m.Defines = append(m.Defines, fmt.Sprintf("GROUPED=%d", v.by))
	return m
}

// grouped90Variants are the kernels for sm_90a, of the same layouts.
func grouped90Variants() []matmul90 {
	var list []matmul90
	for _, tile := range groupedTiles {
		for _, e := range []element{elementBF16, elementF16} {
			for _, bRows := range []bool{false, true} {
				list = append(list, matmul90{matmulTile: tile, element: e, bRows: bRows, by: groupsOfRows})
			}
			list = append(list, matmul90{matmulTile: tile, element: e, aColumns: true, bRows: true, by: groupsOfDepth})
		}
	}
	return list
}

// groupedTiles are the tiles of grouped products on tensor maps.
var groupedTiles = []matmulTile{broadTile, wideTile}

// groupedTile90 chooses the cut that multiplies the fewest columns behind the last one. The first
// of equal ones is quicker where groups have few rows.
func groupedTile90(columns int32) (best matmulTile, ok bool) {
	least := math.MaxInt
	for _, t := range groupedTiles {
		if all := tilesOf(columns, t.columns) * t.columns; all < least {
			best, least, ok = t, all, true
		}
	}
	return best, ok
}

// rowsOfBox is how many rows of A a box has: of groups, what a block of a cluster may bring for
// both.
func (v matmul90) rowsOfBox() int {
	if v.by != ungrouped {
		return v.rows() / v.cluster
	}
	return v.rows()
}
