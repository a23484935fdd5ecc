package ops

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file differentiates calls for tapeMachines; lisp.go does so for lispMachines.

// gradients computes the gradients of a call's inputs: its own value if there is one, and for picks
// if there are several.
type gradients struct {
	signature
	c       *call
	alone   int // the only input that has a gradient; −1 if there are several
	reads   gorgonia.Nodes
	hasDOut []bool         // of each output, whether something uses it
	nodes   gorgonia.Nodes // of each input, the node of its gradient, nil for one without
	results []gorgonia.Value
	token   gorgonia.Value // see said

	asked      map[int]bool   // the inputs whose gradients Gradients gave away
	cotangents gorgonia.Nodes // of each input's gradient: left by the picks' SymDiff

	ready map[int][]func(kernels.Tensor) error // by input, who is told of its gradient
	later func() bool                          // whether sums over ranks may be made later; nil where nobody waits for them
}

// OnGradients has a function called in each run of a machine, and while one is recorded, for each
// of some nodes whose gradient was just computed, or on a device queued: with the node's number,
// and the gradient. It needs to be called after [gorgonia.Grad] and before the first run. Of a node
// that is used several times, whose gradient is a sum, and where Gorgonia's own ops compute it,
// nothing is told.
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

// gradientsBehind returns the op that computes a gradient, and of which input it is; nil where that
// is no op of this package.
func gradientsBehind(gradient *gorgonia.Node) (*gradients, int) {
	switch op := gradient.Op().(type) {
	case *gradients:
		return op, op.alone
	case gradientPick:
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
	switch {
	case c.is.gradients == fromOutput:
		return slices.Repeat(gorgonia.Nodes{dOut}, len(children)), nil
	case c.is.gradients == noGradient:
		return nil, fmt.Errorf("%s has no gradient", c.name)
	}
	if c.isAlone() {
		c.outputs[0].gradient = dOut
	}
	if c.kernel.first != nil {
		return c.kernel.first(children, gorgonia.Nodes{dOut})
	}
	if c.differentiated {
		return c.differentiateAgain(children, dOut)
	}
	c.differentiated = true
	g := &gradients{c: c, alone: -1, nodes: make(gorgonia.Nodes, len(c.operands)), results: make([]gorgonia.Value, len(c.operands)), asked: map[int]bool{}}
	operands, err := g.collect(children)
	if err != nil {
		return nil, err
	}
	differentiable := append(g.differentiableBy(len(operands)), c.kernel.ofOutput || c.hidesInputs())
	operands = append(operands, out)
	var wanting []int
	for i := range c.operands {
		if c.hasOwnGradient(i) {
			wanting = append(wanting, i)
		}
	}
	list := make(gorgonia.Nodes, len(children))
	if len(wanting) == 1 {
		g.alone = wanting[0]
		g.signature = c.signatureOfGradient(g.alone, operands, differentiable)
		if g.nodes[g.alone], err = gorgonia.ApplyOp(g, operands...); err == nil {
			c.share(g.alone, g.nodes[g.alone], list)
		}
		return list, err
	}
	g.signature = newSignature(c.name+".gradients", operands, differentiable, tensor.Float32, tokenShape...)
	run, err := gorgonia.ApplyOp(g, operands...)
	if err != nil {
		return nil, err
	}
	for _, i := range wanting {
		s := c.signatureOfGradient(i, gorgonia.Nodes{run}, []bool{true})
		if g.nodes[i], err = gorgonia.ApplyOp(gradientPick{pick{s, &g.results[i], &c.operands[i].d}, g, i}, run); err != nil {
			return nil, err
		}
		c.share(i, g.nodes[i], list)
	}
	return list, nil
}

// hidesInputs reports whether the gradients depend on inputs that they do not read, through what
// the forward run left. The call's own node stands for these then, and to differentiate the
// gradients is an error.
func (c *call) hidesInputs() bool {
	if c.kernel.linear || c.kernel.second != nil || len(c.is.saves) == 0 && c.is.readsOutputs == 0 {
		return false
	}
	for i, o := range c.operands {
		if c.hasGradient(i) && o.unread {
			return true
		}
	}
	return false
}

// collect lists what the gradients are computed from, all but the call's own node, and takes the
// gradients of the outputs.
func (g *gradients) collect(children gorgonia.Nodes) (operands gorgonia.Nodes, err error) {
	c := g.c
	var dOuts gorgonia.Nodes
	for i := range c.outputs {
		o := &c.outputs[i]
		if g.hasDOut = append(g.hasDOut, o.gradient != nil); o.gradient != nil {
			dOuts = append(dOuts, o.gradient)
		}
		o.gradient = nil
	}
	again := again{dOuts[0], map[*gorgonia.Node]*gorgonia.Node{}}
	for i := range c.operands {
		o := &c.operands[i]
		if o.child < 0 || o.unread {
			continue
		}
		n, err := o.gatheredAgain(children[o.child], dOuts[0])
		if o.again && err == nil {
			n, err = again.of(n)
		}
		if err != nil {
			return nil, err
		}
		operands = append(operands, n)
	}
	operands = append(operands, dOuts...)
	g.reads = slices.Clone(operands)
	g.reads = append(g.reads, c.outputNodes()[:c.is.readsOutputs]...)
	return operands, nil
}

// differentiableBy says by which of so many operands the gradients have a gradient: inputs that
// have one themselves, and the gradients of outputs.
func (g *gradients) differentiableBy(operands int) []bool {
	list, next := make([]bool, operands), 0
	for i, o := range g.c.operands {
		if o.child >= 0 && !o.unread {
			list[next] = g.c.hasGradient(i)
			next++
		}
	}
	for _, has := range g.hasDOut {
		if has {
			list[next] = true
			next++
		}
	}
	return list
}

// signatureOfGradient is that of an op that results in the gradient of an input.
func (c *call) signatureOfGradient(i int, operands gorgonia.Nodes, differentiable []bool) signature {
	o := &c.operands[i]
	return newSignature(c.name+".d"+o.name, operands, differentiable, nodeDtype(o.dShape.DType), o.dShape.Shape...)
}

// share makes a node the gradient of all inputs that share it.
func (c *call) share(i int, gradient *gorgonia.Node, ofChildren gorgonia.Nodes) {
	for _, same := range c.sharing(i) {
		ofChildren[c.operands[same].child] = gradient
	}
}

// Do takes the inputs of the call that its backward kernel reads, the gradients of its outputs that
// have one, and for the order of things its outputs.
func (g *gradients) Do(operands ...gorgonia.Value) (gorgonia.Value, error) {
	v, err := g.do(operands)
	if err != nil {
		return nil, g.c.runError(err)
	}
	return v, nil
}

func (g *gradients) do(operands []gorgonia.Value) (gorgonia.Value, error) {
	c := g.c
	values, dOut, next := make([]gorgonia.Value, len(c.operands)), make([]gorgonia.Value, len(g.hasDOut)), 0
	take := func(v *gorgonia.Value) {
		*v = operands[next]
		next++
	}
	for i, o := range c.operands {
		if o.child >= 0 && !o.unread {
			take(&values[i])
		}
	}
	for i, has := range g.hasDOut {
		if has {
			take(&dOut[i])
		}
	}
	s, err := c.enter(g.id)
	if err != nil {
		return nil, err
	}
	list, err := c.backward(&run{c: c, step: s, gradients: g, wanted: s.wanted}, values, dOut)
	if err != nil {
		return nil, err
	}
	c.state.gradients.Add(1)
	c.leave(s)
	if err := g.tell(list); err != nil {
		return nil, err
	}
	for i, gradient := range list {
		switch {
		case gradient == nil:
			g.results[i] = g.said() // no one looks at it
		case g.alone == i:
			return g.handOn(gradient), nil
		default:
			g.results[i] = g.handOn(gradient)
		}
	}
	return g.said(), nil
}

// said is a token of this op's own: making one takes a third of a microsecond.
func (g *gradients) said() gorgonia.Value {
	if g.token == nil {
		g.token = token()
	}
	return g.token
}

// handOn is the value of a gradient's node. Gorgonia adds up the gradients of a scalar of the host
// that is used several times, and takes scalars of its own alone. With a loss scale these stand for
// gradients that have not been scaled.
func (g *gradients) handOn(gradient *tensor.Dense) gorgonia.Value {
	if gradient.Dims() > 0 || !gradient.IsNativelyAccessible() || g.c.state.lossScale.Load() != nil {
		return gradient
	}
	switch x := gradient.Data().(type) {
	case float64:
		return gorgonia.NewF64(x)
	case float32:
		return gorgonia.NewF32(x)
	}
	return gradient
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
	return &g.c.operands[g.alone].d
}

func (g *gradients) readNodes() gorgonia.Nodes { return g.reads }

// backward computes the gradients that are wanted, one an input.
func (c *call) backward(r *run, values, dOut []gorgonia.Value) ([]*tensor.Dense, error) {
	if !c.isReady(r.wanted) {
		return nil, errors.New("the gradient op ran without a forward run before it")
	}
	b, in, err := c.bind(values)
	if err != nil {
		return nil, err
	}
	if b != c.last.place {
		return nil, fmt.Errorf("the inputs are on %s, the forward run was on %s", b.Name(), c.last.place.Name())
	}
	r.Backend, r.backward = b, true
	defer r.end()
	arrived := make(tensors, len(dOut))
	for i, v := range dOut {
		if v == nil {
			continue
		}
		if arrived[i], err = r.gradientOfOutput(i, v); err != nil {
			return nil, fmt.Errorf("the gradient of the output %w", err)
		}
	}
	for i := range c.is.readsOutputs {
		if r.out = append(r.out, c.last.copies[i]); !r.out[i].IsSet() {
			r.out[i] = c.outputs[i].memory.Tensor
		}
	}
	d, err := r.lendGradients(arrived)
	if err != nil {
		return nil, err
	}
	if c.is.gradients != fromOutput && slices.Contains(r.wanted, true) {
		if err := r.attend(); err != nil {
			return nil, err
		}
		if err := c.kernel.backward(r, in, arrived, d); err != nil {
			return nil, err
		}
	}
	if c.is.gradients == fromForward {
		c.handOut(d)
	}
	if c.last.bias.IsSet() {
		d[c.is.bias] = c.last.bias
	}
	c.forget()
	list := make([]*tensor.Dense, len(d))
	for i := range d {
		if r.wants(i) {
			list[i] = ValueOf(d[i])
		}
	}
	if r.adds {
		sums.note(list[0])
	}
	return list, nil
}

// isReady reports whether the last forward run left what gradients need.
func (c *call) isReady(wanted []bool) bool {
	if c.last.wanted == nil || len(c.is.saves) == 0 && c.is.readsOutputs == 0 {
		return c.last.wanted != nil
	}
	for i, saved := range c.last.wanted {
		if wanted[i] && !saved {
			return false
		}
	}
	return true
}

// lendGradients gives the gradients that are wanted memory, but those that are somewhere already.
func (r *run) lendGradients(arrived tensors) (tensors, error) {
	c := r.c
	d := make(tensors, len(c.operands))
	for i := range d {
		o := &c.operands[i]
		switch {
		case !r.wants(i):
		case c.is.gradients == fromOutput:
			d[i] = arrived[0]
		case c.is.gradients == fromForward:
			d[i] = o.dShape
		case c.last.bias.IsSet() && i == c.is.bias:
		case i == 0 && r.addend().IsSet():
			c.release(&o.d)
			d[i], r.adds = r.addend(), true
		default:
			var err error
			if d[i], err = c.lend(&o.d, r.Backend, o.dShape); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// sumsAlong gives, in backward, memory for the sums over rows that the plan says it computes along:
// the gradient of a bias, which its op will not compute then. It is not set otherwise.
func (r *run) sumsAlong() (sums kernels.Tensor, err error) {
	if r.step == nil || r.step.bias == nil {
		return sums, nil
	}
	before := r.step.bias
	bias := &before.operands[before.is.bias]
	before.last.bias, err = before.lend(&bias.d, r.Backend, bias.dShape)
	return before.last.bias, err
}

// spends reports whether backward may write over the gradient of the output.
func (r *run) spends() bool {
	return r.shares() && r.step != nil && r.step.spends && !r.c.state.walk.astray
}

// handOut makes results of the gradients that forward kept, which are handed out once. Those that
// someone may look at after the run stay until the next one.
func (c *call) handOut(d tensors) {
	c.last.wanted = nil
	for i := range d {
		at := slices.IndexFunc(c.last.kept, func(t kernels.Tensor) bool { return t.Data == d[i].Data })
		if d[i].IsSet() && at >= 0 {
			c.last.kept = slices.Delete(c.last.kept, at, at+1)
			c.operands[i].d = result{Tensor: d[i], gradient: true, place: c.last.place}
		}
	}
}

// gradientOfOutput views the gradient of an output as a row-major tensor. Gorgonia has scalars of
// its own, and passes them also where a tensor of one element is meant.
func (r *run) gradientOfOutput(i int, dOut gorgonia.Value) (kernels.Tensor, error) {
	is := &r.c.is
	dtype, shape := cmp.Or(is.dOutput, is.outputs[i].DType), is.outputs[i].Shape
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
		dense, err := r.scratch(dtype, shape...)
		if err != nil {
			return t, err
		}
		return dense, r.Copy(dense, t)
	}
	if is.outputs[i].Elements() != 1 {
		return kernels.Tensor{}, fmt.Errorf("is a scalar, its node promised shape %v", shape)
	}
	x, err := float(s)
	if err != nil {
		return kernels.Tensor{}, err
	}
	r.unit = x == 1
	t, err := r.scratch(dtype, shape...)
	if err != nil {
		return t, err
	}
	if is.gradients == fromForward {
		return t, r.Fill(t, x) // forward has used the scale
	}
	return t, r.c.state.lossScale.scaled(r, x, t)
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
