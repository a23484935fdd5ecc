package train

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Average is an exponential moving average of the weights, which often predicts better than the
// weights of any one step. After each step, with d the decay:
//
//	average ← d·average + (1 − d)·weights
//
// It begins at zero, and [Stepper.WithAverage] divides it by 1 − dᵗ after t steps: so it is a mean
// of the weights after these steps alone. It is in checkpoints beside the optimiser's state, and
// ranks that share the state share it.
type Average struct {
	Decay    float64 // such as 0.999
	Evaluate bool    // evaluations of a Loop see the average in place of the weights
}

const averageSlot = "average"

func (a *Average) validate() error {
	if a != nil && !(a.Decay > 0 && a.Decay < 1) {
		return fmt.Errorf("the average has a decay of %v, it needs one between 0 and 1", a.Decay)
	}
	return nil
}

// update takes the weights of a step into the averages, as a [Lion] does gradients into its
// momentum. What that does to weights goes to scratch memory.
func (a *Average) update(u Update, averages []kernels.Tensor) error {
	if a == nil {
		return nil
	}
	decided, err := u.unscaled()
	if err != nil {
		return err
	}
	decided.WeightDecay = 0
	for i, w := range u.Weights {
		unused, err := u.Scratch(scratchAverage, w.DType, w.Shape...)
		if err != nil {
			return err
		}
		lion := kernels.Lion{Update: decided, Beta1: a.Decay, Beta2: a.Decay}
		if err := u.Backend.Lion(lion, []kernels.Tensor{unused}, u.Weights[i:i+1], averages[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// WithAverage calls a function while the parameters have the average's values: to evaluate, or to
// save them. Then they have their own again, to the bit. Before the first step they keep their own.
// Where ranks share the state, all of them call it together. It needs [Options.Average].
func (o *Stepper) WithAverage(do func() error) (err error) {
	if o.options.Average == nil {
		return o.errorf("there is no average, Options.Average asks for one")
	}
	if err := o.readReports(len(o.pending)); err != nil {
		return err
	}
	if err := o.ready(); err != nil {
		return o.wrap(err)
	}
	if o.step == 0 {
		return do()
	}
	weights, saved := make([]kernels.Tensor, len(o.parameters)), make([]kernels.Tensor, len(o.parameters))
	for i, p := range o.parameters {
		if weights[i], err = o.viewHere(p.node.Value(), p.node.Dtype(), p.shape); err != nil {
			return o.errorf("the value of %s %w", p.node.Name(), err)
		}
		if saved[i], err = o.backend.Alloc(weights[i].DType, p.shape...); err != nil {
			return o.wrap(err)
		}
	}
	defer func() {
		if back := o.copyAll(weights, saved); err == nil {
			err = o.wrap(back)
		}
	}()
	if err := o.copyAll(saved, weights); err != nil {
		return o.wrap(err)
	}
	if err := o.showAverage(weights); err != nil {
		return o.wrap(err)
	}
	return do()
}

// showAverage writes the average into the weights.
func (o *Stepper) showAverage(weights []kernels.Tensor) error {
	factor := 1 / (1 - math.Pow(o.options.Average.Decay, float64(o.step)))
	for _, g := range o.groups {
		for i, average := range g.average {
			own := weights[g.from+i]
			if o.isSharded() {
				own = o.own(o.parameters[g.from+i], own)
			}
			if err := o.backend.MulScalar(factor, average, own); err != nil {
				return err
			}
		}
	}
	if !o.isSharded() {
		return nil
	}
	return o.holders().CollectParts(o.held(weights)...)
}

func (o *Stepper) copyAll(to, from []kernels.Tensor) error {
	for i := range to {
		if err := o.backend.Copy(to[i], from[i]); err != nil {
			return err
		}
	}
	return nil
}
