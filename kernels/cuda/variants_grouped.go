//go:build gpu

package cuda

import "fmt"

// groupedBy is what belongs to groups: GROUPED in src/matmul_sm80.cu.
type groupedBy int

const (
	groupsOfRows  groupedBy = 1
	groupsOfDepth groupedBy = 2
)

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

// isCompiled reports whether there is a kernel of the layouts.
func (v grouped80) isCompiled() bool {
	if v.by == groupsOfRows {
		return !v.aColumns
	}
	return v.aColumns && v.bRows
}

func (v grouped80) name() string {
	return v.matmul80.name() + map[groupedBy]string{groupsOfRows: "_rows", groupsOfDepth: "_depths"}[v.by]
}

func (v grouped80) module() compiledModule {
	m := v.matmul80.module()
	m.Name = v.name()
	m.Defines[0] = "KERNEL=" + m.Name
	m.Defines = append(m.Defines, fmt.Sprintf("GROUPED=%d", v.by))
	return m
}
