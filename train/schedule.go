package train

import (
	"fmt"
	"math"
)

// Schedule says how the learning rate changes. Steps count from 0; a schedule goes on beyond its
// last step.
type Schedule interface {
	// LearningRate is that of a step.
	LearningRate(step int) float64
	// Validate returns what is wrong with the schedule, or nil.
	Validate() error
}

// ConstantRate is the same learning rate at every step.
type ConstantRate float64

// LearningRate is the constant.
func (c ConstantRate) LearningRate(int) float64 { return float64(c) }

// Validate checks that the rate can be one.
func (c ConstantRate) Validate() error { return validateRate("rate", float64(c)) }

// LinearDecay goes from one learning rate to another in a straight line, and stays there.
type LinearDecay struct {
	From, To float64
	Steps    int // how many steps it takes: step Steps is the first at To
}

// LearningRate is From + (To − From)·step/Steps.
func (l LinearDecay) LearningRate(step int) float64 {
	return between(l.From, l.To, float64(step)/float64(l.Steps))
}

// Validate checks rates and length.
func (l LinearDecay) Validate() error {
	return firstError(validateRate("from", l.From), validateRate("to", l.To), validateLength("steps", l.Steps, 1))
}

// WarmupCosine rises to Peak in a straight line, reached at step Warmup, and falls along half a
// cosine to Min, reached at step Steps.
type WarmupCosine struct {
	Peak, Min     float64
	Warmup, Steps int
}

// LearningRate is Peak·(step + 1)/(Warmup + 1) before step Warmup, then Min + (Peak − Min)·(1 +
// cos(π·r))/2 with r the part of the fall that is done.
func (w WarmupCosine) LearningRate(step int) float64 {
	if step < w.Warmup {
		return warmup(w.Peak, step, w.Warmup)
	}
	fall := min(1, float64(step-w.Warmup)/float64(w.Steps-w.Warmup))
	return w.Min + (w.Peak-w.Min)*(1+math.Cos(math.Pi*fall))/2
}

// Validate checks rates and lengths.
func (w WarmupCosine) Validate() error {
	return firstError(validateRate("peak", w.Peak), validateRate("min", w.Min),
		validateLength("warm-up", w.Warmup, 0), validateLonger("steps", w.Steps, w.Warmup))
}

// InverseSquareRoot rises to Peak in a straight line, reached at step Warmup, and then falls with
// 1/√step.
type InverseSquareRoot struct {
	Peak   float64
	Warmup int
}

// LearningRate is Peak·(step + 1)/(Warmup + 1) before step Warmup, then Peak·√((Warmup + 1)/(step +
// 1)).
func (s InverseSquareRoot) LearningRate(step int) float64 {
	if step < s.Warmup {
		return warmup(s.Peak, step, s.Warmup)
	}
	return s.Peak * math.Sqrt((float64(s.Warmup)+1)/(float64(step)+1))
}

// Validate checks rate and length.
func (s InverseSquareRoot) Validate() error {
	return firstError(validateRate("peak", s.Peak), validateLength("warm-up", s.Warmup, 0))
}

// WarmupStableDecay rises to Peak in a straight line over Warmup steps, stays there for Stable
// steps and falls to Min in a straight line over Decay steps. The middle may be extended at will,
// which makes it the schedule for a training whose length is not known yet.
type WarmupStableDecay struct {
	Peak, Min             float64
	Warmup, Stable, Decay int
}

// LearningRate is Peak·(step + 1)/(Warmup + 1) before step Warmup, Peak up to step Warmup + Stable,
// and Min from Decay steps later on.
func (w WarmupStableDecay) LearningRate(step int) float64 {
	if step < w.Warmup {
		return warmup(w.Peak, step, w.Warmup)
	}
	return between(w.Peak, w.Min, (float64(step-w.Warmup)-float64(w.Stable))/float64(w.Decay))
}

// Validate checks rates and lengths.
func (w WarmupStableDecay) Validate() error {
	return firstError(validateRate("peak", w.Peak), validateRate("min", w.Min), validateLength("warm-up", w.Warmup, 0),
		validateLength("stable", w.Stable, 0), validateLength("decay", w.Decay, 1))
}

// warmup is a part of the peak that is never zero: a step with a rate of zero would be wasted.
func warmup(peak float64, step, length int) float64 {
	return peak * (float64(step) + 1) / (float64(length) + 1)
}

// between is where one is on the way, x from 0 to 1, from one rate to another; both ends are exact.
func between(from, to, x float64) float64 {
	switch {
	case x <= 0:
		return from
	case x >= 1:
		return to
	}
	return from + (to-from)*x
}

func validateRate(name string, rate float64) error {
	if !(rate >= 0) || math.IsInf(rate, 0) {
		return fmt.Errorf("%s is %v, it needs to be finite and not negative", name, rate)
	}
	return nil
}

func validateLength(name string, steps, least int) error {
	if steps < least {
		return fmt.Errorf("%s is %d, it needs to be at least %d", name, steps, least)
	}
	return nil
}

// validateLonger checks that a length is more than that of the warm-up in it, which may be as large
// as an int can be.
func validateLonger(name string, steps, warmup int) error {
	if steps <= warmup {
		return fmt.Errorf("%s is %d, it needs to be more than the warm-up's %d", name, steps, warmup)
	}
	return nil
}

func firstError(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}
