package ops

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Assignment is what [Route] decided: which experts each token has, sorted by expert. Its Node is a
// vector of int32 that [kernels.AssignmentOf] takes apart, a constant to gradients.
type Assignment struct {
	Node            *gorgonia.Node
	Experts, Chosen int
}

// Route lets each token choose experts by logits, (..., experts), and weighs them: weights are
// (tokens, o.Chosen), the best first. bias, (experts), is added to the scores for the choice alone,
// and may be nil; it has no gradient. Weights and bias are float32 beside 16-bit logits. A mixture
// of experts goes on with [Dispatch], [GroupedLinear] and [Combine].
func Route(logits, bias *gorgonia.Node, o kernels.RouterOptions) (weights *gorgonia.Node, a Assignment, err error) {
	outputs, err := applyAll("Route", kernel{
		describe: func(in tensors) (is description, err error) {
			r := routing(in, o)
			if err := r.Validate(); err != nil {
				return is, err
			}
			tokens, experts := r.Logits.Shape[0], r.Logits.Shape[1]
			is.outputs = tensors{
				kernels.Contiguous(nil, in[0].DType.Wide(), tokens, o.Chosen),
				kernels.Contiguous(nil, kernels.I32, kernels.AssignmentSize(tokens, experts, o.Chosen)),
			}
			is.statistics, is.readsOutputs = 1, 2
			return is, nil
		},
		forward: func(r *run, in, out tensors) error {
			p := routing(in, o)
			return r.Route(p, out[0], kernels.AssignmentOf(out[1], p.Logits.Shape[1], o.Chosen))
		},
		backward: func(r *run, in, dOut, d tensors) error {
			if !dOut[0].IsSet() {
				return zeroed(r, d[0])
			}
			p := routing(in, o)
			return r.RouteBackward(p, kernels.AssignmentOf(r.out[1], p.Logits.Shape[1], o.Chosen), dOut[0], asMatrix(d[0]))
		},
	}, input{name: "logits", node: logits, form: denseForm}, input{name: "bias", node: bias, form: constantForm, optional: true})
	if err != nil {
		return nil, a, err
	}
	return outputs[0], Assignment{Node: outputs[1], Experts: logits.Shape()[logits.Dims()-1], Chosen: o.Chosen}, nil
}

func routing(in tensors, o kernels.RouterOptions) *kernels.Routing {
	return &kernels.Routing{Logits: asMatrix(in[0]), Bias: in[1], RouterOptions: o}
}

// input is the assignment as an input of an op.
func (a Assignment) input() input {
	return input{name: "assignment", node: a.Node, form: indexForm}
}

// of is the assignment's tensors, for a number of tokens.
func (a Assignment) of(t kernels.Tensor, tokens int) (kernels.Assignment, error) {
	if a.Chosen < 1 || a.Experts < 1 || t.DType != kernels.I32 || len(t.Shape) != 1 {
		return kernels.Assignment{}, errors.New("the assignment is none that Route gave")
	}
	if want := kernels.AssignmentSize(tokens, a.Experts, a.Chosen); t.Shape[0] != want {
		return kernels.Assignment{}, fmt.Errorf("the assignment has %d numbers, for %d tokens of %d experts it needs %d", t.Shape[0], tokens, a.Experts, want)
	}
	return kernels.AssignmentOf(t, a.Experts, a.Chosen), nil
}

// Dispatch brings the rows of tokens, (..., C), to those who chose them: the result,
// (tokens·Chosen, C), has the rows of each expert's tokens together, one expert after the other.
// See [Combine].
func Dispatch(x *gorgonia.Node, a Assignment) (*gorgonia.Node, error) {
	return apply("Dispatch", kernel{
		describe: func(in tensors) (description, error) {
			if len(in[0].Shape) < 2 {
				return description{}, fmt.Errorf("x has shape %v, it needs at least two axes (..., features)", in[0].Shape)
			}
			x := asMatrix(in[0])
			_, err := a.of(in[1], x.Shape[0])
			return described(x.DType, x.Shape[0]*a.Chosen, x.Shape[1]), err
		},
		forward: func(r *run, in, out tensors) error {
			x := asMatrix(in[0])
			to, err := a.of(in[1], x.Shape[0])
			if err != nil {
				return err
			}
			return r.Dispatch(x, kernels.Tensor{}, to, out[0])
		},
		backward: func(r *run, in, dOut, d tensors) error { // the sum over a token's choices
			dx := asMatrix(d[0])
			to, err := a.of(in[1], dx.Shape[0])
			if err != nil {
				return err
			}
			return r.Combine(dOut[0], kernels.Tensor{}, to, dx)
		},
	}, input{name: "x", node: x, form: denseForm, unread: true}, a.input())
}

// Combine sums what experts have made of each token, multiplied by the token's weights: x is
// (tokens·Chosen, C) in the order of [Dispatch], weights are those of [Route], and the result is
// (tokens, C).
func Combine(x, weights *gorgonia.Node, a Assignment) (*gorgonia.Node, error) {
	return apply("Combine", kernel{
		describe: func(in tensors) (description, error) {
			x, w := in[0], in[1]
			switch {
			case len(x.Shape) != 2 || len(w.Shape) != 2 || w.Shape[1] != a.Chosen || x.Shape[0] != w.Shape[0]*a.Chosen:
				return description{}, fmt.Errorf("x has shape %v and weights %v, they need to be (tokens·%d, features) and (tokens, %d)", x.Shape, w.Shape, a.Chosen, a.Chosen)
			case w.DType != x.DType.Wide():
				return description{}, fmt.Errorf("weights is %v, beside x of %v it needs to be %v", w.DType, x.DType, x.DType.Wide())
			}
			_, err := a.of(in[2], w.Shape[0])
			return described(x.DType, w.Shape[0], x.Shape[1]), err
		},
		forward: func(r *run, in, out tensors) error {
			to, err := a.of(in[2], in[1].Shape[0])
			if err != nil {
				return err
			}
			return r.Combine(in[0], in[1], to, out[0])
		},
		backward: func(r *run, in, dOut, d tensors) error {
			to, err := a.of(in[2], in[1].Shape[0])
			if err == nil && d[0].IsSet() {
				err = r.Dispatch(dOut[0], in[1], to, d[0])
			}
			if err == nil && d[1].IsSet() {
				err = r.CombineFactors(in[0], dOut[0], to, d[1])
			}
			return err
		},
	}, input{name: "x", node: x}, input{name: "weights", node: weights, form: denseForm}, a.input())
}

// BalanceLoss is a loss that is least, Chosen, where tokens use all experts alike: the number of
// experts times the sum over experts of how often a token chose one and of its mean probability
// softmax(logits), both over all tokens. Logits, (..., experts), are those of a router, or of
// several layers' routers, whose tokens count together then; assignments are what [Route] gave for
// each. It is a scalar of float32, or float64, to add to a model's loss with a small factor.
func BalanceLoss(logits gorgonia.Nodes, assignments []Assignment) (*gorgonia.Node, error) {
	if len(logits) == 0 || len(logits) != len(assignments) {
		return nil, fmt.Errorf("BalanceLoss: there are %d logits and %d assignments, it needs as many of both, and at least one", len(logits), len(assignments))
	}
	var inputs []input
	for i, n := range logits {
		inputs = append(inputs, input{name: fmt.Sprintf("logits[%d]", i), node: n, form: denseForm})
	}
	for i, a := range assignments {
		in := a.input()
		in.name = fmt.Sprintf("assignments[%d]", i)
		inputs = append(inputs, in)
	}
	k := balanceLoss{assignments}
	return apply("BalanceLoss", kernel{describe: k.describe, forward: k.forward, backward: k.backward}, inputs...)
}

type balanceLoss struct{ assignments []Assignment }

func (k balanceLoss) describe(in tensors) (description, error) {
	n, experts := len(k.assignments), k.assignments[0].Experts
	for i, t := range in[:n] {
		switch last := t.Shape[len(t.Shape)-1]; {
		case last != k.assignments[i].Experts || last != experts:
			return description{}, fmt.Errorf("logits[%d] has shape %v, it needs (..., %d): an assignment's experts, as many in all layers", i, t.Shape, experts)
		case t.DType != in[0].DType:
			return description{}, fmt.Errorf("logits[%d] is %v, logits[0] is %v: they need one dtype", i, t.DType, in[0].DType)
		}
		if _, err := k.assignments[i].of(in[n+i], t.Elements()/experts); err != nil {
			return description{}, fmt.Errorf("assignments[%d]: %w", i, err)
		}
	}
	return described(in[0].DType.Wide()), nil
}

// matrices are the logits of each layer.
func (k balanceLoss) matrices(in tensors) (list tensors) {
	for _, t := range in[:len(k.assignments)] {
		list = append(list, asMatrix(t))
	}
	return list
}

// joined copies the logits and the offsets of all layers to lie one behind the other.
func (k balanceLoss) joined(r *run, in tensors) (logits, offsets kernels.Tensor, err error) {
	n, tokens, experts := len(k.assignments), 0, k.assignments[0].Experts
	for _, t := range k.matrices(in) {
		tokens += t.Shape[0]
	}
	if logits, err = r.scratch(in[0].DType, tokens, experts); err != nil {
		return logits, offsets, err
	}
	if offsets, err = r.scratch(kernels.I32, n, experts+1); err != nil {
		return logits, offsets, err
	}
	for i, part := range cut(0, logits, k.matrices(in)) {
		if err := r.Copy(part, asMatrix(in[i])); err != nil {
			return logits, offsets, err
		}
		if err := r.Copy(offsets.Slice(0, i, i+1).Reshape(experts+1), in[n+i].Slice(0, 0, experts+1)); err != nil {
			return logits, offsets, err
		}
	}
	return logits, offsets, nil
}

func (k balanceLoss) forward(r *run, in, out tensors) error {
	logits, offsets, err := k.joined(r, in)
	if err != nil {
		return err
	}
	return r.BalanceLoss(logits, offsets, out[0])
}

func (k balanceLoss) backward(r *run, in, dOut, d tensors) error {
	logits, offsets, err := k.joined(r, in)
	if err != nil {
		return err
	}
	dLogits, err := r.scratch(logits.DType, logits.Shape...)
	if err != nil {
		return err
	}
	if err := r.BalanceLossBackward(logits, offsets, dOut[0], dLogits); err != nil {
		return err
	}
	for i, part := range cut(0, dLogits, k.matrices(in)) {
		if d[i].IsSet() {
			if err := r.Copy(asMatrix(d[i]), part); err != nil {
				return err
			}
		}
	}
	return nil
}
