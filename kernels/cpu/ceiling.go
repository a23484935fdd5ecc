package cpu

import (
	"fmt"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// VectorLevel names the vector instructions that kernels use in this process: "generic", "avx2", "avx512" or "neon".
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
	rates := make([]float64, threads)
	var wait sync.WaitGroup
	for t := range threads {
		wait.Go(func() {
			start, flops := time.Now(), 0.0
			for took := time.Duration(0); took < atLeast || flops == 0; took = time.Since(start) {
				flops += simd.Peak[T](rounds)
			}
			rates[t] = flops / time.Since(start).Seconds()
		})
	}
	wait.Wait()
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	return sum, nil
}
