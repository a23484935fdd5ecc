package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// shareOut runs work on this goroutine, as worker 0, and on up to the given number of helpers that
// arrive while it runs, which have other numbers: a helper mostly has the same in every job. It
// returns when all that began have ended. The first to run out of tasks does not wait for helpers
// that are still on their way.
func shareOut(helpers int, work func(worker int)) {
	j := &job{work: work, most: int64(helpers), ended: make(chan struct{}, 1)}
	if posted := pool.post(j, helpers); !posted {
		for i := range helpers {
			go j.help(i + 1)
		}
	} else {
		defer pool.job.Store(nil)
	}
	work(0)
	j.close()
	j.work = nil // a helper may hold the job for as long as it sleeps, but not what the work refers to
}

// job is work that helpers can join until it is closed.
type job struct {
	work  func(worker int)
	most  int64         // how many helpers may join
	state atomic.Int64  // how many came, times came; how many of them are at work; closed if no more may join
	ended chan struct{} // has an element once no helper is at work on a closed job
}

const (
	closed = 1 << 62
	came   = 1 << 31
)

// help takes part in the job, if it has room and is not closed. Helpers come with one addition, for
// each change of the state waits for the change before, of another core.
func (j *job) help(worker int) {
	if s := j.state.Load(); s >= closed || s/came >= j.most {
		return
	}
	if s := j.state.Add(came + 1); s < closed && s/came <= j.most {
		j.work(worker)
	}
	if s := j.state.Add(-1); s >= closed && s%came == 0 {
		select {
		case j.ended <- struct{}{}:
		default: // one who came too late was counted for a moment, after the last had said so
		}
	}
}

// close waits for the helpers at work.
func (j *job) close() {
	if j.state.Add(closed)%came == 0 {
		return
	}
	if !watch(func() bool { return j.state.Load()%came == 0 }) {
		<-j.ended
	}
}

// watch looks for something to happen, for about a millisecond, and reports whether it did. Kernels
// follow each other within microseconds, and to wake a thread takes tens of them, or 150 where an
// idle virtual processor is given away. It yields a few times only, for goroutines that yield at
// once come back on each other's cores, away from the rows that these have in their caches: with
// sixteen of them, kernels took twice as long.
func watch(happened func() bool) bool {
	const yields, looks = 10, 500
	for range yields {
		for until := now() + (100 * time.Microsecond).Nanoseconds(); now() < until; {
			for range looks { // between two looks at the clock, which take longer
				if happened() {
					return true
				}
			}
		}
		runtime.Gosched()
	}
	return false
}

// pool holds the helpers: goroutines that stay awake between one kernel and the next.
var pool helperPool

type helperPool struct {
	_   [cacheLine]byte
	job atomic.Pointer[job] // what there is to help with; one at a time
	_   [cacheLine]byte     // helpers read the job all the time, and what lies beside it would keep it away from them

	lock     sync.Mutex
	awake    sync.Cond
	sleeping int
	started  int
}

func init() { pool.awake.L = &pool.lock }

// post offers a job to the pool, which grows to the number of helpers that is wanted. It reports
// whether the pool took it: while it has another job, the caller must find its own helpers.
func (p *helperPool) post(j *job, wanted int) bool {
	if !p.job.CompareAndSwap(nil, j) {
		return false
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	for ; p.started < wanted; p.started++ {
		go p.helper(p.started + 1)
	}
	if p.sleeping > 0 {
		p.awake.Broadcast()
		// What a goroutine has made ready last is kept for when it sleeps: another thread takes it
		// only after a pause of some fifty microseconds. What it had made ready before that can be
		// taken at once.
		go func() {}()
	}
	return true
}

// helper helps with one job after the other, for ever, always as the same worker.
func (p *helperPool) helper(worker int) {
	var last *job
	for {
		if watch(func() bool { j := p.job.Load(); return j != nil && j != last }) {
			last = p.job.Load()
			if last != nil {
				last.help(worker)
			}
			continue
		}
		p.sleep(last)
		last = nil
	}
}

// sleep returns when there is a job other than the last.
func (p *helperPool) sleep(last *job) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for j := p.job.Load(); j == nil || j == last; j = p.job.Load() {
		p.sleeping++
		p.awake.Wait()
		p.sleeping--
	}
}
