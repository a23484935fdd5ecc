package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"weak"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Stepper changes the parameters of a graph by their gradients, where they live: on a device the host waits for nothing but a
// report. A Loop has one. It belongs to one goroutine at a time, and while it steps, no machine may run over the same
// parameters.
type Stepper struct {
	optimizer Optimizer
	options   Options
	place     *Place
	backend   kernels.Backend // the device where the parameters live, once that was asked for

	lists
	control
	counts
	reduction
	pending []*PendingReport

	runs int           // that were accumulated since the last step
	used usedGradients // of a device
}

// lists have an element for each parameter, group by group.
type lists struct {
	parameters         []parameter
	weights, gradients []kernels.Tensor
	state              [][]kernels.Tensor // a list for each name of the optimizer's State
	sums               []kernels.Tensor   // of the gradients of several runs, on a device: see Accumulate
	groups             []group
	sharded            bool // ranks hold shards of parameters
}

// counts are how many steps were made and skipped, as far as reports were read.
type counts struct{ step, skipped, skippedInARow int }

// Options say how far an optimiser steps, and when.
type Options struct {
	// Schedule gives the learning rate of each step; it is needed. The simplest is [ConstantRate].
	Schedule Schedule
	// Groups are treated differently from the rest. A parameter belongs to the first that matches it.
	Groups []Group
	// ClipNorm limits the norm of all gradients together: where it is larger, they are scaled down. 0 means no limit.
	ClipNorm float64
	// Accumulation is the number of runs of the machine whose gradients a step averages; 0 means 1.
	Accumulation int
	// LossScaling multiplies the loss of training in float16, see [LossScaling]; nil means not.
	LossScaling *LossScaling
	// MaxSkips is how many steps in a row may be skipped before there is an error; 0 means 10.
	MaxSkips int
}

// group is the parts of the lists that belong to a group.
type group struct {
	span
	Update
}

// parameter is a node and what was found out about it.
type parameter struct {
	node  *gorgonia.Node
	shape []int // of what this rank has
	whole []int // of all
}

// isPart reports whether other ranks have the rest of a parameter.
func (p parameter) isPart() bool { return !slices.Equal(p.shape, p.whole) }

const defaultMaxSkips = 10

// NewStepper makes a Stepper of some parameters in one process. See [Place.NewStepper] for ranks.
func NewStepper(parameters gorgonia.Nodes, optimizer Optimizer, options Options) (*Stepper, error) {
	return (*Place)(nil).NewStepper(parameters, optimizer, options)
}

// NewStepper makes a Stepper of some parameters at a place. Its steps average the gradients of all ranks, and change the
// parameters of all alike.
func (p *Place) NewStepper(parameters gorgonia.Nodes, optimizer Optimizer, options Options) (*Stepper, error) {
	if optimizer == nil {
		return nil, errors.New("optimizer is nil, it needs to be one, such as AdamW{}")
	}
	o := &Stepper{optimizer: optimizer, options: options, place: p}
	if o.options.Accumulation == 0 {
		o.options.Accumulation = 1
	}
	if o.options.MaxSkips == 0 {
		o.options.MaxSkips = defaultMaxSkips
	}
	o.scaling, o.scale = o.options.LossScaling.begin()
	if err := o.options.validate(); err != nil {
		return nil, o.errorf("%w", err)
	}
	if err := checkNodes(parameters); err != nil {
		return nil, o.errorf("%w", err)
	}
	if err := optimizer.Validate(dtypeOf(parameters[0])); err != nil {
		return nil, o.errorf("%w", err)
	}
	if err := o.list(parameters); err != nil {
		return nil, o.errorf("%w", err)
	}
	return o, nil
}

// list makes the lists, group by group.
func (o *Stepper) list(nodes gorgonia.Nodes) error {
	ordered, spans := grouped(nodes, o.options.Groups)
	o.joined = make([]bool, len(nodes))
	o.weights, o.gradients = make([]kernels.Tensor, len(nodes)), make([]kernels.Tensor, len(nodes))
	o.state = make([][]kernels.Tensor, len(o.optimizer.State()))
	for slot := range o.state {
		o.state[slot] = make([]kernels.Tensor, len(nodes))
	}
	var names []string
	for _, n := range ordered {
		whole, ranks := ops.WholeOf(n)
		if err := checkHolders(n, ranks, o.ranks()); err != nil {
			return err
		}
		o.parameters = append(o.parameters, parameter{n, slices.Clone([]int(n.Shape())), slices.Clone([]int(whole.Shape()))})
		o.sharded, names = o.sharded || ranks != nil, append(names, n.Name())
	}
	for _, s := range spans {
		u := Update{Names: names[s.from:s.to], Weights: o.weights[s.from:s.to], Gradients: o.gradients[s.from:s.to]}
		for _, list := range o.state {
			u.State = append(u.State, list[s.from:s.to])
		}
		o.groups = append(o.groups, group{s, u})
	}
	return nil
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
	if err := o.LossScaling.validate(); err != nil {
		return fmt.Errorf("loss scaling: %w", err)
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
		if n.Type() == nil {
			return fmt.Errorf("parameter %d is a zero node, it needs to be one of a graph", i)
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

// dtypeOf is the type of a parameter.
func dtypeOf(n *gorgonia.Node) kernels.DType {
	if n.Dtype() == tensor.Float64 {
		return kernels.F64
	}
	return kernels.F32
}

// Step changes the parameters by their gradients, and then sets the gradients to zero. It waits until that is done, and
// allocates nothing that grows with the model.
func (o *Stepper) Step() (Report, error) {
	p, err := o.Queue()
	if err != nil {
		r := Report{Step: o.step}
		if o.options.Schedule != nil { // an optimiser that no one has made has none
			r.LearningRate = o.options.Schedule.LearningRate(o.step)
		}
		return r, err
	}
	return p.Report()
}

// Queue is Step without waiting for what becomes of it, which a report tells later. The device itself decides whether the step
// is skipped, so further runs and steps may be queued meanwhile. With four steps that have no report yet, Queue waits for the
// oldest one's; where that is an error, it is Queue's too, and nothing is queued.
func (o *Stepper) Queue() (*PendingReport, error) {
	if err := o.prepare(); err != nil {
		return nil, err
	}
	if err := o.update(false); err != nil {
		return nil, err
	}
	return o.ask()
}

// prepare hands the learning rates to the device that the coming step may need: whether the pending ones are skipped, and so
// which number the step has, is not known here.
func (o *Stepper) prepare() error {
	if len(o.pending) == kernels.RateWindow {
		if err := o.readReports(1); err != nil {
			return err
		}
	}
	if err := o.ready(); err != nil {
		return o.errorf("%w", err)
	}
	o.rates[0] = float64(o.step)
	for i := range kernels.RateWindow {
		o.rates[1+i] = math.NaN()
		if i <= len(o.pending) {
			if rate := o.options.Schedule.LearningRate(o.step + i); rate >= 0 {
				o.rates[1+i] = rate
			}
		}
	}
	if err := o.backend.Copy(o.window, kernels.Of(o.rates, len(o.rates))); err != nil {
		return o.errorf("%w", err)
	}
	return nil
}

// update queues the step. All that differs from one step to the next lies in the device's memory, so that it can be recorded.
func (o *Stepper) update(recorded bool) error {
	if err := o.change(recorded); err != nil {
		return o.errorf("%w", err)
	}
	return nil
}

func (o *Stepper) change(recorded bool) error {
	if err := o.locate(); err != nil {
		return err
	}
	if err := o.checkRun(); err != nil {
		return err
	}
	if err := o.average(); err != nil {
		return err
	}
	if err := o.joinGradients(); err != nil {
		return err
	}
	plan := kernels.StepPlan{ClipNorm: o.options.ClipNorm, Accumulation: o.batchesOfStep(), LossScaling: o.scaling}
	if err := o.backend.PlanStep(plan, o.squares, o.vector); err != nil {
		return err
	}
	for _, g := range o.groups {
		u := g.Update
		u.Backend, u.recorded = o.backend, recorded
		u.Update = kernels.Update{LearningRate: g.rateScale, WeightDecay: 1, ClearGradients: o.keepsGradients(), Control: o.vector}
		if g.noDecay {
			u.WeightDecay = 0
		}
		if o.isSharded() {
			u = o.shardOf(u, o.parameters[g.from:g.to])
		}
		if err := o.optimizer.Update(u); err != nil {
			return err
		}
	}
	if o.isSharded() {
		if err := o.finishParts(); err != nil {
			return err
		}
	}
	o.runs = 0
	o.markUnrun()
	return nil
}

// ZeroGradients sets the gradients to zero, as each step does: for runs whose gradients no step is to use.
func (o *Stepper) ZeroGradients() error {
	if err := o.ready(); err != nil {
		return o.errorf("%w", err)
	}
	list := o.sums
	if o.isHost() {
		if err := o.locate(); err != nil {
			return o.errorf("%w", err)
		}
		list = o.gradients
	}
	if err := o.backend.Zero(list); err != nil {
		return o.errorf("%w", err)
	}
	o.runs = 0
	o.markUnrun()
	return nil
}

// A gradient of the host that no run has added to since it was cleared starts with a zero whose sign is negative: no sum that
// begins with another zero has that sign. One run leaves it in a parameter at most by chance, and not in all of them. On a device,
// where each run writes gradients of its own, the graph counts.

// markUnrun marks the gradients as cleared, or on a device as used.
func (o *Stepper) markUnrun() {
	if !o.isHost() {
		o.used.mark(o.parameters[0].node.Graph())
		return
	}
	for _, g := range o.gradients {
		if g.DType == kernels.F64 {
			*(*float64)(g.Data) = math.Copysign(0, -1)
		} else {
			*(*float32)(g.Data) = float32(math.Copysign(0, -1))
		}
	}
}

// checkRun returns an error if no run has added to any gradient since they were cleared, or computed those of a device since they
// were used.
func (o *Stepper) checkRun() error {
	unrun := false
	if o.isHost() {
		unrun = !slices.ContainsFunc(o.gradients, isAddedTo)
	} else {
		unrun = !o.used.isNewer(o.parameters[0].node.Graph())
	}
	if unrun {
		return errors.New("no gradient was computed since the last step: a machine needs to run the graph of these parameters, after a Reset, before each step")
	}
	return nil
}

// isAddedTo reports whether a gradient of the host is not as markUnrun left it.
func isAddedTo(g kernels.Tensor) bool {
	first := kernels.HostElement(g, 0)
	return first != 0 || !math.Signbit(first)
}

// usedGradients is how many gradients a graph had computed when they were used last.
type usedGradients map[weak.Pointer[gorgonia.ExprGraph]]uint64

func (u *usedGradients) mark(g *gorgonia.ExprGraph) {
	if *u == nil {
		*u = usedGradients{}
	}
	(*u)[weak.Make(g)] = ops.GradientCount(g)
}

// isNewer reports whether a graph has computed gradients since.
func (u usedGradients) isNewer(g *gorgonia.ExprGraph) bool {
	return ops.GradientCount(g) != u[weak.Make(g)]
}

// Use makes the Stepper take gradients from the nodes of another graph over the same values, which has run: one Stepper
// serves as many graphs as there are shapes of batches. What runs of the graph before have left for the coming step
// ([Stepper.Accumulate]) counts on.
func (o *Stepper) Use(parameters gorgonia.Nodes) error {
	if len(parameters) != len(o.parameters) {
		return o.errorf("there are %d parameters to use in place of %d, they need to be the same", len(parameters), len(o.parameters))
	}
	byName := map[string]*gorgonia.Node{}
	for _, n := range parameters {
		byName[n.Name()] = n
	}
	same := true
	for _, p := range o.parameters {
		n := byName[p.node.Name()]
		if n == nil || n.Value() != p.node.Value() {
			return o.errorf("%s is not among the parameters to use, or has another value there: all graphs need the same values", p.node.Name())
		}
		same = same && n == p.node
	}
	if same {
		return nil
	}
	if err := o.leave(byName); err != nil {
		return o.errorf("%w", err)
	}
	return nil
}

// leave goes over to other nodes, and takes along the gradients that runs have added up on the host.
func (o *Stepper) leave(to map[string]*gorgonia.Node) error {
	if err := o.ready(); err != nil {
		return err
	}
	moves := o.isHost() && o.runs > 0
	var left []kernels.Tensor
	if moves {
		if err := o.locate(); err != nil {
			return err
		}
		left = slices.Clone(o.gradients)
	}
	for i := range o.parameters {
		o.parameters[i].node = to[o.parameters[i].node.Name()]
	}
	if !moves {
		return nil
	}
	if err := o.locate(); err != nil {
		return err
	}
	if err := o.backend.Accumulate(o.gradients, left); err != nil {
		return err
	}
	return o.backend.Zero(left)
}

// locate finds where values and gradients lie, which a machine may change from run to run.
func (o *Stepper) locate() error {
	dtype := o.parameters[0].node.Dtype()
	for i, p := range o.parameters {
		gradient, err := p.node.Grad()
		if err != nil || gradient == nil || o.isHost() && !bound(p.node, gradient) {
			return fmt.Errorf("%s has no gradient bound to it, it needs a run of a machine made with gorgonia.BindDualValues", p.node.Name())
		}
		if o.weights[i], err = o.viewHere(p.node.Value(), dtype, p.shape); err != nil {
			return fmt.Errorf("the value of %s %w", p.node.Name(), err)
		}
		if o.gradients[i], err = o.viewHere(gradient, dtype, p.shape); err != nil {
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

// errorf is an error with the optimiser's name.
func (o *Stepper) errorf(format string, args ...any) error {
	return fmt.Errorf(o.name()+": "+format, args...)
}

// name is the optimiser's. A Stepper that NewStepper did not make has none.
func (o *Stepper) name() string {
	if o.optimizer == nil {
		return "Stepper"
	}
	return o.optimizer.Name()
}
