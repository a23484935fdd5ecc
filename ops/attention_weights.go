package ops

import (
	"cmp"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// AttentionWeights are the probabilities with which [FlashAttention] of q and k, with the same
// options, would weigh the values: (B, Hq, Sq, Sk) in every layout. They are for looking at: this
// is the one op whose memory grows with the square of the length, it has no gradient, and it does
// not take packed sequences.
//
// Dropout applies to the weights as it does in attention, by the same masks in the same step.
func AttentionWeights(q, k *gorgonia.Node, o AttentionOptions) (*gorgonia.Node, error) {
	const name = "AttentionWeights"
	// The keys stand in for the values, which the weights do not depend on.
	a, err := newAttention(name, o, input{name: "q", node: q}, input{name: "k", node: k}, input{name: "k", node: k})
	return applyWeights(name, a, err, o)
}

// AttentionWeightsQKV is [AttentionWeights] for [FlashAttentionQKV].
func AttentionWeightsQKV(qkv *gorgonia.Node, heads, kvHeads int, o AttentionOptions) (*gorgonia.Node, error) {
	const name = "AttentionWeightsQKV"
	a, err := newAttentionQKV(name, qkv, heads, kvHeads, o)
	return applyWeights(name, a, err, o)
}

func applyWeights(name string, a *attention, err error, o AttentionOptions) (*gorgonia.Node, error) {
	if err := cmp.Or(o.checkWhole(name), err); err != nil {
		return nil, err
	}
	k := attentionWeights{a}
	return apply(name, kernel{describe: k.describe, forward: k.forward}, a.inputs...)
}

type attentionWeights struct{ *attention }

func (w attentionWeights) describe(in tensors) (description, error) {
	p, err := w.check(in)
	if err != nil {
		return description{}, err
	}
	is := described(p.Q.DType, append(rowsOf(p), p.K.Shape[2])...)
	is.gradients, is.dropout = noGradient, p.Dropout
	return is, nil
}

// columnsAtOnce is how wide a head may be on every device.
const columnsAtOnce = 256

// forward attends to the columns of an identity matrix, some at a time.
func (w attentionWeights) forward(r *run, in, out tensors) error {
	p := w.problem(r, in)
	keys := p.K.Shape[2]
	columns, err := r.scratch(p.Q.DType, keys, min(keys, columnsAtOnce))
	if err != nil {
		return err
	}
	for from := 0; from < keys; from += columnsAtOnce {
		to := min(from+columnsAtOnce, keys)
		part := columns.Slice(1, 0, to-from)
		if err := identity(r, part, from); err != nil {
			return err
		}
		p.V = part
		p.V.Shape, p.V.Strides = []int{p.K.Shape[0], p.K.Shape[1], keys, to - from}, []int{0, 0, part.Strides[0], 1}
		if err := r.AttentionForward(p, kernels.AttentionOutputs{O: out[0].Slice(3, from, to)}); err != nil {
			return err
		}
	}
	return nil
}

// identity writes columns of an identity matrix, the first of them being that of an index.
func identity(r *run, columns kernels.Tensor, first int) error {
	matrix, err := host.Alloc(columns.DType, columns.Shape...)
	if err != nil {
		return err
	}
	kernels.FillHost(matrix, 0)
	for i := range columns.Shape[1] {
		kernels.FillHost(matrix.Slice(0, first+i, first+i+1).Slice(1, i, i+1), 1)
	}
	return r.Copy(columns, matrix)
}
