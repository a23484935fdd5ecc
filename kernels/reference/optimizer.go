package reference

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// AdamW returns the weights and moments after a step.
func AdamW[T kernels.Float](o kernels.AdamW, w, g, m, v []T) (newW, newM, newV []T) {
	newW, newM, newV = make([]T, len(w)), make([]T, len(w)), make([]T, len(w))
	correction1 := 1 - math.Pow(o.Beta1, float64(o.Step))
	correction2 := 1 - math.Pow(o.Beta2, float64(o.Step))
	for i := range w {
		gradient := T(o.EffectiveScale()) * g[i]
		newM[i] = m[i] + T(1-o.Beta1)*(gradient-m[i])
		newV[i] = T(o.Beta2)*v[i] + T(1-o.Beta2)*gradient*gradient
		denominator := sqrt(newV[i])/T(math.Sqrt(correction2)) + T(o.Epsilon)
		newW[i] = T(1-o.LearningRate*o.WeightDecay)*w[i] - T(o.LearningRate/correction1)*newM[i]/denominator
	}
	return newW, newM, newV
}

// SGD returns the weights and their momentum after a step; without momentum, m is nil and stays so.
func SGD[T kernels.Float](o kernels.SGD, w, g, m []T) (newW, newM []T) {
	newW = make([]T, len(w))
	if m != nil {
		newM = make([]T, len(m))
	}
	rate, decay, momentum := T(o.LearningRate), T(o.WeightDecay), T(o.Momentum)
	for i := range w {
		gradient := T(o.EffectiveScale()) * g[i]
		newW[i] = w[i]
		if o.Decoupled {
			newW[i] = T(1-o.LearningRate*o.WeightDecay) * w[i]
		} else {
			gradient += decay * w[i]
		}
		step := gradient
		if m != nil {
			newM[i] = momentum*m[i] + gradient
			step = newM[i]
			if o.Nesterov {
				step = gradient + momentum*newM[i]
			}
		}
		newW[i] -= rate * step
	}
	return newW, newM
}

// Momentum returns the momenta after a step, and what SGD adds to weights at a rate of 1.
func Momentum[T kernels.Float](o kernels.SGD, g, m []T) (newM, y []T) {
	o.LearningRate, o.WeightDecay = 1, 0
	y, newM = SGD(o, make([]T, len(g)), g, m)
	return newM, y
}

// Normalize returns x times a factor over its norm.
func Normalize[T kernels.Float](x []T, factor float64) []T {
	y := make([]T, len(x))
	norm := math.Sqrt(SumSquares(x))
	for i, v := range x {
		if norm > 0 {
			y[i] = T(float64(v) * factor / norm)
		}
	}
	return y
}

// Lion returns the weights and their momentum after a step.
func Lion[T kernels.Float](o kernels.Lion, w, g, m []T) (newW, newM []T) {
	newW, newM = make([]T, len(w)), make([]T, len(w))
	for i := range w {
		gradient := T(o.EffectiveScale()) * g[i]
		direction := T(o.Beta1)*m[i] + T(1-o.Beta1)*gradient
		newW[i] = T(1-o.LearningRate*o.WeightDecay)*w[i] - T(o.LearningRate)*sign(direction)
		newM[i] = T(o.Beta2)*m[i] + T(1-o.Beta2)*gradient
	}
	return newW, newM
}

// SumSquares returns the sum of the squares.
func SumSquares[T kernels.Float](x []T) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// PlanStep returns the control vector after a decision.
func PlanStep(p kernels.StepPlan, sums, control []float64) []float64 {
	c := slices.Clone(control)
	rate := math.NaN()
	if at := c[kernels.ControlSteps] - c[kernels.ControlFirstRate]; at >= 0 && at < kernels.RateWindow {
		rate = c[kernels.ControlRates+int(at)]
	}
	if math.IsNaN(rate) || math.IsInf(rate, 0) {
		c[kernels.ControlVerdict] = kernels.NoRate
		return c
	}
	runs := float64(p.EffectiveAccumulation()) * c[kernels.ControlLossScale]
	var total float64
	verdict := kernels.StepMade
	for i, sum := range sums {
		total += sum
		if verdict == kernels.StepMade && !(math.Sqrt(total)/runs < kernels.LargestNorm) {
			verdict = i
		}
	}
	norm, clip := math.Sqrt(total)/runs, 1.0
	if p.ClipNorm > 0 {
		clip = min(1, p.ClipNorm/(norm+1e-6))
	}
	c[kernels.ControlNorm], c[kernels.ControlVerdict] = norm, float64(verdict)
	c[kernels.ControlRate], c[kernels.ControlScale] = rate, clip/runs

	l := p.LossScaling
	if verdict == kernels.StepMade {
		c[kernels.ControlSteps]++
		c[kernels.ControlSkippedInARow] = 0
		c[kernels.ControlGoodSteps]++
		if l.Interval > 0 && c[kernels.ControlGoodSteps] == float64(l.Interval) {
			c[kernels.ControlLossScale] *= l.EffectiveGrowth()
			c[kernels.ControlGoodSteps] = 0
		}
	} else {
		c[kernels.ControlSkipped]++
		c[kernels.ControlSkippedInARow]++
		c[kernels.ControlGoodSteps] = 0
		if l.Interval > 0 {
			c[kernels.ControlLossScale] *= l.EffectiveBackoff()
		}
	}
	return c
}

func sqrt[T kernels.Float](x T) T { return T(math.Sqrt(float64(x))) }

// sign is 1, −1, or x itself where that is zero or NaN.
func sign[T kernels.Float](x T) T {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}
