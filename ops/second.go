package ops

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gradients adds to the graph the gradients of a cost, a scalar of float32 or float64, by some
// nodes, and returns their nodes. They may be part of a cost themselves and be differentiated
// again, by Gradients or once by [gorgonia.Grad]: for a gradient penalty, the product of a Hessian
// and a vector, or a step of learning that is learnt from.
//
//	dx, err := ops.Gradients(score, x)   // then a cost of score and dx
//	_, err = gorgonia.Grad(cost, weights...)
//
// Attention, with all that it may do but scores that look up floats, products, linear layers
// without changes, activations, norms of one tensor, Softmax, LogSoftmax, arithmetic and what
// moves elements have second derivatives. To differentiate the gradient of another op is an error
// that names the op. On a GPU those of attention with a score or a mask of its own, of a part of a
// larger problem, and by a bias in the deterministic mode are an error of the run that wraps
// [errors.ErrUnsupported].
//
// Gorgonia's own Grad marks the nodes that it passes, and a second call leaves out the terms that
// pass them again. So Gradients marks nothing: no node's Grad method finds what it returns, which
// [gorgonia.Read] reads. It needs a tapeMachine, and a graph whose losses are not scaled by
// [ScaleLoss].
func Gradients(cost *gorgonia.Node, wrt ...*gorgonia.Node) (gorgonia.Nodes, error) {
	list, err := gradientsOf(cost, wrt)
	if err != nil {
		return nil, fmt.Errorf("Gradients: %w", err)
	}
	return list, nil
}

func gradientsOf(cost *gorgonia.Node, wrt gorgonia.Nodes) (gorgonia.Nodes, error) {
	names := []string{"cost"}
	for i := range wrt {
		names = append(names, fmt.Sprintf("wrt[%d]", i))
	}
	if err := checkGraph(names, append(gorgonia.Nodes{cost}, wrt...)); err != nil {
		return nil, err
	}
	if !cost.IsScalar() {
		return nil, fmt.Errorf("cost has shape %v, it needs to be a scalar", cost.Shape())
	}
	var one *gorgonia.Node
	switch cost.Dtype() {
	case tensor.Float64:
		one = gorgonia.NewConstant(1.0)
	case tensor.Float32:
		one = gorgonia.NewConstant(float32(1))
	default:
		return nil, fmt.Errorf("cost is %v, it needs to be float32 or float64", cost.Dtype())
	}
	b := backpropagation{wrt: wrt}
	list, err := b.run(gorgonia.Nodes{cost}, gorgonia.Nodes{cost.Graph().AddNode(one)})
	if err != nil {
		return nil, err
	}
	for i, n := range list {
		if n == nil {
			return nil, fmt.Errorf("cost does not depend on wrt[%d], %v", i, wrt[i])
		}
		if p, ok := n.Op().(gradientPick); ok {
			p.g.asked[p.i] = true
		}
	}
	return list, nil
}

// backpropagation adds the gradients of some outputs to a graph, and marks no node.
type backpropagation struct {
	wrt     gorgonia.Nodes
	within  bool // what the nodes of wrt are made of does not matter
	depends map[*gorgonia.Node]bool
	order   gorgonia.Nodes // those that depend on wrt, each behind all that it is made of
	given   map[*gorgonia.Node]gorgonia.Nodes
}

// run returns the gradient of each node of wrt, nil for none. An output without a gradient does not
// count.
func (b *backpropagation) run(outputs, dOut gorgonia.Nodes) (gorgonia.Nodes, error) {
	b.depends, b.given = map[*gorgonia.Node]bool{}, map[*gorgonia.Node]gorgonia.Nodes{}
	for i, n := range outputs {
		if n != nil && dOut[i] != nil && b.visit(n) {
			b.given[n] = append(b.given[n], dOut[i])
		}
	}
	for _, n := range slices.Backward(b.order) {
		if err := b.spread(n); err != nil {
			return nil, err
		}
	}
	list := make(gorgonia.Nodes, len(b.wrt))
	for i, n := range b.wrt {
		if sum := b.given[n]; len(sum) > 0 {
			list[i] = sum[0]
		}
	}
	return list, nil
}

// visit reports whether a node depends on one of wrt, and lists it then.
func (b *backpropagation) visit(n *gorgonia.Node) bool {
	if known, ok := b.depends[n]; ok {
		return known
	}
	depends := slices.Contains(b.wrt, n)
	b.depends[n] = depends
	if op, ok := n.Op().(gorgonia.SDOp); ok && !(depends && b.within) {
		children := childrenOf(n)
		for i, differentiable := range op.DiffWRT(len(children)) {
			if differentiable && b.visit(children[i]) {
				depends = true
			}
		}
	}
	if b.depends[n] = depends; depends {
		b.order = append(b.order, n)
	}
	return depends
}

// spread gives what a node is made of its part of the node's gradient.
func (b *backpropagation) spread(n *gorgonia.Node) error {
	sum := b.given[n]
	if len(sum) == 0 {
		return nil
	}
	if !isToken(n) {
		for len(sum) > 1 {
			both, err := Add(sum[0], sum[1])
			if err != nil {
				return err
			}
			sum = append(gorgonia.Nodes{both}, sum[2:]...)
		}
		b.given[n] = sum
	}
	op, ok := n.Op().(gorgonia.SDOp)
	if !ok || b.within && slices.Contains(b.wrt, n) {
		return nil
	}
	children := childrenOf(n)
	list, err := op.SymDiff(children, n, sum[0])
	if err != nil {
		return err
	}
	for i, differentiable := range op.DiffWRT(len(children)) {
		if child := children[i]; differentiable && b.depends[child] && list[i] != nil {
			b.given[child] = append(b.given[child], list[i])
		}
	}
	return nil
}

// isToken reports whether a node's value only says that its op has run.
func isToken(n *gorgonia.Node) bool {
	switch op := n.Op().(type) {
	case *call:
		return !op.isAlone()
	case *gradients:
		return op.alone < 0
	}
	return false
}

func childrenOf(n *gorgonia.Node) (list gorgonia.Nodes) {
	for children := n.Graph().From(n.ID()); children != nil && children.Next(); {
		list = append(list, children.Node().(*gorgonia.Node))
	}
	return list
}

// cotangents are what a call's gradients are differentiated with. Lists have an entry for each
// input, or output, of the call; it is nil for none.
type cotangents struct {
	c    *call
	in   gorgonia.Nodes // as the backward run reads them; nil for those that it does not
	dOut gorgonia.Nodes
	out  *gorgonia.Node // of an op with one output
	u    gorgonia.Nodes // the gradients of the gradients
}

// differentiated are the gradients of the inputs and of the outputs' gradients.
type differentiated struct {
	d, dOut gorgonia.Nodes
	out     *gorgonia.Node // by the output, where the gradients are computed from that
}

func (x *cotangents) none() differentiated {
	return differentiated{d: make(gorgonia.Nodes, len(x.in)), dOut: make(gorgonia.Nodes, len(x.dOut))}
}

// linear differentiates the gradients of ops that are linear in all that they have a gradient of:
// what the op itself makes of u.
func (x *cotangents) linear() (differentiated, error) {
	return x.linearBy(func(inputs []input) (gorgonia.Nodes, error) { return applyAll(x.c.name, x.c.kernel, inputs...) })
}

// linearBy is linear by another op than the call's own.
func (x *cotangents) linearBy(op func(inputs []input) (gorgonia.Nodes, error)) (differentiated, error) {
	inputs := make([]input, len(x.c.operands))
	for i := range x.c.operands {
		o := &x.c.operands[i]
		if inputs[i] = o.input; !x.c.hasGradient(i) {
			continue
		}
		at := i
		for x.c.operands[at].shared {
			at--
		}
		if inputs[i].node = x.u[at]; x.u[at] == nil {
			var err error
			if inputs[i].node, err = constantLike(o.node, 0, o.node.Shape()...); err != nil {
				return differentiated{}, err
			}
		}
	}
	outputs, err := op(inputs)
	return differentiated{d: make(gorgonia.Nodes, len(x.in)), dOut: outputs}, err
}

// byNodes differentiates gradients that can be written as nodes, by differentiating these. Once
// more is then possible too.
func byNodes(write func(x *cotangents) (gorgonia.Nodes, error)) func(x *cotangents) (differentiated, error) {
	return func(x *cotangents) (differentiated, error) {
		written, err := write(x)
		if err != nil {
			return differentiated{}, err
		}
		var wrt gorgonia.Nodes
		all := slices.Concat(x.in, x.dOut, gorgonia.Nodes{x.out})
		if !x.c.kernel.ofOutput {
			all = all[:len(all)-1]
		}
		for i, n := range all {
			if slices.Contains(all[:i], n) {
				all[i] = nil // its gradient is that of its first place
			}
			if all[i] != nil {
				wrt = append(wrt, n)
			}
		}
		b := backpropagation{wrt: wrt, within: true}
		list, err := b.run(written, x.u)
		if err != nil {
			return differentiated{}, err
		}
		result := x.none()
		for i, n := range all {
			switch {
			case n == nil:
				continue
			case i < len(x.in):
				result.d[i] = list[0]
			case i < len(x.in)+len(x.dOut):
				result.dOut[i-len(x.in)] = list[0]
			default:
				result.out = list[0]
			}
			list = list[1:]
		}
		return result, nil
	}
}

// SymDiff differentiates gradients.
func (g *gradients) SymDiff(children gorgonia.Nodes, _, dOut *gorgonia.Node) (gorgonia.Nodes, error) {
	c := g.c
	for _, o := range c.outputs {
		if o.node != nil && o.node.Deriv() != nil {
			return nil, fmt.Errorf("%s: gorgonia.Grad has computed its gradient and would leave out terms of the second: Gradients needs to compute the first", c.name)
		}
	}
	x := &cotangents{c: c, in: make(gorgonia.Nodes, len(c.operands)), dOut: make(gorgonia.Nodes, len(c.outputs)), u: g.cotangents, out: children[len(children)-1]}
	if g.cotangents = nil; x.u == nil {
		x.u = make(gorgonia.Nodes, len(c.operands))
	}
	if g.alone >= 0 {
		x.u[g.alone] = dOut
	}
	next := 0
	var places []*gorgonia.Node
	for i, o := range c.operands {
		if o.child >= 0 && !o.unread {
			x.in[i] = children[next]
			next++
		}
	}
	for i, has := range g.hasDOut {
		if has {
			x.dOut[i] = children[next]
			next++
		}
	}
	var result differentiated
	var err error
	switch {
	case c.kernel.linear:
		result, err = x.linear()
	case c.kernel.second != nil:
		result, err = c.kernel.second(x)
	default:
		err = errors.New("its gradient has no gradient")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	for i, n := range x.in {
		if n != nil {
			places = append(places, result.d[i])
		}
	}
	for i, n := range x.dOut {
		if n != nil {
			places = append(places, result.dOut[i])
		}
	}
	list := make(gorgonia.Nodes, len(children))
	list[len(children)-1] = result.out
	copy(list, places)
	for i, differentiable := range g.differentiable {
		if differentiable && list[i] == nil {
			if list[i], err = constantLike(children[i], 0, children[i].Shape()...); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// gradientPick is the pick of one of several gradients.
type gradientPick struct {
	pick
	g *gradients
	i int
}

// SymDiff leaves the gradient of the gradient to the op that computed it.
func (p gradientPick) SymDiff(_ gorgonia.Nodes, _, gradient *gorgonia.Node) (gorgonia.Nodes, error) {
	if p.g.cotangents == nil {
		p.g.cotangents = make(gorgonia.Nodes, len(p.g.c.operands))
	}
	p.g.cotangents[p.i] = gradient
	s := newSignature(p.name+".gradient", gorgonia.Nodes{gradient}, nil, tensor.Float32, tokenShape...)
	n, err := gorgonia.ApplyOp(arrived{s}, gradient)
	return gorgonia.Nodes{n}, err
}

// differentiateAgain adds a call of the same kernel, to be differentiated in this one's place: a
// call keeps what one gradient op needs.
func (c *call) differentiateAgain(children gorgonia.Nodes, dOut *gorgonia.Node) (gorgonia.Nodes, error) {
	inputs := make([]input, len(c.operands))
	for i := range c.operands {
		inputs[i] = c.operands[i].input
	}
	outputs, err := applyAll(c.name, c.kernel, inputs...)
	if err != nil {
		return nil, err
	}
	same, _ := callOf(outputs[0])
	node := outputs[0]
	if !same.isAlone() {
		node = childrenOf(node)[0]
	}
	for i := range c.outputs {
		same.outputs[i].gradient, c.outputs[i].gradient = c.outputs[i].gradient, nil
	}
	return same.SymDiff(children, node, dOut)
}

// constantLike is a tensor of a node's type and place whose elements are all the same.
func constantLike(n *gorgonia.Node, value float64, shape ...int) (*gorgonia.Node, error) {
	return apply("Constant", kernel{
		describe: func(in tensors) (description, error) {
			is := described(in[0].DType, shape...)
			is.gradients = noGradient
			return is, nil
		},
		forward: func(r *run, _, out tensors) error { return r.Fill(out[0], value) },
	}, input{name: "x", node: n, form: stridedForm, scalars: true, unread: true})
}
