//go:build gpu

package cuda

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// decodeArguments is DecodeArguments in src/attention_decode.cu.
type decodeArguments struct {
	arguments
	partials     address
	state        readable
	splits, keys int32
}

// decoder is the kernel for a problem of few rows, such as a model's next token, if there is one.
// How many keys there are does not matter: a recorded step has the same kernels for all lengths.
func (d *Device) decoder(a *kernels.Attention, e element, tensors ...kernels.Tensor) (v decoder, ok bool) {
	const (
		whole    = 8         // elements of a load
		mostGrid = 1<<16 - 1 // blocks along the second and the third axis
	)
	q, k, value := a.Q.Shape, a.K.Shape, a.V.Shape
	if a.QLens != nil || a.Places != nil || a.Score != nil || a.Mask != nil || a.Bias.IsSet() || a.Dropout.P > 0 ||
		e != elementBF16 && e != elementF16 || q[2]*(q[1]/k[1]) > rowsOfDecoder ||
		max(q[0], k[1]) > mostGrid || q[3]%whole != 0 || value[3]%whole != 0 || !describable(tensors) {
		return v, false
	}
	for _, v := range decoderVariants() {
		if v.element == e && v.d >= max(q[3], value[3]) && v.sm90 == d.hasMaps() {
			return v, true
		}
	}
	return v, false
}

// decoder is the kernel for a call of few rows.
func (c *attention) decoder(o kernels.Tensor) (decoder, bool) {
	tensors := []kernels.Tensor{c.q, o}
	if c.args.sk > 0 {
		tensors = append(tensors, c.k, c.v)
	}
	return c.device.decoder(c.Attention, c.element, tensors...)
}

// decode queues the kernel. Blocks enough for the device share the keys of each head. With state,
// the device knows how many keys there are. early is nil where the kernel does not overlap others.
func (c *attention) decode(v decoder, state readable, early *driver.Early) error {
	const (
		blocksOfMultiprocessor = 2
		mostSplits             = 32 // a warp adds them, a lane each
	)
	g := c.args
	heads := int(g.sequences * g.keyHeads)
	splits := max(1, min(mostSplits, (blocksOfMultiprocessor*c.device.Multiprocessors+heads-1)/heads))
	arguments := &decodeArguments{state: state, splits: int32(splits)}
	if state == 0 {
		arguments.keys = int32(tilesOf(g.longestK, splits*keysOfBlock) * keysOfBlock)
	}
	if err := c.count(heads * 4); err != nil {
		return err
	}
	var err error
	if arguments.partials, err = c.borrowBytes(heads * splits * v.partialBytes()); err != nil {
		return err
	}
	arguments.arguments = *g
	s := shapeOf(v.name(), v.name(), [3]int{splits, int(g.keyHeads), int(g.sequences)}, threadsDecoder, 4*v.partialBytes())
	if v.sm90 {
		s.Early = early
	}
	return c.device.launch(s, nil, unsafe.Pointer(arguments))
}
