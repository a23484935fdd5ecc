package cpu

import (
	"fmt"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// VectorLevel names the vector instructions that kernels use in this process: "generic", "avx2", "avx512", "neon" or
// "bfmmla".
func VectorLevel() string { return simd.Active().String() }

// PeakRate measures the FLOP/s of fused multiply-adds that touch registers alone, on a number of threads at once, for at
// least the given time. Each thread times its own loop, so that the time a goroutine takes to start does not count.
// It is the ceiling of every kernel that arithmetic bounds, to be measured beside one: clocks and neighbours change from second
// to second.
func PeakRate[T kernels.Float](threads int, atLeast time.Duration) (float64, error) {
	if threads < 1 {
		return 0, fmt.Errorf("PeakRate: threads is %d, it needs to be at least 1", threads)
	}
	const rounds = 50_000 // a tenth of a millisecond or two: assembly cannot be preempted
	return sumOfRates(threads, func(int) float64 {
		start, flops := time.Now(), 0.0
		for took := time.Duration(0); took < atLeast || flops == 0; took = time.Since(start) {
			flops += simd.Peak[T](rounds)
		}
		return flops / time.Since(start).Seconds()
	}), nil
}

// ReadRate measures the bytes a second that a number of threads read of some memory, each a part of its own, from end to end.
// Of memory that is larger than the caches it is the ceiling of a product of one row.
func ReadRate(threads int, memory []float32) (float64, error) {
	if threads < 1 || len(memory) < threads {
		return 0, fmt.Errorf("ReadRate: threads is %d, it needs to be from 1 to the memory's %d elements", threads, len(memory))
	}
	return sumOfRates(threads, func(t int) float64 {
		part := memory[t*len(memory)/threads : (t+1)*len(memory)/threads]
		start := time.Now()
		for from := 0; from < len(part); from += pieceElements {
			simd.Greatest(min(pieceElements, len(part)-from), &part[from])
		}
		took := max(time.Since(start), 1) // a clock may not have moved
		return float64(4*len(part)) / took.Seconds()
	}), nil
}

// sumOfRates runs measure on so many threads at once.
func sumOfRates(threads int, measure func(thread int) (rate float64)) float64 {
	rates := make([]float64, threads)
	var wait sync.WaitGroup
	for t := range threads {
		wait.Go(func() { rates[t] = measure(t) })
	}
	wait.Wait()
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	return sum
}
