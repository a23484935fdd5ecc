//go:build gpu

package cuda

// Sizes of src/decode_chain.cu.
const (
	chainThreads        = 288
	chainPanel          = 128
	chainStages         = 12
	chainMostSteps      = 64
	chainMostFragments  = 12
	chainMostSquares    = 4 * 32
	chainMostAttentions = 128
	chainMostLinks      = 512
	chainHeadSize       = 64
	chainMostGroup      = 8
	chainTile           = 32
	chainMostRuns       = 64
	chainLinkBytes      = 336
	chainPartial        = chainHeadSize + 2
	chainShared         = chainStages*2*2*64*64 + 2*chainMostSteps*64*2 + chainMostGroup*(2*chainHeadSize+16) + 8*8*16 +
		4*chainLinkBytes + 8*chainMostAttentions + 16*chainStages
)

// chainFlight is how many steps of a block are on their way from memory at most. Two are enough for
// the memory's rate. With more, the words that links wait for are late.
const chainFlight = 2

// chainModules are the kernels of src/decode_chain.cu.
func chainModules() []compiledModule {
	var list []compiledModule
	for _, e := range []element{elementBF16, elementF16} {
		name := chainName(e)
		list = append(list, compiledModule{Name: name, Source: "decode_chain.cu", Arch: "compute_90a",
			Defines: []string{"KERNEL=" + name, map[element]string{elementBF16: "ELEMENT_BF16", elementF16: "ELEMENT_F16"}[e]}})
	}
	return list
}

func chainName(e element) string {
	return "decode_chain" + map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[e]
}
