package cpu_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels/cpu"
)

func TestPeakRate(t *testing.T) {
	for threads := 1; threads <= 3; threads++ {
		rate, err := cpu.PeakRate[float32](threads, time.Microsecond)
		if err != nil || !(rate > 0) || math.IsInf(rate, 0) {
			t.Errorf("threads=%d: rate %v, error %v; it needs to be positive", threads, rate, err)
		}
	}
	if _, err := cpu.PeakRate[float64](0, 0); err == nil || !strings.Contains(err.Error(), "threads is 0") {
		t.Errorf("0 threads: error %v, it needs to name threads", err)
	}
}

func TestReadRate(t *testing.T) {
	memory := make([]float32, 1001)
	for threads := 1; threads <= 3; threads++ {
		rate, err := cpu.ReadRate(threads, memory)
		if err != nil || !(rate > 0) || math.IsInf(rate, 0) {
			t.Errorf("threads=%d: rate %v, error %v; it needs to be positive", threads, rate, err)
		}
	}
	for _, threads := range []int{0, 1002} {
		if _, err := cpu.ReadRate(threads, memory); err == nil || !strings.Contains(err.Error(), "threads is") {
			t.Errorf("%d threads: error %v, it needs to name threads", threads, err)
		}
	}
}
