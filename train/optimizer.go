package train

import (
	"errors"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// Optimizer says what a step does to a parameter. [AdamW], [SGD] and [Lion] are optimisers, and so
// is any other type with these methods. Learning rates, clipping, accumulation, groups, loss
// scaling and ranks ([Options], [Place]) are the same for all of them, and so are checkpoints and
// reports.
//
// An Optimizer remembers nothing itself: what lasts from step to step is its state, tensors that
// lie beside the parameters.
type Optimizer interface {
	// Name tells optimisers apart: one does not go on from another's checkpoint.
	Name() string
	// State names the tensors that are kept for each parameter, such as "m" for a momentum. They
	// are zeros at the beginning, and in checkpoints are called by that name, a dot, and the
	// parameter's name.
	State() []string
	// Validate returns what is wrong with the optimiser for parameters of a type, float32 or
	// float64, or nil.
	Validate(dtype kernels.DType) error
	// Update changes parameters and their state where they lie. With [Update.EachOnHost] it is a
	// loop over numbers.
	Update(u Update) error
}

// WholeOptimizer is an [Optimizer] that computes with whole parameters, as a matrix needs it, and
// not with shards of them. It is refused where ranks share the state or the weights, but for
// [Muon].
type WholeOptimizer interface {
	Optimizer
	// StateShape is the shape of a tensor of the state, which its place in State names, beside a
	// parameter: nil if that has none, and an error if the optimiser cannot train the parameter.
	StateShape(slot int, parameter []int) ([]int, error)
}

// Update is one step of some parameters, whose settings are the same. The lists have an element for
// each. Where ranks share the state, the tensors are the shards of this rank, flat and some of them
// empty.
//
// What the embedded fields say counts as they do for kernels beside a control vector: LearningRate
// and GradientScale are factors of the control's, and a step that is to be skipped changes nothing.
// WeightDecay is a factor of the optimiser's own, 0 where a group has none and otherwise 1.
type Update struct {
	kernels.Update
	Backend            kernels.Backend // the device of the tensors
	Names              []string
	Weights, Gradients []kernels.Tensor
	State              [][]kernels.Tensor // a list for each name of the optimiser's State

	shared   *shared // where ranks share the state, otherwise nil
	recorded bool    // the step's work is being recorded
	memory   *[]kernels.Tensor
}

// Scratch is memory for a step, of the first weight's type. The same number gives the same memory
// in each step. Its contents are undefined.
func (u Update) Scratch(i int, dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	t := kernels.Contiguous(nil, dtype, shape...)
	if u.memory == nil || i < 0 {
		return t, errors.New("there is no scratch memory, the update needs to come from a Stepper, and its number to be positive")
	}
	for i >= len(*u.memory) {
		*u.memory = append(*u.memory, kernels.Tensor{})
	}
	room := &(*u.memory)[i]
	if bytes := t.Elements() * dtype.Size(); room.Elements()*room.DType.Size() < bytes {
		var err error
		if *room, err = u.Backend.Alloc(dtype, t.Elements()); err != nil {
			return t, err
		}
	}
	t.Data, t.Owner = room.Data, room.Owner
	return t, nil
}

// unscaled is the step's decision for what is no gradient: with a scale of 1.
func (u Update) unscaled() (kernels.Update, error) {
	control, err := u.Scratch(scratchControl, kernels.F64, kernels.ControlSize)
	if err != nil {
		return u.Update, err
	}
	if err := u.Backend.Copy(control, u.Control); err != nil {
		return u.Update, err
	}
	plain := kernels.Update{LearningRate: u.LearningRate, WeightDecay: u.WeightDecay, Control: control}
	return plain, u.Backend.Fill(control.Slice(0, kernels.ControlScale, kernels.ControlScale+1), 1)
}

// The numbers of the scratch memory of this package.
const (
	scratchControl = iota
	scratchAverage
	scratchMatrix                     // and eight behind it
	scratchParts  = scratchMatrix + 9 // and one behind it
)

// withDecay is what a kernel needs to know, with the optimiser's weight decay.
func (u Update) withDecay(decay float64) kernels.Update {
	u.WeightDecay *= decay
	return u.Update
}

// Parameter is one parameter in a step, on the host. Its tensors are float32 or float64, as the
// parameter is.
type Parameter struct {
	Name     string
	Weights  *tensor.Dense
	Gradient *tensor.Dense   // the mean over the step's batches, clipped
	State    []*tensor.Dense // in the order of the optimiser's State; nil for one without a shape

	LearningRate float64
	WeightDecay  float64 // 0 where a group has none, otherwise 1: a factor of the optimiser's own
	Step         int     // from 1; skipped steps do not count
}

// EachOnHost calls a function for each parameter, which changes weights and state in place.
// Parameters of a device are copied to the host and back in each step, and the steps of a Loop are
// then not recorded: that is slow.
func (u Update) EachOnHost(do func(p Parameter) error) error {
	switch {
	case u.recorded:
		return errHostWork
	case !u.Control.IsSet():
		return errors.New("the update has no control vector, it needs to come from a Stepper")
	}
	control, err := ops.Download(ops.ValueOf(u.Control))
	if err != nil {
		return err
	}
	decided := control.Float64s()
	if decided[kernels.ControlVerdict] == kernels.StepMade {
		p := Parameter{
			LearningRate: u.LearningRate * decided[kernels.ControlRate], WeightDecay: u.WeightDecay,
			Step: int(decided[kernels.ControlSteps]),
		}
		for i := range u.Weights {
			if u.Weights[i].Elements() == 0 {
				continue
			}
			if err := u.onHost(p, i, decided[kernels.ControlScale]*u.EffectiveScale(), do); err != nil {
				return err
			}
		}
	}
	if !u.ClearGradients {
		return nil
	}
	return u.Backend.Zero(u.Gradients)
}

var errHostWork = errors.New("the optimizer computes on the host")

// onHost calls a function with parameter i.
func (u Update) onHost(p Parameter, i int, scale float64, do func(Parameter) error) error {
	tensors := []kernels.Tensor{u.Gradients[i], u.Weights[i]}
	for _, list := range u.State {
		tensors = append(tensors, list[i])
	}
	values, copies := make([]*tensor.Dense, len(tensors)), make([]*tensor.Dense, len(tensors))
	for k, t := range tensors {
		if !t.IsSet() {
			continue
		}
		var err error
		values[k] = ops.ValueOf(t)
		if copies[k], err = ops.Download(values[k]); err != nil {
			return err
		}
	}
	switch gradient := copies[0].Data().(type) {
	case []float32:
		multiply(gradient, float32(scale))
	case []float64:
		multiply(gradient, scale)
	}
	p.Name, p.Gradient, p.Weights, p.State = u.Names[i], copies[0], copies[1], copies[2:]
	if err := do(p); err != nil {
		return err
	}
	for k := 1; k < len(values); k++ {
		if values[k] == copies[k] {
			continue
		}
		if err := ops.Assign(values[k], copies[k]); err != nil {
			return err
		}
	}
	return nil
}

func multiply[T float32 | float64](list []T, factor T) {
	if factor == 1 {
		return
	}
	for i := range list {
		list[i] *= factor
	}
}

// or is x, or what 0 stands for.
func or(x, otherwise float64) float64 {
	if x == 0 {
		return otherwise
	}
	return x
}
