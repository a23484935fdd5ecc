package data

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/stheno-ml/stheno/internal/guard"
)

// Prefetcher is [Batches] that are made ahead of time by a goroutine of its own. Close ends the
// goroutine.
//
// Batches that are asked for in order are ready when they are needed. Any other order is served as
// well: the window of batches that are made ahead moves to the one asked for. Many goroutines may
// ask at once and are served in turn.
type Prefetcher struct {
	source Batches
	ended  chan struct{} // closed when the goroutine has returned

	asking sync.Mutex // held by Batch, so that one call does not move the window while another waits

	mutex   sync.Mutex // guards what follows
	changed *sync.Cond
	next    int    // the window begins here
	slots   []slot // batch n has slot n modulo their number
	closed  bool
}

// slot holds a batch.
type slot struct {
	n     int // the batch; -1 for none, or while it is being made
	batch Batch
	err   error
}

// Prefetch makes batches from number from on ahead of time, as many as depth; 2 are enough where
// batches take a similar time. Only the Prefetcher may use b from then on.
func Prefetch(b Batches, from, depth int) (*Prefetcher, error) {
	switch {
	case b == nil:
		return nil, errors.New("Prefetch: b is nil, it needs to be batches")
	case from < 0 || depth < 1:
		return nil, fmt.Errorf("Prefetch: from is %d and depth is %d, they need to be at least 0 and 1", from, depth)
	}
	p := &Prefetcher{source: b, next: from, slots: make([]slot, depth)}
	p.ended = make(chan struct{})
	p.changed = sync.NewCond(&p.mutex)
	for i := range p.slots {
		p.slots[i].n = -1
	}
	go p.run()
	return p, nil
}

// Batch returns batch n, which is what the batches underneath would return, and their error.
func (p *Prefetcher) Batch(n int) (Batch, error) {
	if n < 0 || n == math.MaxInt {
		return nil, fmt.Errorf("Prefetcher: n is %d, it needs to be at least 0 and below %d", n, math.MaxInt)
	}
	if p.source == nil {
		return nil, errors.New("Prefetcher: it has no batches, it needs to be made by Prefetch")
	}
	p.asking.Lock()
	defer p.asking.Unlock()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.moveTo(n)
	s := &p.slots[n%len(p.slots)]
	for s.n != n && !p.closed {
		p.changed.Wait()
	}
	if p.closed {
		return nil, errors.New("Prefetcher: it is closed, it needs to be open")
	}
	b, err := s.batch, s.err
	*s = slot{n: -1}
	p.moveTo(n + 1)
	return b, err
}

// moveTo moves the window. Batches that are in it and already there stay.
func (p *Prefetcher) moveTo(n int) {
	p.next = n
	p.changed.Broadcast()
}

// Close stops the goroutine and waits for it to end. A Batch that waits returns an error, and so
// does any later one. Closing again does nothing. The error is always nil.
func (p *Prefetcher) Close() error {
	if p.source == nil {
		return nil
	}
	p.mutex.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mutex.Unlock()
	<-p.ended
	return nil
}

// run fills slots until the Prefetcher is closed.
func (p *Prefetcher) run() {
	defer close(p.ended)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for !p.closed {
		n, found := p.missing()
		if !found {
			p.changed.Wait()
			continue
		}
		s := &p.slots[n%len(p.slots)]
		s.n = -1
		p.mutex.Unlock()
		b, err := p.make(n)
		p.mutex.Lock()
		*s = slot{n, b, err}
		p.changed.Broadcast()
	}
}

// make makes a batch. A panic is its error, for nobody could recover from one on this goroutine.
func (p *Prefetcher) make(n int) (b Batch, err error) {
	defer guard.CatchLine(&err, fmt.Sprintf("Prefetcher: batch %d: it", n))
	return p.source.Batch(n)
}

// missing is the first batch of the window that is not in its slot.
func (p *Prefetcher) missing() (n int, found bool) {
	for n := p.next; n-p.next < len(p.slots) && n >= p.next; n++ {
		if p.slots[n%len(p.slots)].n != n {
			return n, true
		}
	}
	return 0, false
}
