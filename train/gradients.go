package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"weak"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file is where the parameters of a Stepper and their gradients are, and whether a run
// computed these.

// checkNodes makes sure that there are parameters, all of one dtype, with names of their own.
func checkNodes(nodes gorgonia.Nodes) error {
	if len(nodes) == 0 {
		return errors.New("there are no parameters, it needs at least one")
	}
	names := map[string]bool{}
	for i, n := range nodes {
		if n == nil {
			return fmt.Errorf("parameter %d is nil, it needs to be a node", i)
		}
		if n.Type() == nil {
			return fmt.Errorf("parameter %d is a zero node, it needs to be one of a graph", i)
		}
		if n.IsScalar() {
			return fmt.Errorf("%s is a scalar, it needs to be a tensor, of shape (1) for a single number", n.Name())
		}
		if d := n.Dtype(); d != tensor.Float32 && d != tensor.Float64 || d != nodes[0].Dtype() {
			return fmt.Errorf("%s is %v, all parameters need to be float32 or all float64", n.Name(), d)
		}
		if names[n.Name()] {
			return fmt.Errorf("%s is the name of two parameters, each needs one of its own", n.Name())
		}
		names[n.Name()] = true
	}
	return nil
}

// dtypeOf is the type of a parameter.
func dtypeOf(n *gorgonia.Node) kernels.DType {
	if n.Dtype() == tensor.Float64 {
		return kernels.F64
	}
	return kernels.F32
}

// A gradient of the host that no run has added to since it was cleared starts with a zero whose
// sign is negative: no sum that begins with another zero has that sign. One run leaves it in a
// parameter at most by chance, and not in all of them. On a device, where each run writes gradients
// of its own, the graph counts.

// markUsed marks the gradients as cleared, or on a device as used.
func (o *Stepper) markUsed() {
	if !o.isHost() {
		o.used.mark(o.parameters[0].node.Graph())
		return
	}
	for _, g := range o.gradients {
		if g.DType == kernels.F64 {
			*(*float64)(g.Data) = math.Copysign(0, -1)
		} else {
			*(*float32)(g.Data) = float32(math.Copysign(0, -1))
		}
	}
}

// checkRun returns an error if no run has added to any gradient since they were cleared, or
// computed those of a device since they were used.
func (o *Stepper) checkRun() error {
	unrun := false
	if o.isHost() {
		unrun = !slices.ContainsFunc(o.gradients, isAddedTo)
	} else {
		unrun = !o.used.isNewer(o.parameters[0].node.Graph())
	}
	if unrun {
		return errors.New("no gradient was computed since the last step: a machine needs to run the graph of these parameters, after a Reset, before each step")
	}
	return nil
}

// isAddedTo reports whether a gradient of the host is not as markUsed left it.
func isAddedTo(g kernels.Tensor) bool {
	first := kernels.HostElement(g, 0)
	return first != 0 || !math.Signbit(first)
}

// usedGradients is how many gradients a graph had computed when they were used last.
type usedGradients map[weak.Pointer[gorgonia.ExprGraph]]uint64

func (u *usedGradients) mark(g *gorgonia.ExprGraph) {
	if *u == nil {
		*u = usedGradients{}
	}
	(*u)[weak.Make(g)] = ops.GradientCount(g)
}

// isNewer reports whether a graph has computed gradients since.
func (u usedGradients) isNewer(g *gorgonia.ExprGraph) bool {
	return ops.GradientCount(g) != u[weak.Make(g)]
}

// Use makes the Stepper take gradients from the nodes of another graph over the same values, which
// has run: one Stepper serves as many graphs as there are shapes of batches. What runs of the graph
// before have left for the coming step ([Stepper.Accumulate]) counts on.
func (o *Stepper) Use(parameters gorgonia.Nodes) error {
	if len(parameters) != len(o.parameters) {
		return o.errorf("there are %d parameters to use in place of %d, they need to be the same", len(parameters), len(o.parameters))
	}
	byName := map[string]*gorgonia.Node{}
	for _, n := range parameters {
		byName[n.Name()] = n
	}
	same := true
	for _, p := range o.parameters {
		n := byName[p.node.Name()]
		if n == nil || n.Value() != p.node.Value() {
			return o.errorf("%s is not among the parameters to use, or has another value there: all graphs need the same values", p.node.Name())
		}
		same = same && n == p.node
	}
	if same {
		return nil
	}
	return o.wrap(o.moveTo(byName))
}

// moveTo goes over to other nodes, and takes along the gradients that runs have added up on the
// host.
func (o *Stepper) moveTo(to map[string]*gorgonia.Node) error {
	if err := o.ready(); err != nil {
		return err
	}
	moves := o.isHost() && o.runs > 0
	var left []kernels.Tensor
	if moves {
		if err := o.locate(); err != nil {
			return err
		}
		left = slices.Clone(o.gradients)
	}
	for i := range o.parameters {
		o.parameters[i].node = to[o.parameters[i].node.Name()]
	}
	if !moves {
		return nil
	}
	if err := o.locate(); err != nil {
		return err
	}
	if err := o.backend.Accumulate(o.gradients, left); err != nil {
		return err
	}
	return o.backend.Zero(left)
}

// locate finds where values and gradients lie, which a machine may change from run to run.
func (o *Stepper) locate() error {
	dtype := o.parameters[0].node.Dtype()
	for i, p := range o.parameters {
		gradient, err := p.node.Grad()
		if err != nil || gradient == nil || o.isHost() && !bound(p.node, gradient) {
			return fmt.Errorf("%s has no gradient bound to it, it needs a run of a machine made with gorgonia.BindDualValues", p.node.Name())
		}
		if o.weights[i], err = o.viewHere(p.node.Value(), dtype, p.shape); err != nil {
			return fmt.Errorf("the value of %s %w", p.node.Name(), err)
		}
		if o.gradients[i], err = o.viewHere(gradient, dtype, p.shape); err != nil {
			return fmt.Errorf("the gradient of %s %w", p.node.Name(), err)
		}
	}
	return nil
}

// bound tells a gradient that is the parameter's own from a value of the graph, which runs do not
// add to.
func bound(n *gorgonia.Node, gradient gorgonia.Value) bool {
	if n.Deriv() == nil {
		return true
	}
	own, _ := gradient.(*tensor.Dense)
	graphs, _ := n.Deriv().Value().(*tensor.Dense)
	return own == nil || own != graphs
}
