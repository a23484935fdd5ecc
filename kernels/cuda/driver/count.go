//go:build gpu

package driver

import "unsafe"

// CountKernels returns how many kernels work queues, and queues nothing.
func (g *GPU) CountKernels(work func(Queue) error) (int, error) {
	q := &counter{direct: direct{g}}
	err := work(q)
	return q.kernels, err
}

// counter counts what a part of a recording would queue. Its memory is nowhere.
type counter struct {
	direct
	kernels  int
	counters Counters
}

// nowhere is an address that no kernel of a counter uses, aligned as memory of the device is.
const nowhere Address = slabBytes

func (q *counter) Launch(Launch, []EncodedMap, unsafe.Pointer) error {
	q.kernels++
	return nil
}

func (q *counter) Clear(_ Address, bytes int) error {
	if bytes > 0 {
		q.kernels++
	}
	return nil
}

func (q *counter) Spare(kernels int) error {
	q.kernels += kernels
	return nil
}

func (q *counter) Scratch(bytes int) (*Block, error) {
	return &Block{At: nowhere, Bytes: bytes, lent: &lentBlock{}}, nil
}

func (q *counter) Vector(contents string) (*Owner, error) {
	return &Owner{Block: &Block{At: nowhere, Bytes: len(contents)}}, nil
}

func (q *counter) Counters() *Counters {
	if len(q.counters.waiting) == 0 {
		q.counters.waiting = append(q.counters.waiting, &Block{At: nowhere, Bytes: CounterBytes, lent: &lentBlock{}})
	}
	return &q.counters
}

func (q *counter) Keep(*Owner) bool { return false }
func (q *counter) Makes() bool      { return false }
func (q *counter) Fork() error      { return nil }
func (q *counter) Join() error      { return nil }
