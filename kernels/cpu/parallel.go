package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// flopsPerThread is the least work for which another goroutine pays: some ten microseconds of it.
const flopsPerThread = 1 << 20

// parallel runs worker on as many goroutines as the work is worth. Each worker calls claim for its next task until
// there is none; tasks are claimed in ascending order, so a task may wait for any task of a lower number.
func (b *Backend) parallel(tasks int, flops float64, worker func(claim func() (task int, ok bool))) {
	var claimed atomic.Int64
	claim := func() (int, bool) {
		task := int(claimed.Add(1)) - 1
		return task, task < tasks
	}
	helpers := min(b.threads(), tasks, 1+int(flops/flopsPerThread)) - 1
	switch {
	case tasks <= 0:
	case helpers <= 0:
		worker(claim)
	default:
		shareOut(helpers, func() { worker(claim) })
	}
}

// each is parallel for tasks that need no scratch of their own.
func (b *Backend) each(tasks int, flops float64, do func(task int)) {
	b.parallel(tasks, flops, func(claim func() (int, bool)) {
		for task, ok := claim(); ok; task, ok = claim() {
			do(task)
		}
	})
}

// turns lets tasks go through shared places in an order of their own, whichever threads they run on.
type turns struct {
	passed  []atomic.Int32 // a place each: how many tasks have passed it
	lock    sync.Mutex
	changed sync.Cond
}

func newTurns(places int) *turns {
	t := &turns{passed: make([]atomic.Int32, places)}
	t.changed.L = &t.lock
	return t
}

// wait returns when so many tasks have passed the place. Tasks that follow each other closely wait for microseconds,
// which is less than a goroutine takes to sleep and wake.
func (t *turns) wait(place, before int) {
	const spins = 64
	for range spins {
		if t.passed[place].Load() == int32(before) {
			return
		}
		runtime.Gosched()
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	for t.passed[place].Load() != int32(before) {
		t.changed.Wait()
	}
}

// pass lets the next task go.
func (t *turns) pass(place int) {
	t.lock.Lock()
	t.passed[place].Add(1)
	t.lock.Unlock()
	t.changed.Broadcast()
}
