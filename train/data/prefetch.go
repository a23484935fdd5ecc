package data

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

// Prefetcher is [Batches] that are made ahead of time by a goroutine of its own. Close ends the goroutine.
//
// Batches that are asked for in order are ready when they are needed. Any other order is served as well: the window of
// batches that are made ahead moves to the one asked for. Many goroutines may ask at once and are served in turn.
type Prefetcher struct {
	source       Batches
	rows, length int
	ended        chan struct{} // closed when the goroutine has returned

	asking sync.Mutex // held by Fill, so that one Fill does not move the window while another waits

	mutex   sync.Mutex // guards what follows
	changed *sync.Cond
	next    int    // the window begins here
	slots   []slot // batch n has slot n modulo their number
	closed  bool
}

// slot holds a batch. While it is being filled it belongs to the goroutine alone.
type slot struct {
	n               int // the batch; -1 for none, or while it is being filled
	tokens, targets []int
	err             error
}

// Prefetch makes batches from number from on ahead of time, as many as depth; 2 are enough where batches take a similar
// time. Only the Prefetcher may use b from then on.
func Prefetch(b Batches, from, depth int) (*Prefetcher, error) {
	if b == nil {
		return nil, errors.New("Prefetch: b is nil, it needs to be batches")
	}
	rows, length := b.Shape()
	switch {
	case rows < 1 || length < 1 || rows > math.MaxInt/length:
		return nil, fmt.Errorf("Prefetch: b has the shape (%d, %d), each needs to be at least 1 and their product an int",
			rows, length)
	case from < 0 || depth < 1:
		return nil, fmt.Errorf("Prefetch: from is %d and depth is %d, they need to be at least 0 and 1", from, depth)
	}
	p := &Prefetcher{source: b, rows: rows, length: length, next: from, slots: make([]slot, depth)}
	p.ended = make(chan struct{})
	p.changed = sync.NewCond(&p.mutex)
	for i := range p.slots {
		p.slots[i] = slot{n: -1, tokens: make([]int, rows*length), targets: make([]int, rows*length)}
	}
	go p.run()
	return p, nil
}

// Shape is the shape of each batch.
func (p *Prefetcher) Shape() (rows, length int) { return p.rows, p.length }

// Fill writes batch n, which is what Fill of the batches underneath would write, and returns the error that it would
// return.
func (p *Prefetcher) Fill(n int, tokens, targets []int) error {
	if err := checkFill(n, p.rows, p.length, tokens, targets); err != nil {
		return fmt.Errorf("Prefetcher: %w", err)
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
		return errors.New("Prefetcher: it is closed, it needs to be open")
	}
	copy(tokens, s.tokens)
	copy(targets, s.targets)
	p.moveTo(n + 1)
	return s.err
}

// moveTo moves the window. Batches that are in it and already there stay.
func (p *Prefetcher) moveTo(n int) {
	p.next = n
	p.changed.Broadcast()
}

// Close stops the goroutine and waits for it to end. A Fill that waits returns an error, and so does any later one.
// Closing again does nothing. The error is always nil.
func (p *Prefetcher) Close() error {
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
		err := p.source.Fill(n, s.tokens, s.targets)
		p.mutex.Lock()
		s.n, s.err = n, err
		p.changed.Broadcast()
	}
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
