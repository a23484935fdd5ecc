//go:build gpu

package cuda

import (
	"sync"

	"gorgonia.org/cu"
)

// counters are blocks of memory that hold zeros whenever a call borrows one. The last kernel of the call leaves it so; kernels
// before it may not, and those of another goroutine may be queued between them, so each call has a block of its own.
type counters struct {
	sync.Mutex
	waiting []*block
}

// counterBytes is the size of a block, enough for the tiles of all but the largest problems.
const counterBytes = 64 << 10

// countersInUse is the list that calls borrow from and give back to. A recording has a list of its own.
func (d *Device) countersInUse() *counters {
	if d.varied != nil {
		return &d.varied.kept.counters
	}
	if r := d.memory.recording.Load(); r != nil {
		return &r.counters
	}
	return &d.counters
}

// borrowCounters gives a block of zeros.
func (d *Device) borrowCounters() (*block, error) {
	if b := d.countersInUse().take(); b != nil {
		return b, nil
	}
	b, err := d.memory.getLasting(counterBytes)
	if err != nil {
		return nil, err
	}
	if err := d.unrecorded("cuMemsetD8Async", func(s cu.Stream) error {
		return cu.MemsetD8Async(cu.DevicePtr(b.at), 0, int64(b.bytes), s)
	}); err != nil {
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
