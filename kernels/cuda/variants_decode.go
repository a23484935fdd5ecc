//go:build gpu

package cuda

import "fmt"

// decoder is one compiled kernel of src/attention_decode.cu: attention of a few rows over many
// keys.
type decoder struct {
	d, dv   int // the largest sizes of heads
	rows    int // the most that share keys
	element element
	sm90    bool // it begins before the kernel before it has ended
	keys    int  // of a tile
	stages  int  // tiles in shared memory
	warps   int  // of a block
	blocks  int  // of a multiprocessor
}

// Sizes of src/attention_decode.cu.
const (
	rowsOfDecoder   = 16
	threadsOfMerger = 256
	columnsOfMerger = 128
)

// decoderVariants lists the smallest first. Those for sm_80 have as many tiles in shared memory as
// 99 KB hold, which every device has.
func decoderVariants() []decoder {
	var list []decoder
	for _, v := range []decoder{
		{d: 64, dv: 64, rows: 16, keys: 64, stages: 3, warps: 4, blocks: 2},
		{d: 128, dv: 128, rows: 16, keys: 64, stages: 3, warps: 4, blocks: 1},
		{d: 256, dv: 256, rows: 16, keys: 32, stages: 3, warps: 4, blocks: 1},
		{d: 64, dv: 64, rows: 16, sm90: true, keys: 64, stages: 3, warps: 4, blocks: 4},
		{d: 128, dv: 128, rows: 8, sm90: true, keys: 64, stages: 3, warps: 4, blocks: 2},
		{d: 128, dv: 128, rows: 16, sm90: true, keys: 128, stages: 3, warps: 8, blocks: 1},
		{d: 256, dv: 256, rows: 16, sm90: true, keys: 64, stages: 3, warps: 8, blocks: 1},
		{d: 576, dv: 512, rows: 16, sm90: true, keys: 64, stages: 3, warps: 8, blocks: 1},
	} {
		for _, v.element = range []element{elementBF16, elementF16} {
			list = append(list, v)
		}
	}
	return list
}

// isJoined reports whether values are the beginnings of keys, in the same memory.
func (v decoder) isJoined() bool { return v.dv < v.d }

func (v decoder) name() string {
	name := map[bool]string{false: "attention_decode_sm80", true: "attention_decode_sm90"}[v.sm90] + fmt.Sprintf("_d%d", v.d)
	if v.rows < rowsOfDecoder {
		name += fmt.Sprintf("_r%d", v.rows)
	}
	return name + map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[v.element]
}

// merger is the second kernel of the module.
func (v decoder) merger() string { return v.name() + "_merge" }

func (v decoder) module() compiledModule {
	arch := map[bool]string{false: "compute_80", true: "compute_90a"}[v.sm90]
	m := compiledModule{Name: v.name(), Source: "attention_decode.cu", Arch: arch, Defines: []string{
		"KERNEL=" + v.name(), "ELEMENT=" + map[element]string{elementBF16: "BF16", elementF16: "F16"}[v.element], fmt.Sprintf("HEAD_DIM=%d", v.d),
		fmt.Sprintf("KEYS=%d", v.keys), fmt.Sprintf("STAGES=%d", v.stages), fmt.Sprintf("BLOCK_WARPS=%d", v.warps), fmt.Sprintf("BLOCKS=%d", v.blocks),
	}}
	if v.isJoined() {
		m.Defines = append(m.Defines, fmt.Sprintf("V_DIM=%d", v.dv))
	}
	return m
}

func (v decoder) threads() int { return 32 * v.warps }

// sharedBytes is what Shared takes in the source.
func (v decoder) sharedBytes() int {
	const multiple = 128
	stage := v.keys * v.d * 2
	if !v.isJoined() {
		stage *= 2
	}
	weights, ofWarps := rowsOfDecoder*(2*v.keys+16), 2*v.warps*rowsOfDecoder*4
	return (v.stages*stage + weights + ofWarps + 4 + multiple - 1) / multiple * multiple
}

// partialBytes is what a block leaves of a head that it shares: PARTIAL in the source.
func (v decoder) partialBytes() int { return rowsOfDecoder * (v.dv + 2) * 4 }

// grid is the blocks for so many heads of so many keys each: as many as the device has room for, or
// a few less, where heads then end with blocks and no block takes longer.
func (v decoder) grid(heads, keys, multiprocessors int) int {
	tiles := max(1, (keys+v.keys-1)/v.keys)
	blocks := min(v.blocks*multiprocessors, tiles*heads)
	if ofHead := blocks / heads; ofHead > 0 && (tiles+ofHead-1)/ofHead <= (tiles*heads+blocks-1)/blocks {
		return ofHead * heads
	}
	return blocks
}
