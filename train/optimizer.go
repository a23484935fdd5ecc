package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Optimizer changes parameters by their gradients. It belongs to one goroutine at a time, and while it steps, no machine
// may run over the same parameters.
type Optimizer struct {
	name    string
	rule    rule
	options Options
	backend kernels.Backend

	// The lists have an element for each parameter, group by group.
	parameters         []parameter
	weights, gradients []kernels.Tensor
	state              [][]kernels.Tensor // a list for each of the rule's slots
	groups             []group
	sums               []float64
	sumsTensor         kernels.Tensor // over sums

	step, skipped, skippedInARow int
}

// Options are what all optimisers have in common.
type Options struct {
	// Schedule gives the learning rate of each step; it is needed. The simplest is [ConstantRate].
	Schedule Schedule
	// Groups are treated differently from the rest. A parameter belongs to the first that matches it.
	Groups []Group
	// ClipNorm limits the norm of all gradients together: where it is larger, they are scaled down. 0 means no limit.
	ClipNorm float64
	// Accumulation is the number of runs of the machine whose gradients a step averages; 0 means 1.
	Accumulation int
	// MaxSkips is how many steps in a row may be skipped before Step returns an error; 0 means 10.
	MaxSkips int
}

// Report is what happened in a step.
type Report struct {
	// Step is how many steps have changed the parameters, this one included.
	Step int
	// LearningRate is the step's.
	LearningRate float64
	// GradientNorm is the norm of all gradients together before clipping. In a skipped step it is NaN or infinite.
	GradientNorm float64
	// Clipped tells that the gradients were scaled down.
	Clipped bool
	// Skipped tells that a gradient was not finite, so that nothing was changed; NonFinite is the parameter's name.
	Skipped   bool
	NonFinite string
}

// rule is what tells optimisers apart.
type rule interface {
	validate() error
	// slots names the tensors that a parameter needs beside itself and its gradient.
	slots() []string
	// update changes parameters; step counts from 1.
	update(b kernels.Backend, u kernels.Update, step int, w, g []kernels.Tensor, state [][]kernels.Tensor) error
	// decay is the weight decay of parameters in no group that is without.
	decay() float64
}

// group is the parts of the lists that belong to a group.
type group struct {
	span
	weights, gradients []kernels.Tensor
	state              [][]kernels.Tensor
}

// parameter is a node and what was found out about it.
type parameter struct {
	node  *gorgonia.Node
	shape []int
	state []*tensor.Dense
}

const defaultMaxSkips = 10

func newOptimizer(name string, nodes gorgonia.Nodes, r rule, options Options) (*Optimizer, error) {
	o := &Optimizer{name: name, rule: r, options: options, backend: cpu.New()}
	if o.options.Accumulation == 0 {
		o.options.Accumulation = 1
	}
	if o.options.MaxSkips == 0 {
		o.options.MaxSkips = defaultMaxSkips
	}
	for _, check := range []func() error{r.validate, o.options.validate, func() error { return checkNodes(nodes) }} {
		if err := check(); err != nil {
			return nil, o.errorf("%w", err)
		}
	}
	ordered, spans := grouped(nodes, options.Groups)
	o.weights, o.gradients, o.sums = make([]kernels.Tensor, len(nodes)), make([]kernels.Tensor, len(nodes)), make([]float64, len(nodes))
	o.sumsTensor = kernels.Of(o.sums, len(nodes))
	o.state = make([][]kernels.Tensor, len(r.slots()))
	dtype := ordered[0].Dtype()
	for _, n := range ordered {
		p := parameter{node: n, shape: slices.Clone([]int(n.Shape()))}
		for slot := range o.state {
			value := tensor.New(tensor.Of(dtype), tensor.WithShape(p.shape...))
			p.state = append(p.state, value)
			view, err := viewOf(value, dtype, p.shape)
			if err != nil {
				return nil, o.errorf("the state of %s %w", n.Name(), err)
			}
			o.state[slot] = append(o.state[slot], view)
		}
		o.parameters = append(o.parameters, p)
	}
	for _, s := range spans {
		g := group{span: s, weights: o.weights[s.from:s.to], gradients: o.gradients[s.from:s.to]}
		for _, list := range o.state {
			g.state = append(g.state, list[s.from:s.to])
		}
		o.groups = append(o.groups, g)
	}
	return o, nil
}

func (o Options) validate() error {
	if o.Schedule == nil {
		return errors.New("schedule is nil, it needs to be one, such as ConstantRate(1e-3)")
	}
	if err := o.Schedule.Validate(); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	switch {
	case !(o.ClipNorm >= 0) || math.IsInf(o.ClipNorm, 0):
		return fmt.Errorf("clip norm is %v, it needs to be finite and positive, or 0 for no limit", o.ClipNorm)
	case o.Accumulation < 1:
		return fmt.Errorf("accumulation is %d, it needs to be positive, or 0 for 1", o.Accumulation)
	case o.MaxSkips < 1:
		return fmt.Errorf("max skips is %d, it needs to be positive, or 0 for %d", o.MaxSkips, defaultMaxSkips)
	}
	return validateGroups(o.Groups)
}

// checkNodes makes sure that there are parameters, all of one dtype, with names of their own.
func checkNodes(nodes gorgonia.Nodes) error {
	if len(nodes) == 0 {
		return errors.New("there are no parameters, it needs at least one")
	}
	names := map[string]bool{}
	for i, n := range nodes {
		if n == nil {
			return fmt.Errorf("parameter %d is nil, it needs to be a node", i)
		}
		if n.IsScalar() {
			return fmt.Errorf("%s is a scalar, it needs to be a tensor, of shape (1) for a single number", n.Name())
		}
		if d := n.Dtype(); d != tensor.Float32 && d != tensor.Float64 || d != nodes[0].Dtype() {
			return fmt.Errorf("%s is %v, all parameters need to be float32 or all float64", n.Name(), d)
		}
		if names[n.Name()] {
			return fmt.Errorf("%s is the name of two parameters, each needs one of its own", n.Name())
		}
		names[n.Name()] = true
	}
	return nil
}

// Step changes the parameters by their gradients, and then sets the gradients to zero. It allocates nothing that grows
// with the model.
func (o *Optimizer) Step() (Report, error) {
	report := Report{Step: o.step, LearningRate: o.options.Schedule.LearningRate(o.step)}
	if err := o.locate(); err != nil {
		return report, o.errorf("%w", err)
	}
	norm, bad, err := o.gradientNorm()
	if err != nil {
		return report, o.errorf("%w", err)
	}
	report.GradientNorm = norm
	if bad >= 0 {
		return o.skip(report, o.parameters[bad].node.Name())
	}
	scale := clipScale(norm, o.options.ClipNorm)
	report.Clipped = scale < 1
	u := kernels.Update{GradientScale: scale / float64(o.options.Accumulation), ClearGradients: true}
	for _, g := range o.groups {
		u.LearningRate, u.WeightDecay = report.LearningRate*g.rateScale, o.rule.decay()
		if g.noDecay {
			u.WeightDecay = 0
		}
		if err := o.rule.update(o.backend, u, o.step+1, g.weights, g.gradients, g.state); err != nil {
			return report, o.errorf("%w", err)
		}
	}
	o.step++
	o.skippedInARow = 0
	report.Step = o.step
	return report, nil
}

// skip is a step without an update.
func (o *Optimizer) skip(report Report, parameter string) (Report, error) {
	report.Skipped, report.NonFinite = true, parameter
	o.skipped++
	o.skippedInARow++
	if err := o.backend.Zero(o.gradients); err != nil {
		return report, o.errorf("%w", err)
	}
	if o.skippedInARow >= o.options.MaxSkips {
		return report, o.errorf("the gradients of %d steps in a row are not finite, the last of them first in %s", o.skippedInARow, parameter)
	}
	return report, nil
}

// ZeroGradients sets the gradients to zero, as each step does: for runs whose gradients no step is to use.
func (o *Optimizer) ZeroGradients() error {
	if err := o.locate(); err != nil {
		return o.errorf("%w", err)
	}
	if err := o.backend.Zero(o.gradients); err != nil {
		return o.errorf("%w", err)
	}
	return nil
}

// Skipped is how many steps were skipped so far because a gradient was not finite.
func (o *Optimizer) Skipped() int { return o.skipped }

// locate finds where values and gradients lie, which a machine may change from run to run.
func (o *Optimizer) locate() error {
	for i, p := range o.parameters {
		gradient, err := p.node.Grad()
		if err != nil || gradient == nil || !bound(p.node, gradient) {
			return fmt.Errorf("%s has no gradient bound to it, it needs a run of a machine made with gorgonia.BindDualValues", p.node.Name())
		}
		if o.weights[i], err = viewOf(p.node.Value(), o.parameters[0].node.Dtype(), p.shape); err != nil {
			return fmt.Errorf("the value of %s %w", p.node.Name(), err)
		}
		if o.gradients[i], err = viewOf(gradient, o.parameters[0].node.Dtype(), p.shape); err != nil {
			return fmt.Errorf("the gradient of %s %w", p.node.Name(), err)
		}
	}
	return nil
}

// bound tells a gradient that is the parameter's own from a value of the graph, which runs do not add to.
func bound(n *gorgonia.Node, gradient gorgonia.Value) bool {
	if n.Deriv() == nil {
		return true
	}
	own, _ := gradient.(*tensor.Dense)
	graphs, _ := n.Deriv().Value().(*tensor.Dense)
	return own == nil || own != graphs
}

// viewOf describes a value to a kernel; shape must be the value's.
func viewOf(v gorgonia.Value, dtype tensor.Dtype, shape []int) (kernels.Tensor, error) {
	t, ok := v.(*tensor.Dense)
	if !ok {
		return kernels.Tensor{}, fmt.Errorf("is a %T, it needs to be a *tensor.Dense", v)
	}
	if t.Dtype() != dtype || !slices.Equal(t.Shape(), shape) {
		return kernels.Tensor{}, fmt.Errorf("is %v of shape %v, it needs to be %v of shape %v", t.Dtype(), []int(t.Shape()), dtype, shape)
	}
	if !t.IsNativelyAccessible() {
		return kernels.Tensor{}, errors.New("is in the memory of a device, this build computes on the host only")
	}
	view := kernels.Tensor{DType: kernels.F32, Shape: shape, Strides: t.Strides()}
	if dtype == tensor.Float32 {
		view.Data = unsafe.Pointer(unsafe.SliceData(t.Float32s()))
	} else {
		view.DType, view.Data = kernels.F64, unsafe.Pointer(unsafe.SliceData(t.Float64s()))
	}
	return view, nil
}

// errorf is an error of the optimiser.
func (o *Optimizer) errorf(format string, args ...any) error {
	return fmt.Errorf(o.name+": "+format, args...)
}
