package ops

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
)

// Recompute trades time for memory: it gives the value of out, which ops of this package have made
// of the nodes from, of parameters and of other inputs of the graph, and whose backward run
// computes all that lies between them once more in place of keeping it. The bits of gradients are
// those without it, but where a gradient is a sum of more than two, or what lies between is read
// elsewhere too: terms may then be added in another order. Dropout has the same masks. Use the
// result in place of out, and [ReuseMemory], without which nothing gives its memory back. It needs
// a tapeMachine.
//
//	y, err := block(x)
//	y, err = ops.Recompute(y, x)
func Recompute(out *gorgonia.Node, from ...*gorgonia.Node) (*gorgonia.Node, error) {
	return recomputed("Recompute", &recompute{out: out}, from)
}

func recomputed(name string, r *recompute, from gorgonia.Nodes) (*gorgonia.Node, error) {
	for _, n := range from {
		if !slices.Contains(r.from, n) {
			r.from = append(r.from, n)
		}
	}
	n, err := r.build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// recompute is the op behind out. It hands on the memory of out, as it is neither a reader nor a
// writer.
//
//	from ─→ ... ─→ out ─→ recompute → (the rest of the graph) → dOut ─┐
//	  │                                                               ├→ after ─→ ... again ─→ gradients of from
//	  └───────────────────────────────────────────────────────────────┘
type recompute struct {
	signature
	out    *gorgonia.Node
	from   gorgonia.Nodes
	leaves gorgonia.Nodes // the parameters, and others that have no op
	keeps  bool           // the outputs of costly calls are not computed again: see resumed
}

func (r *recompute) build() (*gorgonia.Node, error) {
	names, nodes := []string{"out"}, gorgonia.Nodes{r.out}
	for i, n := range r.from {
		names, nodes = append(names, fmt.Sprintf("from[%d]", i)), append(nodes, n)
	}
	if err := checkGraph(names, nodes); err != nil {
		return nil, err
	}
	if err := r.findLeaves(r.out, map[*gorgonia.Node]bool{}); err != nil {
		return nil, err
	}
	nodes = append(nodes, r.leaves...)
	differentiable, counts := make([]bool, len(nodes)), map[*gorgonia.Node]bool{}
	r.findDifferentiable(r.out, counts)
	for i, n := range nodes[1:] {
		differentiable[1+i] = counts[n]
	}
	r.signature = newSignature("Recompute", nodes, differentiable, r.out.Dtype(), r.out.Shape()...)
	return gorgonia.ApplyOp(r, nodes...)
}

// findLeaves lists what out was made of besides from.
func (r *recompute) findLeaves(n *gorgonia.Node, seen map[*gorgonia.Node]bool) error {
	if seen[n] || r.isFrom(n) {
		return nil
	}
	seen[n] = true
	if n.Op() == nil {
		if n.Graph() != nil {
			r.leaves = append(r.leaves, n)
		}
		return nil
	}
	inputs, err := inputsOf(n)
	for _, in := range inputs {
		err = errors.Join(err, r.findLeaves(in, seen))
	}
	return err
}

// findDifferentiable marks the nodes between from and out on which out's gradient has an effect.
func (r *recompute) findDifferentiable(n *gorgonia.Node, counts map[*gorgonia.Node]bool) {
	if counts[n] {
		return
	}
	counts[n] = true
	if n.Op() == nil || r.isFrom(n) {
		return
	}
	c, output := callOf(n)
	if c != nil && !c.isDifferentiable(output) {
		return
	}
	if c == nil {
		inputs, _ := inputsOf(n) // findLeaves has found no error
		r.findDifferentiable(inputs[0], counts)
		return
	}
	for i, o := range c.operands {
		if c.hasGradient(i) {
			r.findDifferentiable(o.node, counts)
		}
	}
}

func (r *recompute) isFrom(n *gorgonia.Node) bool { return slices.Contains(r.from, n) }

// callOf is the call whose output a node is, and which of its outputs; nil for other nodes.
func callOf(n *gorgonia.Node) (*call, int) {
	switch op := n.Op().(type) {
	case *call:
		return op, 0
	case outputPick:
		return op.c, op.i
	}
	return nil, 0
}

// inputsOf are the nodes that an op of this package, or one of Gorgonia's of one input, reads.
func inputsOf(n *gorgonia.Node) (gorgonia.Nodes, error) {
	if c, _ := callOf(n); c != nil {
		return c.readNodes(), nil
	}
	if children := n.Graph().From(n.ID()); children != nil && children.Len() == 1 && children.Next() {
		return gorgonia.Nodes{children.Node().(*gorgonia.Node)}, nil
	}
	return nil, fmt.Errorf("%v cannot be computed again: it needs to be an op of this package, or one of a single input", n.Op())
}

// Do hands on out.
func (r *recompute) Do(children ...gorgonia.Value) (gorgonia.Value, error) { return children[0], nil }

// SymDiff adds the second run of what lies before out, which begins when the gradient has come, and
// its gradients.
func (r *recompute) SymDiff(children gorgonia.Nodes, _, dOut *gorgonia.Node) (gorgonia.Nodes, error) {
	again := newRepetition()
	again.keeps = r.keeps
	var wrt gorgonia.Nodes
	for i, n := range children[1:] {
		if !r.differentiable[1+i] {
			again.made[n] = n
			continue
		}
		same, err := newAfter("Recompute.after", n, dOut)
		if err != nil {
			return nil, err
		}
		again.made[n] = same
		wrt = append(wrt, same)
	}
	out, err := again.of(r.out)
	if err != nil {
		return nil, err
	}
	b := backpropagation{wrt: wrt, within: true}
	gradients, err := b.run(gorgonia.Nodes{out}, gorgonia.Nodes{dOut})
	if err != nil {
		return nil, err
	}
	list := make(gorgonia.Nodes, len(children))
	for i := range list {
		if r.differentiable[i] {
			list[i], gradients = gradients[0], gradients[1:]
		}
	}
	return list, nil
}

// DoDiff refuses a lispMachine, which keeps the values of all nodes.
func (r *recompute) DoDiff(gorgonia.ExecutionContext, gorgonia.Nodes, *gorgonia.Node) error {
	return errors.New("Recompute: a lispMachine cannot compute anything again, it needs to be a tapeMachine")
}

// repetition is the second run of what lies before a node.
type repetition struct {
	keeps bool                              // the outputs of costly calls stay from the first run
	made  map[*gorgonia.Node]*gorgonia.Node // by node of the first run
	calls map[*call]gorgonia.Nodes          // the outputs, by call of the first run
}

func newRepetition() *repetition {
	return &repetition{made: map[*gorgonia.Node]*gorgonia.Node{}, calls: map[*call]gorgonia.Nodes{}}
}

// of adds ops like those that a node was made by, over the nodes that were made already.
func (r *repetition) of(n *gorgonia.Node) (*gorgonia.Node, error) {
	if same, ok := r.made[n]; ok {
		return same, nil
	}
	if n.Op() == nil {
		return n, nil // a constant
	}
	if c, i := callOf(n); c != nil {
		outputs, err := r.repeat(c)
		if err == nil {
			r.made[n] = outputs[i]
		}
		return r.made[n], err
	}
	inputs, err := inputsOf(n)
	if err != nil {
		return nil, err
	}
	if inputs[0], err = r.of(inputs[0]); err == nil {
		r.made[n], err = gorgonia.ApplyOp(n.Op(), inputs[0])
	}
	return r.made[n], err
}

// repeat adds a call of the same kernel, or resumes a costly one.
func (r *repetition) repeat(c *call) (outputs gorgonia.Nodes, err error) {
	if outputs, ok := r.calls[c]; ok {
		return outputs, nil
	}
	if r.keeps && c.isCostly() && !c.differentiated { // what it saved is for one gradient op
		outputs, err = r.resume(c)
	} else {
		outputs, err = r.again(c)
	}
	r.calls[c] = outputs
	return outputs, err
}

func (r *repetition) again(c *call) (gorgonia.Nodes, error) {
	var inputs []input
	for _, o := range c.operands {
		in := o.input
		if in.node != nil {
			var err error
			if in.node, err = r.of(in.node); err != nil {
				return nil, err
			}
		}
		inputs = append(inputs, in)
	}
	outputs, err := applyAll(c.name, c.kernel, inputs...)
	if err == nil {
		same, _ := callOf(outputs[0])
		same.repeats = true
	}
	return outputs, err
}

// isCostly reports whether a region may keep what the call leaves: its output, and what it saves.
func (c *call) isCostly() bool { return c.is.costly && c.isAlone() }

func (r *repetition) resume(c *call) (gorgonia.Nodes, error) {
	out := c.outputs[0].node
	operands := gorgonia.Nodes{out}
	for _, n := range childrenOf(out) {
		same, err := r.of(n)
		if err != nil {
			return nil, err
		}
		operands = append(operands, same)
	}
	s := newSignature(c.name+".kept", operands, append([]bool{false}, c.differentiable...), out.Dtype(), out.Shape()...)
	return asList(gorgonia.ApplyOp(resumed{s, c}, operands...))
}

func asList(n *gorgonia.Node, err error) (gorgonia.Nodes, error) { return gorgonia.Nodes{n}, err }

// resumed hands on the output that a call of the first run has left, its first input. The others
// are the call's inputs, computed again: the call's gradients are computed from these, from the
// output and from what the call saved.
//
//	from ─→ ... ─→ q, k, v ─→ attention ─→ out ───────────────────┐
//	after ─→ ... again ─→ q, k, v ────────────────────────────────┴→ resumed → (the rest, again)
type resumed struct {
	signature
	c *call
}

func (r resumed) handsOn() *gorgonia.Node { return r.c.outputs[0].node }

func (resumed) Do(children ...gorgonia.Value) (gorgonia.Value, error) { return children[0], nil }

// SymDiff adds the gradients of the call.
func (r resumed) SymDiff(children gorgonia.Nodes, _, dOut *gorgonia.Node) (gorgonia.Nodes, error) {
	list, err := r.c.SymDiff(children[1:], r.c.outputs[0].node, dOut)
	return append(gorgonia.Nodes{nil}, list...), err
}

// again computes values once more for a backward run, when its gradient has come, where that takes
// little time: so nothing keeps them until then.
type again struct {
	dOut *gorgonia.Node
	made map[*gorgonia.Node]*gorgonia.Node
}

// of is the value of a node for the backward run: computed once more, or the node itself.
func (a *again) of(n *gorgonia.Node) (*gorgonia.Node, error) {
	c, i := callOf(n)
	if c == nil || c.is.again == nil {
		return n, nil
	}
	var err error
	if a.made[n] == nil {
		a.made[n], err = c.is.again(c, i, a)
	}
	return a.made[n], err
}

// behind is the same, and there when the gradient has come.
func (a *again) behind(n *gorgonia.Node) (*gorgonia.Node, error) {
	if same, err := a.of(n); same != n || err != nil {
		return same, err
	}
	return newAfter("Again.after", n, a.dOut)
}

// after hands on its first input, of, once the second is there.
type after struct {
	signature
	of *gorgonia.Node
}

func newAfter(name string, n, then *gorgonia.Node) (*gorgonia.Node, error) {
	operands := gorgonia.Nodes{n, then}
	return gorgonia.ApplyOp(after{newSignature(name, operands, []bool{true, false}, n.Dtype(), n.Shape()...), n}, operands...)
}

func (a after) handsOn() *gorgonia.Node { return a.of }

func (after) Do(children ...gorgonia.Value) (gorgonia.Value, error) { return children[0], nil }

// SymDiff hands on the gradient: what computes again keeps those of what it begins with.
func (after) SymDiff(_ gorgonia.Nodes, _, dOut *gorgonia.Node) (gorgonia.Nodes, error) {
	return gorgonia.Nodes{dOut, nil}, nil
}
