package main

import (
	"sync"
	"time"
)

// copyRate measures the bytes a second that a plain copy reads and writes together, on a number of
// threads that share the work. Slices of one length that are larger than the caches make it the
// ceiling of every kernel that memory bounds.
func copyRate(threads int, to, from []byte) float64 {
	var wait sync.WaitGroup
	start := time.Now()
	for t := range threads {
		wait.Go(func() {
			first, last := t*len(to)/threads, (t+1)*len(to)/threads
			copy(to[first:last], from[first:last])
		})
	}
	wait.Wait()
	took := max(time.Since(start), 1) // a clock may not have moved
	return float64(2*len(to)) / took.Seconds()
}
