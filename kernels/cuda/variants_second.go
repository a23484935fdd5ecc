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
	warps   int     // of a block, those that own 16 rows each
	keys    int     // of a tile that passes, where the block owns queries
	queries int     // of a tile that passes, where the block owns keys
	stages  int     // tiles of the other side that there is room for
	groups  bool    // warpgroups multiply, as on Hopper alone: attention_second_sm90.cuh
}

// secondVariants are in the order of choice: those for Hopper, by the sizes of heads, plain ones
// first.
func secondVariants() (list []secondVariant) {
	for _, e := range []element{elementBF16, elementF16} {
		for _, v := range []secondVariant{
			{d: 64, warps: 8, keys: 64, queries: 64, stages: 2},
			{d: 128, warps: 8, keys: 64, queries: 48, stages: 2},
			{d: 256, warps: 4, keys: 32, queries: 32, stages: 2},
		} {
			v.element, v.groups = e, true
			v.name = fmt.Sprintf("attention_second_sm90_%s_%d", listedElements[e], v.d)
			list = append(list, v)
		}
	}
	for _, e := range []element{elementF32, elementBF16, elementF16} {
		for _, v := range []secondVariant{{d: 64, warps: 4, stages: 2}, {d: 128, warps: 4, stages: 2}, {d: 256, warps: 2, stages: 2}} {
			v.keys, v.queries = 16, 16
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

// byParts reports whether two warpgroups share the pairs of a block, as those of large heads on
// Hopper do.
func (v *secondVariant) byParts() bool { return v.groups && v.d > 128 }

// threads of a block: on Hopper four warps load.
func (v *secondVariant) threads() int {
	switch {
	case v.byParts():
		return 32 * (2*v.warps + 4)
	case v.groups:
		return 32 * (v.warps + 4)
	}
	return 32 * v.warps
}

// sumsRows reports whether what rows need is summed by itself: TOGETHER in src/attention_second.cu.
func (v *secondVariant) sumsRows() bool { return v.element == elementF32 || v.d > 128 && !v.groups }

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
	own, tile := queriesOf*v.rows(), v.stages*keysOf*v.keys
	if keys {
		own, tile = keysOf*v.rows(), v.stages*queriesOf*v.queries
		align += v.stages * v.queries * rowValues
	}
	if v.byParts() { // one stage of V and UV or of dO, and P and r of 64 rows
		given := 64 * v.keys
		if tile = (v.stages*2 + 2) * v.keys; keys {
			given, tile = 64*v.queries, (v.stages*2+1)*v.queries
		}
		align += 2 * 4 * given
	}
	return (own+tile)*row + align
}

func (v *secondVariant) compiled() compiledModule {
	score := "PlainScore"
	if v.mod {
		score = "OptionScore"
	}
	m := compiledModule{Name: v.name, Source: "attention_second.cu", Arch: "compute_80", Defines: []string{
		fmt.Sprintf("HEAD_DIM=%d", v.d), fmt.Sprintf("BLOCK_THREADS=%d", v.threads()), fmt.Sprintf("TILE_K=%d", v.keys), fmt.Sprintf("TILE_Q=%d", v.queries),
		fmt.Sprintf("TILE_STAGES=%d", v.stages),
		"ELEMENT_" + strings.ToUpper(listedElements[v.element]), "SCORE=" + score,
	}}
	if v.groups {
		m.Arch, m.Defines = "compute_90a", append(m.Defines, "WARPGROUPS")
	}
	return m
}
