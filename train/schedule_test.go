package train

import (
	"math"
	"testing"
)

func TestSchedules(t *testing.T) {
	cosine := WarmupCosine{Peak: 1e-3, Min: 1e-4, Warmup: 100, Steps: 2000}
	wsd := WarmupStableDecay{Peak: 2, Min: 0.5, Warmup: 3, Stable: 10, Decay: 6}
	for _, c := range []struct {
		s    Schedule
		step int
		want float64
	}{
		{ConstantRate(0.3), 0, 0.3}, {ConstantRate(0.3), 1 << 40, 0.3},
		{LinearDecay{From: 1, To: 3, Steps: 4}, 0, 1}, {LinearDecay{From: 1, To: 3, Steps: 4}, 1, 1.5}, {LinearDecay{From: 1, To: 3, Steps: 4}, 4, 3},
		{LinearDecay{From: 1, To: 3, Steps: 4}, 9, 3},
		{cosine, 0, 1e-3 / 101}, {cosine, 99, 1e-3 * 100 / 101}, {cosine, 100, 1e-3}, {cosine, 1050, 5.5e-4}, {cosine, 2000, 1e-4}, {cosine, 5000, 1e-4},
		{cosine, 575, 1e-4 + 9e-4*(1+math.Sqrt2/2)/2},
		{WarmupCosine{Peak: 1, Steps: 2}, 0, 1}, {WarmupCosine{Peak: 1, Steps: 2}, 1, 0.5}, {WarmupCosine{Peak: 1, Steps: 2}, 2, 0},
		{InverseSquareRoot{Peak: 1, Warmup: 3}, 0, 0.25}, {InverseSquareRoot{Peak: 1, Warmup: 3}, 3, 1}, {InverseSquareRoot{Peak: 1, Warmup: 3}, 15, 0.5},
		{wsd, 0, 0.5}, {wsd, 3, 2}, {wsd, 13, 2}, {wsd, 16, 1.25}, {wsd, 19, 0.5}, {wsd, 100, 0.5},
	} {
		if err := c.s.Validate(); err != nil {
			t.Errorf("%#v: %v", c.s, err)
		}
		if got := c.s.LearningRate(c.step); !(math.Abs(got-c.want) <= 1e-15) {
			t.Errorf("%#v at step %d gives %v, it needs to be %v", c.s, c.step, got, c.want)
		}
	}
}

// Lengths as large as an int can be do not overflow.
func TestSchedulesOfEndlessWarmup(t *testing.T) {
	for _, s := range []Schedule{
		WarmupCosine{Peak: 1, Min: 0.5, Warmup: math.MaxInt - 1, Steps: math.MaxInt}, InverseSquareRoot{Peak: 1, Warmup: math.MaxInt},
		WarmupStableDecay{Peak: 1, Min: 0.5, Warmup: math.MaxInt, Stable: math.MaxInt, Decay: math.MaxInt},
	} {
		if err := s.Validate(); err != nil {
			t.Errorf("%#v: %v", s, err)
		}
		for _, step := range []int{0, 1000, math.MaxInt} {
			if rate := s.LearningRate(step); !(rate > 0 && rate <= 1) {
				t.Errorf("%#v at step %d gives %v, it needs to be above 0 and at most the peak", s, step, rate)
			}
		}
	}
	if err := (WarmupCosine{Peak: 1, Warmup: math.MaxInt, Steps: 100}).Validate(); err == nil {
		t.Error("a warm-up that is longer than all steps is not refused")
	}
}
