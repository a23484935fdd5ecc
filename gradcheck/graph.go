package gradcheck

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Build makes the same graph each time, in a type: the node of a result of any shape, and inputs
// with values, whose gradients are checked. Values may be of any type where Options say nothing of
// float32; what is a float64 is the type's.
type Build func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (result *gorgonia.Node, inputs gorgonia.Nodes, err error)

// Device is where tensors may be moved, such as an [ops.Device].
type Device interface {
	String() string
	Upload(t *tensor.Dense) (*tensor.Dense, error)
}

// Graph checks the gradients of a graph: those of a tapeMachine against the slopes of the result,
// and those of a lispMachine, of a second run, and of inputs that are views against these. A
// result of several elements counts as their sum with random weights.
//
// With [Options.Single] and [Options.Device] it builds the graph in float32 as well, there or on
// the host, and compares gradients with those of float64, relative to the largest.
func Graph(build Build, o Options) error {
	tape, err := newRun(build, tensor.Float64, o)
	if err != nil {
		return err
	}
	if err := tape.differentiate(); err != nil {
		return fmt.Errorf("tapeMachine: %w", err)
	}
	if err := checkOthers(build, tape, o); err != nil {
		return err
	}
	probe, err := newRun(build, tensor.Float64, o)
	if err != nil {
		return err
	}
	var variables []Variable
	for i, n := range probe.inputs {
		value, ok := n.Value().(*tensor.Dense)
		if !ok || value.Dtype() != tensor.Float64 {
			return fmt.Errorf("%s is a %T, it needs to be a float64 tensor", n.Name(), n.Value())
		}
		variables = append(variables, Variable{n.Name(), n.Shape(), value.Float64s(), tape.gradients[i]})
	}
	gorgonia.Read(probe.result, &probe.value)
	m, err := ops.NewMachine(probe.g)
	if err != nil {
		return err
	}
	defer m.Close()
	return function(func() (float64, float64, error) { return probe.evaluate(m) }, "tapeMachine", variables, o)
}

// checkOthers compares other ways to the gradients with those of a tapeMachine.
func checkOthers(build Build, tape *run, o Options) error {
	type way struct {
		name    string
		dtype   tensor.Dtype
		bound   float64 // relative to the largest element
		compute func(r *run) error
	}
	exact := 0x1p-42
	ways := []way{
		{"lispMachine", tensor.Float64, exact, (*run).lisp},
		{"a second run", tensor.Float64, 0, (*run).twice},
	}
	if o.Second {
		ways = ways[1:]
	}
	if !o.Contiguous {
		ways = append(ways, way{"inputs that are views", tensor.Float64, exact, (*run).viewed})
	}
	if o.Single {
		ways = append(ways, way{"float32", tensor.Float32, 1e-4, (*run).differentiate})
	}
	if o.Device != nil {
		ways = append(ways, way{o.Device.String(), tensor.Float32, 1e-2, func(r *run) error { return r.on(o.Device) }})
	}
	for _, w := range ways {
		r, err := newRun(build, w.dtype, o)
		if err == nil {
			err = w.compute(r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		for i, got := range r.gradients {
			want := tape.gradients[i]
			if len(got) != len(want) {
				return fmt.Errorf("%s: the gradient of %s has %d elements, it needs %d", w.name, r.inputs[i].Name(), len(got), len(want))
			}
			allowed := w.bound * max(greatest(want), tape.typical)
			for k := range want {
				if !(math.Abs(got[k]-want[k]) <= allowed) {
					return &Mismatch{w.name, r.inputs[i].Name(), place(k, r.inputs[i].Shape()), 0, got[k], want[k], allowed}
				}
			}
		}
	}
	return nil
}

// run is a graph, and what a run of it gave.
type run struct {
	g            *gorgonia.ExprGraph
	result, loss *gorgonia.Node
	inputs       gorgonia.Nodes
	weights      []float64
	value        gorgonia.Value // of the result, where that is read
	gradients    [][]float64    // one an input
	typical      float64        // how large the largest elements of gradients are
}

// newRun builds the graph, with the loss that is differentiated.
func newRun(build Build, dtype tensor.Dtype, o Options) (*run, error) {
	r := &run{g: gorgonia.NewGraph()}
	var err error
	if r.result, r.inputs, err = build(r.g, dtype); err != nil {
		return nil, err
	}
	if r.result == nil || len(r.inputs) == 0 || slices.Contains(r.inputs, nil) {
		return nil, fmt.Errorf("the graph has the result %v and inputs %v, it needs a result and at least one input", r.result, r.inputs)
	}
	random := rand.New(rand.NewPCG(o.Seed, 1))
	if o.Second {
		if r.result, err = r.second(random); err != nil {
			return nil, err
		}
	}
	if r.loss = r.result; r.result.IsScalar() {
		r.weights = []float64{1}
		return r, nil
	}
	r.loss, r.weights, err = r.weighted("gradcheck.weights", r.result, random)
	return r, err
}

// weighted is the sum of a node's elements, each times a random number.
func (r *run) weighted(name string, of *gorgonia.Node, random *rand.Rand) (sum *gorgonia.Node, numbers []float64, err error) {
	numbers = make([]float64, of.Shape().TotalSize())
	for i := range numbers {
		numbers[i] = random.NormFloat64()
	}
	weights := tensor.New(tensor.WithShape(of.Shape()...), tensor.WithBacking(slices.Clone(numbers)), tensor.WithEngine(ops.Engine()))
	if of.Dtype() != tensor.Float64 {
		if weights, err = ops.Converted(weights, of.Dtype()); err != nil {
			return nil, nil, err
		}
	}
	n := gorgonia.NewTensor(r.g, of.Dtype(), weights.Dims(), gorgonia.WithShape(weights.Shape()...),
		gorgonia.WithName(name), gorgonia.WithValue(weights))
	product, err := ops.Mul(of, n)
	if err == nil {
		sum, err = ops.Sum(product)
	}
	return sum, numbers, err
}

// second is the function whose gradients are second derivatives of the result: a sum of its first
// ones, each times a random number.
func (r *run) second(random *rand.Rand) (*gorgonia.Node, error) {
	square, err := ops.Mul(r.result, r.result)
	if err != nil {
		return nil, err
	}
	loss := r.result
	if r.result.IsScalar() {
		square, err = ops.Scale(square, 0.5)
	} else {
		if loss, _, err = r.weighted("gradcheck.second", r.result, random); err != nil {
			return nil, err
		}
		if square, err = ops.Sum(square); err == nil {
			square, err = ops.Scale(square, 0.5)
		}
	}
	if err == nil {
		loss, err = ops.Add(loss, square)
	}
	if err != nil {
		return nil, err
	}
	gradients, err := ops.Gradients(loss, r.inputs...)
	if err != nil {
		return nil, err
	}
	var sum *gorgonia.Node
	for i, d := range gradients {
		part, _, err := r.weighted(fmt.Sprintf("gradcheck.direction%d", i), d, random)
		if err == nil && sum != nil {
			part, err = ops.Add(sum, part)
		}
		if sum = part; err != nil {
			return nil, err
		}
	}
	return sum, nil
}

// evaluate runs the graph, and gives the loss and the sum of its terms' sizes.
func (r *run) evaluate(m gorgonia.VM) (loss, size float64, err error) {
	if err := m.RunAll(); err != nil {
		return 0, 0, err
	}
	m.Reset()
	values, err := numbers(r.value)
	for i, y := range values {
		loss += y * r.weights[i]
		size += math.Abs(y * r.weights[i])
	}
	return loss, size, err
}

// differentiate computes the gradients on a tapeMachine.
func (r *run) differentiate() error { return r.tape(1) }

// twice computes them in the second run of one.
func (r *run) twice() error { return r.tape(2) }

func (r *run) tape(times int) error {
	if _, err := gorgonia.Grad(r.loss, r.inputs...); err != nil {
		return err
	}
	m, err := ops.NewMachine(r.g)
	if err != nil {
		return err
	}
	defer m.Close()
	for i := range times {
		if i > 0 {
			m.Reset()
		}
		if err := m.RunAll(); err != nil {
			return err
		}
	}
	return r.read()
}

// lisp computes the gradients on a lispMachine.
func (r *run) lisp() error {
	g := r.g
	if len(g.Roots()) > 1 { // a lispMachine takes a graph of one result
		g = g.SubgraphRoots(r.loss)
	}
	m := gorgonia.NewLispMachine(g)
	defer m.Close()
	if err := m.RunAll(); err != nil {
		return err
	}
	return r.read()
}

// viewed computes the gradients with each input a part of something larger.
func (r *run) viewed() error {
	for _, n := range r.inputs {
		shape := slices.Clone([]int(n.Shape()))
		slicer := make([]tensor.Slice, len(shape)+1)
		wide := tensor.New(tensor.Of(n.Dtype()), tensor.WithShape(append(shape, 2)...), tensor.WithEngine(ops.Engine()))
		slicer[len(shape)] = gorgonia.S(1)
		values, err := numbers(n.Value())
		if err != nil {
			return err
		}
		for i, x := range values {
			wide.Float64s()[2*i+1] = x
		}
		view, err := wide.Slice(slicer...)
		if err != nil {
			return err
		}
		if err := gorgonia.Let(n, view); err != nil {
			return err
		}
	}
	return r.differentiate()
}

// on computes the gradients on a device, to which all values go.
func (r *run) on(d Device) error {
	for _, n := range r.g.AllNodes() {
		value, ok := n.Value().(*tensor.Dense)
		if !ok || !n.IsVar() || n.Op() != nil {
			continue
		}
		there, err := d.Upload(value)
		if err != nil {
			return err
		}
		if err := gorgonia.Let(n, there); err != nil {
			return err
		}
	}
	return r.differentiate()
}

// read reads the gradients.
func (r *run) read() error {
	for _, n := range r.inputs {
		v, err := n.Grad()
		if err != nil {
			return fmt.Errorf("%s has no gradient: %w", n.Name(), err)
		}
		list, err := numbers(v)
		if err != nil {
			return fmt.Errorf("the gradient of %s: %w", n.Name(), err)
		}
		r.gradients = append(r.gradients, slices.Clone(list))
		r.typical = max(r.typical, greatest(list))
	}
	return nil
}

// numbers are the elements of a value in float64.
func numbers(v gorgonia.Value) ([]float64, error) {
	if v == nil {
		return nil, fmt.Errorf("there is no value")
	}
	switch x := v.(type) {
	case *gorgonia.F64:
		return []float64{float64(*x)}, nil
	case *gorgonia.F32:
		return []float64{float64(*x)}, nil
	}
	t, err := ops.Download(v)
	if err != nil {
		return nil, err
	}
	if t.Dtype() != tensor.Float64 {
		if t, err = ops.Converted(t, tensor.Float64); err != nil {
			return nil, err
		}
	}
	if t.RequiresIterator() {
		t = t.Materialize().(*tensor.Dense)
	}
	return t.Float64s(), nil
}
