//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// appendArguments is AppendArguments in src/cache_append.cu.
type appendArguments struct {
	q, k, v                 rows[readable]
	turned, keys, values    rows[writable]
	frequencies             address
	state                   writable
	items                   int32
	heads, keyHeads, length int32
	d, dv, dim              int32
	interleaved, offset     int32
	amplitude               float32
}

// TakesCachedAttention reports whether the problem is one of few rows of 16 bits, which can be
// moved 16 bytes at a time, and that need not be confined.
func (d *Device) TakesCachedAttention(c *kernels.CachedAttention) bool {
	const (
		mostAngles = 2048 // of all rows of an item: MOST_ANGLES in src/cache_append.cu
		whole      = 8    // elements that are moved at once
	)
	if c.Validate() != nil || c.Q.DType == kernels.F32 || c.Q.DType == kernels.F64 || c.Confine && hides(&c.Attention) {
		return false
	}
	if v, ok := d.decoder(&c.Attention, elementOf(c.Q.DType), c.Q, c.K, c.V, c.Keys, c.Values); !ok || v.isJoined() || c.RoPE == nil {
		return ok && !v.isJoined() // keys and values are written apart
	}
	dim := c.RoPE.Dim(c.Q.Shape[3])
	piece := dim / 2
	if c.RoPE.Pairing == kernels.Interleaved {
		piece = dim
	}
	return piece%whole == 0 && c.Q.Shape[2]*dim/2 <= mostAngles
}

// CachedAttentionForward queues two kernels, or a link of a chain.
func (d *Device) CachedAttentionForward(c *kernels.CachedAttention, o kernels.Tensor) error {
	const name = "cached attention"
	defer runtime.KeepAlive(c)
	defer runtime.KeepAlive(o)
	if err := c.Check(o); err != nil {
		return d.callError(name, err)
	}
	if !d.TakesCachedAttention(c) {
		return kernels.Unsupported{Device: d.Name(), What: name + " of this problem"}
	}
	alone := func() error { return d.attendCached(name, c, o) }
	if !d.mayLink(c, o) {
		return alone()
	}
	return d.queue().Link(driver.Link{Call: &chained{device: d, attention: c, o: o}, Alone: alone})
}

// attendCached queues two kernels: one adds to the cache, and one attends.
func (d *Device) attendCached(name string, c *kernels.CachedAttention, o kernels.Tensor) error {
	all := c.Attention
	all.K, all.V = c.Keys.Slice(0, 0, c.Q.Shape[0]), c.Values.Slice(0, 0, c.Q.Shape[0])
	a, err := d.newAttention(name, &all, all.CheckForward(kernels.AttentionOutputs{O: o}))
	if err != nil {
		return err
	}
	defer a.release()
	if err := a.describe(); err != nil {
		return err
	}
	v, ok := a.decoder(o)
	if !ok {
		return kernels.Unsupported{Device: d.Name(), What: name + " with outputs that do not begin at multiples of 16 bytes"}
	}
	if err := a.append(c); err != nil {
		return err
	}
	a.args.o = rowsWritten(o)
	err = a.decode(v, read(c.State), &driver.Early{Writes: spansOf(o)})
	a.ended = err == nil
	return err
}

// append queues the kernel that adds to the cache. Queries that it turns are the call's from then
// on.
func (a *attention) append(c *kernels.CachedAttention) error {
	const threads = 256
	d := a.device
	g := &appendArguments{q: rowsRead(c.Q), k: rowsRead(c.K), v: rowsRead(c.V), keys: rowsWritten(c.Keys), values: rowsWritten(c.Values),
		state: written(c.State), items: int32(c.Keys.Shape[0]), heads: int32(c.Q.Shape[1]), keyHeads: int32(c.K.Shape[1]),
		length: int32(c.Q.Shape[2]), d: int32(c.Q.Shape[3]), dv: int32(c.V.Shape[3])}
	writes := spansOf(c.Keys, c.Values, c.State)
	var owner *driver.Owner
	if r := c.RoPE; r != nil {
		turned, err := a.borrow(c.Q.DType, c.Q.Shape...)
		if err != nil {
			return err
		}
		g.turned, a.args.q, writes = rowsWritten(turned), rowsRead(turned), append(writes, spansOf(turned)...)
		g.dim, g.offset, g.amplitude = int32(r.Dim(c.Q.Shape[3])), int32(r.Offset), float32(r.EffectiveAmplitude())
		if r.Pairing == kernels.Interleaved {
			g.interleaved = 1
		}
		if owner, err = d.frequencies(r, int(g.dim)); err != nil {
			return d.failed(a.name, err)
		}
		g.frequencies = owner.At
	}
	s := shapeOf("cache_append", "cache_append"+entrySuffixes[c.Q.DType], [3]int{c.Q.Shape[0], 1, 1}, threads, 0)
	if d.hasMaps() {
		s.Kernel.Module, s.Early = "cache_append_sm90", &driver.Early{Writes: writes}
	}
	err := d.launch(s, nil, unsafe.Pointer(g))
	runtime.KeepAlive(owner)
	return err
}
