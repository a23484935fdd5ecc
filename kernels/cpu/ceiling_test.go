package cpu_test

import (
	"bytes"
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

func TestCopyRate(t *testing.T) {
	from := make([]byte, 1001)
	for i := range from {
		from[i] = byte(i)
	}
	for threads := 1; threads <= 4; threads++ {
		to := make([]byte, len(from))
		rate, err := cpu.CopyRate(threads, to, from)
		if err != nil || !(rate > 0) || math.IsInf(rate, 0) {
			t.Errorf("threads=%d: rate %v, error %v; it needs to be positive", threads, rate, err)
		}
		if !bytes.Equal(to, from) {
			t.Errorf("threads=%d: not every byte was copied", threads)
		}
	}
	for name, c := range map[string]struct {
		threads, to, from int
		want              string
	}{
		"no threads": {0, 8, 8, "threads is 0"},
		"lengths":    {1, 8, 9, "to has 8 bytes and from 9"},
		"empty":      {1, 0, 0, "to has 0 bytes"},
	} {
		if _, err := cpu.CopyRate(c.threads, make([]byte, c.to), make([]byte, c.from)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, it needs to say %q", name, err, c.want)
		}
	}
}
