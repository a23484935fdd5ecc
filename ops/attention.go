package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Layout is the order of the axes of q, k, v and the output.
type Layout int

const (
	BHSD   Layout = iota // (batch, heads, length, head size)
	BSHD                 // (batch, length, heads, head size)
	packed               // (total length, heads, head size); QLens chooses it
)

// AttentionOptions are the options of attention; [kernels.Attention] has the equations. The zero value is plain
// softmax(QKᵀ/√D)V over (B, H, S, D).
type AttentionOptions struct {
	Layout  Layout          // of q, k, v and the output; not looked at for packed sequences and by FlashAttentionQKV
	Scale   float64         // the factor of q·k; 0 means 1/√D
	Causal  kernels.Causal  // whether and how the future is hidden
	Window  *kernels.Window // how far a query sees; nil means without limit
	SoftCap float64         // bounds scores to ±SoftCap by a tanh; 0 means none
	ALiBi   []float64       // a slope for each query head, nil for none

	// Bias is added to the scores, which it broadcasts to: (1|B, 1|Hq, 1|Sq, Sk). It is differentiable; its gradient,
	// which is as large as it is, is computed only where something uses it.
	Bias *gorgonia.Node
	// Sinks, (Hq), are scores that take probability and give no value. They are differentiable.
	Sinks *gorgonia.Node

	// QLens and KVLens say that sequences lie end to end along the length axis: q is (total, Hq, D), k is (totalK, Hk, D)
	// and v is (totalK, Hk, Dv). They are vectors of int, int32 or int64: 0, and then where each sequence ends. Their
	// values may change from run to run. Bias is then (1|n, 1|Hq, 1|at least the longest q, at least the longest k).
	QLens, KVLens *gorgonia.Node

	// Dropout is the probability to drop an attention weight while the graph trains; see [ModeOf]. The mask follows from
	// Seed, the step and the position alone, so give each call in a graph a Seed of its own.
	Dropout float64
	Seed    uint64

	Precision     kernels.Precision // the coarsest arithmetic allowed for float32
	Deterministic bool              // gradients that are bit-equal from run to run; on the CPU they always are
}

// FlashAttention is softmax(scale·QKᵀ)V with the given options, in memory that grows with the length, not its square.
//
// q is (B, Hq, Sq, D), k is (B, Hk, Sk, D) and v is (B, Hk, Sk, Dv), float32 or float64, in o's layout; Hq is a multiple
// of Hk, and query head h reads key head h/(Hq/Hk). The result is (B, Hq, Sq, Dv) in the same layout. For packed
// sequences the three are (total, heads, head size) and so is the result.
//
// q, k, v, o.Bias and o.Sinks have gradients, in the shapes of the inputs. Their values may be views with any strides as
// long as the last axis is contiguous.
func FlashAttention(q, k, v *gorgonia.Node, o AttentionOptions) (*gorgonia.Node, error) {
	out, _, err := separateAttention("FlashAttention", q, k, v, o, false)
	return out, err
}

// FlashAttentionLSE is [FlashAttention] that also gives the logsumexp of each row's scores, (B, Hq, Sq) in every layout
// and (Hq, total) for packed sequences. The logsumexp has a gradient too, so that results over parts of the keys can be
// combined. A row that sees no key has a logsumexp of −∞.
func FlashAttentionLSE(q, k, v *gorgonia.Node, o AttentionOptions) (out, lse *gorgonia.Node, err error) {
	return separateAttention("FlashAttentionLSE", q, k, v, o, true)
}

func separateAttention(name string, q, k, v *gorgonia.Node, o AttentionOptions, withLSE bool) (out, lse *gorgonia.Node, err error) {
	if o.Layout != BHSD && o.Layout != BSHD {
		return nil, nil, fmt.Errorf("%s: layout is %d, it needs to be BHSD or BSHD", name, o.Layout)
	}
	a := &attention{name: name, layout: o.Layout, withLSE: withLSE}
	return a.build([]namedNode{{"q", q}, {"k", k}, {"v", v}}, o)
}

// FlashAttentionQKV is [FlashAttention] over the output of one projection: qkv is (B, S, (heads+2·kvHeads)·D), each row
// the query heads, then the key heads, then the value heads, and the result is (B, S, heads·D). For packed sequences
// they are (total, (heads+2·kvHeads)·D) and (total, heads·D).
//
// The parts are read where they lie and the gradient of qkv is written as one tensor: nothing is transposed or copied.
func FlashAttentionQKV(qkv *gorgonia.Node, heads, kvHeads int, o AttentionOptions) (*gorgonia.Node, error) {
	const name = "FlashAttentionQKV"
	if heads < 1 || kvHeads < 1 {
		return nil, fmt.Errorf("%s: heads is %d and kvHeads is %d, each needs to be at least 1", name, heads, kvHeads)
	}
	a := &attention{name: name, layout: BSHD, heads: heads, kvHeads: kvHeads}
	out, _, err := a.build([]namedNode{{"qkv", qkv}}, o)
	return out, err
}

type namedNode struct {
	name string
	node *gorgonia.Node
}

// attention is one call of FlashAttention: what its ops share.
//
// The graph of a call is a forward op, whose value is a token, and a pick for each output. Differentiated, it is a
// backward op over the inputs, the token and the gradients of the outputs, with a pick for each gradient:
//
//	q k v ... → forward ─→ out → (the rest of the graph) → dOut ┐
//	    │         │└─────→ lse → (the rest of the graph) → dLSE ┤
//	    └─────────┴──────────────────────────────────────────→ backward → dq, dk, dv, ...
//
// The gradients of the outputs are inputs of the backward op so that Gorgonia keeps their values until it has run.
type attention struct {
	name           string
	layout         Layout
	heads, kvHeads int // of FlashAttentionQKV, whose heads lie in the last axis; 0 otherwise
	withLSE        bool

	inputs  []attentionInput
	options kernels.Attention // without tensors
	dtype   tensor.Dtype
	oShape  []int // in the call's layout
	rows    []int // (B, Hq, Sq), the shape of per-row values
	mode    *Mode

	// The gradients of the outputs: as nodes from the outputs' SymDiff to the forward op's, and, under a lispMachine, as
	// values from the outputs' DoDiff to the forward op's.
	dOut, dLSE           *gorgonia.Node
	dOutValue, dLSEValue gorgonia.Value

	memory   memory
	result   buffer   // the memory of the output
	dResults []buffer // and of the inputs' gradients

	// What one run leaves for its later ops.
	runs     uint32          // forward runs that began
	dropout  kernels.Dropout // of the last forward run
	out, lse gorgonia.Value  // for the picks
	keep     bool            // someone differentiates, so forward runs save what the backward run needs
	saved    bool            // the buffers are those of the last forward run
	savedO   buffer          // a copy: in-place ops may overwrite the output
	savedLSE buffer
	delta    buffer
}

// build checks the inputs and adds the forward op and its outputs to the graph.
func (a *attention) build(main []namedNode, o AttentionOptions) (out, lse *gorgonia.Node, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", a.name, err)
		}
	}()
	nodes, err := a.describe(main, o)
	if err != nil {
		return nil, nil, err
	}

	differentiable := make([]bool, len(nodes))
	for i, in := range a.inputs {
		differentiable[i] = in.role.differentiable()
	}
	forward := &attentionForward{newSignature(a.name+".forward", nodes, differentiable, a.dtype, tokenShape...), a}
	run, err := gorgonia.ApplyOp(forward, nodes...)
	if err != nil {
		return nil, nil, err
	}
	a.mode, a.dResults = ModeOf(run.Graph()), make([]buffer, len(a.inputs))
	out, err = a.output(a.name, run, &a.out, &a.dOut, &a.dOutValue, a.oShape)
	if a.memory.output = out; err != nil || !a.withLSE {
		return out, nil, err
	}
	lse, err = a.output(a.name+".lse", run, &a.lse, &a.dLSE, &a.dLSEValue, a.lseShape())
	return out, lse, err
}

// describe takes the inputs and options of the call, checks them, and lists the inputs that are given.
func (a *attention) describe(main []namedNode, o AttentionOptions) (gorgonia.Nodes, error) {
	if (o.QLens == nil) != (o.KVLens == nil) {
		return nil, errors.New("only one of QLens and KVLens is given, packed sequences need both")
	}
	if o.QLens != nil {
		a.layout = packed
	}
	a.options = kernels.Attention{
		Scale: o.Scale, Causal: o.Causal, SoftCap: o.SoftCap, ALiBi: slices.Clone(o.ALiBi),
		Dropout:   kernels.Dropout{P: o.Dropout, Seed: o.Seed},
		Precision: o.Precision, Deterministic: o.Deterministic,
	}
	if o.Window != nil {
		window := *o.Window
		a.options.Window = &window
	}

	var nodes gorgonia.Nodes
	add := func(r role, n namedNode) {
		nodes = append(nodes, n.node)
		a.inputs = append(a.inputs, attentionInput{name: n.name, role: r})
	}
	for _, n := range main {
		add(rowsRole, n)
	}
	for _, optional := range []struct {
		role role
		namedNode
	}{{biasRole, namedNode{"bias", o.Bias}}, {sinksRole, namedNode{"sinks", o.Sinks}},
		{qLensRole, namedNode{"qLens", o.QLens}}, {kvLensRole, namedNode{"kvLens", o.KVLens}}} {
		if optional.node != nil {
			add(optional.role, optional.namedNode)
		}
	}
	return nodes, a.check(nodes)
}

// output adds the pick of one output.
func (a *attention) output(name string, run *gorgonia.Node, result *gorgonia.Value, gradient **gorgonia.Node, gradientValue *gorgonia.Value, shape []int) (*gorgonia.Node, error) {
	s := newSignature(name, gorgonia.Nodes{run}, []bool{true}, a.dtype, shape...)
	return gorgonia.ApplyOp(attentionOutput{pick{s, result}, a.dtype, gradient, gradientValue}, run)
}

// lseShape is the shape of the logsumexp's node: (B, Hq, Sq), or (Hq, total) for packed sequences.
func (a *attention) lseShape() []int {
	if a.layout == packed {
		return a.rows[1:]
	}
	return a.rows
}

// attentionForward computes the outputs, for the picks.
type attentionForward struct {
	signature
	a *attention
}

func (f *attentionForward) Do(values ...gorgonia.Value) (gorgonia.Value, error) {
	a := f.a
	a.begin()
	err := a.forward(values, func(h *home) (kernels.Tensor, error) {
		return a.memory.forOutput(&a.result, h, dtypeOf(a.dtype), a.oShape...)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	return token(a.dtype), nil
}

// begin decides the dropout of a forward run.
func (a *attention) begin() {
	a.dropout = kernels.Dropout{}
	if step, on := a.mode.step(a.runs); on {
		a.dropout = a.options.Dropout
		a.dropout.Step = step
	}
	a.runs++
}

// forward runs the kernel, with an output in the memory that alloc gives, and saves what the gradient needs if someone
// differentiates.
func (a *attention) forward(values []gorgonia.Value, alloc func(*home) (kernels.Tensor, error)) error {
	a.out, a.lse, a.dOutValue, a.dLSEValue, a.saved = nil, nil, nil, nil, false
	p, h, err := a.bind(values)
	if err != nil {
		return err
	}
	dtype := p.Q.DType
	o, err := alloc(h)
	if err != nil {
		return err
	}
	outputs := kernels.AttentionOutputs{O: a.outputView(o)}
	switch {
	case a.keep:
		outputs.LSE, err = a.savedLSE.get(h, dtype, a.rows...)
	case a.withLSE:
		outputs.LSE, err = h.Alloc(dtype, a.rows...)
	}
	if err != nil {
		return err
	}
	if err := h.AttentionForward(&p, outputs); err != nil {
		return err
	}
	a.out = h.value(o)
	if a.withLSE {
		lse := outputs.LSE
		if a.keep {
			if lse, err = h.clone(lse); err != nil {
				return err
			}
		}
		a.lse = h.value(lse.Reshape(a.lseShape()...))
	}
	if a.keep {
		o2, err := a.savedO.get(h, dtype, a.oShape...)
		if err != nil {
			return err
		}
		a.saved = true
		return h.copy(o2, o)
	}
	return nil
}

// SymDiff adds the backward op. By now the outputs' SymDiff has left their gradients, for those outputs that have one.
func (f *attentionForward) SymDiff(inputs gorgonia.Nodes, output, _ *gorgonia.Node) (gorgonia.Nodes, error) {
	a := f.a
	a.keep = true
	children := append(append(gorgonia.Nodes{}, inputs...), output)
	for _, gradient := range []*gorgonia.Node{a.dOut, a.dLSE} {
		if gradient != nil {
			children = append(children, gradient)
		}
	}
	b := &attentionBackward{
		signature: newSignature(a.name+".backward", children, nil, a.dtype, tokenShape...),
		a:         a, hasDOut: a.dOut != nil, hasDLSE: a.dLSE != nil,
		nodes: make(gorgonia.Nodes, len(inputs)), results: make([]gorgonia.Value, len(inputs)),
	}
	a.dOut, a.dLSE = nil, nil
	run, err := gorgonia.ApplyOp(b, children...)
	if err != nil {
		return nil, err
	}
	for i, in := range a.inputs {
		if !in.role.differentiable() {
			continue
		}
		s := newSignature(a.name+".d"+in.name, gorgonia.Nodes{run}, nil, a.dtype, in.shape...)
		if b.nodes[i], err = gorgonia.ApplyOp(pick{s, &b.results[i]}, run); err != nil {
			return nil, err
		}
	}
	return slices.Clone(b.nodes), nil
}

// DoDiff is the gradient under a lispMachine.
func (f *attentionForward) DoDiff(_ gorgonia.ExecutionContext, inputs gorgonia.Nodes, _ *gorgonia.Node) error {
	a := f.a
	if err := a.doDiff(inputs); err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	return nil
}

func (a *attention) doDiff(inputs gorgonia.Nodes) error {
	dOut, dLSE := a.dOutValue, a.dLSEValue
	a.dOutValue, a.dLSEValue = nil, nil
	values, want := make([]gorgonia.Value, len(inputs)), make([]bool, len(inputs))
	for i, n := range inputs {
		values[i], want[i] = n.Value(), a.inputs[i].role.differentiable()
	}
	if !a.saved {
		// A lispMachine does not tell an op beforehand that it will differentiate. The first time, run once more.
		a.keep = true
		if err := a.forward(values, func(h *home) (kernels.Tensor, error) {
			return h.Alloc(dtypeOf(a.dtype), a.oShape...) // the output stays what the ops behind it made of it
		}); err != nil {
			return err
		}
		a.out, a.lse = nil, nil
	}
	gradients, err := a.backward(values, dOut, dLSE, want)
	if err != nil {
		return err
	}
	for i, gradient := range gradients {
		if gradient != nil {
			if err := accumulate(inputs[i], gradient); err != nil {
				return fmt.Errorf("gradient of %s: %w", a.inputs[i].name, err)
			}
		}
	}
	return nil
}

// backward runs the kernels and gives the gradients that are wanted, one an input. The gradient of an output that
// nothing uses is nil.
func (a *attention) backward(values []gorgonia.Value, dOut, dLSE gorgonia.Value, want []bool) ([]*tensor.Dense, error) {
	if !a.saved {
		return nil, errors.New("the backward op ran without a forward run before it")
	}
	p, h, err := a.bind(values)
	if err != nil {
		return nil, err
	}
	g := kernels.AttentionGradients{LSE: a.savedLSE.t}
	if g.DO, err = a.gradientOfOut(h, dOut); err != nil {
		return nil, err
	}
	var dRows kernels.Tensor
	if dLSE != nil {
		shape := a.lseShape()
		if dRows, err = h.contiguous(dLSE, p.Q.DType, shape, len(shape)); err != nil {
			return nil, fmt.Errorf("the gradient of the logsumexp %w", err)
		}
		dRows = dRows.Reshape(a.rows...)
	}
	if g.Delta, err = a.delta.get(h, p.Q.DType, a.rows...); err != nil {
		return nil, err
	}
	if err := h.AttentionDelta(&p, a.outputView(a.savedO.t), g.DO, dRows, g.Delta); err != nil {
		return nil, err
	}

	anyRows := false
	for i, in := range a.inputs {
		anyRows = anyRows || in.role == rowsRole && want[i]
	}
	tensors := make([]kernels.Tensor, len(a.inputs))
	gradients := make([]*tensor.Dense, len(a.inputs))
	for i, in := range a.inputs {
		if want[i] || in.role == rowsRole && anyRows {
			if tensors[i], err = a.memory.forGradient(&a.dResults[i], h, p.Q.DType, in.shape...); err != nil {
				return nil, err
			}
		}
		if want[i] {
			gradients[i] = h.value(tensors[i])
		}
		switch in.role {
		case biasRole:
			g.DBias = tensors[i]
		case sinksRole:
			g.DSinks = tensors[i]
		}
	}
	if anyRows {
		g.DQ, g.DK, g.DV = a.split(tensors)
	}
	return gradients, h.AttentionBackward(&p, g)
}

// gradientOfOut is dO as (B, Hq, Sq, Dv): zeros if nothing uses the output.
func (a *attention) gradientOfOut(h *home, dOut gorgonia.Value) (kernels.Tensor, error) {
	dtype := dtypeOf(a.dtype)
	if dOut == nil {
		zeros, err := h.Alloc(dtype, a.oShape...)
		if err != nil {
			return zeros, err
		}
		return a.outputView(zeros), h.zero(zeros)
	}
	t, err := h.contiguous(dOut, dtype, a.oShape, 1)
	if err != nil {
		return t, fmt.Errorf("the gradient of the output %w", err)
	}
	return a.outputView(t), nil
}

// attentionOutput is the pick of the output or of the logsumexp.
type attentionOutput struct {
	pick
	dtype         tensor.Dtype
	gradient      **gorgonia.Node // where the forward op looks for this output's gradient
	gradientValue *gorgonia.Value
}

// SymDiff leaves the output's gradient to the forward op, whose token gets a token as its gradient.
func (p attentionOutput) SymDiff(_ gorgonia.Nodes, _, gradient *gorgonia.Node) (gorgonia.Nodes, error) {
	*p.gradient = gradient
	s := newSignature(p.name+".gradient", gorgonia.Nodes{gradient}, nil, p.dtype, tokenShape...)
	n, err := gorgonia.ApplyOp(mark{s, p.dtype}, gradient)
	return gorgonia.Nodes{n}, err
}

// DoDiff is SymDiff under a lispMachine.
func (p attentionOutput) DoDiff(_ gorgonia.ExecutionContext, _ gorgonia.Nodes, output *gorgonia.Node) (err error) {
	*p.gradientValue, err = output.Grad()
	return err
}

// attentionBackward computes the gradients, for the picks.
type attentionBackward struct {
	signature
	a                *attention
	hasDOut, hasDLSE bool
	nodes            gorgonia.Nodes // the picks, nil for an input without gradient
	results          []gorgonia.Value
	demand           demand
}

// Do takes the inputs of the forward op, its token, and the gradients of the outputs that have one.
func (b *attentionBackward) Do(values ...gorgonia.Value) (gorgonia.Value, error) {
	a := b.a
	inputs, rest := values[:len(a.inputs)], values[len(a.inputs)+1:]
	var dOut, dLSE gorgonia.Value
	if b.hasDOut {
		dOut = rest[0]
	}
	if b.hasDLSE {
		dLSE = rest[len(rest)-1]
	}
	gradients, err := a.backward(inputs, dOut, dLSE, b.demand.of(a.memory.output.Graph(), b.nodes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	for i, gradient := range gradients {
		if gradient != nil {
			b.results[i] = gradient
		} else {
			b.results[i] = token(a.dtype) // no one looks at it
		}
	}
	return token(a.dtype), nil
}
