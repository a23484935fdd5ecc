package ops

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file differentiates calls as they run under lispMachines. These go without the plan's order:
// a call learns that it is differentiated when it is asked for its gradients.

// DoDiff is the gradient under a lispMachine.
func (c *call) DoDiff(_ gorgonia.ExecutionContext, children gorgonia.Nodes, output *gorgonia.Node) error {
	if err := c.doDiff(children, output); err != nil {
		return c.runError(err)
	}
	return nil
}

func (c *call) doDiff(children gorgonia.Nodes, out *gorgonia.Node) (err error) {
	if c.is.gradients == noGradient {
		if c.kernel.backward == nil {
			return nil
		}
		return c.kernel.backward(nil, nil, nil, nil)
	}
	if c.kernel.first != nil {
		return errors.New("a lispMachine cannot differentiate gradients, it needs to be a tapeMachine")
	}
	dOut := make([]gorgonia.Value, len(c.outputs))
	for i := range dOut {
		dOut[i], c.outputs[i].gradientValue = c.outputs[i].gradientValue, nil
	}
	if c.isAlone() {
		if dOut[0], err = out.Grad(); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(dOut, func(v gorgonia.Value) bool { return v != nil }) {
		return nil // nothing uses an output but those that are constants to gradients
	}
	given := make([]gorgonia.Value, len(children))
	for i, child := range children {
		given[i] = child.Value()
	}
	values := c.valuesOf(given)
	c.lisp = make([]bool, len(c.operands))
	for i := range c.lisp {
		c.lisp[i] = c.hasOwnGradient(i)
	}
	// A lispMachine does not tell an op beforehand that it will differentiate, nor what. The first
	// time, run once more.
	if !c.isReady(c.lisp) {
		if _, err := c.forward(&run{c: c, again: true}, values); err != nil {
			return err
		}
	}
	list, err := c.backward(&run{c: c, wanted: c.lisp}, values, dOut)
	if err != nil {
		return err
	}
	for i, gradient := range list {
		if gradient == nil {
			continue
		}
		for _, same := range c.sharing(i) {
			o := &c.operands[same]
			if err := accumulate(children[o.child], gradient); err != nil {
				return fmt.Errorf("gradient of %s: %w", o.name, err)
			}
		}
	}
	return nil
}

// accumulate adds a gradient to what a lispMachine holds as the gradient of a node.
func accumulate(n *gorgonia.Node, gradient *tensor.Dense) error {
	sum, err := n.Grad()
	if err != nil {
		return err
	}
	switch sum := sum.(type) {
	case *tensor.Dense:
		_, err = tensor.Add(sum, gradient, tensor.UseUnsafe())
		return err
	case *gorgonia.F64: // of a scalar of the host
		*sum += gorgonia.F64(gradient.Data().(float64))
	case *gorgonia.F32:
		*sum += gorgonia.F32(gradient.Data().(float32))
	default:
		return fmt.Errorf("the gradient is a %T, it needs to be a *tensor.Dense, a float32 or a float64", sum)
	}
	return nil
}
