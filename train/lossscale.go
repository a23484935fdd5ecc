package train

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// LossScaling keeps gradients of float16, whose smallest number is 6e-8, from becoming zero: what
// runs compute are the gradients of the loss times a scale, by which a step divides them. A step
// whose gradients are not finite is skipped and makes the scale smaller; Interval steps in a row
// without one make it larger. The scale lies beside the parameters, where steps change it, and in
// checkpoints. Scales that are powers of two change no bit of float32's gradients.
//
// A [Loop] does it all; without one, [Stepper.ScaleLoss] comes before the first run. bfloat16 has
// float32's range and needs none.
type LossScaling struct {
	Initial  float64 // the first scale; 0 means 65536
	Growth   float64 // makes it larger; 0 means 2
	Backoff  float64 // makes it smaller; 0 means 0.5
	Interval int     // 0 means 2000
}

// lossScale is a scale and the number of steps since it changed.
type lossScale struct {
	factor    float64
	goodSteps int
}

// begin returns what steps are told of the scaling, and the first scale: 1 for ever without any.
func (s *LossScaling) begin() (kernels.LossScaling, lossScale) {
	if s == nil {
		return kernels.LossScaling{}, lossScale{factor: 1}
	}
	interval := s.Interval
	if interval == 0 {
		interval = 2000
	}
	return kernels.LossScaling{Growth: s.Growth, Backoff: s.Backoff, Interval: interval}, lossScale{factor: or(s.Initial, 1<<16)}
}

func (s *LossScaling) validate() error {
	if s == nil {
		return nil
	}
	if !(s.Initial >= 0) || math.IsInf(s.Initial, 0) {
		return fmt.Errorf("initial is %v, it needs to be finite and positive, or 0 for 65536", s.Initial)
	}
	plan, _ := s.begin()
	return kernels.StepPlan{LossScaling: plan}.Validate()
}

// ScaleLoss makes runs of a graph over the optimiser's parameters compute the gradients that its
// steps expect, those of the loss times the scale of [Options.LossScaling]. Without that it does
// nothing.
func (o *Stepper) ScaleLoss(g *gorgonia.ExprGraph) error {
	if o.options.LossScaling == nil {
		return nil
	}
	if err := o.ready(); err != nil {
		return o.wrap(err)
	}
	return o.wrap(ops.ScaleLoss(g, o.vector.Slice(0, kernels.ControlLossScale, kernels.ControlLossScale+1)))
}

// readLossScale waits for the scale as steps have left it.
func (o *Stepper) readLossScale() error {
	var list []kernels.Number
	for _, at := range []int{kernels.ControlLossScale, kernels.ControlGoodSteps} {
		number, err := o.number(at)
		if err != nil {
			return err
		}
		list = append(list, number)
	}
	values, err := numbers(list)
	if err == nil {
		o.scale = lossScale{values[0], int(values[1])}
	}
	return err
}
