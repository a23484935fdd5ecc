package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// kernel is what a file of this package adds for an op with one output: how its shapes go together, and which kernels
// compute it and its gradients. [apply] makes it a node.
//
// Tensors of inputs stand in the order that apply was given; that of an input which is left out is the zero Tensor.
type kernel interface {
	// shape checks the inputs, which have no data yet, and gives the shape of the output: no axes for a scalar.
	shape(in []kernels.Tensor) ([]int, error)
	// source tells where the gradients come from.
	source() source
	// forward computes the output. want says which inputs' gradients will be asked for: nil if none.
	forward(h *home, in []kernels.Tensor, out kernels.Tensor, want []bool) error
	// backward computes the gradients of the inputs that are given in d, from that of the output. Inputs that it does
	// not read have a shape and no data.
	backward(h *home, in []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error
}

// source is where an op's gradients come from.
type source int

const (
	fromInputs  source = iota // backward needs nothing but inputs
	fromSaved                 // backward also needs what forward saved when a gradient was wanted
	fromForward               // forward computes them; backward puts them into d, whose tensors have no data
	fromOutput                // each is the gradient of the output itself; there is no backward
)

// stateless is embedded by kernels whose gradients come from the inputs.
type stateless struct{}

func (stateless) source() source { return fromInputs }

// input is an input of an op.
type input struct {
	name     string
	node     *gorgonia.Node
	form     form
	optional bool // a nil node leaves it out
	unread   bool // backward does not read its value
}

// form is what a kernel needs of an input's value.
type form int

const (
	rowsForm    form = iota // a contiguous last axis
	denseForm               // row-major
	stridedForm             // nothing: it takes any strides
	indexForm               // row-major integers, which have no gradient
)

// call is one use of an op with one output. Differentiated, it is followed by one op for all gradients, and a pick for
// each of them if there are several:
//
//	inputs → call → out → (the rest of the graph) → dOut ─→ gradients → d of each input
//	   └─────────────┴────────────────────────────────────────┘
//
// The output is an input of the gradient op, so that this runs after the call: it needs what the call saved, and
// Gorgonia may bind a gradient only to a node that has a value.
type call struct {
	signature
	kernel kernel
	inputs []input
	child  []int // of each input, its place among the node's children; −1 for one left out
	shapes []kernels.Tensor
	dtype  tensor.Dtype
	scalar bool

	memory memory
	result buffer   // the memory of the output
	d      []buffer // and of the inputs' gradients

	asked func(i int) bool // whether the gradient of an input is wanted; nil while no one differentiates
	home  *home            // of the last forward run
	saved []bool           // the inputs for whose gradients the last forward run saved what they need; nil if it did not
}

// apply adds an op with one output to the graph.
func apply(name string, k kernel, inputs ...input) (*gorgonia.Node, error) {
	c := &call{kernel: k, inputs: inputs}
	n, err := c.build(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

func (c *call) build(name string) (*gorgonia.Node, error) {
	children, err := c.check()
	if err != nil {
		return nil, err
	}
	shape, err := c.kernel.shape(c.shapes)
	if err != nil {
		return nil, err
	}
	c.scalar = len(shape) == 0
	c.signature = newSignature(name, children, nil, c.dtype, shape...)
	for i, place := range c.child {
		if place >= 0 {
			c.differentiable[place] = c.hasGradient(i)
		}
	}
	c.d = make([]buffer, len(c.inputs))
	c.memory.output, err = gorgonia.ApplyOp(c, children...)
	return c.memory.output, err
}

// check finds what is wrong with the inputs apart from how they go together, and lists those that are given.
func (c *call) check() (gorgonia.Nodes, error) {
	var children gorgonia.Nodes
	var names []string
	for _, in := range c.inputs {
		place, described := -1, kernels.Tensor{}
		if in.node != nil || !in.optional {
			place, children, names = len(children), append(children, in.node), append(names, in.name)
		}
		c.child, c.shapes = append(c.child, place), append(c.shapes, described)
	}
	if err := checkGraph(names, children); err != nil {
		return nil, err
	}
	for i, in := range c.inputs {
		if c.child[i] < 0 {
			continue
		}
		dtype := dtypeOf(in.node.Dtype())
		if in.form == indexForm {
			if dtype = indexDTypeOf(in.node.Dtype()); dtype == kernels.NoDType {
				return nil, fmt.Errorf("%s is %v, it needs to be int, int32 or int64", in.name, in.node.Dtype())
			}
		}
		if dtype == kernels.NoDType {
			return nil, fmt.Errorf("%s is %v, it needs to be float32 or float64", in.name, in.node.Dtype())
		}
		shape := in.node.Shape()
		if len(shape) == 0 {
			return nil, fmt.Errorf("%s is a scalar, it needs at least one axis", in.name)
		}
		if slices.ContainsFunc(shape, func(d int) bool { return d < 1 }) {
			return nil, fmt.Errorf("%s has shape %v, no axis can be empty", in.name, []int(shape))
		}
		c.shapes[i] = kernels.Contiguous(nil, dtype, shape...)
	}
	c.dtype = c.inputs[0].node.Dtype()
	return children, nil
}

// checkGraph makes sure that nodes are there and belong to one graph.
func checkGraph(names []string, nodes gorgonia.Nodes) error {
	var graph *gorgonia.ExprGraph
	for i, n := range nodes {
		if n == nil {
			return fmt.Errorf("%s is nil, it needs to be a node", names[i])
		}
		if n.Graph() == nil {
			continue // a constant, which belongs to any graph
		}
		if graph != nil && n.Graph() != graph {
			return fmt.Errorf("%s belongs to another graph than the inputs before it, all need one graph", names[i])
		}
		graph = n.Graph()
	}
	if graph == nil {
		return errors.New("all inputs are constants, at least one needs to belong to a graph")
	}
	return nil
}

// Do computes the output.
func (c *call) Do(children ...gorgonia.Value) (gorgonia.Value, error) {
	values := make([]gorgonia.Value, len(c.inputs))
	for i, place := range c.child {
		if place >= 0 {
			values[i] = children[place]
		}
	}
	out, err := c.forward(values, func(h *home) (kernels.Tensor, error) {
		return c.memory.forOutput(&c.result, h, dtypeOf(c.dtype), c.signature.shape...)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return out, nil
}

// forward computes the output into the memory that alloc gives.
func (c *call) forward(values []gorgonia.Value, alloc func(*home) (kernels.Tensor, error)) (gorgonia.Value, error) {
	c.saved, c.home = nil, nil
	var want []bool
	if c.asked != nil {
		want = make([]bool, len(c.inputs))
		for i := range want {
			want[i] = c.asked(i)
		}
	}
	h, in, err := c.bind(values)
	if err != nil {
		return nil, err
	}
	out, err := alloc(h)
	if err != nil {
		return nil, err
	}
	if err := c.kernel.forward(h, in, out, want); err != nil {
		return nil, err
	}
	c.home, c.saved = h, want
	if !c.scalar {
		return h.value(out), nil
	}
	x, err := h.number(out)
	if c.dtype == tensor.Float64 {
		return gorgonia.NewF64(x), err
	}
	return gorgonia.NewF32(float32(x)), err
}

// bind views the values of the inputs, one an input, nil for one that is left out or not read.
func (c *call) bind(values []gorgonia.Value) (*home, []kernels.Tensor, error) {
	h, lead := c.home, -1 // the first input of floats, whose place is all others'
	for i, in := range c.inputs {
		if values[i] == nil || in.form == indexForm {
			continue
		}
		at, err := homeOfValue(in.name, values[i])
		switch {
		case err != nil:
			return nil, nil, err
		case lead < 0:
			h, lead = at, i
		case at != h:
			return nil, nil, errTwoHomes(in.name, at, c.inputs[lead].name, h)
		}
	}
	tensors := slices.Clone(c.shapes)
	for i, in := range c.inputs {
		if values[i] == nil {
			continue
		}
		axes := len(c.shapes[i].Shape)
		switch in.form {
		case rowsForm:
			axes = 1
		case stridedForm:
			axes = 0
		}
		var err error
		if tensors[i], err = h.contiguous(values[i], c.shapes[i].DType, c.shapes[i].Shape, axes); err != nil {
			return nil, nil, fmt.Errorf("%s's value %w", in.name, err)
		}
	}
	return h, tensors, nil
}

// hasGradient tells whether an input is given and has a gradient.
func (c *call) hasGradient(i int) bool { return c.child[i] >= 0 && c.inputs[i].form != indexForm }

// SymDiff adds the gradient op.
func (c *call) SymDiff(children gorgonia.Nodes, output, dOut *gorgonia.Node) (gorgonia.Nodes, error) {
	if c.kernel.source() == fromOutput {
		return slices.Repeat(gorgonia.Nodes{dOut}, len(children)), nil
	}
	g := &gradients{c: c, nodes: make(gorgonia.Nodes, len(c.inputs)), results: make([]gorgonia.Value, len(c.inputs))}
	c.asked = g.wanted
	var reads gorgonia.Nodes
	var wanting []int
	for i, in := range c.inputs {
		if c.child[i] >= 0 && !in.unread {
			reads = append(reads, children[c.child[i]])
		}
		if c.hasGradient(i) {
			wanting = append(wanting, i)
		}
	}
	reads = append(reads, output, dOut)
	result := make(gorgonia.Nodes, len(children))
	if g.alone = len(wanting) == 1; g.alone {
		i := wanting[0]
		g.signature = newSignature(c.name+".d"+c.inputs[i].name, reads, nil, c.dtype, c.shapes[i].Shape...)
		n, err := gorgonia.ApplyOp(g, reads...)
		g.nodes[i], result[c.child[i]] = n, n
		return result, err
	}
	g.signature = newSignature(c.name+".gradients", reads, nil, c.dtype, tokenShape...)
	run, err := gorgonia.ApplyOp(g, reads...)
	if err != nil {
		return nil, err
	}
	for _, i := range wanting {
		s := newSignature(c.name+".d"+c.inputs[i].name, gorgonia.Nodes{run}, nil, c.dtype, c.shapes[i].Shape...)
		n, err := gorgonia.ApplyOp(pick{s, &g.results[i]}, run)
		if err != nil {
			return nil, err
		}
		g.nodes[i], result[c.child[i]] = n, n
	}
	return result, nil
}

// DoDiff is the gradient under a lispMachine.
func (c *call) DoDiff(_ gorgonia.ExecutionContext, children gorgonia.Nodes, output *gorgonia.Node) error {
	if err := c.doDiff(children, output); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

func (c *call) doDiff(children gorgonia.Nodes, output *gorgonia.Node) error {
	dOut, err := output.Grad()
	if err != nil {
		return err
	}
	values := make([]gorgonia.Value, len(c.inputs))
	for i, place := range c.child {
		if place >= 0 {
			values[i] = children[place].Value()
		}
	}
	// A lispMachine does not tell an op beforehand that it will differentiate, nor what. The first time, run once more.
	if c.asked = c.hasGradient; !c.ready() {
		if _, err := c.forward(values, func(h *home) (kernels.Tensor, error) {
			return h.Alloc(dtypeOf(c.dtype), c.signature.shape...) // the output stays what the ops behind it made of it
		}); err != nil {
			return err
		}
	}
	list, err := c.backward(values, dOut)
	if err != nil {
		return err
	}
	for i, gradient := range list {
		if gradient != nil {
			if err := accumulate(children[c.child[i]], gradient); err != nil {
				return fmt.Errorf("gradient of %s: %w", c.inputs[i].name, err)
			}
		}
	}
	return nil
}

// ready tells whether the last forward run left what the backward run needs.
func (c *call) ready() bool {
	if from := c.kernel.source(); from == fromInputs || from == fromOutput {
		return true
	}
	for i := range c.inputs {
		if c.saved == nil || c.asked(i) && !c.saved[i] {
			return false
		}
	}
	return true
}

// backward computes the gradients that are wanted, one an input.
func (c *call) backward(values []gorgonia.Value, dOut gorgonia.Value) ([]*tensor.Dense, error) {
	if c.home == nil || !c.ready() {
		return nil, errors.New("the gradient op ran without a forward run before it")
	}
	h, in, err := c.bind(values)
	if err != nil {
		return nil, err
	}
	if h != c.home {
		return nil, fmt.Errorf("the inputs are on %s, the forward run was on %s", h.Name(), c.home.Name())
	}
	dOutTensor, err := c.gradientOfOutput(h, dOut)
	if err != nil {
		return nil, fmt.Errorf("the gradient of the output %w", err)
	}
	d := make([]kernels.Tensor, len(c.inputs))
	for i := range d {
		switch {
		case !c.asked(i):
		case c.kernel.source() == fromOutput:
			d[i] = dOutTensor
		case c.kernel.source() == fromForward:
			d[i] = c.shapes[i]
		default:
			if d[i], err = c.memory.forGradient(&c.d[i], h, c.shapes[i].DType, c.shapes[i].Shape...); err != nil {
				return nil, err
			}
		}
	}
	if c.kernel.source() != fromOutput {
		if err := c.kernel.backward(h, in, dOutTensor, d); err != nil {
			return nil, err
		}
	}
	if c.kernel.source() == fromForward {
		c.saved = nil // the gradients are handed out once
	}
	list := make([]*tensor.Dense, len(d))
	for i := range d {
		if c.asked(i) {
			list[i] = h.value(d[i])
		}
	}
	return list, nil
}

// gradientOfOutput views dOut as a row-major tensor. Gorgonia has scalars of its own, and passes them also where a
// tensor of one element is meant.
func (c *call) gradientOfOutput(h *home, dOut gorgonia.Value) (kernels.Tensor, error) {
	dtype, shape := dtypeOf(c.dtype), c.signature.shape
	s, ok := dOut.(gorgonia.Scalar)
	if !ok {
		if t, ok := dOut.(*tensor.Dense); ok {
			if at, err := homeOf(t); err != nil {
				return kernels.Tensor{}, err
			} else if at != h {
				return kernels.Tensor{}, fmt.Errorf("is on %s, the inputs are on %s", at.Name(), h.Name())
			}
		}
		return h.contiguous(dOut, dtype, shape, len(shape))
	}
	if shape.TotalSize() != 1 && !c.scalar {
		return kernels.Tensor{}, fmt.Errorf("is a scalar, its node promised shape %v", []int(shape))
	}
	x, err := float(s)
	if err != nil {
		return kernels.Tensor{}, err
	}
	t, err := h.scalar(x, dtype)
	return t.Reshape(shape...), err
}

// float is the number that a scalar of Gorgonia's holds.
func float(s gorgonia.Scalar) (float64, error) {
	switch x := s.Data().(type) {
	case float64:
		return x, nil
	case float32:
		return float64(x), nil
	}
	return 0, fmt.Errorf("is a %T, it needs to be float32 or float64", s)
}

// gradients computes the gradients of a call's inputs: its own value if there is one, and for picks if there are several.
type gradients struct {
	signature
	c       *call
	alone   bool
	nodes   gorgonia.Nodes // of each input, the node of its gradient, nil for one without
	results []gorgonia.Value
	demand  demand
}

// wanted tells whether something uses the gradient of an input.
func (g *gradients) wanted(i int) bool {
	return g.alone && g.nodes[i] != nil || g.demand.of(g.c.memory.output.Graph(), g.nodes)[i]
}

// Do takes the inputs of the call that its backward kernel reads, its output, and the gradient of that.
func (g *gradients) Do(reads ...gorgonia.Value) (gorgonia.Value, error) {
	c := g.c
	values, next := make([]gorgonia.Value, len(c.inputs)), 0
	for i, in := range c.inputs {
		if c.child[i] >= 0 && !in.unread {
			values[i] = reads[next]
			next++
		}
	}
	list, err := c.backward(values, reads[len(reads)-1])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	for i, gradient := range list {
		switch {
		case gradient == nil:
			g.results[i] = token(c.dtype) // no one looks at it
		case g.alone:
			return gradient, nil
		default:
			g.results[i] = gradient
		}
	}
	return token(c.dtype), nil
}
