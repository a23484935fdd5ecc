package train

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// Accumulate takes the gradients of a run into the mean over several runs that a step uses. It needs to be called after each run
// that no step follows. On the host it does nothing: there the machine has added them up already, as gorgonia.BindDualValues
// makes it. On a device each run leaves the gradients of its own.
func (o *Stepper) Accumulate() error {
	if o.options.Accumulation == 1 {
		return o.errorf("the gradients of several runs cannot be averaged: accumulation is 1")
	}
	if err := o.ready(); err != nil {
		return o.errorf("%w", err)
	}
	if o.isHost() {
		o.runs++
		return nil
	}
	if err := o.locate(); err != nil {
		return o.errorf("%w", err)
	}
	if err := o.checkRun(); err != nil {
		return o.errorf("%w", err)
	}
	if err := o.add(); err != nil {
		return o.errorf("%w", err)
	}
	o.runs++
	o.markUnrun()
	return nil
}

// average makes the sums over several runs, the last one's gradients included, the gradients of the step.
func (o *Stepper) average() error {
	if o.isHost() || o.options.Accumulation == 1 {
		return nil
	}
	if err := o.add(); err != nil {
		return err
	}
	copy(o.gradients, o.sums)
	return nil
}

// add adds the gradients to the sums, which are zero at the beginning and after each step: but for those that were added as they
// became known.
func (o *Stepper) add() error {
	if o.sums == nil {
		sums := make([]kernels.Tensor, len(o.gradients))
		for i, g := range o.gradients {
			var err error
			if sums[i], err = o.backend.Alloc(g.DType, g.Shape...); err != nil {
				return fmt.Errorf("the sum of the gradients of %s: %w", o.parameters[i].node.Name(), err)
			}
		}
		if err := o.backend.Zero(sums); err != nil {
			return err
		}
		o.sums = sums
	}
	return o.backend.Accumulate(o.notJoined(o.sums), o.notJoined(o.gradients))
}

// keepsGradients reports whether gradients stay from run to run, so that a step needs to clear them.
func (o *Stepper) keepsGradients() bool { return o.isHost() || o.options.Accumulation > 1 }
