package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file is tensors of which each of several ranks holds a part, such as the weights of a model
// that no device holds whole. A node stands for all of such a tensor; each op of this package that
// reads it gets a gather of its own, which collects the parts from all ranks, and whose gradient is
// this rank's part of the sum over them. What was collected is given back behind the op. The op's
// gradients have it collected anew, once their own gradient has come:
//
//	part ─┬→ gather → op → (the rest of the graph) → dOut ─┬───────────────┬→ gradients → d of the whole → d of the part
//	      └→ after ←───────────────────────────────────────┘ → gather ─────┘

// Whole stands for a tensor of a shape of which each of several ranks holds a part: part is this
// rank's, of the shape that [PartShape] gives. Ops of this package take it like any tensor, and
// work on memory that holds it no longer than they run, with [ReuseMemory], and than the attention
// before them, beside which it is collected; layers that compute in 16 bits have it collected in 16
// bits. The gradient of part is that of the sum over the ranks of what they differentiate.
//
// Every rank needs to run the same graph at the same time. Ops of Gorgonia's own cannot read it.
func Whole(part *gorgonia.Node, ranks kernels.Holders, shape ...int) (*gorgonia.Node, error) {
	w := &wholeTensor{part: part, ranks: ranks}
	if err := w.check(shape); err != nil {
		return nil, fmt.Errorf("Whole: %w", err)
	}
	w.signature = newSignature("Whole", gorgonia.Nodes{part}, nil, part.Dtype(), shape...)
	n, err := gorgonia.ApplyOp(w, part)
	w.node = n
	return n, err
}

// PartShape is the shape of a rank's part of a tensor: as many axes, all of 1 but the last, which
// has the elements of [kernels.Part].
func PartShape(ranks kernels.Holders, shape ...int) []int {
	if len(shape) == 0 || ranks == nil || ranks.Size() < 1 {
		return slices.Clone(shape)
	}
	at, end := kernels.Part(ranks.Rank(), ranks.Size(), kernels.Tensor{Shape: shape}.Elements())
	part := slices.Repeat([]int{1}, len(shape))
	part[len(part)-1] = end - at
	return part
}

// PartOf returns a copy of a rank's part of a value, where that lives.
func PartOf(ranks kernels.Holders, value gorgonia.Value) (*tensor.Dense, error) {
	if ranks == nil || ranks.Size() < 1 {
		return nil, errors.New("PartOf: ranks is empty, it needs to be those that hold the parts")
	}
	part, err := partOf(ranks, value)
	if err != nil {
		return nil, fmt.Errorf("PartOf: the value %w", err)
	}
	return part, nil
}

func partOf(ranks kernels.Holders, value gorgonia.Value) (*tensor.Dense, error) {
	t, place, err := located(value)
	if err != nil {
		return nil, err
	}
	if len(t.Shape) == 0 {
		return nil, errors.New("is a scalar, it needs at least one axis")
	}
	own, err := place.Alloc(t.DType, PartShape(ranks, t.Shape...)...)
	if err == nil && !t.IsRowMajor() {
		t, err = copied(t, t.DType, place, place)
	}
	if err == nil {
		err = place.Copy(own.Reshape(own.Elements()), ownPart(ranks, t))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot be copied: %w", err)
	}
	return ValueOf(own), nil
}

// ownPart views a rank's part of a row-major tensor.
func ownPart(ranks kernels.Holders, t kernels.Tensor) kernels.Tensor {
	at, end := kernels.Part(ranks.Rank(), ranks.Size(), t.Elements())
	return t.Reshape(t.Elements()).Slice(0, at, end)
}

// WholeOf returns the node that stands for what a node is a part of, and the ranks that hold the
// other parts: for any other node, itself and nil.
func WholeOf(n *gorgonia.Node) (*gorgonia.Node, kernels.Holders) {
	if n == nil || n.Graph() == nil {
		return n, nil
	}
	for parents := n.Graph().To(n.ID()); parents != nil && parents.Next(); {
		parent := parents.Node().(*gorgonia.Node)
		if w, ok := parent.Op().(*wholeTensor); ok {
			return parent, w.ranks
		}
	}
	return n, nil
}

// wholeTensor is the op of a node that stands for the whole of a tensor. It has no value itself.
type wholeTensor struct {
	signature
	node, part *gorgonia.Node
	ranks      kernels.Holders
}

func (w *wholeTensor) check(shape []int) error {
	if err := checkGraph([]string{"part"}, gorgonia.Nodes{w.part}); err != nil {
		return err
	}
	switch {
	case w.ranks == nil || w.ranks.Size() < 1:
		return errors.New("ranks is empty, it needs to be those that hold the parts")
	case dtypeOf(w.part.Dtype()) == kernels.NoDType:
		return fmt.Errorf("part is %v, it needs to be %s", w.part.Dtype(), floatTypes)
	case len(shape) == 0 || slices.Min(shape) < 1:
		return fmt.Errorf("shape is %v, it needs at least one axis, and none that is empty", shape)
	}
	want := PartShape(w.ranks, shape...)
	if got := []int(w.part.Shape()); (kernels.Tensor{Shape: shape}).Elements() < w.ranks.Size() || !slices.Equal(got, want) {
		return fmt.Errorf("part has shape %v, rank %d of %d needs %v of %v, and each rank an element", got, w.ranks.Rank(), w.ranks.Size(), want, shape)
	}
	return nil
}

// Do gives a token, as nothing reads it.
func (w *wholeTensor) Do(...gorgonia.Value) (gorgonia.Value, error) {
	for parents := w.node.Graph().To(w.node.ID()); parents != nil && parents.Next(); {
		if reader := parents.Node().(*gorgonia.Node); reader.Op().Arity() > 0 { // no statement
			return nil, fmt.Errorf("%s: %v reads the whole of %s, which only ops of this package can", w.name, reader.Op(), w.part.Name())
		}
	}
	return token(), nil
}

// gather collects the parts of a whole for one reader.
type gather struct {
	of *wholeTensor
	to kernels.DType // of the result
}

func (k *gather) kernel() kernel {
	wide := dtypeOf(k.of.part.Dtype())
	return kernel{
		describe: func(tensors) (description, error) {
			is := described(k.to, k.of.shape...)
			is.dOutput, is.gathers = wide, k
			return is, nil
		},
		forward: func(r *run, in, out tensors) error {
			if r.begun != nil {
				return r.begun.Join()
			}
			if err := r.Copy(ownPart(k.of.ranks, out[0]), in[0].Reshape(in[0].Elements())); err != nil {
				return err
			}
			return k.of.ranks.CollectParts(out[0])
		},
		backward: k.backward,
	}
}

// backward leaves the gradient of the whole alone where others may read it.
func (k *gather) backward(r *run, _, dOut, d tensors) error {
	sum, spends := dOut[0], r.spends()
	if spends && r.sumsLater() && r.step.reads[0].take(sum) {
		return r.c.state.ahead.sum(&deferredSum{sum, d[0], k.of.ranks, r.Backend, &r.c.state.pool})
	}
	if !spends {
		copied, err := r.scratch(sum.DType, sum.Shape...)
		if err != nil {
			return err
		}
		if err := r.Copy(copied, sum); err != nil {
			return err
		}
		sum = copied
	}
	if err := k.of.ranks.SumParts(sum); err != nil {
		return err
	}
	return r.Copy(d[0].Reshape(d[0].Elements()), ownPart(k.of.ranks, sum))
}

// node adds the gather of a part.
func (k *gather) node(part *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Gather", k.kernel(), input{name: "part", node: part, form: denseForm, unread: true})
}

// gatherWhole has what stands for a whole collected for this input alone.
func (in *input) gatherWhole() (err error) {
	if in.node == nil {
		return nil
	}
	w, ok := in.node.Op().(*wholeTensor)
	if !ok {
		return nil
	}
	k := &gather{of: w, to: dtypeOf(w.part.Dtype())}
	if k.to == kernels.F32 && (in.roundsTo == kernels.BF16 || in.roundsTo == kernels.F16) {
		k.to = in.roundsTo
	}
	in.node, err = k.node(w.part)
	return err
}

// gathered is the gather that gives an input's value, if it is collected for the forward run, and
// again for the backward run. In a run that is done again, they are collected for both.
func (in *input) gathered() (*gather, *gorgonia.Node) {
	if in.node == nil {
		return nil, nil
	}
	if c, ok := in.node.Op().(*call); ok && c.is.gathers != nil && c.operands[0].node.Op() == nil {
		return c.is.gathers, c.operands[0].node
	}
	return nil, nil
}

// gathersAnew reports whether any of the run's inputs is collected again for the backward run.
func (r *run) gathersAnew() bool {
	return slices.ContainsFunc(r.c.operands, func(o operand) bool { k, _ := o.gathered(); return k != nil })
}

// gatheredAgain is an input for the backward run: what is collected for that anew, when the
// gradient has come.
func (in *input) gatheredAgain(child, dOut *gorgonia.Node) (*gorgonia.Node, error) {
	k, part := in.gathered()
	if k == nil {
		return child, nil
	}
	again, err := newAfter("Gather.after", part, dOut)
	if err != nil {
		return nil, err
	}
	return k.node(again)
}
