package train

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Predictor computes what a model makes of batches, with dropout off: what a program does with a
// model once it is trained, or while it is. Like a [Loop] it has a graph for each shape of batches.
// It belongs to one goroutine, and does not run while something changes the parameters.
type Predictor struct {
	parameters *nn.Parameters
	model      func(s *nn.Scope, in Inputs) nn.Tensor
	graphs     map[string]*prediction
}

// prediction is a graph of a Predictor.
type prediction struct {
	feeds   map[string]*ops.Feed
	result  *gorgonia.Node
	machine gorgonia.VM
}

// NewPredictor makes a Predictor of parameters, such as those that a Loop trains, and a function
// that makes a model in a scope over them. It computes where the parameters are. Close releases it.
func NewPredictor(parameters *nn.Parameters, model func(s *nn.Scope, in Inputs) nn.Tensor) (*Predictor, error) {
	switch {
	case parameters == nil:
		return nil, errors.New("Predictor: parameters is nil, it needs to be those of the model")
	case model == nil:
		return nil, errors.New("Predictor: model is nil, it needs to be a function that makes a model in a scope")
	}
	return &Predictor{parameters: parameters, model: model, graphs: map[string]*prediction{}}, nil
}

// Predict returns what the model makes of a batch, on the host. It is the caller's.
func (p *Predictor) Predict(b data.Batch) (*tensor.Dense, error) {
	v, err := p.predict(b)
	if err != nil {
		return nil, fmt.Errorf("Predictor: %w", err)
	}
	return v, nil
}

func (p *Predictor) predict(b data.Batch) (*tensor.Dense, error) {
	t := p.graphs[b.String()]
	if t == nil {
		var err error
		if t, err = p.build(b); err != nil {
			return nil, err
		}
		p.graphs[b.String()] = t
	}
	for name, feed := range t.feeds {
		if err := feed.Fill(b[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	defer t.machine.Reset()
	if err := t.machine.RunAll(); err != nil {
		return nil, err
	}
	v, err := ops.Download(t.result.Value())
	if err != nil {
		return nil, err
	}
	return v.Clone().(*tensor.Dense), nil
}

// build makes the graph of batches like b.
func (p *Predictor) build(b data.Batch) (*prediction, error) {
	if p.model == nil {
		return nil, errors.New("it is a zero value, it needs to be what NewPredictor gave")
	}
	g := gorgonia.NewGraph()
	s := nn.NewScope(g, p.parameters)
	feeds, inputs, err := feed(s, b, p.parameters.Device())
	if err != nil {
		return nil, err
	}
	t := &prediction{feeds: feeds, result: outputsOf(p.model, s, inputs).Node()}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%w, in the model of a batch of %v", err, b)
	}
	switch {
	case t.result == nil:
		return nil, errors.New("model gave nothing, it needs to give a tensor")
	case t.result.Graph() != g:
		return nil, errors.New("model gave a tensor of another graph, it needs to be of the scope that it was called with")
	case t.result.IsScalar():
		return nil, errors.New("model gave a scalar, it needs to give a tensor with axes")
	}
	ops.ModeOf(g).Evaluate()
	ops.Keep(t.result)
	ops.ReuseMemory(g)
	t.machine, err = ops.NewMachine(g)
	return t, err
}

// Close releases the machines that run the graphs.
func (p *Predictor) Close() error {
	var errs []error
	for _, t := range p.graphs {
		errs = append(errs, t.machine.Close())
	}
	return errors.Join(errs...)
}
