//go:build gpu

package driver

import (
	"sync"

	"gorgonia.org/cu"
)

// Counters are blocks of memory that hold zeros whenever a call borrows one. The last kernel of the
// call leaves it so; kernels before it may not, and those of another goroutine may be queued
// between them, so each call has a block of its own. A recording has a list of its own.
type Counters struct {
	sync.Mutex
	waiting []*Block
}

// CounterBytes is the size of a block, enough for the tiles of all but the largest problems.
const CounterBytes = 64 << 10

// BorrowCounters gives a block of zeros. The caller returns it to q.Counters by Keep if its work
// leaves zeros there, and frees it otherwise.
func (g *GPU) BorrowCounters(q Queue) (*Block, error) {
	if b := q.Counters().take(); b != nil {
		return b, nil
	}
	b, err := g.Lasting(CounterBytes)
	if err != nil {
		return nil, err
	}
	if err := q.lasting("cuMemsetD8Async", func(s cu.Stream) error {
		return cu.MemsetD8Async(cu.DevicePtr(b.At), 0, int64(b.Bytes), s)
	}); err != nil {
		b.Free()
		return nil, err
	}
	return b, nil
}

func (c *Counters) take() *Block {
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

// Keep takes back a block that is zero once all that is queued has run.
func (c *Counters) Keep(b *Block) {
	c.Lock()
	defer c.Unlock()
	c.waiting = append(c.waiting, b)
}
