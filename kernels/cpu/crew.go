package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// shareOut runs work on this goroutine, as worker 0, and on up to the given number of helpers that arrive while it runs,
// which have other numbers: a helper mostly has the same in every job. It returns when all that began have ended. The
// first to run out of tasks does not wait for helpers that are still on their way.
func shareOut(helpers int, work func(worker int)) {
	j := &job{work: work, ended: make(chan struct{})}
	j.seats.Store(int32(helpers))
	if posted := crew.post(j, helpers); !posted {
		for i := range helpers {
			go j.help(i + 1)
		}
	} else {
		defer crew.job.Store(nil)
	}
	work(0)
	j.close()
	j.work = nil // a helper may hold the job for as long as it sleeps, but not what the work refers to
}

// job is work that helpers can join until it is closed.
type job struct {
	work    func(worker int)
	seats   atomic.Int32 // how many helpers may still join
	working atomic.Int32 // helpers at work, plus closed
	ended   chan struct{}
}

// closed is added to the number of helpers at work when no more may join.
const closed = 1 << 30

// help takes part in the job, if there is a seat and it is not closed.
func (j *job) help(worker int) {
	if j.seats.Add(-1) < 0 {
		return
	}
	for {
		n := j.working.Load()
		if n >= closed {
			return
		}
		if j.working.CompareAndSwap(n, n+1) {
			break
		}
	}
	j.work(worker)
	if j.working.Add(-1) == closed {
		close(j.ended)
	}
}

// close waits for the helpers at work.
func (j *job) close() {
	if j.working.Add(closed) == closed {
		return
	}
	if !watch(func() bool { return j.working.Load() == closed }) {
		<-j.ended
	}
}

// watch looks for something to happen, for about a millisecond in which no other goroutine wants the thread, and tells
// whether it did. Kernels follow each other within microseconds, and to wake a thread takes tens of them, or 150 where an
// idle virtual processor is given away. Most looks are without yielding: two goroutines that yield at once can come back on
// each other's cores, away from the rows that these have in their caches.
func watch(happened func() bool) bool {
	const yields, looks = 2500, 100
	for range yields {
		for range looks {
			if happened() {
				return true
			}
		}
		runtime.Gosched()
	}
	return false
}

// crew is the helpers: goroutines that stay awake between one kernel and the next.
var crew helpers

type helpers struct {
	job atomic.Pointer[job] // what there is to help with; one at a time

	lock     sync.Mutex
	awake    sync.Cond
	sleeping int
	hired    int
}

func init() { crew.awake.L = &crew.lock }

// post offers a job to the crew, which grows to the number of helpers that is wanted. It tells whether the crew took
// it: while it has another job, the caller must find its own helpers.
func (c *helpers) post(j *job, wanted int) bool {
	if !c.job.CompareAndSwap(nil, j) {
		return false
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	for ; c.hired < wanted; c.hired++ {
		go c.helper(c.hired + 1)
	}
	if c.sleeping > 0 {
		c.awake.Broadcast()
		// What a goroutine has made ready last is kept for when it sleeps: another thread takes it only after a pause of
		// some fifty microseconds. What it had made ready before that can be taken at once.
		go func() {}()
	}
	return true
}

// helper helps with one job after the other, for ever, always as the same worker.
func (c *helpers) helper(worker int) {
	var last *job
	for {
		if watch(func() bool { j := c.job.Load(); return j != nil && j != last }) {
			last = c.job.Load()
			if last != nil {
				last.help(worker)
			}
			continue
		}
		c.sleep(last)
		last = nil
	}
}

// sleep returns when there is a job other than the last.
func (c *helpers) sleep(last *job) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for j := c.job.Load(); j == nil || j == last; j = c.job.Load() {
		c.sleeping++
		c.awake.Wait()
		c.sleeping--
	}
}
