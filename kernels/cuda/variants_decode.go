//go:build gpu

package cuda

import "fmt"

// decoder is one compiled kernel of src/attention_decode.cu: attention of a few rows over many
// keys.
type decoder struct {
	d       int // the largest size of a head
	element element
	sm90    bool // it begins before the kernel before it has ended
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
		for _, sm90 := range []bool{false, true} {
			list = append(list, decoder{d, elementBF16, sm90}, decoder{d, elementF16, sm90})
		}
	}
	return list
}

func (v decoder) name() string {
	arch := map[bool]string{false: "sm80", true: "sm90"}[v.sm90]
	return fmt.Sprintf("attention_decode_%s_d%d%s", arch, v.d, map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[v.element])
}

func (v decoder) module() compiledModule {
	arch := map[bool]string{false: "compute_80", true: "compute_90a"}[v.sm90]
	return compiledModule{Name: v.name(), Source: "attention_decode.cu", Arch: arch, Defines: []string{
		"KERNEL=" + v.name(), "ELEMENT=" + map[element]string{elementBF16: "BF16", elementF16: "F16"}[v.element], fmt.Sprintf("HEAD_DIM=%d", v.d),
	}}
}

// partialBytes is what a run of keys leaves: PARTIAL in the source. Each of a block's four warps
// has as much in shared memory.
func (v decoder) partialBytes() int { return rowsOfDecoder * (v.d + 4 + 2) * 4 }
