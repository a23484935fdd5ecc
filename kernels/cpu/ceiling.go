package cpu

import (
	"fmt"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// The functions here measure what the machine could do at best, to be run beside a kernel that is measured: clocks and
// neighbours change from second to second, so a rate says little without the ceiling of the same moment.

// VectorLevel names the vector instructions that kernels use in this process: "generic", "avx2" or "avx512".
func VectorLevel() string { return simd.Active().String() }

// PeakRate measures the FLOP/s of fused multiply-adds that touch registers alone, on a number of threads at once, for at
// least the given time. Each thread times its own loop, so that the time a goroutine takes to start does not count.
// It is the ceiling of every kernel that arithmetic bounds.
func PeakRate[T kernels.Float](threads int, atLeast time.Duration) (float64, error) {
	if threads < 1 {
		return 0, fmt.Errorf("PeakRate: threads is %d, it needs to be at least 1", threads)
	}
	const rounds = 50_000 // a tenth of a millisecond or two: assembly cannot be preempted
	rates := make([]float64, threads)
	together(threads, func(t int) {
		start, flops := time.Now(), 0.0
		for took := time.Duration(0); took < atLeast || flops == 0; took = time.Since(start) {
			flops += simd.Peak[T](rounds)
		}
		rates[t] = flops / time.Since(start).Seconds()
	})
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	return sum, nil
}

// CopyRate measures the bytes a second that a plain copy reads and writes together, on a number of threads that share
// the work. Slices that are larger than the caches make it the ceiling of every kernel that memory bounds.
func CopyRate(threads int, to, from []byte) (float64, error) {
	switch {
	case threads < 1:
		return 0, fmt.Errorf("CopyRate: threads is %d, it needs to be at least 1", threads)
	case len(from) == 0 || len(to) != len(from):
		return 0, fmt.Errorf("CopyRate: to has %d bytes and from %d, they need to be equal, and not 0", len(to), len(from))
	}
	start := time.Now()
	together(threads, func(t int) {
		first, last := t*len(to)/threads, (t+1)*len(to)/threads
		copy(to[first:last], from[first:last])
	})
	took := max(time.Since(start), 1) // a clock may not have moved
	return float64(2*len(to)) / took.Seconds(), nil
}

// together calls work once for each thread at the same time, the last on this goroutine.
func together(threads int, work func(t int)) {
	var others sync.WaitGroup
	for t := range threads - 1 {
		others.Go(func() { work(t) })
	}
	work(threads - 1)
	others.Wait()
}
