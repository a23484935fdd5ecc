//go:build gpu

package cuda

import (
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// decodeArguments is DecodeArguments in src/attention_decode.cu.
type decodeArguments struct {
	arguments
	partials address
	state    readable
	early    int32 // k and v may be read before the kernel waits
	blocks   int32 // of the kernel
	apart    int32 // another kernel merges
}

// decoder is the kernel for a problem of few rows, such as a model's next token, if there is one.
// How many keys there are does not matter: a recorded step has the same kernels for all lengths.
func (d *Device) decoder(a *kernels.Attention, e element, tensors ...kernels.Tensor) (v decoder, ok bool) {
	const (
		whole     = 8       // elements of a load
		mostHeads = 1 << 16 // blocks along the first axis of the merging kernel, and counters
		mostSteps = 1 << 32 // tiles times blocks, with room for one step more
	)
	q, k, value := a.Q.Shape, a.K.Shape, a.V.Shape
	rows := q[2] * (q[1] / k[1])
	if a.QLens != nil || a.Places != nil || a.Score != nil || a.Mask != nil || a.Bias.IsSet() || a.Dropout.P > 0 ||
		e != elementBF16 && e != elementF16 || rows > rowsOfDecoder || q[0]*k[1] > mostHeads ||
		q[3]%whole != 0 || value[3]%whole != 0 || !describable(tensors) {
		return v, false
	}
	for _, v := range decoderVariants() {
		heads, blocks := q[0]*k[1], v.blocks*d.Multiprocessors
		if v.element == e && v.d >= q[3] && v.dv >= value[3] && v.rows >= rows && v.sm90 == d.hasMaps() && (!v.isJoined() || isJoined(a)) &&
			(tilesOf(int32(k[2]), v.keys)*heads+1)*blocks < mostSteps {
			return v, true
		}
	}
	return v, false
}

// isJoined reports whether values are the beginnings of keys, in the same memory, as in a cache of
// latent vectors.
func isJoined(a *kernels.Attention) bool {
	return a.V.Data == a.K.Data && a.V.Shape[3] <= a.K.Shape[3] && slices.Equal(a.V.Strides, a.K.Strides)
}

// decoder is the kernel for a call of few rows.
func (c *attention) decoder(o kernels.Tensor) (decoder, bool) {
	tensors := []kernels.Tensor{c.q, o}
	if c.args.sk > 0 {
		tensors = append(tensors, c.k, c.v)
	}
	return c.device.decoder(c.Attention, c.element, tensors...)
}

// decode queues the kernel. As many blocks as the device has room for share the keys of all heads.
// With state, the device knows how many keys there are. early is nil where the kernel does not
// overlap others. Where it names what is read before the kernel waits, that is all of k and v.
func (c *attention) decode(v decoder, state readable, early *driver.Early) error {
	const (
		mostRuns     = 48 // of a head that one block adds up
		headsOfBlock = 2  // that it may share: its first and its last
	)
	g := c.args
	heads := int(g.sequences * g.keyHeads)
	blocks := v.grid(heads, int(g.longestK), c.device.Multiprocessors)
	arguments := &decodeArguments{state: state, blocks: int32(blocks)}
	if err := c.count(heads * 4); err != nil {
		return err
	}
	var err error
	if arguments.partials, err = c.borrowBytes(blocks * headsOfBlock * v.partialBytes()); err != nil {
		return err
	}
	arguments.arguments = *g
	s := shapeOf(v.name(), v.name(), [3]int{blocks, 1, 1}, v.threads(), v.sharedBytes())
	if v.sm90 && early != nil {
		s.Early = early
		if len(early.Reads) > 0 {
			arguments.early = 1
		}
	}
	if blocks <= mostRuns*heads {
		return c.device.launch(s, nil, unsafe.Pointer(arguments))
	}
	arguments.apart = 1
	if err := c.device.launch(s, nil, unsafe.Pointer(arguments)); err != nil {
		return err
	}
	rows := int(g.heads / g.keyHeads * g.sq)
	m := shapeOf(v.name(), v.merger(), [3]int{heads, rows * tilesOf(int32(v.dv), columnsOfMerger), 1}, threadsOfMerger, 0)
	if s.Early != nil {
		m.Early = &driver.Early{Writes: early.Writes}
	}
	return c.device.launch(m, nil, unsafe.Pointer(arguments))
}

// early is what the kernel touches while others run. It reads keys before it waits unless the
// device is told how many there are, or has just converted them.
func (c *attention) early(o kernels.Tensor, lse kernels.Tensor) *driver.Early {
	e := &driver.Early{Writes: spansOf(o, lse)}
	if c.KVLengths == nil && len(c.inputs) == 0 {
		e.Reads = spansOf(c.k, c.v)
	}
	return e
}
