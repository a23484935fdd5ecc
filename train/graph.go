package train

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// graph is a model for batches of one shape, and the machine that runs it.
type graph struct {
	g          *gorgonia.ExprGraph
	device     *ops.Device // nil for the host
	outputs    Outputs
	parameters gorgonia.Nodes
	trained    gorgonia.Nodes // those of the parameters that training changes
	unused     gorgonia.Nodes // those of trained that the loss does not use
	outside    gorgonia.Nodes // what the model made without its scope, which is not trained
	scope      *nn.Scope
	machine    gorgonia.VM
	feeds      map[string]*ops.Feed
	scalars    gorgonia.Nodes // the loss, and the metrics that are scalars
	passes
	weight *weight // of the loss where ranks share sequences, otherwise nil
}

// passes are the runs of a graph, and whether they can be recorded.
type passes struct {
	last       pass  // the run that ends a step, or an evaluation's
	others     pass  // those of a step before it
	unrecorded error // why runs cannot be recorded
	recording  bool  // a run is being recorded
}

// pass is a run of the graph with what comes with it on the device.
type pass struct {
	runs      int // unrecorded, so far
	recording kernels.Recording
	scalars   []kernels.Tensor // of recorded runs
}

// newGraph builds a model for batches like b, with gradients if it is to train, and its machine.
// Its inputs and parameters are on the device, or on the host where that is nil. The regions of
// these names are computed again.
func newGraph(c LoopConfig, b data.Batch, training bool, again []string) (*graph, error) {
	t, err := newPlainGraph(c, b, training, func(g *gorgonia.ExprGraph) {
		if len(again) > 0 {
			ops.RecomputeRegions(g, again...)
		}
	})
	if err != nil {
		return nil, err
	}
	if training && c.Memory == 0 {
		if err := t.checkFits(c, b); err != nil {
			return nil, err
		}
	}
	var options []gorgonia.VMOpt
	if training && t.device == nil {
		options = append(options, gorgonia.BindDualValues(t.trained...))
	}
	if t.machine, err = ops.NewMachine(t.g, options...); err != nil {
		return nil, err
	}
	if training && c.Place.SequenceRanks().Size() > 1 && c.Options.LossScaling == nil {
		if err := t.weigh(); err != nil {
			return nil, errors.Join(err, t.machine.Close())
		}
	}
	return t, nil
}

// newPlainGraph is newGraph without a machine. Before is called with the graph before the model is
// made in it.
func newPlainGraph(c LoopConfig, b data.Batch, training bool, before func(*gorgonia.ExprGraph)) (*graph, error) {
	t := &graph{g: gorgonia.NewGraph(), device: c.Place.Device()}
	before(t.g)
	if err := t.build(c, b); err != nil {
		return nil, err
	}
	t.scalars = gorgonia.Nodes{t.outputs.Loss.Node()}
	for _, m := range t.outputs.Metrics {
		ops.Keep(m.Nodes...)
		if m.Value == nil {
			t.scalars = append(t.scalars, m.Nodes[0])
		}
	}
	ops.ReuseMemory(t.g)
	if !training {
		t.mode().Evaluate()
		return t, nil
	}
	if err := t.differentiate(); err != nil {
		return nil, fmt.Errorf("model gave %w, of a batch of %v", err, b)
	}
	return t, nil
}

// build adds the inputs and the model.
func (t *graph) build(c LoopConfig, b data.Batch) error {
	s := nn.NewScope(t.g, c.Parameters)
	if sharers := c.Place.SequenceRanks(); sharers.Size() > 1 {
		s = s.ShareSequences(sharers)
	}
	feeds, inputs, err := feed(s, b, t.device)
	if err != nil {
		return err
	}
	t.scope = s
	t.feeds, t.outputs = feeds, outputsOf(c.Model, s, inputs)
	if err := s.Err(); err != nil {
		return fmt.Errorf("%w, in the model of a batch of %v", err, b)
	}
	t.parameters, t.trained = s.Parameters(), s.Trainable()
	for _, n := range s.Others() {
		if d := n.Dtype(); inputs.arrays[n.Name()] != n && (d == tensor.Float32 || d == tensor.Float64) {
			t.outside = append(t.outside, n)
		}
	}
	if set, _ := c.Parameters.HasLoRA(); set {
		t.parameters = t.trained // the other weights come from where the program has them from
	}
	if err := t.check(); err != nil {
		return fmt.Errorf("model gave %w", err)
	}
	return nil
}

// outputsOf calls a model. A panic in it is the scope's error, with the model's line.
func outputsOf[T any](model func(*nn.Scope, Inputs) T, s *nn.Scope, in Inputs) (o T) {
	defer func() {
		if p := recover(); p != nil {
			s.Fail(fmt.Errorf("the model panics: %v", p))
		}
	}()
	return model(s, in)
}

// Inputs are the arrays of a batch, as tensors of a model: tokens and targets in batches of package
// data that are cut from tokens.
type Inputs struct {
	scope  *nn.Scope
	arrays map[string]*gorgonia.Node
}

// Get is the array of that name. Where the batch has none, that is an error of the model.
func (in Inputs) Get(name string) nn.Tensor {
	if n := in.arrays[name]; n != nil {
		return in.scope.Tensor(n, nil)
	}
	return in.scope.Fail(fmt.Errorf("the batch has no array %q, it has %q", name, slices.Sorted(maps.Keys(in.arrays))))
}

// Has reports whether the batch has an array of that name.
func (in Inputs) Has(name string) bool { return in.arrays[name] != nil }

// differentiating is held while a graph is differentiated: the constants that Gorgonia adds for
// that are the same nodes in all graphs of a process.
var differentiating sync.Mutex

func differentiate(loss *gorgonia.Node, by gorgonia.Nodes) error {
	differentiating.Lock()
	defer differentiating.Unlock()
	_, err := gorgonia.Grad(loss, by...)
	return err
}

// differentiate adds the gradients of what is trained. Those of parameters that the loss does not
// use are zero: the loss gets nothing of each.
func (t *graph) differentiate() error {
	err := differentiate(t.outputs.Loss.Node(), t.trained)
	var refused gorgonia.SymDiffError
	if !errors.As(err, &refused) || len(refused.Nodes()) == 0 {
		return err
	}
	for _, n := range t.trained {
		if slices.Contains(refused.Nodes(), n) {
			t.unused = append(t.unused, n)
		}
	}
	switch len(t.unused) {
	case 0:
		return err
	case len(t.trained):
		return fmt.Errorf("a loss that uses none of the %d parameters that are trained, it needs to use one, by ops that have gradients", len(t.trained))
	}
	loss := t.outputs.Loss
	for _, n := range t.unused {
		nothing := t.scope.Tensor(ops.Scale(n, 0)).Sum()
		if n.Dtype() != loss.Node().Dtype() {
			nothing = nothing.Cast(loss.Node().Dtype())
		}
		loss = loss.Add(nothing)
	}
	if err := t.scope.Err(); err != nil {
		return err
	}
	t.outputs.Loss, t.scalars[0] = loss, loss.Node()
	return differentiate(loss.Node(), t.trained)
}

// feed adds the arrays of a batch to a graph as inputs.
func feed(s *nn.Scope, b data.Batch, device *ops.Device) (map[string]*ops.Feed, Inputs, error) {
	feeds, inputs := map[string]*ops.Feed{}, Inputs{s, map[string]*gorgonia.Node{}}
	for _, name := range b.Names() {
		if err := checkArray(b[name]); err != nil {
			return nil, inputs, fmt.Errorf("the batch's %s %w", name, err)
		}
		f, err := ops.NewFeed(device, b[name].Clone().(*tensor.Dense))
		if err != nil {
			return nil, inputs, fmt.Errorf("the batch's %s: %w", name, err)
		}
		feeds[name], inputs.arrays[name] = f, f.Node(s.Graph(), name)
	}
	if len(feeds) == 0 {
		return nil, inputs, errors.New("the batch has no arrays, it needs at least one")
	}
	return feeds, inputs, nil
}

// checkArray returns what is wrong with an array of a batch, in words that go on from its name.
func checkArray(a *tensor.Dense) error {
	switch {
	case a == nil:
		return errors.New("is nil, it needs to be an array: Floats, Ints and Bools of package data give nil where values do not fill the shape")
	case a.Dims() == 0 || a.Shape().TotalSize() == 0 || !slices.Equal(a.Strides(), a.Shape().CalcStrides()):
		return fmt.Errorf("has shape %v and strides %v, it needs axes that are not empty, and its elements to lie row by row without gaps",
			[]int(a.Shape()), a.Strides())
	}
	return nil
}

// check names what would only be found out by the first step, in words of the machine's.
func (t *graph) check() error {
	loss := t.outputs.Loss.Node()
	switch {
	case loss == nil && t.outputs.Loss.Err() != nil && !t.outputs.Loss.IsZero():
		return fmt.Errorf("a loss of another scope than that it was called with, which failed: %w", t.outputs.Loss.Err())
	case loss == nil:
		return errors.New("no loss, it needs to be a tensor")
	case !loss.IsScalar():
		return fmt.Errorf("a loss of shape %v, it needs to be a scalar", []int(loss.Shape()))
	case loss.Dtype() != tensor.Float32 && loss.Dtype() != tensor.Float64:
		return fmt.Errorf("a loss of %v, it needs to be float32 or float64", loss.Dtype())
	case loss.Graph() != t.g:
		return errors.New("a loss of another graph, it needs to be of the scope that it was called with")
	case len(t.parameters) == 0:
		return errors.New("no parameters, it needs at least one, of a layer in its scope")
	case len(t.trained) == 0:
		return fmt.Errorf("%d parameters that are all frozen, it needs one that is trained", len(t.parameters))
	}
	for i, n := range t.parameters {
		if err := checkParameter(n, t.device); err != nil {
			return fmt.Errorf("parameter %d, which %w", i, err)
		}
	}
	names := map[string]bool{}
	for _, m := range t.outputs.Metrics {
		if err := m.check(t.g); err != nil {
			return fmt.Errorf("metric %q, which %w", m.Name, err)
		}
		if names[m.Name] {
			return fmt.Errorf("two metrics called %s, each needs a name of its own", m.Name)
		}
		names[m.Name] = true
	}
	return nil
}

// checkParameter returns what is wrong with a parameter, in words that go on from "which".
func checkParameter(n *gorgonia.Node, device *ops.Device) error {
	value, ok := n.Value().(*tensor.Dense)
	switch {
	case !ok:
		return fmt.Errorf("is %s with a %T for a value, it needs to be a *tensor.Dense", n.Name(), n.Value())
	case !slices.Equal(value.Strides(), value.Shape().CalcStrides()):
		return fmt.Errorf("is %s of shape %v with strides %v, its elements need to lie row by row without gaps",
			n.Name(), []int(value.Shape()), value.Strides())
	}
	if at, err := ops.DeviceOf(value); err != nil || at != device {
		return errors.Join(fmt.Errorf("is %s on %v, it needs to be on %v", n.Name(), placeName(at), placeName(device)), err)
	}
	return nil
}

func placeName(d *ops.Device) string {
	if d == nil {
		return "the host"
	}
	return d.String()
}

// run feeds a batch, makes a pass and asks for the scalars, the loss first. The work of a pass is
// compute, and what comes with it on the device, the same each time. On a device nothing waits.
func (t *graph) run(b data.Batch, p *pass, work func() error) ([]kernels.Number, error) {
	for name, feed := range t.feeds {
		if err := feed.Fill(b[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := t.launch(p, work); err != nil {
		return nil, err
	}
	return t.ask(p)
}

// ask asks for the scalars of the last run. The pass is nil for one that goes on.
func (t *graph) ask(p *pass) ([]kernels.Number, error) {
	numbers := make([]kernels.Number, len(t.scalars))
	for i, n := range t.scalars {
		var err error
		if p != nil && p.recording != nil {
			numbers[i], err = t.device.Backend().Read(p.scalars[i])
		} else {
			numbers[i], err = ops.ReadNumber(n.Value())
		}
		if err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

// measure adds what the last run made of its batch to the metrics' means. Numbers are its scalars,
// the loss first.
func (t *graph) measure(means []mean, numbers []float64) error {
	numbers = numbers[1:]
	for i, m := range t.outputs.Metrics {
		if m.Value == nil {
			means[i].add(numbers[0], 1)
			numbers = numbers[1:]
			continue
		}
		values := make([]*tensor.Dense, len(m.Nodes))
		for k, n := range m.Nodes {
			var err error
			if values[k], err = ops.Download(n.Value()); err != nil {
				return fmt.Errorf("metric %s: node %d: %w", m.Name, k, err)
			}
		}
		sum, count, err := m.Value(values)
		if err != nil {
			return fmt.Errorf("metric %s: %w", m.Name, err)
		}
		means[i].add(sum, count)
	}
	return nil
}

// unrecordedRuns is how many runs find out which memory a pass needs, before one is recorded.
const unrecordedRuns = 2

// launch makes a pass, or what was recorded of it. A graph that cannot be recorded goes on
// unrecorded.
func (t *graph) launch(p *pass, work func() error) error {
	if p.recording != nil {
		err := p.recording.Launch()
		if !errors.Is(err, kernels.ErrOutgrown) {
			return err
		}
		t.unrecorded, t.last.recording, t.others.recording = err, nil, nil
		return work()
	}
	if t.device == nil || p.runs < unrecordedRuns || t.unrecorded != nil {
		p.runs++
		return work()
	}
	t.recording = true
	recording, err := ops.Record(t.g, t.device, work)
	t.recording = false
	p.scalars = make([]kernels.Tensor, len(t.scalars))
	for i := 0; i < len(t.scalars) && err == nil; i++ {
		p.scalars[i], err = ops.TensorOf(t.scalars[i].Value())
	}
	if err != nil {
		t.unrecorded = err
		return work()
	}
	p.recording = recording
	return p.recording.Launch()
}

// compute runs forward and, if the graph trains, backward.
func (t *graph) compute() error {
	err := t.machine.RunAll()
	t.machine.Reset()
	return err
}

// mode is whether the graph trains or evaluates.
func (t *graph) mode() *ops.Mode { return ops.ModeOf(t.g) }

// shares makes sure that the graph has the parameters of another, not copies, and the same metrics.
func (t *graph) shares(other *graph) error {
	values := map[string]gorgonia.Value{}
	for _, n := range other.parameters {
		values[n.Name()] = n.Value()
	}
	if len(t.parameters) != len(values) {
		return fmt.Errorf("model has %d parameters for one graph and %d for another, they need to be the same", len(t.parameters), len(values))
	}
	for _, n := range t.parameters {
		if values[n.Name()] != n.Value() {
			return fmt.Errorf("model has %s for one graph and not for another, they need to have the same parameters", n.Name())
		}
	}
	same := func(a, b Metric) bool { return a.Name == b.Name }
	if !slices.EqualFunc(t.outputs.Metrics, other.outputs.Metrics, same) {
		return fmt.Errorf("model gave the metrics %q for one graph and %q for another, they need to be the same",
			metricNames(t.outputs.Metrics), metricNames(other.outputs.Metrics))
	}
	return nil
}

func metricNames(metrics []Metric) []string {
	var names []string
	for _, m := range metrics {
		names = append(names, m.Name)
	}
	return names
}

// figures are what is shown of the metrics that have means, by name; nil without any.
func figures(metrics []Metric, means []mean, include func(Metric) bool) map[string]float64 {
	var all map[string]float64
	for i, m := range metrics {
		if include(m) {
			if all == nil {
				all = map[string]float64{}
			}
			all[m.Name] = means[i].of(m)
		}
	}
	return all
}

func anyMetric(Metric) bool      { return true }
func scalarMetric(m Metric) bool { return m.Value == nil }
func valueMetric(m Metric) bool  { return m.Value != nil }
