//go:build gpu

package cuda

import "sync"

// counters are blocks of memory that hold zeros whenever a call borrows one. The last kernel of the call leaves it so; kernels
// before it may not, and those of another goroutine may be queued between them, so each call has a block of its own.
type counters struct {
	sync.Mutex
	waiting []*block
}

// counterBytes is the size of a block, enough for the tiles of all but the largest problems.
const counterBytes = 64 << 10

// borrowCounters gives a block of zeros.
func (d *Device) borrowCounters() (*block, error) {
	if b := d.counters.take(); b != nil {
		return b, nil
	}
	b, err := d.memory.get(counterBytes)
	if err != nil {
		return nil, err
	}
	if err := d.zero(b.at, b.bytes); err != nil {
		b.free()
		return nil, err
	}
	return b, nil
}

func (c *counters) take() *block {
	c.Lock()
	defer c.Unlock()
	last := len(c.waiting) - 1
	if last < 0 {
		return nil
	}
	b := c.waiting[last]
	c.waiting = c.waiting[:last]
	return b
}

// keep takes back a block that is zero once all that is queued has run.
func (c *counters) keep(b *block) {
	c.Lock()
	defer c.Unlock()
	c.waiting = append(c.waiting, b)
}
