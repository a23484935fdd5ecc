package cpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// flopsPerThread is the least work for which another goroutine pays that is awake: some ten
	// microseconds of it.
	flopsPerThread = 1 << 20
	// flopsToWake is the least work for which it pays to wake one for this kernel alone: a tenth of
	// a millisecond of it.
	flopsToWake = 1 << 24
	// soon is how shortly one kernel follows another for there to be more of them.
	soon = 500 * time.Microsecond
)

// parallel runs worker on as many goroutines as the work is worth. Each worker calls claim for its
// next task until there is none; tasks are claimed in ascending order, so a task may wait for any
// task of a lower number.
func (b *Backend) parallel(tasks int, flops float64, worker func(claim func() (task int, ok bool))) {
	b.share(tasks, 1, 1, flops, worker)
}

// inRuns is parallel for tasks that never wait for each other. Tasks are cut into as many runs as
// there are workers, and each starts with the run that it had in the kernels before, whose results
// may still be in its core's cache: fetched from another core's they cost as much as the
// arithmetic. A worker that ends its run goes on with what others have left.
func (b *Backend) inRuns(tasks int, flops float64, worker func(claim func() (task int, ok bool))) {
	runs := b.workers(tasks, flops)
	b.share(tasks, runs, runs, flops, worker)
}

// inGroups is inRuns for tasks that come in groups, of so many runs each of as many tasks, where
// the first task of a group costs a worker some preparation for all of them. It stays with a group
// until nothing is left there, whoever the tasks' runs belong to, and goes on with another where
// more is left than the preparation costs, or nobody is.
func (b *Backend) inGroups(groups, runs, tasksOfRun int, flops float64, worker func(claim func() (task int, ok bool))) {
	b.share(groups*runs*tasksOfRun, groups*runs, runs, flops, worker)
}

// each is inRuns for tasks that need no scratch of their own.
func (b *Backend) each(tasks int, flops float64, do func(task int)) {
	b.inRuns(tasks, flops, func(claim func() (int, bool)) {
		for task, ok := claim(); ok; task, ok = claim() {
			do(task)
		}
	})
}

// workers is the number of goroutines that the work is worth. A small kernel that stands alone is
// its caller's.
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

// share runs worker with tasks that are cut into runs, so many of which are a group. Of each run,
// tasks are claimed in ascending order.
func (b *Backend) share(tasks, runs, group int, flops float64, worker func(claim func() (task int, ok bool))) {
	if tasks <= 0 {
		return
	}
	left := make([]run, runs)
	for i := range left {
		left[i].next.Store(int64(i * tasks / runs))
		left[i].end = int64((i + 1) * tasks / runs)
	}
	workers := b.workers(tasks, flops)
	var failed atomic.Pointer[panicked]
	work := func(number int) {
		defer keepPanic(&failed)
		own, tried := number%workers*runs/workers, 0
		left[own/group].entered.Store(true)
		worker(func() (int, bool) {
			for failed.Load() == nil {
				first := own / group * group
				for ; tried < group; tried++ {
					if task, ok := left[first+(own-first+tried)%group].claim(); ok {
						return task, true
					}
				}
				next, ok := anotherGroup(left, group, own)
				if !ok {
					return 0, false
				}
				own, tried = next, 0
			}
			return 0, false
		})
	}
	if workers > 1 {
		shareOut(workers-1, work)
	} else {
		work(0)
	}
	if p := failed.Load(); p != nil {
		panic(p)
	}
	if b.threads() > 1 && flops >= flopsPerThread {
		lastKernel.Store(now())
	}
}

// panicked is what one of the goroutines that shared a kernel's work panicked with. The kernel's
// caller panics with it once all have ended, and [catch] makes it the call's error.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("it panicked: %v\n%s", p.value, p.stack) }

// keepPanic keeps the first panic of goroutines that end by it. Those that others abandoned have
// none of their own.
func keepPanic(first *atomic.Pointer[panicked]) {
	switch r := recover().(type) {
	case nil, abandoned:
	case *panicked:
		first.CompareAndSwap(nil, r)
	default:
		first.CompareAndSwap(nil, &panicked{r, debug.Stack()})
	}
}

// catch makes the error of a kernel's call of what a goroutine panicked with that shared its work.
// It is deferred.
func catch(kernel string, err *error) {
	switch r := recover().(type) {
	case nil:
	case *panicked:
		*err = callError(kernel, r)
	default:
		panic(r)
	}
}

// anotherGroup enters a group in which much is left, or something and nobody is there, and returns
// a run of it that is not done. What else is left is done by those who are there.
func anotherGroup(left []run, group, own int) (next int, ok bool) {
	const much = 3 // tasks of a run
	for i := range left {
		next = (own + i) % len(left)
		n := left[next].end - left[next].next.Load()
		if entered := &left[next/group].entered; n >= much || n > 0 && !entered.Load() {
			entered.Store(true)
			return next, true
		}
	}
	return 0, false
}

// run is some tasks that follow each other, on a cache line of its own.
type run struct {
	next    atomic.Int64
	end     int64
	entered atomic.Bool // of the group of this number: somebody works there
	_       [cacheLine - 20]byte
}

func (r *run) claim() (task int, ok bool) {
	if r.next.Load() >= r.end {
		return 0, false
	}
	n := r.next.Add(1) - 1
	return int(n), n < r.end
}

// ticketOrder lets tasks go through shared places in an order of their own, whichever threads they
// run on.
type ticketOrder struct {
	passed   []atomic.Int32 // a place each: how many tasks have passed it
	sleeping atomic.Int32   // tasks that wait, in the lock's care
	left     atomic.Bool    // by a task that panicked: who waits for it would wait for ever
	lock     sync.Mutex
	changed  sync.Cond
}

func newTicketOrder(places int) *ticketOrder {
	t := &ticketOrder{passed: make([]atomic.Int32, places)}
	t.changed.L = &t.lock
	return t
}

// wait returns when so many tasks have passed the place. Tasks that follow each other closely wait
// for microseconds, which is less than a goroutine takes to sleep and wake.
func (t *ticketOrder) wait(place, before int) {
	const yields, looks = 10, 2000
	for range yields {
		for range looks {
			if t.passed[place].Load() == int32(before) {
				return
			}
		}
		if t.left.Load() {
			panic(abandoned{})
		}
		runtime.Gosched()
	}
	t.sleeping.Add(1)
	defer t.sleeping.Add(-1)
	t.lock.Lock()
	defer t.lock.Unlock()
	for t.passed[place].Load() != int32(before) {
		if t.left.Load() {
			panic(abandoned{})
		}
		t.changed.Wait()
	}
}

// abandoned is what a task panics with that waits for one that has panicked.
type abandoned struct{}

// abandon lets nobody wait for tasks of a goroutine that may have panicked.
func (t *ticketOrder) abandon() {
	t.left.Store(true)
	t.lock.Lock()
	t.changed.Broadcast()
	t.lock.Unlock()
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
