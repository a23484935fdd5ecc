package ops

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// call is one use of an op. Differentiated, it is followed by one op for all gradients, and a pick
// for each of them if there are several:
//
//	inputs → call → out → (the rest of the graph) → dOut ─→ gradients → d of each input
//	   └─────────────┴────────────────────────────────────────┘
//
// The output is an input of the gradient op, so that this runs after the call: it needs what the
// call keeps, and Gorgonia may bind a gradient only to a node that has a value. A call with several
// outputs has a token for its value, and a pick for each:
//
//	inputs → call ─→ out 0 → (the rest of the graph) → dOut 0 ┐
//	   │      │└───→ out 1 → (the rest of the graph) → dOut 1 ┤
//	   └──────┴───────────────────────────────────────────────┴→ gradients → d of each input
type call struct {
	signature
	member
	kernel   kernel
	is       description // of the kernel, over these inputs
	operands []operand
	outputs  []output
	lisp     []bool // the gradients that a lispMachine has asked for; nil for none
	rooms    rooms
	last     lastRun

	differentiated bool // it has a gradient op
	repeats        bool // another call, for its gradients: nobody looks at an output that nothing reads
}

// operand is an input of a call.
type operand struct {
	input
	child  int            // its place among the node's children; −1 for one left out
	shape  kernels.Tensor // as its node promises it
	dShape kernels.Tensor // of its gradient
	d      result         // the memory of that
}

// output is an output of a call. Those of several have what passes between the call and their
// picks.
type output struct {
	node          *gorgonia.Node
	memory        result
	value         gorgonia.Value // left for the pick
	gradient      *gorgonia.Node // left by the pick's SymDiff
	gradientValue gorgonia.Value // left by the pick's DoDiff
}

// rooms is memory of a call's own, where the graph's ops do not share theirs.
type rooms struct {
	saved   tensors
	scratch [2]tensors // forward and backward, in the order in which the kernel asks
}

// lastRun is what the last forward run left for the gradients.
type lastRun struct {
	place   kernels.Backend
	wanted  []bool // the inputs for whose gradients it saved what they need; nil if it did not run
	saved   tensors
	copies  tensors // of outputs that backward reads, where others may write over them
	kept    tensors // what of these two is the pool's
	dropout kernels.Dropout
	runs    uint32         // forward runs that began
	bias    kernels.Tensor // the gradient of a bias that the op behind has computed; unset if none has

	postponed *postponed // what it left to the step that reads it
}

// newCall adds a call to the graph of its inputs, and returns the nodes of its outputs.
func newCall(name string, k kernel, inputs []input) (gorgonia.Nodes, error) {
	c := &call{kernel: k}
	shapes := make(tensors, len(inputs))
	var children gorgonia.Nodes
	var names []string
	for _, in := range inputs {
		o := operand{input: in, child: -1, d: result{gradient: true}}
		if err := o.gatherWhole(); err != nil {
			return nil, err
		}
		if o.node != nil || !o.optional {
			o.child, children, names = len(children), append(children, o.node), append(names, o.name)
		}
		c.operands = append(c.operands, o)
	}
	if err := checkGraph(names, children); err != nil {
		return nil, err
	}
	for i := range c.operands {
		o := &c.operands[i]
		if o.child < 0 {
			continue
		}
		var err error
		if o.shape, err = o.check(); err != nil {
			return nil, err
		}
		shapes[i], o.dShape = o.shape, o.shape
		if from, ok := o.node.Op().(*call); ok && from.is.dOutput != kernels.NoDType {
			o.dShape.DType = from.is.dOutput
		}
	}
	var err error
	if c.is, err = k.describe(shapes); err != nil {
		return nil, err
	}
	return c.addTo(name, children)
}

// addTo adds the nodes of the call and its outputs.
func (c *call) addTo(name string, children gorgonia.Nodes) (gorgonia.Nodes, error) {
	c.outputs = make([]output, len(c.is.outputs))
	c.last.saved, c.rooms.saved = make(tensors, len(c.is.saves)), make(tensors, len(c.is.saves))
	differentiable := make([]bool, len(children))
	for i, o := range c.operands {
		if o.child >= 0 {
			differentiable[o.child] = c.hasGradient(i)
		}
	}
	dtype, shape := tensor.Float32, []int(tokenShape)
	if c.isAlone() {
		dtype, shape = nodeDtype(c.is.outputs[0].DType), c.is.outputs[0].Shape
	}
	c.signature = newSignature(name, children, differentiable, dtype, shape...)
	n, err := gorgonia.ApplyOp(c, children...)
	if err != nil {
		return nil, err
	}
	c.member = member{graph: n.Graph(), state: stateOf(n.Graph())}
	if c.is.dropout.P > 0 {
		c.state.mode.drops.Store(true)
	}
	if c.isAlone() {
		c.outputs[0].node = n
		return gorgonia.Nodes{n}, nil
	}
	for i, described := range c.is.outputs {
		o, hasGradient := &c.outputs[i], []bool{c.isDifferentiable(i)}
		s := newSignature(fmt.Sprintf("%s.%d", name, i), gorgonia.Nodes{n}, hasGradient, nodeDtype(described.DType), described.Shape...)
		if o.node, err = gorgonia.ApplyOp(outputPick{pick{s, &o.value, &o.memory}, c, i}, n); err != nil {
			return nil, err
		}
	}
	return c.outputNodes(), nil
}

func (c *call) outputNodes() (list gorgonia.Nodes) {
	for _, o := range c.outputs {
		list = append(list, o.node)
	}
	return list
}

// isAlone reports whether the call has one output, which is its own value.
func (c *call) isAlone() bool { return len(c.outputs) == 1 }

// isDifferentiable reports whether an output is no constant to gradients.
func (c *call) isDifferentiable(output int) bool { return output < len(c.outputs)-c.is.statistics }

// hasGradient reports whether an input is given and has a gradient.
func (c *call) hasGradient(i int) bool {
	o := &c.operands[i]
	return o.child >= 0 && o.form.hasGradient() && c.is.gradients != noGradient
}

// hasOwnGradient reports whether an input has a gradient that is not another's too.
func (c *call) hasOwnGradient(i int) bool { return c.hasGradient(i) && !c.operands[i].shared }

// sharing lists the input and those behind it that share its gradient.
func (c *call) sharing(i int) []int {
	list := []int{i}
	for i++; i < len(c.operands) && c.operands[i].shared; i++ {
		list = append(list, i)
	}
	return list
}

// Do computes the outputs.
func (c *call) Do(children ...gorgonia.Value) (gorgonia.Value, error) {
	v, err := c.do(children)
	if err != nil {
		return nil, c.runError(err)
	}
	return v, nil
}

// runError names the op in an error of a run, and the inputs of the graph that it speaks of. The
// kernel's name for what was computed would say the same again.
func (c *call) runError(err error) error {
	if of := (*kernels.CallError)(nil); errors.As(err, &of) {
		err = fmt.Errorf("%s: %w", of.Device, of.Err)
	}
	text := err.Error()
	for _, o := range c.operands {
		if o.node != nil && o.node.Op() == nil && o.node.Name() != o.name && strings.Contains(text, o.name+"[") {
			err = fmt.Errorf("%w (%s is %s)", err, o.name, o.node.Name())
		}
	}
	return &failure{op: c.name, err: err}
}

// failure is an error of a run, as a machine of [NewMachine] gives it: without what Gorgonia puts
// before it.
type failure struct {
	op  string
	err error
}

func (f *failure) Error() string { return f.op + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func (c *call) do(children []gorgonia.Value) (gorgonia.Value, error) {
	s, err := c.enter(c.id)
	if err != nil {
		return nil, err
	}
	out, err := c.forward(&run{c: c, step: s, wanted: s.wanted}, c.valuesOf(children))
	if err != nil {
		return nil, err
	}
	c.leave(s)
	if c.isAlone() {
		return resultOf(out[0]), nil
	}
	for i := range out {
		c.outputs[i].value = resultOf(out[i])
	}
	return token(), nil
}

// valuesOf gives the values of all inputs from those of the children.
func (c *call) valuesOf(children []gorgonia.Value) []gorgonia.Value {
	values := make([]gorgonia.Value, len(c.operands))
	for i, o := range c.operands {
		if o.child >= 0 {
			values[i] = children[o.child]
		}
	}
	return values
}

// forward computes the outputs.
func (c *call) forward(r *run, values []gorgonia.Value) (out tensors, err error) {
	c.forget()
	for i := range c.operands { // gradients that stayed until now, for someone to look at
		c.release(&c.operands[i].d)
	}
	c.last.place, c.last.wanted = nil, nil
	if r.wanted == nil {
		r.wanted = c.lisp
	}
	var in tensors
	if r.Backend, in, err = c.bind(values); err != nil {
		return nil, err
	}
	out = make(tensors, len(c.outputs))
	for i := range out {
		if out[i], err = r.lendOutput(i); err != nil {
			return nil, err
		}
	}
	defer r.end()
	if err := r.prepare(); err != nil {
		return nil, err
	}
	if err := c.kernel.forward(r, in, out); err != nil {
		return nil, err
	}
	if r.wanted != nil && c.is.readsOutputs > 0 {
		if err := r.copyOutputs(out); err != nil {
			return nil, err
		}
	}
	if c.last.place, c.last.wanted = r.Backend, r.wanted; r.wanted == nil {
		c.last.wanted = make([]bool, len(c.operands))
	}
	return out, nil
}

// forget gives back what the last forward run kept.
func (c *call) forget() {
	c.last.bias, c.last.postponed = kernels.Tensor{}, nil
	for _, t := range c.last.kept {
		c.state.pool.put(c.last.place, t)
	}
	c.last.kept = c.last.kept[:0]
}

// readsInput reports whether a tensor is the value of an input of the graph that the call reads,
// perhaps once something else is there.
func (c *call) readsInput(t kernels.Tensor) bool {
	return slices.ContainsFunc(c.operands, func(o operand) bool {
		n := o.node
		for n != nil {
			later, ok := n.Op().(after)
			if !ok {
				break
			}
			n = later.of
		}
		if n == nil || n.Op() != nil {
			return false
		}
		v, ok := n.Value().(*tensor.Dense)
		return ok && !isEmpty(v) && v.Uintptr() == uintptr(t.Data)
	})
}

// bind views the values of the inputs, one an input, nil for one that is left out or not read, and
// finds their place.
func (c *call) bind(values []gorgonia.Value) (kernels.Backend, tensors, error) {
	b := c.last.place
	lead := -1 // the first input, whose place is all others'
	for i, o := range c.operands {
		if values[i] == nil || o.form.isOnHost() {
			continue
		}
		if s, ok := values[i].(gorgonia.Scalar); ok && o.scalars { // of the host
			values[i] = tensor.New(tensor.FromScalar(s.Data()))
		}
		at, err := PlaceOf(values[i])
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("%s's value %w", o.name, err)
		case lead < 0:
			b, lead = at, i
		case at != b:
			return nil, nil, fmt.Errorf("%s is on %s, %s is on %s: all inputs need one place", o.name, at.Name(), c.operands[lead].name, b.Name())
		}
	}
	list := make(tensors, len(c.operands))
	for i, o := range c.operands {
		if list[i] = o.shape; values[i] == nil {
			continue
		}
		var err error
		if list[i], err = c.bindOne(b, i, values[i]); err != nil {
			return nil, nil, fmt.Errorf("%s's value %w", o.name, err)
		}
	}
	return b, list, nil
}

func (c *call) bindOne(b kernels.Backend, i int, v gorgonia.Value) (kernels.Tensor, error) {
	o := &c.operands[i]
	axes := len(o.shape.Shape)
	switch o.form {
	case hostForm, rereadForm:
		if o.form == hostForm || o.node.Op() != nil {
			if err := c.checkRecording(); err != nil {
				return kernels.Tensor{}, err
			}
		}
		var err error
		if v, err = onHost(v); err != nil {
			return kernels.Tensor{}, err
		}
		b = host
	case rowsForm, ownRowsForm, constantForm:
		axes = min(1, axes)
	case stridedForm:
		axes = 0
	}
	if o.shape.DType.IsPacked() {
		return bindPacked(b, v, o.shape)
	}
	t, err := view(b, v, o.shape.DType, o.shape.Shape)
	if err != nil || hasDenseAxes(t, axes) || o.form == ownRowsForm {
		return t, err
	}
	return copied(t, t.DType, b, b)
}

// written is the result that is the value of the call.
func (c *call) written() *result {
	if c.isAlone() {
		return &c.outputs[0].memory
	}
	return nil
}

// readNodes are the inputs.
func (c *call) readNodes() (list gorgonia.Nodes) {
	for _, o := range c.operands {
		if o.node != nil {
			list = append(list, o.node)
		}
	}
	return list
}

// outputPick is the pick of one of several outputs.
type outputPick struct {
	pick
	c *call
	i int
}

// SymDiff leaves the output's gradient to the call, whose token gets a token as its gradient.
func (o outputPick) SymDiff(_ gorgonia.Nodes, _, gradient *gorgonia.Node) (gorgonia.Nodes, error) {
	o.c.outputs[o.i].gradient = gradient
	s := newSignature(o.name+".gradient", gorgonia.Nodes{gradient}, nil, tensor.Float32, tokenShape...)
	n, err := gorgonia.ApplyOp(arrived{s}, gradient)
	return gorgonia.Nodes{n}, err
}

// DoDiff is SymDiff under a lispMachine, which asks statistics too.
func (o outputPick) DoDiff(_ gorgonia.ExecutionContext, _ gorgonia.Nodes, output *gorgonia.Node) (err error) {
	if o.differentiable[0] {
		o.c.outputs[o.i].gradientValue, err = output.Grad()
	}
	return err
}
