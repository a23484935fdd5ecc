package ops

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// AttentionOptions are the options of attention; [kernels.Attention] has the equations. The zero
// value is plain softmax(QKᵀ/√D)V over (B, H, S, D).
type AttentionOptions struct {
	Layout  Layout          // of q, k, v and the output; not looked at for packed sequences and by FlashAttentionQKV
	Scale   float64         // the factor of q·k; 0 means 1/√D
	Causal  kernels.Causal  // whether and how the future is hidden
	Window  *kernels.Window // how far a query sees; nil means without limit
	SoftCap float64         // bounds scores to ±SoftCap by a tanh; 0 means none
	ALiBi   []float64       // a slope for each query head, nil for none

	// Bias is added to the scores, which it broadcasts to: (1|B, 1|Hq, 1|Sq, 1|Sk), of q's type or
	// float32. Axes that it lacks are the leading ones, and 1. It is differentiable; its gradient,
	// which is as large as it is, is computed only where something uses it.
	//
	// Of a bias that hides keys, such as one of -1e9, a row that sees nothing else has the mean of
	// their values, as of any equal scores. Its gradients are too large by up to the number of its
	// keys: a float32 logsumexp near -1e9 does not tell how many they are. Let the loss leave such
	// rows out, or hide keys by KVLengths, KVLens, Mask or a bias of −∞: the row and its gradients
	// are then zero.
	Bias *gorgonia.Node
	// Score changes the scores, after all of the above: it returns what a pair's score becomes, in
	// the language of package score. One that does not read the score leaves q·k out. Nodes of
	// floats that it looks up ([Lookup]) are differentiable.
	Score func(Pair) Expr
	// Mask says which of the pairs that Causal and Window show are visible, in the same language.
	// Tiles of the score matrix that it hides cost nothing; [MaskPicture] draws them.
	Mask func(Pair) Cond
	// Sinks, (Hq), are scores that take probability and give no value. They are differentiable.
	Sinks *gorgonia.Node

	Lengths
	Dropout Drop // of attention weights, while the graph trains

	// Ranks shares the sequence out over several processes, each with a device of its own: for
	// sequences longer than one device holds. Each gives the rows of q, k and v that it holds, an
	// early and a late part of the sequence (see [HeldRows]), and gets those rows of the result. q
	// and k are of one length; QLens and KVLens are equal and those of the whole, on all ranks
	// alike. All ranks run the same graph. Bias, Score, Mask and KVLengths cannot be had. A
	// [distributed.Group] is a Ranks; a nil one, or of one rank, is a process alone. Package ring
	// says how it is done.
	//
	// [distributed.Group]: https://pkg.go.dev/github.com/stheno-ml/stheno/train/distributed#Group
	Ranks kernels.Ranks

	Precision kernels.Precision // the coarsest arithmetic allowed for float32; zero: the graph's, see [Mode.AllowPrecision]
	kernels.Guarantees
}

// Lengths says how long the sequences are. Its zero value is a batch whose items all have as many
// rows as q and k have.
type Lengths struct {
	// QLens and KVLens say that sequences lie end to end along the length axis: q is (total, Hq,
	// D), k is (totalK, Hk, D) and v is (totalK, Hk, Dv). They are vectors of int, int32 or int64:
	// 0, and then where each sequence ends. Their values may change from run to run; the host reads
	// them, also those of a device's [Feed]. Bias is then (1|n, 1|Hq, 1|at least the longest q,
	// 1|at least the longest k). A sequence may be empty. Rows behind the last sequence have an
	// output of 0 and gradients of 0.
	QLens, KVLens *gorgonia.Node

	// KVLengths says how many of k's rows each batch item has, (B), of int, int32 or int64; nil
	// means all. Its values may change from run to run. What a mask calls the last key is then the
	// last that there is: with CausalBottomRight, the last query sees all of them and no query sees
	// more.
	KVLengths *gorgonia.Node
}

// FlashAttention is softmax(scale·QKᵀ)V with the given options, in memory that grows with the
// length, not its square.
//
// q is (B, Hq, Sq, D), k is (B, Hk, Sk, D) and v is (B, Hk, Sk, Dv), of one type of floats, in o's
// layout; Hq is a multiple of Hk, and query head h reads key head h/(Hq/Hk). k and v may have a
// batch of 1 for all of q's. The result is (B, Hq, Sq, Dv) in the same layout. For packed sequences
// the three are (total, heads, head size) and so is the result.
//
// q, k, v, o.Bias, o.Sinks and what o.Score looks up have gradients, in the shapes of the inputs.
// Their values may be views with any strides as long as the last axis is contiguous.
func FlashAttention(q, k, v *gorgonia.Node, o AttentionOptions) (*gorgonia.Node, error) {
	return one(separateAttention("FlashAttention", q, k, v, o, false))
}

// FlashAttentionLSE is [FlashAttention] that also gives the logsumexp of each row's scores, (B, Hq,
// Sq) in every layout and (Hq, total) for packed sequences, in float32 where q has 16 bits. The
// logsumexp has a gradient too, so that results over parts of the keys can be combined. A row that
// sees no key has a logsumexp of −∞.
func FlashAttentionLSE(q, k, v *gorgonia.Node, o AttentionOptions) (out, lse *gorgonia.Node, err error) {
	outputs, err := separateAttention("FlashAttentionLSE", q, k, v, o, true)
	if err != nil {
		return nil, nil, err
	}
	return outputs[0], outputs[1], nil
}

func separateAttention(name string, q, k, v *gorgonia.Node, o AttentionOptions, withLSE bool) (gorgonia.Nodes, error) {
	a, err := newAttention(name, o, input{name: "q", node: q}, input{name: "k", node: k}, input{name: "v", node: v})
	if err != nil {
		return nil, err
	}
	a.withLSE = withLSE
	return applyAll(name, a.over(o.Ranks), a.inputs...)
}

// FlashAttentionQKV is [FlashAttention] over the output of one projection: qkv is (B, S,
// (heads+2·kvHeads)·D), each row the query heads, then the key heads, then the value heads, and the
// result is (B, S, heads·D). For packed sequences they are (total, (heads+2·kvHeads)·D) and (total,
// heads·D).
//
// The parts are read where they lie and the gradient of qkv is written as one tensor: nothing is
// transposed or copied.
func FlashAttentionQKV(qkv *gorgonia.Node, heads, kvHeads int, o AttentionOptions) (*gorgonia.Node, error) {
	const name = "FlashAttentionQKV"
	a, err := newAttentionQKV(name, qkv, heads, kvHeads, o)
	if err != nil {
		return nil, err
	}
	return apply(name, a.over(o.Ranks), a.inputs...)
}

// attention is the kernel of FlashAttention. How its inputs become the kernels' problem is said in
// attention_problem.go.
type attention struct {
	layout         Layout
	heads, kvHeads int // of FlashAttentionQKV, whose heads lie in the last axis; 0 otherwise
	withLSE        bool
	inputs         []input
	rows           int               // how many of them q, k and v are
	options        kernels.Attention // without tensors
}

const attentionLSE = 0 // what it saves

// alone is the kernel of a process alone. Where its work is recorded, it reads lengths again.
func (a *attention) alone() kernel {
	for i := range a.inputs {
		if a.inputs[i].form == hostForm {
			a.inputs[i].form = rereadForm
		}
	}
	return kernel{describe: a.describe, forward: a.forward, backward: a.backward, second: a.second}
}

func (a *attention) describe(in tensors) (description, error) {
	p, err := a.check(in)
	if err != nil {
		return description{}, err
	}
	is := a.describeRows(p)
	is.leavesRoom = true
	return is, nil
}

// describeRows describes the outputs.
func (a *attention) describeRows(p *kernels.Attention) description {
	is, wide := described(p.Q.DType, a.outputShape(p)...), p.Q.DType.Wide()
	if a.withLSE {
		is.outputs = append(is.outputs, kernels.Contiguous(nil, wide, a.lseShape(p)...))
	}
	is.saves, is.readsOutputs = tensors{kernels.Contiguous(nil, wide, rowsOf(p)...)}, len(is.outputs)
	is.dropout, is.costly = p.Dropout, true
	return is
}

func (a *attention) forward(r *run, in, out tensors) error {
	outputs := a.outputs(r, out)
	err := a.vary(r, in, func(b kernels.Backend, p *kernels.Attention) error { return b.AttentionForward(p, outputs) })
	if err != nil {
		return err
	}
	return a.copyLSE(r, out)
}

// outputs are what the kernel writes to.
func (a *attention) outputs(r *run, out tensors) kernels.AttentionOutputs {
	outputs := kernels.AttentionOutputs{O: a.outputView(out[0]), LSE: r.saved(attentionLSE)}
	if a.withLSE && !outputs.LSE.IsSet() {
		outputs.LSE = out[1].Reshape(r.c.is.saves[attentionLSE].Shape...)
	}
	return outputs
}

// copyLSE copies a logsumexp that was saved to the output for it, if there is one.
func (a *attention) copyLSE(r *run, out tensors) error {
	lse := r.saved(attentionLSE)
	if !a.withLSE || !lse.IsSet() {
		return nil
	}
	return r.Copy(out[1], lse.Reshape(out[1].Shape...))
}

// backward computes δ and then the gradients that are wanted. Those of q, k and v come together.
func (a *attention) backward(r *run, in, dOut, d tensors) error {
	g, err := a.gradients(r, a.problem(r, in), in, dOut, d)
	if err != nil {
		return err
	}
	return a.vary(r, in, func(b kernels.Backend, p *kernels.Attention) error { return b.AttentionBackward(p, g) })
}

// gradients computes δ, and gives memory to the gradients.
func (a *attention) gradients(r *run, p *kernels.Attention, in, dOut, d tensors) (g kernels.AttentionGradients, err error) {
	g.LSE = r.saved(attentionLSE)
	if g.DO, err = a.gradientOfOut(r, dOut[0]); err != nil {
		return g, err
	}
	var dLSE kernels.Tensor
	if a.withLSE && dOut[1].IsSet() {
		dLSE = dOut[1].Reshape(rowsOf(p)...)
	}
	if g.Delta, err = r.scratchLike(r.c.is.saves[attentionLSE]); err != nil {
		return g, err
	}
	if err := r.AttentionDelta(p, a.outputView(r.out[0]), g.DO, dLSE, g.Delta); err != nil {
		return g, err
	}
	rest, rows := a.behind(d), slices.Clone(d[:a.rows])
	g.DBias, g.DSinks, g.DTables = fourAxes(rest[biasInput]), rest[sinksInput], rest[tableInputs:]
	if !slices.ContainsFunc(rows, kernels.Tensor.IsSet) {
		return g, nil
	}
	for i := range rows {
		if !rows[i].IsSet() {
			if rows[i], err = r.scratchLike(in[i]); err != nil {
				return g, err
			}
		}
	}
	g.DQ, g.DK, g.DV = a.split(rows)
	return g, nil
}

// vary does work on the problem: where the host reads lengths, and the graph is recorded, again
// before each launch, with the lengths of the moment.
func (a *attention) vary(r *run, in tensors, work func(b kernels.Backend, p *kernels.Attention) error) error {
	if !slices.ContainsFunc(a.inputs, func(in input) bool { return in.form == rereadForm && in.node != nil }) {
		return work(r.Backend, a.problem(r, in))
	}
	dropout := r.dropout()
	return r.vary(in, func(b kernels.Backend) error {
		p := a.problem(r, in)
		p.Dropout = dropout
		return work(b, p)
	})
}

// gradientOfOut is dO as (B, Hq, Sq, Dv): zeros if nothing uses the output.
func (a *attention) gradientOfOut(r *run, dOut kernels.Tensor) (kernels.Tensor, error) {
	if dOut.IsSet() {
		return a.outputView(dOut), nil
	}
	zeros, err := r.scratchLike(r.c.is.outputs[0])
	if err != nil {
		return zeros, err
	}
	return a.outputView(zeros), r.Fill(zeros, 0)
}
