package ops

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// kernel is what a file of this package adds for an op: how its shapes go together, and which kernels compute it and its
// gradients. [apply] makes it a node, or several.
//
// Tensors of inputs stand in the order that apply was given; that of an input which is left out is the zero Tensor.
type kernel interface {
	// outputs checks the inputs, which have no data yet, and describes the outputs: one without axes is a scalar.
	outputs(in []kernels.Tensor) ([]kernels.Tensor, error)
	// source tells where the gradients come from.
	source() source
	// forward computes the outputs.
	forward(r *run, in, out []kernels.Tensor) error
	// backward computes the gradients of the inputs that are set in d, from those of the outputs, of which those that
	// nothing uses are not set. Inputs that it does not read have a shape and no data.
	backward(r *run, in, dOut, d []kernels.Tensor) error
}

// source is where an op's gradients come from.
type source int

const (
	fromInputs  source = iota // backward needs nothing but inputs
	fromSaved                 // backward also needs what forward kept when a gradient was wanted
	fromOutputs               // the same, and the outputs too
	fromForward               // forward computes and keeps them, with the graph's loss scale; backward puts them into d, whose tensors have no data
	fromOutput                // each is the gradient of the output itself; there is no backward
	noGradient                // there are none; backward is called by a lispMachine alone, with nothing
)

// stateless is embedded by kernels whose gradients come from the inputs.
type stateless struct{}

func (stateless) source() source { return fromInputs }

// moded is a kernel that depends on the mode of the graph.
type moded interface{ setMode(*Mode) }

// rereading is a kernel that may ask for its work again with what the host reads, see [run.vary].
type rereading interface{ rereads() bool }

// measuring is a kernel whose outputs from one on are statistics: constants to a gradient.
type measuring interface{ firstStatistic() int }

// biasing is a kernel whose output has a bias added last: the gradient of that input, −1 for none, is the sum over the rows of the
// output's gradient.
type biasing interface{ bias() int }

// input is an input of an op.
type input struct {
	name     string
	node     *gorgonia.Node
	form     form
	optional bool          // a nil node leaves it out
	unread   bool          // backward does not read its value
	shared   bool          // its gradient is that of the input before it
	roundsTo kernels.DType // of 16 bits: a float32 value counts as rounded to this type; any other for as it is
}

// form is what a kernel needs of an input's value.
type form int

const (
	rowsForm     form = iota // a contiguous last axis; another value is copied
	denseForm                // row-major; another value is copied
	stridedForm              // nothing: it takes any strides
	ownRowsForm              // a contiguous last axis; another value is an error
	indexForm                // row-major integers, which have no gradient
	constantForm             // rows of floats or integers, which have no gradient
	hostForm                 // a vector of integers that the host reads, which has no gradient
)

// hasGradient reports whether inputs of the form have one.
func (f form) hasGradient() bool { return f < indexForm }

// call is one use of an op. Differentiated, it is followed by one op for all gradients, and a pick for each of them if there
// are several:
//
//	inputs → call → out → (the rest of the graph) → dOut ─→ gradients → d of each input
//	   └─────────────┴────────────────────────────────────────┘
//
// The output is an input of the gradient op, so that this runs after the call: it needs what the call keeps, and Gorgonia may
// bind a gradient only to a node that has a value. A call with several outputs has a token for its value, and a pick for each:
//
//	inputs → call ─→ out 0 → (the rest of the graph) → dOut 0 ┐
//	   │      │└───→ out 1 → (the rest of the graph) → dOut 1 ┤
//	   └──────┴───────────────────────────────────────────────┴→ gradients → d of each input
type call struct {
	signature
	kernel    kernel
	inputs    []input
	child     []int            // of each input, its place among the node's children; −1 for one left out
	shapes    []kernels.Tensor // of the inputs, as their nodes promise them
	dShapes   []kernels.Tensor // of their gradients: the same, but wider for what is collected in 16 bits
	results   []kernels.Tensor // of the outputs
	outputs   gorgonia.Nodes   // one a result
	memory    memory
	mode      *Mode          // of the graph
	scale     *lossScale     // of the graph
	gradients *atomic.Uint64 // of the graph
	aheads    *aheads        // of the graph
	lent      []result       // of the outputs
	d         []result       // of the inputs' gradients
	early     kernels.Tensor // the gradient of a bias that the op behind has computed in this run; not set if none has

	// The gradients of several outputs, left by the picks for the call: nodes by their SymDiff, values by their DoDiff.
	dOutNodes  gorgonia.Nodes
	dOutValues []gorgonia.Value

	spends   bool    // the gradient op may write over the gradients of the outputs, its only operands
	onlyRead *result // by the gradient op, which spends it and may take its memory; nil if it is not the only one

	asked func(i int) bool // whether the gradient of an input is wanted; nil while no one differentiates

	// What the last forward run left.
	place  kernels.Backend
	saved  []bool           // the inputs for whose gradients it kept what they need; nil if it did not run
	kept   []kernels.Tensor // of the pool
	values []gorgonia.Value // of several outputs, for the picks
	copies []kernels.Tensor // of outputs that backward needs, where others may write over them
}

// run is one run of a call or of its gradients: the device that computes, and what the kernel asks of the call.
type run struct {
	kernels.Backend
	c         *call
	wanted    []bool           // in forward: the inputs whose gradients will be asked for; nil if none
	out       []kernels.Tensor // in backward, of kernels whose gradients come from the outputs
	unit      bool             // in backward: the gradient of the output is known to be 1
	again     bool             // in forward: the last run is done over, for what it did not keep
	scratched []kernels.Tensor
}

// MatMul is the device's, as exact as the graph says.
func (r *run) MatMul(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	m.Precision = r.c.mode.orPrecision(m.Precision)
	return r.Backend.MatMul(m, out)
}

// LinearCrossEntropy is the device's, as exact as the graph says.
func (r *run) LinearCrossEntropy(c *kernels.LinearCrossEntropy, out kernels.LinearCrossEntropyOutputs) error {
	c.Precision = r.c.mode.orPrecision(c.Precision)
	return r.Backend.LinearCrossEntropy(c, out)
}

// wants reports whether the gradient of an input will be asked for.
func (r *run) wants(i int) bool { return r.wanted != nil && r.wanted[i] }

// keep gives *t memory that holds until the gradients have been computed. Its contents are undefined.
func (r *run) keep(t *kernels.Tensor, dtype kernels.DType, shape ...int) (err error) {
	if !r.c.memory.pool.shared {
		return fit(t, r, kernels.Contiguous(nil, dtype, shape...))
	}
	if *t, err = r.c.memory.pool.take(r.Backend, dtype, shape...); err == nil {
		r.c.kept = append(r.c.kept, *t)
	}
	return err
}

// rounded gives weights in a 16-bit type, side by side, as a device keeps them for parameters of the graph: matrices of float32. It is
// not set where a device does not, or where a weight is something else.
func (r *run) rounded(dtype kernels.DType, weights ...kernels.Tensor) (kernels.Tensor, error) {
	keeper, ok := r.Backend.(kernels.Rounder)
	for _, w := range weights {
		ok = ok && w.DType == kernels.F32 && len(w.Shape) == 2 && w.IsRowMajor() && r.c.readsInput(w)
	}
	if !ok {
		return kernels.Tensor{}, nil
	}
	return keeper.Rounded(dtype, weights...)
}

// scratch gives *t memory that holds until the end of the run. Its contents are undefined.
func (r *run) scratch(t *kernels.Tensor, dtype kernels.DType, shape ...int) (err error) {
	if !r.c.memory.pool.shared {
		return fit(t, r, kernels.Contiguous(nil, dtype, shape...))
	}
	if *t, err = r.c.memory.pool.take(r.Backend, dtype, shape...); err == nil {
		r.scratched = append(r.scratched, *t)
	}
	return err
}

// onHost computes on the host what the run's device cannot. compute finds copies in what is read, tensors that are set or not, and
// writes to a tensor that is then copied to what is written.
func (r *run) onHost(read []*kernels.Tensor, written kernels.Tensor, compute func(written kernels.Tensor) error) error {
	if err := r.c.checkRecording(); err != nil {
		return err
	}
	for _, t := range read {
		if !t.IsSet() {
			continue
		}
		copied, err := host.Alloc(t.DType, t.Shape...)
		if err != nil {
			return err
		}
		if err := r.Copy(copied, *t); err != nil {
			return err
		}
		*t = copied
	}
	result, err := host.Alloc(written.DType, written.Shape...)
	if err != nil {
		return err
	}
	if err := compute(result); err != nil {
		return err
	}
	return r.Copy(written, result)
}

// vary does work that depends on what the host reads of in, the kernel's inputs. Where the graph is recorded, it is done again before each
// launch, with what the inputs of the graph have then.
func (r *run) vary(in []kernels.Tensor, work func(b kernels.Backend, again bool) error) error {
	recorder, ok := r.Backend.(kernels.Recorder)
	if !ok {
		return work(r.Backend, false)
	}
	c, again := r.c, false
	return recorder.Vary(func(b kernels.Backend) (err error) {
		for i := 0; again && i < len(in) && err == nil; i++ {
			if read := c.inputs[i]; read.form == hostForm && c.child[i] >= 0 {
				if in[i], err = c.bindOne(b, i, read.node.Value()); err != nil {
					err = fmt.Errorf("%s's value %w", read.name, err)
				}
			}
		}
		if err == nil {
			err = work(b, again)
		}
		if again && err != nil {
			err = runError(c.name, err)
		}
		again = true
		return err
	})
}

// end gives back what was borrowed.
func (r *run) end() {
	for _, t := range r.scratched {
		r.c.memory.pool.put(r.Backend, t)
	}
}

// apply adds an op with one output to the graph.
func apply(name string, k kernel, inputs ...input) (*gorgonia.Node, error) {
	outputs, err := applyAll(name, k, inputs...)
	if err != nil {
		return nil, err
	}
	return outputs[0], nil
}

// applyAll adds an op to the graph and returns its outputs.
func applyAll(name string, k kernel, inputs ...input) (gorgonia.Nodes, error) {
	c := &call{kernel: k, inputs: inputs}
	if err := c.build(name); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c.outputs, nil
}

func (c *call) build(name string) error {
	if err := c.gatherWholes(); err != nil {
		return err
	}
	children, err := c.check()
	if err != nil {
		return err
	}
	if c.results, err = c.kernel.outputs(c.shapes); err != nil {
		return err
	}
	c.lent, c.d = make([]result, len(c.results)), make([]result, len(c.inputs))
	for i := range c.d {
		c.d[i].gradient = true
	}
	if c.isAlone() {
		c.signature = newSignature(name, children, c.differentiableChildren(), nodeDtype(c.results[0].DType), c.results[0].Shape...)
	} else {
		c.signature = newSignature(name, children, c.differentiableChildren(), tensor.Float32, tokenShape...)
		c.values, c.dOutValues = make([]gorgonia.Value, len(c.results)), make([]gorgonia.Value, len(c.results))
		c.dOutNodes = make(gorgonia.Nodes, len(c.results))
	}
	n, err := gorgonia.ApplyOp(c, children...)
	if err != nil {
		return err
	}
	state := stateOf(n.Graph())
	c.memory, c.mode = memory{graph: n.Graph(), pool: &state.pool}, &state.mode
	c.scale, c.gradients = &state.lossScale, &state.gradients
	if c.aheads = &state.aheads; !c.aheads.gathers {
		_, c.aheads.gathers = c.kernel.(*gather)
	}
	if k, ok := c.kernel.(moded); ok {
		k.setMode(&state.mode)
	}
	if c.outputs = (gorgonia.Nodes{n}); c.isAlone() {
		return nil
	}
	c.outputs = nil
	differentiable := len(c.results)
	if k, ok := c.kernel.(measuring); ok {
		differentiable = k.firstStatistic()
	}
	for i, described := range c.results {
		s := newSignature(fmt.Sprintf("%s.%d", name, i), gorgonia.Nodes{n}, []bool{i < differentiable}, nodeDtype(described.DType), described.Shape...)
		out, err := gorgonia.ApplyOp(output{pick{s, &c.values[i], &c.lent[i]}, c, i}, n)
		if err != nil {
			return err
		}
		c.outputs = append(c.outputs, out)
	}
	return nil
}

// isAlone reports whether the call has one output, which is its own value.
func (c *call) isAlone() bool { return len(c.results) == 1 }

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
		dtype, err := in.dtype()
		if err != nil {
			return nil, err
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
	c.dShapes = slices.Clone(c.shapes)
	for i, in := range c.inputs {
		if k, _ := gatherOf(in.node); k != nil {
			c.dShapes[i].DType = k.dTypeOfGradient()
		}
	}
	return children, nil
}

// dtype is the type of the input's node, if it may have that.
func (in *input) dtype() (kernels.DType, error) {
	of := in.node.Dtype()
	float, index := dtypeOf(of), indexDTypeOf(of)
	switch {
	case in.form == constantForm && anyDTypeOf(of) == kernels.NoDType:
		return 0, fmt.Errorf("%s is %v, it needs to be bool, %s, int, int32 or int64", in.name, of, floatTypes)
	case in.form == constantForm:
		return anyDTypeOf(of), nil
	case in.form.hasGradient() && float == kernels.NoDType:
		return 0, fmt.Errorf("%s is %v, it needs to be %s", in.name, of, floatTypes)
	case in.form.hasGradient():
		return float, nil
	case index == kernels.NoDType:
		return 0, fmt.Errorf("%s is %v, it needs to be int, int32 or int64", in.name, of)
	}
	return index, nil
}

// checkGraph makes sure that nodes are there and belong to one graph.
func checkGraph(names []string, nodes gorgonia.Nodes) error {
	var graph *gorgonia.ExprGraph
	for i, n := range nodes {
		if n == nil {
			return fmt.Errorf("%s is nil, it needs to be a node", names[i])
		}
		if n.Type() == nil {
			return fmt.Errorf("%s is a zero node, it needs to be one of a graph", names[i])
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

// Do computes the outputs.
func (c *call) Do(children ...gorgonia.Value) (gorgonia.Value, error) {
	v, err := c.do(children)
	if err != nil {
		return nil, runError(c.name, err)
	}
	return v, nil
}

// runError names the op in an error of a run. The kernel's name for what was computed would say the same again.
func runError(op string, err error) error {
	if of := (*kernels.CallError)(nil); errors.As(err, &of) {
		err = fmt.Errorf("%s: %w", of.Device, of.Err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func (c *call) do(children []gorgonia.Value) (gorgonia.Value, error) {
	values := make([]gorgonia.Value, len(c.inputs))
	for i, place := range c.child {
		if place >= 0 {
			values[i] = children[place]
		}
	}
	out, err := c.forward(values, false, func(i int, b kernels.Backend) (kernels.Tensor, error) {
		if k, ok := c.kernel.(*gather); ok {
			ahead, err := c.aheads.collected(k, c.memory.pool)
			if err != nil || ahead.IsSet() {
				return c.lent[i].adopt(&c.memory, b, ahead), err
			}
		}
		return c.lent[i].lend(&c.memory, b, c.results[i])
	})
	if err != nil {
		return nil, err
	}
	c.memory.done()
	if c.isAlone() {
		return resultOf(out[0]), nil
	}
	for i := range out {
		c.values[i] = resultOf(out[i])
	}
	return token(), nil
}

// forward computes the outputs into the memory that lend gives.
func (c *call) forward(values []gorgonia.Value, again bool, lend func(i int, b kernels.Backend) (kernels.Tensor, error)) ([]kernels.Tensor, error) {
	c.forget()
	for i := range c.d {
		if r := &c.d[i]; c.kernel.source() == fromForward && r.held && r.place != nil {
			r.release(&c.memory)
		}
	}
	c.saved, c.place = nil, nil
	r := &run{c: c, again: again}
	if c.asked != nil {
		r.wanted = make([]bool, len(c.inputs))
		for i := range r.wanted {
			r.wanted[i] = c.asked(i)
		}
	}
	var in []kernels.Tensor
	var err error
	if r.Backend, in, err = c.bind(values); err != nil {
		return nil, err
	}
	out := make([]kernels.Tensor, len(c.results))
	for i := range out {
		if out[i], err = lend(i, r.Backend); err != nil {
			return nil, err
		}
	}
	defer r.end()
	if err := c.kernel.forward(r, in, out); err != nil {
		return nil, err
	}
	if r.wanted != nil && c.kernel.source() == fromOutputs {
		if err := c.copyOutputs(r, out); err != nil {
			return nil, err
		}
	}
	c.place, c.saved = r.Backend, r.wanted
	if c.saved == nil {
		c.saved = make([]bool, len(c.inputs))
	}
	return out, nil
}

// copyOutputs keeps the outputs that backward needs, where an op of Gorgonia's may write over them.
func (c *call) copyOutputs(r *run, out []kernels.Tensor) error {
	if c.copies == nil {
		c.copies = make([]kernels.Tensor, len(out))
	}
	for i := range out {
		if c.isReadByOurs(i) {
			c.copies[i] = kernels.Tensor{}
			continue
		}
		if err := r.keep(&c.copies[i], out[i].DType, out[i].Shape...); err != nil {
			return err
		}
		if err := r.Copy(c.copies[i], out[i]); err != nil {
			return err
		}
	}
	return nil
}

// readsInput reports whether a tensor is the value of an input of the graph that the call reads.
func (c *call) readsInput(t kernels.Tensor) bool {
	return slices.ContainsFunc(c.inputs, func(in input) bool {
		if in.node == nil || in.node.Op() != nil {
			return false
		}
		v, ok := in.node.Value().(*tensor.Dense)
		return ok && v.Uintptr() == uintptr(t.Data)
	})
}

// isReadByOurs reports whether no op but this package's has an output as its input, so that it stays as it is.
func (c *call) isReadByOurs(i int) bool {
	parents := c.memory.graph.To(c.outputs[i].ID())
	for parents != nil && parents.Next() {
		switch parents.Node().(*gorgonia.Node).Op().(type) {
		case reader, writer:
		default:
			return false
		}
	}
	return true
}

// forget gives back what the last forward run kept.
func (c *call) forget() {
	c.early = kernels.Tensor{}
	for _, t := range c.kept {
		c.memory.pool.put(c.place, t)
	}
	c.kept = c.kept[:0]
}

// bind views the values of the inputs, one an input, nil for one that is left out or not read, and finds their place.
func (c *call) bind(values []gorgonia.Value) (kernels.Backend, []kernels.Tensor, error) {
	b := c.place
	lead := -1 // the first input, whose place is all others'
	for i, in := range c.inputs {
		if values[i] == nil || in.form == hostForm {
			continue
		}
		at, err := PlaceOf(values[i])
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("%s's value %w", in.name, err)
		case lead < 0:
			b, lead = at, i
		case at != b:
			return nil, nil, fmt.Errorf("%s is on %s, %s is on %s: all inputs need one place", in.name, at.Name(), c.inputs[lead].name, b.Name())
		}
	}
	tensors := slices.Clone(c.shapes)
	for i, in := range c.inputs {
		if values[i] == nil {
			continue
		}
		t, err := c.bindOne(b, i, values[i])
		if err != nil {
			return nil, nil, fmt.Errorf("%s's value %w", in.name, err)
		}
		tensors[i] = t
	}
	return b, tensors, nil
}

func (c *call) bindOne(b kernels.Backend, i int, v gorgonia.Value) (kernels.Tensor, error) {
	axes := len(c.shapes[i].Shape)
	switch c.inputs[i].form {
	case hostForm:
		if k, ok := c.kernel.(rereading); !ok || !k.rereads() || c.inputs[i].node.Op() != nil {
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
		axes = 1
	case stridedForm:
		axes = 0
	}
	t, err := view(b, v, c.shapes[i].DType, c.shapes[i].Shape)
	if err != nil || hasDenseAxes(t, axes) || c.inputs[i].form == ownRowsForm {
		return t, err
	}
	dense, err := b.Alloc(t.DType, t.Shape...)
	if err != nil {
		return t, err
	}
	return dense, b.Copy(dense, t)
}

// hasGradient reports whether an input is given and has a gradient.
func (c *call) hasGradient(i int) bool {
	return c.child[i] >= 0 && c.inputs[i].form.hasGradient() && c.kernel.source() != noGradient
}

// hasOwnGradient reports whether an input has a gradient that is not another's too.
func (c *call) hasOwnGradient(i int) bool { return c.hasGradient(i) && !c.inputs[i].shared }

// sharing lists the input and those behind it that share its gradient.
func (c *call) sharing(i int) []int {
	list := []int{i}
	for i++; i < len(c.inputs) && c.inputs[i].shared; i++ {
		list = append(list, i)
	}
	return list
}

// differentiableChildren says of each child whether it has a gradient.
func (c *call) differentiableChildren() []bool {
	var list []bool
	for i, place := range c.child {
		if place >= 0 {
			list = append(list, c.hasGradient(i))
		}
	}
	return list
}

// written is the result that is the value of the call.
func (c *call) written() *result {
	if c.isAlone() {
		return &c.lent[0]
	}
	return nil
}

// readNodes are the inputs.
func (c *call) readNodes() (list gorgonia.Nodes) {
	for _, in := range c.inputs {
		if in.node != nil {
			list = append(list, in.node)
		}
	}
	return list
}

func (c *call) memoryOf() *memory { return &c.memory }

// output is the pick of one of several outputs.
type output struct {
	pick
	c *call
	i int
}

// SymDiff leaves the output's gradient to the call, whose token gets a token as its gradient.
func (o output) SymDiff(_ gorgonia.Nodes, _, gradient *gorgonia.Node) (gorgonia.Nodes, error) {
	o.c.dOutNodes[o.i] = gradient
	s := newSignature(o.name+".gradient", gorgonia.Nodes{gradient}, nil, tensor.Float32, tokenShape...)
	n, err := gorgonia.ApplyOp(arrived{s}, gradient)
	return gorgonia.Nodes{n}, err
}

// DoDiff is SymDiff under a lispMachine, which asks statistics too.
func (o output) DoDiff(_ gorgonia.ExecutionContext, _ gorgonia.Nodes, output *gorgonia.Node) (err error) {
	if o.differentiable[0] {
		o.c.dOutValues[o.i], err = output.Grad()
	}
	return err
}
