package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// VectorLevel names the vector instructions that kernels use in this process: "generic", "avx2",
// "avx512", "neon" or "bfmmla".
func VectorLevel() string { return simd.Active().String() }

// PeakRate measures the FLOP/s of fused multiply-adds that touch registers alone, on a number of
// threads at once, for at least the given time. Each thread times its own loop, so that the time a
// goroutine takes to start does not count. It is the ceiling of every kernel that arithmetic
// bounds, to be measured beside one: clocks and neighbours change from second to second.
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

// ReadRate measures the bytes a second that a number of threads read of some memory together, piece
// by piece, each whatever is next. Of memory that is larger than the caches it is the ceiling of a
// product of one row.
func ReadRate(threads int, memory []float32) (float64, error) {
	if threads < 1 || len(memory) < threads {
		return 0, fmt.Errorf("ReadRate: threads is %d, it needs to be from 1 to the memory's %d elements", threads, len(memory))
	}
	var (
		here, next   atomic.Int64
		wait         sync.WaitGroup
		began, ended = make([]time.Time, threads), make([]time.Time, threads)
		piece        = min(pieceRead, ceilDiv(len(memory), threads))
	)
	for t := range threads {
		wait.Go(func() {
			for here.Add(1); here.Load() < int64(threads); {
				runtime.Gosched() // until all have begun
			}
			began[t] = time.Now()
			for from := int(next.Add(1)-1) * piece; from < len(memory); from = int(next.Add(1)-1) * piece {
				end := min(from+piece, len(memory))
				for ; from < end; from += pieceElements {
					simd.Greatest(min(pieceElements, end-from), &memory[from])
				}
			}
			ended[t] = time.Now()
		})
	}
	wait.Wait()
	took := slices.MaxFunc(ended, time.Time.Compare).Sub(slices.MinFunc(began, time.Time.Compare))
	return float64(4*len(memory)) / max(took, 1).Seconds(), nil // a clock may not have moved
}

// pieceRead is what a thread reads from end to end, 1 MiB.
const pieceRead = 1 << 18

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
