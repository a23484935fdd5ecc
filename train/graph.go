package train

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// graph is a model for batches of one shape, and the machine that runs it.
type graph struct {
	g               *gorgonia.ExprGraph
	device          *ops.Device // nil for the host
	parameters      gorgonia.Nodes
	machine         gorgonia.VM
	rows, length    int
	tokens, targets []int // what is fed
	feeds           []*ops.Feed
	loss            *gorgonia.Node

	runs       int // so far
	recording  kernels.Recording
	recorded   kernels.Tensor // the loss of a recorded run
	unrecorded error          // why runs cannot be recorded
}

// newGraph builds a model for the batches' shape, with gradients if it is to train. Its inputs and parameters are on the device,
// or on the host where that is nil.
func newGraph(model Model, batches data.Batches, device *ops.Device, training bool) (*graph, error) {
	b := &graph{g: gorgonia.NewGraph(), device: device}
	b.rows, b.length = batches.Shape()
	if b.rows < 1 || b.length < 1 || b.rows > math.MaxInt32/b.length {
		return nil, fmt.Errorf("data has batches of %d rows of %d, each needs to be at least 1 and their product an int32", b.rows, b.length)
	}
	var inputs [2]*gorgonia.Node
	for i, in := range []struct {
		name string
		ids  *[]int
	}{{"tokens", &b.tokens}, {"targets", &b.targets}} {
		*in.ids = make([]int, b.rows*b.length)
		feed, err := ops.NewFeed(device, tensor.New(tensor.WithShape(b.rows, b.length), tensor.WithBacking(*in.ids)))
		if err != nil {
			return nil, err
		}
		inputs[i], b.feeds = feed.Node(b.g, in.name), append(b.feeds, feed)
	}
	loss, parameters, err := model(b.g, inputs[0], inputs[1])
	if err != nil {
		return nil, err
	}
	switch {
	case loss == nil:
		return nil, errors.New("model gave no loss, it needs to be a node")
	case !loss.IsScalar():
		return nil, fmt.Errorf("model gave a loss of shape %v, it needs to be a scalar", []int(loss.Shape()))
	case loss.Graph() != b.g:
		return nil, errors.New("model gave a loss of another graph, it needs to be of the one that it was called with")
	case len(parameters) == 0:
		return nil, errors.New("model gave no parameters, it needs at least one")
	}
	for i, n := range parameters {
		if err := checkParameter(n, b.g, device); err != nil {
			return nil, fmt.Errorf("model gave parameter %d, which %w", i, err)
		}
	}
	b.parameters = parameters
	b.loss = loss
	ops.ReuseMemory(b.g)
	var options []gorgonia.VMOpt
	if training {
		if _, err := gorgonia.Grad(loss, parameters...); err != nil {
			return nil, err
		}
		if device == nil {
			options = append(options, gorgonia.BindDualValues(parameters...))
		}
	}
	if b.machine, err = ops.NewMachine(b.g, options...); err != nil {
		return nil, err
	}
	return b, nil
}

// checkParameter names what would only be found out by the first step, in words of the machine's. Its errors go on from
// "which".
func checkParameter(n *gorgonia.Node, g *gorgonia.ExprGraph, device *ops.Device) error {
	switch {
	case n == nil:
		return errors.New("is nil, it needs to be a node")
	case n.Graph() != g:
		return fmt.Errorf("is %s of another graph, it needs to be of the one that the model was called with", n.Name())
	}
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

// run feeds the n-th batch, runs the machine and asks for the loss. On a device it waits for nothing.
func (b *graph) run(batches data.Batches, n int) (kernels.Number, error) {
	if err := batches.Fill(n, b.tokens, b.targets); err != nil {
		return nil, fmt.Errorf("batch %d: %w", n, err)
	}
	for _, feed := range b.feeds {
		if err := feed.Send(); err != nil {
			return nil, fmt.Errorf("batch %d: %w", n, err)
		}
	}
	if err := b.compute(); err != nil {
		return nil, err
	}
	if b.recording != nil {
		return b.device.Backend().Read(b.recorded)
	}
	return ops.ReadNumber(b.loss.Value())
}

// unrecordedRuns is how many runs of a graph find out which memory it needs, before one is recorded.
const unrecordedRuns = 2

// compute runs the machine, or what was recorded of it. A graph that cannot be recorded goes on unrecorded.
func (b *graph) compute() error {
	if b.recording != nil {
		return b.recording.Launch()
	}
	if b.device == nil || b.runs < unrecordedRuns || b.unrecorded != nil {
		b.runs++
		return b.runMachine()
	}
	recording, err := ops.Record(b.g, b.device, b.runMachine)
	if err == nil {
		b.recorded, err = ops.TensorOf(b.loss.Value())
	}
	if err != nil {
		b.unrecorded = err
		return b.runMachine()
	}
	b.recording = recording
	return b.recording.Launch()
}

func (b *graph) runMachine() error {
	defer b.machine.Reset()
	return b.machine.RunAll()
}

// mode is whether the graph trains or evaluates.
func (b *graph) mode() *ops.Mode { return ops.ModeOf(b.g) }

// shares makes sure that the graph has the parameters of another, not copies.
func (b *graph) shares(other *graph) error {
	values := map[string]gorgonia.Value{}
	for _, n := range other.parameters {
		values[n.Name()] = n.Value()
	}
	if len(b.parameters) != len(values) {
		return fmt.Errorf("model gave %d parameters for evaluation and %d for training, they need to be the same", len(b.parameters), len(values))
	}
	for _, n := range b.parameters {
		if values[n.Name()] != n.Value() {
			return fmt.Errorf("model gave %s a value of its own for evaluation, both graphs need one nn.Parameters", n.Name())
		}
	}
	return nil
}
