//go:build gpu

package driver

import "gorgonia.org/cu"

// This file holds back calls of a recording that may become parts of one kernel, until work comes
// that may not, or the recording ends.

// Link is a call that may be a part of a chain: one kernel in place of those of several calls.
type Link struct {
	Call  any          // what [Kernels.Chain] needs to know of it
	Alone func() error // queues the call's own kernels
}

// Link queues a call at once.
func (q direct) Link(l Link) error { return l.Alone() }

// Link holds a call back.
func (q *recorder) Link(l Link) error {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.links = append(q.links, l)
	return nil
}

// Link queues a call at once: a part is made of the kernels that it was recorded with.
func (p *part) Link(l Link) error { return l.Alone() }

// SettleLinks queues what was held back, before other work. Whoever uses the stream itself calls it
// first.
func (g *GPU) SettleLinks() error {
	r := g.recorder.current.Load()
	if r == nil {
		return nil
	}
	r.mutex.Lock()
	links := r.links
	r.links = nil
	r.mutex.Unlock()
	if len(links) == 0 {
		return nil
	}
	return g.recorder.chain(links)
}

// Zeros gives memory that lasts as long as the work that is queued, and is zero when that first
// runs.
func (g *GPU) Zeros(q Queue, bytes int) (*Owner, error) { return g.Filled(q, bytes, 0) }

// Filled is Zeros whose bytes have a value.
func (g *GPU) Filled(q Queue, bytes int, value byte) (*Owner, error) {
	b, err := g.Lasting(bytes)
	if err != nil {
		return nil, err
	}
	o := b.Owned()
	q.Keep(o)
	return o, q.lasting("cuMemsetD8Async", func(s cu.Stream) error {
		return cu.MemsetD8Async(cu.DevicePtr(o.At), value, int64(o.Bytes), s)
	})
}
