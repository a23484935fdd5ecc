package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// flopsPerThread is the least work for which another goroutine pays that is awake: some ten microseconds of it.
	flopsPerThread = 1 << 20
	// flopsToWake is the least work for which it pays to wake one for this kernel alone: a tenth of a millisecond of it.
	flopsToWake = 1 << 24
	// soon is how shortly one kernel follows another for there to be more of them.
	soon = 500 * time.Microsecond
)

// parallel runs worker on as many goroutines as the work is worth. Each worker calls claim for its next task until
// there is none; tasks are claimed in ascending order, so a task may wait for any task of a lower number.
func (b *Backend) parallel(tasks int, flops float64, worker func(claim func() (task int, ok bool))) {
	b.share(tasks, 1, flops, worker)
}

// inRuns is parallel for tasks that never wait for each other. Tasks are cut into as many runs as there are workers, and
// each starts with the run that it had in the kernels before, whose results may still be in its core's cache: fetched from
// another core's they cost as much as the arithmetic. A worker that ends its run goes on with what others have left.
func (b *Backend) inRuns(tasks int, flops float64, worker func(claim func() (task int, ok bool))) {
	b.share(tasks, b.workers(tasks, flops), flops, worker)
}

// each is inRuns for tasks that need no scratch of their own.
func (b *Backend) each(tasks int, flops float64, do func(task int)) {
	b.inRuns(tasks, flops, func(claim func() (int, bool)) {
		for task, ok := claim(); ok; task, ok = claim() {
			do(task)
		}
	})
}

// workers is the number of goroutines that the work is worth. A small kernel that stands alone is its caller's.
func (b *Backend) workers(tasks int, flops float64) int {
	if alone := now()-lastKernel.Load() > soon.Nanoseconds(); alone && flops < flopsToWake {
		return 1
	}
	return max(1, min(b.threads(), tasks, 1+int(flops/flopsPerThread)))
}

// lastKernel is when the last kernel ended whose work several goroutines could share.
var lastKernel atomic.Int64

// now is the nanoseconds since the program began.
func now() int64 { return time.Since(began).Nanoseconds() }

var began = time.Now()

// share runs worker with tasks that are cut into runs. Of each run, tasks are claimed in ascending order.
func (b *Backend) share(tasks, runs int, flops float64, worker func(claim func() (task int, ok bool))) {
	if tasks <= 0 {
		return
	}
	left := make([]run, runs)
	for i := range left {
		left[i].next.Store(int64(i * tasks / runs))
		left[i].end = int64((i + 1) * tasks / runs)
	}
	work := func(number int) {
		current, tried := number%runs, 0
		worker(func() (int, bool) {
			for ; tried < runs; tried++ {
				r := &left[current]
				if r.next.Load() < r.end {
					if task := r.next.Add(1) - 1; task < r.end {
						return int(task), true
					}
				}
				current = (current + 1) % runs
			}
			return 0, false
		})
	}
	if helpers := b.workers(tasks, flops) - 1; helpers > 0 {
		shareOut(helpers, work)
	} else {
		work(0)
	}
	if b.threads() > 1 && flops >= flopsPerThread {
		lastKernel.Store(now())
	}
}

// run is some tasks that follow each other, on a cache line of its own.
type run struct {
	next atomic.Int64
	end  int64
	_    [cacheLine - 16]byte
}

// ticketOrder lets tasks go through shared places in an order of their own, whichever threads they run on.
type ticketOrder struct {
	passed   []atomic.Int32 // a place each: how many tasks have passed it
	sleeping atomic.Int32   // tasks that wait, in the lock's care
	lock     sync.Mutex
	changed  sync.Cond
}

func newTicketOrder(places int) *ticketOrder {
	t := &ticketOrder{passed: make([]atomic.Int32, places)}
	t.changed.L = &t.lock
	return t
}

// wait returns when so many tasks have passed the place. Tasks that follow each other closely wait for microseconds,
// which is less than a goroutine takes to sleep and wake.
func (t *ticketOrder) wait(place, before int) {
	const yields, looks = 10, 2000
	for range yields {
		for range looks {
			if t.passed[place].Load() == int32(before) {
				return
			}
		}
		runtime.Gosched()
	}
	t.sleeping.Add(1)
	defer t.sleeping.Add(-1)
	t.lock.Lock()
	defer t.lock.Unlock()
	for t.passed[place].Load() != int32(before) {
		t.changed.Wait()
	}
}

// pass lets the next task go.
func (t *ticketOrder) pass(place int) {
	t.passed[place].Add(1)
	if t.sleeping.Load() == 0 {
		return // who is about to sleep looks once more
	}
	t.lock.Lock() // nobody is between that look and its sleep
	t.changed.Broadcast()
	t.lock.Unlock()
}
