package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file differentiates calls: symbolically for tapeMachines, as they run under lispMachines.

// gradients computes the gradients of a call's inputs: its own value if there is one, and for picks if there are several.
type gradients struct {
	signature
	c       *call
	memory  memory
	alone   int // the only input that has a gradient; −1 if there are several
	reads   gorgonia.Nodes
	hasDOut []bool         // of each output, whether something uses it
	nodes   gorgonia.Nodes // of each input, the node of its gradient, nil for one without
	results []gorgonia.Value
	used    usedGradients
	ready   map[int][]func(kernels.Tensor) error // by input, who is told of its gradient
}

// OnGradients has a function called in each run of a machine, and while one is recorded, for each of some nodes whose gradient was just
// computed, or on a device queued: with the node's number, and the gradient. It needs to be called after [gorgonia.Grad] and before the first run.
// Of a node that is used several times, whose gradient is a sum, and where Gorgonia's own ops compute it, nothing is told.
func OnGradients(nodes gorgonia.Nodes, ready func(i int, gradient kernels.Tensor) error) {
	for i, n := range nodes {
		if n == nil || n.Deriv() == nil {
			continue
		}
		g, input := gradientsBehind(n.Deriv())
		if g == nil {
			continue
		}
		if g.ready == nil {
			g.ready = map[int][]func(kernels.Tensor) error{}
		}
		g.ready[input] = append(g.ready[input], func(t kernels.Tensor) error { return ready(i, t) })
	}
}

// gradientsBehind returns the op that computes a gradient, and of which input it is; nil where that is no op of this package.
func gradientsBehind(gradient *gorgonia.Node) (*gradients, int) {
	switch op := gradient.Op().(type) {
	case *gradients:
		return op, op.alone
	case pick:
		for children := gradient.Graph().From(gradient.ID()); children.Next(); {
			if g, ok := children.Node().(*gorgonia.Node).Op().(*gradients); ok {
				return g, slices.Index(g.nodes, gradient)
			}
		}
	}
	return nil, 0
}

// SymDiff adds the gradient op.
func (c *call) SymDiff(children gorgonia.Nodes, out, dOut *gorgonia.Node) (gorgonia.Nodes, error) {
	switch c.kernel.source() {
	case noGradient:
		return nil, fmt.Errorf("%s has no gradient", c.name)
	case fromOutput:
		return slices.Repeat(gorgonia.Nodes{dOut}, len(children)), nil
	}
	dOuts := gorgonia.Nodes{dOut}
	if !c.isAlone() {
		dOuts = slices.Clone(c.dOutNodes)
		clear(c.dOutNodes)
	}
	g := &gradients{
		c: c, memory: memory{graph: c.memory.graph, pool: c.memory.pool}, alone: -1, hasDOut: make([]bool, len(dOuts)),
		nodes: make(gorgonia.Nodes, len(c.inputs)), results: make([]gorgonia.Value, len(c.inputs)),
	}
	c.asked = g.wanted
	var operands gorgonia.Nodes
	var wanting []int
	for i, in := range c.inputs {
		if c.child[i] >= 0 && !in.unread {
			operand, err := c.gatherAgain(i, children[c.child[i]], dOuts)
			if err != nil {
				return nil, err
			}
			operands = append(operands, operand)
		}
		if c.hasOwnGradient(i) {
			wanting = append(wanting, i)
		}
	}
	for i, d := range dOuts {
		if g.hasDOut[i] = d != nil; g.hasDOut[i] {
			operands = append(operands, d)
		}
	}
	g.reads = slices.Clone(operands)
	if c.kernel.source() == fromOutputs {
		g.reads = append(g.reads, c.outputs...)
		if !c.isAlone() {
			operands = append(operands, c.outputs...)
		}
	}
	operands = append(operands, out)
	if len(wanting) == 1 {
		return c.gradientAlone(g, wanting[0], operands, len(children))
	}
	g.signature = newSignature(c.name+".gradients", operands, nil, tensor.Float32, tokenShape...)
	run, err := gorgonia.ApplyOp(g, operands...)
	if err != nil {
		return nil, err
	}
	list := make(gorgonia.Nodes, len(children))
	for _, i := range wanting {
		s := newSignature(c.name+".d"+c.inputs[i].name, gorgonia.Nodes{run}, nil, nodeDtype(c.dShapes[i].DType), c.dShapes[i].Shape...)
		n, err := gorgonia.ApplyOp(pick{s, &g.results[i], &c.d[i]}, run)
		if err != nil {
			return nil, err
		}
		g.nodes[i] = n
		c.share(i, n, list)
	}
	return list, nil
}

// share makes a node the gradient of all inputs that share it.
func (c *call) share(i int, gradient *gorgonia.Node, ofChildren gorgonia.Nodes) {
	for _, same := range c.sharing(i) {
		ofChildren[c.child[same]] = gradient
	}
}

// gradientAlone adds the gradient op of a call one of whose inputs has a gradient.
func (c *call) gradientAlone(g *gradients, i int, operands gorgonia.Nodes, children int) (gorgonia.Nodes, error) {
	g.alone = i
	g.signature = newSignature(c.name+".d"+c.inputs[i].name, operands, nil, nodeDtype(c.dShapes[i].DType), c.dShapes[i].Shape...)
	n, err := gorgonia.ApplyOp(g, operands...)
	list := make(gorgonia.Nodes, children)
	g.nodes[i] = n
	c.share(i, n, list)
	return list, err
}

// wanted reports whether something uses the gradient of an input.
func (g *gradients) wanted(i int) bool {
	if g.alone >= 0 {
		return g.nodes[i] != nil
	}
	return g.used.of(g.c.memory.graph, g.nodes)[i]
}

// Do takes the inputs of the call that its backward kernel reads, the gradients of its outputs that have one, and for the order
// of things its outputs.
func (g *gradients) Do(operands ...gorgonia.Value) (gorgonia.Value, error) {
	c := g.c
	values, dOut, next := make([]gorgonia.Value, len(c.inputs)), make([]gorgonia.Value, len(g.hasDOut)), 0
	take := func(v *gorgonia.Value) {
		*v = operands[next]
		next++
	}
	for i, in := range c.inputs {
		if c.child[i] >= 0 && !in.unread {
			take(&values[i])
		}
	}
	for i, has := range g.hasDOut {
		if has {
			take(&dOut[i])
		}
	}
	c.spends, c.onlyRead = g.isSoleReader(), nil
	if c.spends && len(g.memory.reads) == 1 {
		c.onlyRead = g.memory.reads[0]
	}
	list, err := c.backward(values, operands[next:], dOut)
	if err != nil {
		return nil, runError(c.name, err)
	}
	c.gradients.Add(1)
	g.memory.look()
	g.memory.done()
	if err := g.tell(list); err != nil {
		return nil, runError(c.name, err)
	}
	for i, gradient := range list {
		switch {
		case gradient == nil:
			g.results[i] = token() // no one looks at it
		case g.alone == i:
			return gradient, nil
		default:
			g.results[i] = gradient
		}
	}
	return token(), nil
}

// isSoleReader reports whether nothing else reads what this reads, whose memory is given back behind it: it may be written over.
func (g *gradients) isSoleReader() bool {
	g.memory.look()
	shared := func(r *result) bool { return r.held || r.readers != 1 || r.place == nil }
	return g.memory.pool.shared && len(g.memory.reads) == len(g.reads) && !slices.ContainsFunc(g.memory.reads, shared)
}

// tell tells those who wait for gradients of theirs.
func (g *gradients) tell(list []*tensor.Dense) error {
	for i, gradient := range list {
		if gradient == nil || len(g.ready[i]) == 0 {
			continue
		}
		t, err := TensorOf(gradient)
		for _, ready := range g.ready[i] {
			if err == nil {
				err = ready(t)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *gradients) written() *result {
	if g.alone < 0 {
		return nil
	}
	return &g.c.d[g.alone]
}

func (g *gradients) readNodes() gorgonia.Nodes { return g.reads }
func (g *gradients) memoryOf() *memory         { return &g.memory }

// DoDiff is the gradient under a lispMachine.
func (c *call) DoDiff(_ gorgonia.ExecutionContext, children gorgonia.Nodes, output *gorgonia.Node) error {
	if err := c.doDiff(children, output); err != nil {
		return runError(c.name, err)
	}
	return nil
}

func (c *call) doDiff(children gorgonia.Nodes, output *gorgonia.Node) error {
	if c.kernel.source() == noGradient {
		return c.kernel.backward(nil, nil, nil, nil)
	}
	dOut := slices.Clone(c.dOutValues)
	clear(c.dOutValues)
	if c.isAlone() {
		d, err := output.Grad()
		if err != nil {
			return err
		}
		dOut = []gorgonia.Value{d}
	}
	values := make([]gorgonia.Value, len(c.inputs))
	for i, place := range c.child {
		if place >= 0 {
			values[i] = children[place].Value()
		}
	}
	// A lispMachine does not tell an op beforehand that it will differentiate, nor what. The first time, run once more.
	if c.asked = c.hasOwnGradient; !c.ready() {
		if _, err := c.forward(values, true, func(i int, b kernels.Backend) (kernels.Tensor, error) {
			return b.Alloc(c.results[i].DType, c.results[i].Shape...) // the output stays what the ops behind it made of it
		}); err != nil {
			return err
		}
		clear(c.values)
	}
	outputs := make([]gorgonia.Value, len(c.outputs))
	for i, n := range c.outputs {
		outputs[i] = n.Value()
	}
	list, err := c.backward(values, outputs, dOut)
	if err != nil {
		return err
	}
	for i, gradient := range list {
		if gradient == nil {
			continue
		}
		for _, same := range c.sharing(i) {
			if err := accumulate(children[c.child[same]], gradient); err != nil {
				return fmt.Errorf("gradient of %s: %w", c.inputs[same].name, err)
			}
		}
	}
	return nil
}

// ready reports whether the last forward run left what the backward run needs.
func (c *call) ready() bool {
	if c.saved == nil {
		return false
	}
	if c.kernel.source() == fromInputs {
		return true
	}
	for i := range c.inputs {
		if c.asked(i) && !c.saved[i] {
			return false
		}
	}
	return true
}

// backward computes the gradients that are wanted, one an input. outputs are the values of the outputs, if backward needs them
// and no one else writes over them.
func (c *call) backward(values, outputs, dOut []gorgonia.Value) ([]*tensor.Dense, error) {
	if c.saved == nil || c.kernel.source() != fromOutput && !c.ready() {
		return nil, errors.New("the gradient op ran without a forward run before it")
	}
	b, in, err := c.bind(values)
	if err != nil {
		return nil, err
	}
	if b != c.place {
		return nil, fmt.Errorf("the inputs are on %s, the forward run was on %s", b.Name(), c.place.Name())
	}
	r := &run{Backend: b, c: c}
	defer r.end()
	arrived := make([]kernels.Tensor, len(dOut))
	for i, v := range dOut {
		if v == nil {
			continue
		}
		if arrived[i], err = c.gradientOfOutput(r, i, v); err != nil {
			return nil, fmt.Errorf("the gradient of the output %w", err)
		}
	}
	if c.kernel.source() == fromOutputs {
		if r.out, err = c.outputsOf(b, outputs); err != nil {
			return nil, err
		}
	}
	d := make([]kernels.Tensor, len(c.inputs))
	for i := range d {
		switch {
		case !c.asked(i):
		case c.kernel.source() == fromOutput:
			d[i] = arrived[0]
		case c.kernel.source() == fromForward:
			d[i] = c.dShapes[i]
		case c.early.IsSet() && i == biasOf(c.kernel):
		default:
			if d[i], err = c.d[i].lend(&c.memory, b, c.dShapes[i]); err != nil {
				return nil, err
			}
		}
	}
	if c.kernel.source() != fromOutput {
		if err := c.kernel.backward(r, in, arrived, d); err != nil {
			return nil, err
		}
	}
	if c.kernel.source() == fromForward {
		c.handOut(d)
	}
	if c.early.IsSet() {
		d[biasOf(c.kernel)] = c.early
	}
	c.forget()
	list := make([]*tensor.Dense, len(d))
	for i := range d {
		if c.asked(i) {
			list[i] = ValueOf(d[i])
		}
	}
	return list, nil
}

// biasOf is the input of a kernel that is a bias in its output, −1 for none.
func biasOf(k kernel) int {
	if b, ok := k.(biasing); ok {
		return b.bias()
	}
	return -1
}

// biasBefore gives, in backward, memory for the sums over rows of an input's gradient, if they are the gradient of a bias that the op
// before adds last: that op will not compute them then. It is not set otherwise.
func (r *run) biasBefore(i int) (sums kernels.Tensor, err error) {
	n := r.c.inputs[i].node
	before, ok := n.Op().(*call)
	if !ok || !before.isAlone() || before.asked == nil || before.place != r.Backend {
		return sums, nil
	}
	bias := biasOf(before.kernel)
	if bias < 0 || before.child[bias] < 0 || !before.asked(bias) {
		return sums, nil
	}
	// The gradient is the input's alone where nothing else reads the input, but for the gradients of the op before it.
	for parents := n.Graph().To(n.ID()); parents.Next(); {
		switch op := parents.Node().(*gorgonia.Node).Op().(type) {
		case *call:
			ok = ok && op == r.c
		case *gradients:
			ok = ok && op.c == before
		default:
			ok = false
		}
	}
	if !ok {
		return sums, nil
	}
	before.early, err = before.d[bias].lend(&before.memory, r.Backend, before.dShapes[bias])
	return before.early, err
}

// handOut makes results of the gradients that forward kept, which are handed out once. Those that someone may look at after the run
// stay until the next one.
func (c *call) handOut(d []kernels.Tensor) {
	c.saved = nil
	if !c.memory.pool.shared {
		return
	}
	c.memory.look()
	for i := range d {
		r := &c.d[i]
		if !d[i].IsSet() {
			continue
		}
		at := slices.IndexFunc(c.kept, func(t kernels.Tensor) bool { return t.Data == d[i].Data })
		if at >= 0 {
			c.kept = slices.Delete(c.kept, at, at+1)
			r.Tensor, r.place, r.pending = d[i], c.place, r.readers
		}
	}
}

// outputsOf views the outputs, or the copies of those that others may write over.
func (c *call) outputsOf(b kernels.Backend, values []gorgonia.Value) ([]kernels.Tensor, error) {
	list := make([]kernels.Tensor, len(c.results))
	for i, described := range c.results {
		if c.copies[i].IsSet() {
			list[i] = c.copies[i]
			continue
		}
		if len(values) <= i {
			return nil, errors.New("the outputs of the forward run are gone")
		}
		var err error
		if list[i], err = view(b, values[i], described.DType, described.Shape); err != nil {
			return nil, fmt.Errorf("the output's value %w", err)
		}
	}
	return list, nil
}

// gradientOfOutput views the gradient of an output as a row-major tensor. Gorgonia has scalars of its own, and passes them also
// where a tensor of one element is meant.
func (c *call) gradientOfOutput(r *run, i int, dOut gorgonia.Value) (kernels.Tensor, error) {
	dtype, shape := c.results[i].DType, c.results[i].Shape
	if k, ok := c.kernel.(*gather); ok {
		dtype = k.dTypeOfGradient()
	}
	s, ok := dOut.(gorgonia.Scalar)
	if !ok {
		at, err := PlaceOf(dOut)
		if err != nil {
			return kernels.Tensor{}, err
		}
		if at != r.Backend {
			return kernels.Tensor{}, fmt.Errorf("is on %s, the inputs are on %s", at.Name(), r.Name())
		}
		t, err := view(r, dOut, dtype, shape)
		if err != nil || t.IsRowMajor() {
			return t, err
		}
		var dense kernels.Tensor
		if err := r.scratch(&dense, dtype, shape...); err != nil {
			return t, err
		}
		return dense, r.Copy(dense, t)
	}
	if c.results[i].Elements() != 1 {
		return kernels.Tensor{}, fmt.Errorf("is a scalar, its node promised shape %v", shape)
	}
	x, err := float(s)
	if err != nil {
		return kernels.Tensor{}, err
	}
	r.unit = x == 1
	var t kernels.Tensor
	if err := r.scratch(&t, dtype, shape...); err != nil {
		return t, err
	}
	if c.kernel.source() == fromForward {
		return t, r.Fill(t, x) // forward has used the scale
	}
	return t, c.scale.scaled(r, x, t)
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

// usedGradients is which of an op's gradients something uses: a node above the gradient's, or the node whose gradient it is.
// Gorgonia asks for the gradients of all inputs of an op, also of those that are constants to it.
type usedGradients struct {
	are        []bool
	graphNodes int // how many nodes the graph had when that was found out
}

// of gives an answer for each of the gradients' nodes; nil stands for no gradient.
func (u *usedGradients) of(graph *gorgonia.ExprGraph, gradients gorgonia.Nodes) []bool {
	if now := len(graph.AllNodes()); now != u.graphNodes {
		u.graphNodes, u.are = now, make([]bool, len(gradients))
		for i, n := range gradients {
			u.are[i] = n != nil && isUsed(n)
		}
	}
	return u.are
}

func isUsed(gradient *gorgonia.Node) bool {
	if len(gradient.DerivOf()) > 0 {
		return true
	}
	parents := gradient.Graph().To(gradient.ID())
	return parents != nil && parents.Len() > 0
}

// accumulate adds a gradient to what a lispMachine holds as the gradient of a node.
func accumulate(n *gorgonia.Node, gradient *tensor.Dense) error {
	sum, err := n.Grad()
	if err != nil {
		return err
	}
	t, ok := sum.(*tensor.Dense)
	if !ok {
		return fmt.Errorf("the gradient is a %T, it needs to be a *tensor.Dense", sum)
	}
	_, err = tensor.Add(t, gradient, tensor.UseUnsafe())
	return err
}
