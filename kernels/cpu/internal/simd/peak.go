package simd

import (
	"runtime"

	"github.com/stheno-ml/stheno/kernels"
)

// Peak runs n rounds of fused multiply-adds (at the generic level, of multiplications and
// additions) that touch registers alone, and returns the number of floating-point operations that
// were done. Their rate is the ceiling of [Gemm] on one thread, to be measured beside it: it
// changes with the clock and with the neighbours.
func Peak[T kernels.Float](n int) float64 {
	if n <= 0 {
		return 0
	}
	if active != Generic {
		peakVector[T](n)
		return float64(n) * peakChains() * 2 * float64(Lanes[T]())
	}
	var sums [8]T
	s0, s1, s2, s3, s4, s5, s6, s7 := sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]
	x, y := T(n), T(1)/T(n+1)
	for range n {
		s0 += x * y
		s1 += x * s0
		s2 += x * y
		s3 += x * y
		s4 += x * y
		s5 += x * y
		s6 += x * y
		s7 += x * y
	}
	runtime.KeepAlive(s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7) // or the compiler drops the loop
	return float64(n) * 16
}

// peakChains is the number of independent sums in the vector loop: more than latency times units.
func peakChains() float64 {
	if isNEON() {
		return 24
	}
	return 12
}
