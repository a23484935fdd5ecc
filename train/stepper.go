package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/gorgonia"
)

// Stepper changes the parameters of a graph by their gradients, where they live: on a device the
// host waits for nothing but a report. A Loop has one. It belongs to one goroutine at a time, and
// while it steps, no machine may run over the same parameters.
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

	runs     int           // that were accumulated since the last step
	changing bool          // an update has changed parameters, or may have
	used     usedGradients // of a device
}

// lists have an element for each parameter, group by group.
type lists struct {
	parameters         []parameter
	weights, gradients []kernels.Tensor
	sums               []kernels.Tensor // of several runs' gradients, on a device
	groups             []group
	scratch            []kernels.Tensor // see [Update.Scratch]
	sharded            bool             // ranks hold shards of parameters
}

// counts are how many steps were made and skipped, as far as reports were read.
type counts struct{ step, skipped, skippedInARow int }

// group is the parts of the lists that belong to a group.
type group struct {
	span
	Update
	slots   []string         // the names of the optimiser's state
	average []kernels.Tensor // of the weights, if one is kept
}

// parameter is a node and what was found out about it.
type parameter struct {
	node  *gorgonia.Node
	shape []int // of what this rank has
	whole []int // of all
}

// isShard reports whether other ranks have the rest of a parameter.
func (p parameter) isShard() bool { return !slices.Equal(p.shape, p.whole) }

// NewStepper makes a Stepper of some parameters in one process. See [Place.NewStepper] for ranks.
func NewStepper(parameters gorgonia.Nodes, optimizer Optimizer, options Options) (*Stepper, error) {
	return (*Place)(nil).NewStepper(parameters, optimizer, options)
}

// NewStepper makes a Stepper of some parameters at a place. Its steps average the gradients of all
// ranks, and change the parameters of all alike.
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
	err := firstError(o.options.validate(), checkNodes(parameters))
	if err == nil {
		err = o.list(parameters)
	}
	if err != nil {
		return nil, o.wrap(err)
	}
	return o, nil
}

// list makes the lists, group by group.
func (o *Stepper) list(nodes gorgonia.Nodes) error {
	if err := checkMatches(nodes, o.options.Groups); err != nil {
		return err
	}
	ordered, spans := grouped(nodes, o.options.Groups)
	o.sent = make([]bool, len(nodes))
	o.weights, o.gradients = make([]kernels.Tensor, len(nodes)), make([]kernels.Tensor, len(nodes))
	var names []string
	for _, n := range ordered {
		whole, ranks := ops.WholeOf(n)
		if err := checkHolders(n, ranks, o.holders()); err != nil {
			return err
		}
		o.parameters = append(o.parameters, parameter{n, slices.Clone([]int(n.Shape())), slices.Clone([]int(whole.Shape()))})
		o.sharded, names = o.sharded || ranks != nil, append(names, n.Name())
	}
	for _, s := range spans {
		if s.optimizer == nil {
			s.optimizer = o.optimizer
		}
		u := Update{Names: names[s.from:s.to], Weights: o.weights[s.from:s.to], Gradients: o.gradients[s.from:s.to]}
		g := group{span: s, Update: u, slots: s.optimizer.State()}
		for range g.slots {
			g.State = append(g.State, make([]kernels.Tensor, s.to-s.from))
		}
		if o.options.Average != nil {
			g.average = make([]kernels.Tensor, s.to-s.from)
		}
		if err := o.checkOptimizer(g); err != nil {
			return err
		}
		o.groups = append(o.groups, g)
	}
	return nil
}

// checkOptimizer makes sure that the optimiser of a group can train its parameters.
func (o *Stepper) checkOptimizer(g group) error {
	if err := g.optimizer.Validate(dtypeOf(o.parameters[0].node)); err != nil {
		return err
	}
	whole, ok := g.optimizer.(WholeOptimizer)
	if !ok {
		return nil
	}
	if _, shares := whole.(sharesWhole); o.isSharded() && !shares {
		return fmt.Errorf("%s computes with whole parameters, ranks that share the state or the weights need another optimizer", g.optimizer.Name())
	}
	for i, p := range o.parameters[g.from:g.to] {
		for slot := range max(1, len(g.slots)) {
			if _, err := whole.StateShape(slot, p.whole); err != nil {
				return fmt.Errorf("%s %w", g.Names[i], err)
			}
		}
	}
	return nil
}

// Step changes the parameters by their gradients, and then sets the gradients to zero. It waits
// until that is done, and allocates nothing that grows with the model.
func (o *Stepper) Step() (Report, error) {
	p, err := o.Queue()
	if err != nil {
		r := Report{Step: o.step}
		if o.options.Schedule != nil { // NewStepper did not make this one
			r.LearningRate = o.options.Schedule.LearningRate(o.step)
		}
		return r, err
	}
	return p.Report()
}

// Queue is Step without waiting for what becomes of it, which a report tells later. The device
// itself decides whether the step is skipped, so further runs and steps may be queued meanwhile.
// With four steps that have no report yet, Queue waits for the oldest one's; where that is an
// error, it is Queue's too, and nothing is queued.
func (o *Stepper) Queue() (*PendingReport, error) {
	if err := o.prepare(); err != nil {
		return nil, err
	}
	if err := o.update(false); err != nil {
		return nil, err
	}
	return o.ask()
}

// prepare hands the learning rates to the device that the coming step may need: whether the pending
// ones are skipped, and so which number the step has, is not known here.
func (o *Stepper) prepare() error {
	if len(o.pending) == kernels.RateWindow {
		if err := o.readReports(1); err != nil {
			return err
		}
	}
	if err := o.ready(); err != nil {
		return o.wrap(err)
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
	return o.wrap(o.backend.Copy(o.window, kernels.Of(o.rates, len(o.rates))))
}

// update queues the step: gradients are averaged and reduced, it is decided whether and how far to
// step, and the optimiser changes the parameters, group by group. All that differs from one step to
// the next lies in the device's memory, so that it can be recorded.
func (o *Stepper) update(recorded bool) error {
	o.changing = !o.isHost() // where work is queued, nobody knows how far it came
	for _, part := range []func() error{o.locate, o.checkRun, o.average, o.reduce, o.decide} {
		if err := part(); err != nil {
			o.changing = o.changing && !errors.Is(err, distributed.ErrLost)
			return o.wrap(err)
		}
	}
	o.changing = true
	for _, g := range o.groups {
		u := o.updateOf(g, recorded)
		if err := g.optimizer.Update(u); err != nil {
			return o.wrap(err)
		}
		if err := o.options.Average.update(u, g.average); err != nil {
			return o.wrap(err)
		}
	}
	if err := o.gather(); err != nil {
		return o.wrap(err)
	}
	o.runs, o.changing = 0, false
	o.markUsed()
	return nil
}

// decide computes whether the step is made, and how far it goes.
func (o *Stepper) decide() error {
	plan := kernels.StepPlan{ClipNorm: o.options.ClipNorm, Accumulation: o.batchesOfStep(), LossScaling: o.scaling}
	return o.backend.PlanStep(plan, o.squares, o.vector)
}

// updateOf is the update of a group, or of this rank's shard of it.
func (o *Stepper) updateOf(g group, recorded bool) Update {
	u := g.Update
	u.Backend, u.recorded, u.memory = o.backend, recorded, &o.scratch
	u.Update = kernels.Update{LearningRate: g.rateScale, WeightDecay: 1, ClearGradients: o.keepsGradients(), Control: o.vector}
	if g.noDecay {
		u.WeightDecay = 0
	}
	if o.isSharded() {
		u = o.shardOf(u, o.parameters[g.from:g.to])
	}
	return u
}

// Accumulate takes the gradients of a run into the mean over several runs that a step uses. It
// needs to be called after each run that no step follows. On the host it does nothing: there the
// machine has added them up already, as gorgonia.BindDualValues makes it. On a device each run
// leaves the gradients of its own.
func (o *Stepper) Accumulate() error { return o.wrap(o.accumulate()) }

func (o *Stepper) accumulate() error {
	if o.options.Accumulation == 1 {
		return errors.New("the gradients of several runs cannot be averaged: accumulation is 1")
	}
	if err := o.ready(); err != nil {
		return err
	}
	if !o.isHost() {
		for _, part := range []func() error{o.locate, o.checkRun, o.add} {
			if err := part(); err != nil {
				return err
			}
		}
		o.markUsed()
	}
	o.runs++
	return nil
}

// average makes the sums over several runs, the last one's gradients included, the gradients of the
// step.
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

// add adds the gradients to the sums, which are zero at the beginning and after each step: but for
// those that were added as they became known.
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
	return o.backend.Accumulate(o.unsent(o.sums), o.unsent(o.gradients))
}

// keepsGradients reports whether gradients stay from run to run, so that a step needs to clear
// them.
func (o *Stepper) keepsGradients() bool { return o.isHost() || o.options.Accumulation > 1 }

// ZeroGradients sets the gradients to zero, as each step does: for runs whose gradients no step is
// to use.
func (o *Stepper) ZeroGradients() error { return o.wrap(o.zeroGradients()) }

func (o *Stepper) zeroGradients() error {
	if err := o.ready(); err != nil {
		return err
	}
	list := o.sums
	if o.isHost() {
		if err := o.locate(); err != nil {
			return err
		}
		list = o.gradients
	}
	if err := o.backend.Zero(list); err != nil {
		return err
	}
	o.runs = 0
	o.markUsed()
	return nil
}

// errorf is an error with the optimiser's name.
func (o *Stepper) errorf(format string, args ...any) error {
	return fmt.Errorf(o.name()+": "+format, args...)
}

// wrap is errorf for an error, and nothing for none.
func (o *Stepper) wrap(err error) error {
	if err == nil {
		return nil
	}
	return o.errorf("%w", err)
}

// name is the optimiser's, and those of groups that have others. A Stepper that NewStepper did not
// make has none.
func (o *Stepper) name() string {
	if o.optimizer == nil {
		return "Stepper"
	}
	name := o.optimizer.Name()
	for _, g := range o.options.Groups {
		if g.Optimizer != nil && !slices.Contains(strings.Split(name, " and "), g.Optimizer.Name()) {
			name += " and " + g.Optimizer.Name()
		}
	}
	return name
}
