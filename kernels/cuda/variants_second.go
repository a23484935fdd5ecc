//go:build gpu

package cuda

import (
	"fmt"
	"strings"
)

// secondVariant is one compiled module of attention's second derivatives.
type secondVariant struct {
	name    string
	element element // of the tensors
	d       int     // size of a head that it is compiled for; it also serves smaller ones
	mod     bool    // it knows soft cap, slopes, bias and dropout
	warps   int     // of a block, each with 16 rows of its own
	other   int     // rows of a tile of the other side
	stages  int     // tiles of the other side that there is room for
	groups  bool    // warpgroups multiply, as on Hopper alone: attention_second_sm90.cuh
}

// secondVariants are in the order of choice: those for Hopper, by the sizes of heads, plain ones
// first.
func secondVariants() (list []secondVariant) {
	for _, e := range []element{elementBF16, elementF16} {
		for _, v := range []secondVariant{{d: 64, warps: 8, other: 64, stages: 2}, {d: 128, warps: 8, other: 64, stages: 2}, {d: 256, warps: 4, other: 64, stages: 1}} {
			v.element, v.groups = e, true
			v.name = fmt.Sprintf("attention_second_sm90_%s_%d", listedElements[e], v.d)
			list = append(list, v)
		}
	}
	for _, e := range []element{elementF32, elementBF16, elementF16} {
		for _, v := range []secondVariant{{d: 64, warps: 4, other: 16, stages: 2}, {d: 128, warps: 4, other: 16, stages: 2}, {d: 256, warps: 2, other: 16, stages: 2}} {
			if e == elementF32 {
				v.warps /= 2
			}
			if e == elementF32 && v.d > 64 {
				v.stages = 1
			}
			for _, mod := range []bool{false, true} {
				v.element, v.mod = e, mod
				if v.name = fmt.Sprintf("attention_second_%s_%d", listedElements[e], v.d); mod {
					v.name += "_mod"
				}
				if mod || e != elementF32 {
					list = append(list, v)
				}
			}
		}
	}
	return list
}

// sumsRows reports whether what rows need is summed by itself: TOGETHER in src/attention_second.cu.
func (v *secondVariant) sumsRows() bool { return v.element == elementF32 || v.d > 128 }

func (v *secondVariant) rows() int { return 16 * v.warps }

// sharedBytes is the room for the block's tiles and those that pass: of queries there are three
// tensors, of keys four.
func (v *secondVariant) sharedBytes(keys bool) int {
	const queriesOf, keysOf, padding, rowValues = 3, 4, 16, 16
	size := 2
	if v.element == elementF32 {
		size = 4
	}
	row, align := v.d*size+padding, 0
	if v.groups {
		row, align = v.d*size, 1<<10
	}
	if keys {
		return (keysOf*v.rows()+v.stages*queriesOf*v.other)*row + v.stages*v.other*rowValues + align
	}
	return (queriesOf*v.rows()+v.stages*keysOf*v.other)*row + align
}

func (v *secondVariant) compiled() compiledModule {
	score := "PlainScore"
	if v.mod {
		score = "OptionScore"
	}
	m := compiledModule{Name: v.name, Source: "attention_second.cu", Arch: "compute_80", Defines: []string{
		fmt.Sprintf("HEAD_DIM=%d", v.d), fmt.Sprintf("BLOCK_THREADS=%d", 32*v.warps), fmt.Sprintf("TILE_K=%d", v.other), fmt.Sprintf("TILE_STAGES=%d", v.stages),
		"ELEMENT_" + strings.ToUpper(listedElements[v.element]), "SCORE=" + score,
	}}
	if v.groups {
		m.Arch, m.Defines = "compute_90a", append(m.Defines, "WARPGROUPS")
	}
	return m
}
