//go:build gpu

package cuda

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// decodeArguments is DecodeArguments in src/attention_decode.cu.
type decodeArguments struct {
	arguments
	partials     address
	splits, keys int32
}

// decoder is the kernel for a problem of few rows, such as a model's next token, if there is one.
// How many keys there are does not matter: a recorded step has the same kernels for all lengths.
func (c *attention) decoder(o kernels.Tensor) (v decoder, ok bool) {
	const (
		whole    = 8         // elements of a load
		mostGrid = 1<<16 - 1 // blocks along the second and the third axis
	)
	a, g := c.Attention, c.args
	if a.QLens != nil || a.Places != nil || a.Score != nil || a.Mask != nil || a.Bias.IsSet() || a.Dropout.P > 0 ||
		c.element != elementBF16 && c.element != elementF16 || int(g.sq*(g.heads/g.keyHeads)) > rowsOfDecoder ||
		max(g.sequences, g.keyHeads) > mostGrid || g.d%whole != 0 || g.dv%whole != 0 || !describable([]kernels.Tensor{c.q, o}) {
		return v, false
	}
	if g.sk > 0 && !describable([]kernels.Tensor{c.k, c.v}) {
		return v, false
	}
	for _, v := range decoderVariants() {
		if v.element == c.element && v.d >= int(max(g.d, g.dv)) {
			return v, true
		}
	}
	return v, false
}

// decode queues the kernel. Blocks enough for the device share the keys of each head.
func (c *attention) decode(v decoder) error {
	const (
		blocksOfMultiprocessor = 2
		mostSplits             = 32 // a warp adds them, a lane each
	)
	g := c.args
	heads := int(g.sequences * g.keyHeads)
	splits := max(1, min(mostSplits, (blocksOfMultiprocessor*c.device.Multiprocessors+heads-1)/heads))
	keys := tilesOf(g.longestK, splits*keysOfBlock) * keysOfBlock
	if err := c.count(heads * 4); err != nil {
		return err
	}
	partials, err := c.borrowBytes(heads * splits * v.partialBytes())
	if err != nil {
		return err
	}
	arguments := &decodeArguments{*g, partials, int32(splits), int32(keys)}
	grid := [3]int{splits, int(g.keyHeads), int(g.sequences)}
	s := shapeOf(v.name(), v.name(), grid, threadsDecoder, 4*v.partialBytes())
	return c.device.launch(s, nil, unsafe.Pointer(arguments))
}
