//go:build gpu

package cuda

import (
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
)

// Sizes of src/decode_chain.cu.
const (
	chainThreads         = 288
	chainPanel           = 128
	chainStages          = 12
	chainMostSteps       = 64
	chainPackedStages    = 11
	chainMostPackedSteps = 32
	chainMostFragments   = 12
	chainMostSquares     = 4 * 32
	chainMostAttentions  = 128
	chainMostLinks       = 512
	chainMostGroup       = 8
	chainTile            = 32
	chainMostRuns        = 64
	chainLinkBytes       = 336
	chainTileColumns     = 16 // of whole columns
	chainTilesOfRound    = 8
)

// Sizes of src/decode_chain_rows.cu that are others.
const (
	chainStagesOfRows, chainStepsOfRows = 9, 32
	chainMostHeld                       = 1024
	chainRowsLinkBytes                  = chainLinkBytes + 48
	chainPools, chainSumPools           = 16, 4
	chainUnit                           = 16     // columns that a warp multiplies
	chainMostGroups, chainApart         = 128, 8 // of counts
)

// chainHeadSizes are those of the attentions that chains may have, each of which has kernels of its
// own. Chains without attentions run those of the first.
var chainHeadSizes = []int{64, 128}

// chainPartial is how many words a run of keys has for a head.
func chainPartial(headSize int) int { return headSize + 2 }

// chainShared is the bytes of shared memory of a block.
func chainShared(headSize int, packed bool) int {
	const step, packedStep = 2 * 2 * 64 * 64, 2*2*64*64 + 16*chainPanel
	ring := chainStages*step + 2*chainMostSteps*64*2 + 16*chainStages
	if packed {
		ring = chainPackedStages*packedStep + chainMostPackedSteps*(8*64+8*4) + 16*chainPackedStages
	}
	sums := 8 * headSize / 8 * 16
	if packed {
		sums = chainTilesOfRound*8*chainTileColumns*4 + 2*8*4
	}
	return ring + (chainMostGroup+2)*(2*headSize+16) + sums +
		4*chainLinkBytes + 8*chainMostAttentions
}

// chainRowsShared is the same for chains of several rows.
func chainRowsShared(headSize int) int {
	const step, stepOfRows = 2 * 2 * 64 * 64, 2 * mostRows * 64
	return chainStagesOfRows*(step+16) + chainStepsOfRows*stepOfRows + (chainMostGroup+2)*(2*headSize+16) +
		4*chainRowsLinkBytes + 4*chainMostHeld + 4*chainMostAttentions + 4*mostRows + 8
}

// chainScalesOfTile is the bytes of a row's scales that come with a step of whole columns.
func chainScalesOfTile(d kernels.DType) int {
	if d == kernels.Int8 {
		return 64
	}
	return 128
}

// chainFlight is how many steps of a block are on their way from memory at most. Two are enough for
// the memory's rate between products. With more, the words that links wait for are late. Within a
// product one more is better: a chain of one row has one more where blocks have chainLongProduct
// steps of a product or more.
const (
	chainFlight      = 2
	chainLongProduct = 12
)

// chainModules are the kernels of src/decode_chain.cu and src/decode_chain_rows.cu.
func chainModules() []compiledModule {
	var list []compiledModule
	for _, e := range []element{elementBF16, elementF16} {
		for _, size := range chainHeadSizes {
			for _, packed := range []bool{false, true} {
				name := chainName(e, size, packed)
				m := compiledModule{Name: name, Source: "decode_chain.cu", Arch: "compute_90a",
					Defines: []string{"KERNEL=" + name, map[element]string{elementBF16: "ELEMENT_BF16", elementF16: "ELEMENT_F16"}[e], fmt.Sprintf("HEAD_SIZE=%d", size)}}
				if packed {
					m.Defines = append(m.Defines, "PACKED")
				}
				list = append(list, m)
				if packed {
					continue
				}
				rest := m.Defines[1:]
				m.Name, m.Source = chainRowsName(e, size), "decode_chain_rows.cu"
				m.Defines = append([]string{"KERNEL=" + m.Name}, rest...)
				list = append(list, m)
			}
		}
	}
	return list
}

// chainRowsName is the kernel for several rows.
func chainRowsName(e element, headSize int) string {
	return strings.Replace(chainName(e, headSize, false), "chain", "chain_rows", 1)
}

func chainName(e element, headSize int, packed bool) string {
	name := fmt.Sprintf("decode_chain%s_%d", map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[e], headSize)
	if packed {
		name += "_packed"
	}
	return name
}
