//go:build gpu

package cuda

import "fmt"

// decoder is one compiled kernel of src/attention_decode.cu: attention of a few rows over many
// keys.
type decoder struct {
	d       int // the largest size of a head
	element element
}

// Sizes of src/attention_decode.cu.
const (
	rowsOfDecoder  = 16
	threadsDecoder = 128
	keysOfBlock    = 64 // what a block's warps take in a step
)

func decoderVariants() []decoder {
	var list []decoder
	for _, d := range []int{64, 128, 256} {
		list = append(list, decoder{d, elementBF16}, decoder{d, elementF16})
	}
	return list
}

func (v decoder) name() string {
	return fmt.Sprintf("attention_decode_sm80_d%d%s", v.d, map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[v.element])
}

func (v decoder) module() compiledModule {
	return compiledModule{Name: v.name(), Source: "attention_decode.cu", Arch: "compute_80", Defines: []string{
		"KERNEL=" + v.name(), "ELEMENT=" + map[element]string{elementBF16: "BF16", elementF16: "F16"}[v.element], fmt.Sprintf("HEAD_DIM=%d", v.d),
	}}
}

// partialBytes is what a run of keys leaves: PARTIAL in the source. Each of a block's four warps
// has as much in shared memory.
func (v decoder) partialBytes() int { return rowsOfDecoder * (v.d + 4 + 2) * 4 }
