//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// deltaArguments is DeltaArguments in src/attention_delta.cu.
type deltaArguments struct {
	o, dO                rows[readable]
	dLSE                 readable
	delta                writable
	count                int64
	heads, length, size  int32
	lanes, aligned, zero int32
}

// AttentionDelta computes δ_i = Σ_d O_id·dO_id − dLSE_i. delta and dLSE are float32.
func (d *Device) AttentionDelta(a *kernels.Attention, o, dO, dLSE, delta kernels.Tensor) error {
	c, err := d.newAttention("attention delta", a, a.CheckDelta(o, dO, dLSE, delta))
	if err != nil {
		return err
	}
	if delta.Elements() == 0 {
		return nil
	}
	if err := d.queue().Fork(); err != nil { // AttentionBackward follows, whose blocks are to come later than theirs
		return err
	}
	width := 16 / o.DType.Size() // elements that a thread reads at once
	g := deltaArguments{
		o: rowsRead(o), dO: rowsRead(dO), dLSE: read(dLSE), delta: written(delta), count: int64(delta.Elements()),
		heads: int32(o.Shape[1]), length: int32(o.Shape[2]), size: int32(o.Shape[3]), lanes: 1,
	}
	if o.Shape[3]%width == 0 && describable([]kernels.Tensor{o, dO}) {
		g.aligned = 1
	} else {
		width = 1
	}
	for g.lanes < 32 && int(g.lanes)*width < o.Shape[3] {
		g.lanes *= 2
	}
	const threads = 256
	blocks := (g.count*int64(g.lanes) + threads - 1) / threads
	entry := map[kernels.DType]string{kernels.F32: "attention_delta_f32", kernels.BF16: "attention_delta_bf16", kernels.F16: "attention_delta_f16"}[o.DType]
	err = c.device.launch(shapeOf("attention_delta", entry, [3]int{int(blocks), 1, 1}, threads, 0), nil, unsafe.Pointer(&g))
	for _, t := range []kernels.Tensor{o, dO, dLSE, delta} {
		runtime.KeepAlive(t.Owner)
	}
	return err
}

// sinksArguments is SinksArguments in src/attention_delta.cu.
type sinksArguments struct {
	sinks, lse, delta          readable
	dSinks                     writable
	batch, heads, length, zero int32
}

// dSinks computes the gradient of the sinks from the logsumexp and δ.
func (c *attention) dSinks(lse, delta, dSinks kernels.Tensor) error {
	sums := dSinks
	if dSinks.DType != kernels.F32 {
		var err error
		if sums, err = c.borrow(kernels.F32, dSinks.Shape...); err != nil {
			return err
		}
		c.results = append(c.results, pair{dSinks, sums})
	}
	g := sinksArguments{
		sinks: c.args.sinks, lse: read(lse), delta: read(delta), dSinks: written(sums),
		batch: int32(lse.Shape[0]), heads: int32(lse.Shape[1]), length: int32(lse.Shape[2]),
	}
	s := shapeOf("attention_delta", "attention_dsinks", [3]int{lse.Shape[1], 1, 1}, 1024, 0)
	return c.device.launch(s, nil, unsafe.Pointer(&g))
}

// sharedArguments is SharedArguments in src/attention_delta.cu.
type sharedArguments struct {
	from                       rows[readable]
	to                         rows[writable]
	count                      int64
	batch, heads, length, size int32
}

// addBatch sums the gradients of all batch items for keys that they share.
func (c *attention) addBatch(to, from kernels.Tensor) error {
	g := sharedArguments{
		from: rowsRead(from), to: rowsWritten(to), count: int64(to.Elements()),
		batch: int32(from.Shape[0]), heads: int32(to.Shape[1]), length: int32(to.Shape[2]), size: int32(to.Shape[3]),
	}
	if g.count == 0 {
		return nil
	}
	const threads = 256
	entry := map[kernels.DType]string{kernels.F32: "attention_shared_f32", kernels.BF16: "attention_shared_bf16", kernels.F16: "attention_shared_f16"}[to.DType]
	blocks := (g.count + threads - 1) / threads
	s := shapeOf("attention_delta", entry, [3]int{int(blocks), 1, 1}, threads, 0)
	return c.device.launch(s, nil, unsafe.Pointer(&g))
}
