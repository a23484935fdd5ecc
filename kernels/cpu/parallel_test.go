package cpu

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Every task is done once, whichever way tasks are dealt out, and however many callers want the
// pool at once.
func TestEveryTaskIsDoneOnce(t *testing.T) {
	for _, tasks := range []int{0, 1, 2, 3, 7, 64, 1001} {
		for _, threads := range []int{1, 2, 3, 8} {
			b := &Backend{Threads: threads}
			type share = func(tasks int, flops float64, worker func(claim func() (int, bool)))
			inGroups := func(runs, tasksOfRun int) share {
				return func(tasks int, flops float64, worker func(claim func() (int, bool))) {
					b.inGroups(tasks/runs/tasksOfRun, runs, tasksOfRun, flops, worker)
				}
			}
			shares := map[string]share{"parallel": b.parallel, "inRuns": b.inRuns, "inGroups of 1": inGroups(1, 1)}
			if tasks%8 == 0 {
				shares["inGroups of 2 runs"] = inGroups(2, 4)
			}
			for name, share := range shares {
				var callers sync.WaitGroup
				for range 4 {
					callers.Go(func() {
						done := make([]atomic.Int32, tasks)
						share(tasks, 1e12, func(claim func() (int, bool)) {
							for task, ok := claim(); ok; task, ok = claim() {
								done[task].Add(1)
							}
						})
						for task := range done {
							if n := done[task].Load(); n != 1 {
								t.Errorf("%s of %d tasks, %d threads: task %d was done %d times", name, tasks, threads, task, n)
							}
						}
					})
				}
				callers.Wait()
			}
		}
	}
}

// Helpers are woken for much work, or where kernels follow each other.
func TestSmallKernelsThatStandAloneAreTheirCallers(t *testing.T) {
	for _, c := range []struct {
		flops   float64
		sinceMs int64
		want    int
	}{
		{flopsToWake, 1000, 2}, {flopsToWake - 1, 1000, 1}, {flopsToWake - 1, -1e6, 2}, {flopsPerThread - 1, -1e6, 1},
	} {
		lastKernel.Store(now() - c.sinceMs*1e6)
		if n := (&Backend{Threads: 2}).workers(100, c.flops); n != c.want {
			t.Errorf("%.0f operations, %d ms after the last kernel, are worth %d goroutines, want %d", c.flops, c.sinceMs, n, c.want)
		}
	}
	lastKernel.Store(now())
}

// A worker claims the tasks of its run in ascending order, and then takes what a slower one has
// left.
func TestInRunsTakesWhatOthersLeave(t *testing.T) {
	const tasks = 100
	b := &Backend{Threads: 2}
	var lock sync.Mutex
	var lists [][]int
	b.inRuns(tasks, 1e12, func(claim func() (int, bool)) {
		var list []int
		for task, ok := claim(); ok; task, ok = claim() {
			if list = append(list, task); task == 0 {
				time.Sleep(20 * time.Millisecond) // long enough for the other, if it comes, to do everything else
			}
		}
		lock.Lock()
		defer lock.Unlock()
		lists = append(lists, list)
	})
	total := 0
	for _, list := range lists {
		total += len(list)
		for i, first := range []int{0, tasks / 2} {
			own := slices.DeleteFunc(slices.Clone(list), func(task int) bool { return (task >= tasks/2) != (i == 1) })
			if !slices.IsSorted(own) {
				t.Errorf("of the run that begins at %d a worker claimed %v, which is not ascending", first, own)
			}
		}
	}
	if total != tasks {
		t.Errorf("%d tasks were claimed, there are %d", total, tasks)
	}
}

// A worker does what is left of its own group, whoever else has tasks there, before it enters
// another; there it goes on as it began.
func TestInGroupsStaysWithAGroup(t *testing.T) {
	const groups, runs, tasksOfRun = 2, 2, 10
	b := &Backend{Threads: 1}
	var list []int
	b.inGroups(groups, runs, tasksOfRun, 1, func(claim func() (int, bool)) {
		for task, ok := claim(); ok; task, ok = claim() {
			list = append(list, task)
		}
	})
	want := make([]int, groups*runs*tasksOfRun)
	for i := range want {
		want[i] = i
	}
	if !slices.Equal(list, want) {
		t.Errorf("one worker claimed %v, want every group in its turn", list)
	}
}

// A group that somebody works on, and that has little left, is left to them.
func TestAnotherGroup(t *testing.T) {
	for _, c := range []struct {
		left    [4]int64 // of two groups of two runs
		entered bool     // the second group
		want    int      // -1 for none
	}{
		{[4]int64{0, 0, 1, 0}, false, 2}, {[4]int64{0, 0, 0, 1}, false, 3}, {[4]int64{0, 0, 2, 2}, true, -1},
		{[4]int64{0, 0, 2, 3}, true, 3}, {[4]int64{0, 0, 0, 0}, false, -1}, {[4]int64{0, 0, -2, 5}, true, 3},
	} {
		left := make([]run, len(c.left))
		for i, n := range c.left {
			left[i].end = 10
			left[i].next.Store(10 - n)
		}
		left[0].entered.Store(true)
		left[1].entered.Store(c.entered)
		next, ok := anotherGroup(left, 2, 0)
		if ok != (c.want >= 0) || ok && next != c.want {
			t.Errorf("of %v, entered %v: %d %v, want %d", c.left, c.entered, next, ok, c.want)
		}
		if ok && !left[1].entered.Load() {
			t.Errorf("of %v, entered %v: the group was not entered", c.left, c.entered)
		}
	}
}
