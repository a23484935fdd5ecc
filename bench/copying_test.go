package main

import (
	"bytes"
	"math"
	"testing"
)

func TestCopyRate(t *testing.T) {
	from := make([]byte, 1001)
	for i := range from {
		from[i] = byte(i)
	}
	for threads := 1; threads <= 4; threads++ {
		to := make([]byte, len(from))
		if rate := copyRate(threads, to, from); !(rate > 0) || math.IsInf(rate, 0) {
			t.Errorf("threads=%d: the rate is %v, it needs to be positive", threads, rate)
		}
		if !bytes.Equal(to, from) {
			t.Errorf("threads=%d: not every byte was copied", threads)
		}
	}
}
