package train

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// State is all that an optimiser remembers from one step to the next. With it and the parameters,
// training goes on as if it had never stopped.
type State struct {
	Optimizer string // its name, and those of groups
	Step      int    // steps that changed the parameters
	Skipped   int    // steps that did not, since gradients were not finite

	SkippedInARow int // the last ones of these

	LossScale          float64 // of the next step, 0 without Options.LossScaling
	LossScaleGoodSteps int     // steps since it changed

	// Tensors holds momentum, "m.", AdamW's mean of squares, "v.", and an [Average], "average.",
	// each followed by the parameter's name.
	Tensors map[string]*tensor.Dense
}

// State is the optimiser's state, once all steps that were queued are made. On the host its tensors
// are the optimiser's own, which the next step changes; from a device they are copies. Where ranks
// share the state ([ShardState]) all of them call it together, and each gets the whole.
func (o *Stepper) State() (State, error) { return o.giveState(true, hostCopies{}) }

// giveState is State, with copies from a device where there are some already. A rank that does not
// keep the tensors of a sharded state has done its part in it, and gets none.
func (o *Stepper) giveState(keep bool, copies hostCopies) (State, error) {
	s, err := o.stateWithoutTensors()
	if err != nil {
		return State{}, err
	}
	if s.Tensors, err = o.copyState(keep, copies); err != nil {
		return State{}, o.wrap(err)
	}
	return s, nil
}

// stateWithoutTensors waits for all steps that were queued.
func (o *Stepper) stateWithoutTensors() (State, error) {
	if err := o.readReports(len(o.pending)); err != nil {
		return State{}, err
	}
	if err := o.ready(); err != nil {
		return State{}, o.wrap(err)
	}
	s := State{Optimizer: o.name(), Step: o.step, Skipped: o.skipped, SkippedInARow: o.skippedInARow}
	if o.scaling.Interval > 0 {
		if err := o.readLossScale(); err != nil {
			return State{}, o.wrap(err)
		}
		s.LossScale, s.LossScaleGoodSteps = o.scale.factor, o.scale.goodSteps
	}
	return s, nil
}

// copyState gives the tensors of the state by name.
func (o *Stepper) copyState(keep bool, copies hostCopies) (all map[string]*tensor.Dense, err error) {
	if o.isSharded() {
		return o.collectState(keep)
	}
	all = map[string]*tensor.Dense{}
	for _, t := range o.stateTensors() {
		if all[t.name], err = copies.of(t.name, ops.ValueOf(*t.view)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// hostCopies are copies on the host of a device's values, by name. Memory that was written once is
// written again in a fraction of the time that new memory takes.
type hostCopies map[string]*tensor.Dense

// of is a value of the host itself, or a copy of a device's.
func (c hostCopies) of(name string, v gorgonia.Value) (copied *tensor.Dense, err error) {
	if at, err := ops.DeviceOf(v); err != nil || at == nil || c[name] == nil {
		if copied, err = ops.Download(v); at != nil && err == nil {
			c[name] = copied
		}
		return copied, err
	}
	return c[name], ops.Assign(c[name], v)
}

// take puts copies of the host's tensors in their place.
func (c hostCopies) take(list safetensors.Tensors) {
	for i, t := range list {
		if room := c[t.Name]; room != nil && room.Dtype() == t.Value.Dtype() && room.Shape().Eq(t.Value.Shape()) {
			switch to := room.Data().(type) {
			case []float32:
				copy(to, t.Value.Data().([]float32))
			case []float64:
				copy(to, t.Value.Data().([]float64))
			}
		} else {
			c[t.Name] = t.Value.Clone().(*tensor.Dense)
		}
		list[i].Value = c[t.Name]
	}
}

// SetState makes the optimiser go on from a state, whose tensors it copies. A state of another kind
// of optimiser or of other parameters is an error, and changes nothing.
func (o *Stepper) SetState(s State) error { return o.setState(s, false) }

// setState is SetState, of tensors that are whole or the parts that this rank has of them.
func (o *Stepper) setState(s State, parts bool) error {
	if s.Optimizer != o.name() {
		return o.errorf("the state is of %q, it needs to be of %q", s.Optimizer, o.name())
	}
	if s.Step < 0 || s.SkippedInARow < 0 || s.Skipped < s.SkippedInARow {
		return o.errorf("the state has %d steps, %d skipped, %d of them in a row: no count can be negative or less than its part",
			s.Step, s.Skipped, s.SkippedInARow)
	}
	if s.LossScale != 0 && !(s.LossScale > 0 && !math.IsInf(s.LossScale, 0) && s.LossScaleGoodSteps >= 0) {
		return o.errorf("the state has a loss scale of %v since %d steps, it needs to be finite and positive", s.LossScale, s.LossScaleGoodSteps)
	}
	if err := o.readReports(len(o.pending)); err != nil {
		return err
	}
	if err := o.ready(); err != nil {
		return o.wrap(err)
	}
	var from, to []kernels.Tensor
	for _, t := range o.stateTensors() {
		shape := t.whole
		if parts {
			if shape = t.view.Shape; t.view.Elements() == 0 {
				continue
			}
		}
		value := s.Tensors[t.name]
		if value == nil {
			return o.errorf("the state has no %s", t.name)
		}
		seen, err := viewOf(value, t.of.node.Dtype(), shape)
		if err != nil {
			return o.errorf("the state's %s %w", t.name, err)
		}
		if o.isSharded() && !parts {
			seen = o.part(seen)
		}
		from, to = append(from, seen), append(to, *t.view)
	}
	if len(s.Tensors) != len(to) {
		return o.errorf("the state has %d tensors, these parameters need %d", len(s.Tensors), len(to))
	}
	for i := range to {
		if err := o.backend.Copy(to[i], from[i]); err != nil {
			return o.wrap(err)
		}
	}
	o.step, o.skipped, o.skippedInARow, o.current = s.Step, s.Skipped, s.SkippedInARow, false
	if _, o.scale = o.options.LossScaling.begin(); o.scaling.Interval > 0 && s.LossScale != 0 {
		o.scale = lossScale{s.LossScale, s.LossScaleGoodSteps}
	}
	if err := o.ready(); err != nil { // at once: the next run reads the loss scale
		return o.wrap(err)
	}
	return nil
}

// stateTensor is a tensor of the state: what this rank has of it.
type stateTensor struct {
	name  string
	of    parameter
	whole []int // the shape of what all ranks have
	view  *kernels.Tensor
}

// stateTensors are all tensors of the state.
func (o *Stepper) stateTensors() (list []stateTensor) {
	for _, g := range o.groups {
		shaped, _ := g.optimizer.(WholeOptimizer)
		for i, p := range o.parameters[g.from:g.to] {
			for k, slot := range g.slots {
				shape := p.whole
				if shaped != nil {
					shape, _ = shaped.StateShape(k, p.whole) // NewStepper saw the errors
				}
				if shape != nil {
					list = append(list, stateTensor{slot + "." + p.node.Name(), p, shape, &g.State[k][i]})
				}
			}
			if g.average != nil {
				list = append(list, stateTensor{averageSlot + "." + p.node.Name(), p, p.whole, &g.average[i]})
			}
		}
	}
	return list
}
