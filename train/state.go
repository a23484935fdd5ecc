package train

import (
	"fmt"

	"gorgonia.org/tensor"
)

// State is all that an optimiser remembers from one step to the next. With it and the parameters, training goes on as
// if it had never stopped.
type State struct {
	Optimizer string // its kind: "AdamW", "SGD" or "Lion"
	Step      int    // steps that changed the parameters
	Skipped   int    // steps that did not, since gradients were not finite

	SkippedInARow int // the last ones of these

	// Tensors holds momentum, "m.", and AdamW's mean of squares, "v.", each followed by the parameter's name.
	Tensors map[string]*tensor.Dense
}

// State is the optimiser's state. Its tensors are the optimiser's own, not copies: the next step changes them.
func (o *Optimizer) State() State {
	s := State{Optimizer: o.name, Step: o.step, Skipped: o.skipped, SkippedInARow: o.skippedInARow, Tensors: map[string]*tensor.Dense{}}
	o.eachState(func(name string, value *tensor.Dense) error {
		s.Tensors[name] = value
		return nil
	})
	return s
}

// SetState makes the optimiser go on from a state, whose tensors it copies. A state of another kind of optimiser or of
// other parameters is an error, and changes nothing.
func (o *Optimizer) SetState(s State) error {
	if s.Optimizer != o.name {
		return o.errorf("the state is of %q, it needs to be of %q", s.Optimizer, o.name)
	}
	if s.Step < 0 || s.SkippedInARow < 0 || s.Skipped < s.SkippedInARow {
		return o.errorf("the state has %d steps, %d skipped, %d of them in a row: no count can be negative or less than its part",
			s.Step, s.Skipped, s.SkippedInARow)
	}
	count := 0
	err := o.eachState(func(name string, own *tensor.Dense) error {
		count++
		value := s.Tensors[name]
		if value == nil {
			return fmt.Errorf("the state has no %s", name)
		}
		if value.Dtype() != own.Dtype() || !value.Shape().Eq(own.Shape()) {
			return fmt.Errorf("the state's %s is %v of shape %v, it needs to be %v of shape %v",
				name, value.Dtype(), []int(value.Shape()), own.Dtype(), []int(own.Shape()))
		}
		return nil
	})
	if err != nil {
		return o.errorf("%w", err)
	}
	if len(s.Tensors) != count {
		return o.errorf("the state has %d tensors, these parameters need %d", len(s.Tensors), count)
	}
	if err := o.eachState(func(name string, own *tensor.Dense) error { return tensor.Copy(own, s.Tensors[name]) }); err != nil {
		return o.errorf("%w", err)
	}
	o.step, o.skipped, o.skippedInARow = s.Step, s.Skipped, s.SkippedInARow
	return nil
}

// eachState goes through the tensors of the state until do gives an error.
func (o *Optimizer) eachState(do func(name string, value *tensor.Dense) error) error {
	for _, p := range o.parameters {
		for i, slot := range o.rule.slots() {
			if err := do(slot+"."+p.node.Name(), p.state[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
