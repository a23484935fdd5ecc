package train

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// graph is a model for batches of one shape, and the machine that runs it.
type graph struct {
	g               *gorgonia.ExprGraph
	parameters      gorgonia.Nodes
	machine         gorgonia.VM
	rows, length    int
	tokens, targets []int // the values of the inputs
	loss            gorgonia.Value
}

// newGraph builds a model for the batches' shape, with gradients if it is to train.
func newGraph(model Model, batches data.Batches, training bool) (*graph, error) {
	b := &graph{g: gorgonia.NewGraph()}
	b.rows, b.length = batches.Shape()
	var inputs [2]*gorgonia.Node
	for i, in := range []struct {
		name string
		ids  *[]int
	}{{"tokens", &b.tokens}, {"targets", &b.targets}} {
		*in.ids = make([]int, b.rows*b.length)
		value := tensor.New(tensor.WithShape(b.rows, b.length), tensor.WithBacking(*in.ids))
		inputs[i] = gorgonia.NewMatrix(b.g, tensor.Int, gorgonia.WithName(in.name), gorgonia.WithShape(b.rows, b.length), gorgonia.WithValue(value))
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
		if err := checkParameter(n, b.g); err != nil {
			return nil, fmt.Errorf("model gave parameter %d, which %w", i, err)
		}
	}
	b.parameters = parameters
	gorgonia.Read(loss, &b.loss)
	options := []gorgonia.VMOpt{gorgonia.WithEngine(ops.Engine())}
	if training {
		if _, err := gorgonia.Grad(loss, parameters...); err != nil {
			return nil, err
		}
		options = append(options, gorgonia.BindDualValues(parameters...))
	}
	b.machine = gorgonia.NewTapeMachine(b.g, options...)
	return b, nil
}

// checkParameter names what would only be found out by the first step, in words of the machine's. Its errors go on from
// "which".
func checkParameter(n *gorgonia.Node, g *gorgonia.ExprGraph) error {
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
	return nil
}

// run fills the inputs with the n-th batch, runs the machine and gives the loss.
func (b *graph) run(batches data.Batches, n int) (float64, error) {
	if err := batches.Fill(n, b.tokens, b.targets); err != nil {
		return 0, fmt.Errorf("batch %d: %w", n, err)
	}
	defer b.machine.Reset()
	if err := b.machine.RunAll(); err != nil {
		return 0, err
	}
	switch x := b.loss.Data().(type) {
	case float32:
		return float64(x), nil
	case float64:
		return x, nil
	}
	return 0, fmt.Errorf("the loss is a %T, it needs to be float32 or float64", b.loss.Data())
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
