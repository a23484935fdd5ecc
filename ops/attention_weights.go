package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// AttentionWeights are the probabilities with which [FlashAttention] of q and k, with the same options, would weigh the
// values: (B, Hq, Sq, Sk) in every layout. They are for looking at: this is the one op whose memory grows with the square
// of the length, it has no gradient, and it does not take packed sequences.
//
// Dropout applies to the weights as it does in attention, by the same masks in the same step.
func AttentionWeights(q, k *gorgonia.Node, o AttentionOptions) (*gorgonia.Node, error) {
	a := &attention{name: "AttentionWeights", layout: o.Layout}
	if o.Layout != BHSD && o.Layout != BSHD {
		return nil, fmt.Errorf("%s: layout is %d, it needs to be BHSD or BSHD", a.name, o.Layout)
	}
	// The keys stand in for the values, which the weights do not depend on.
	return a.weights([]namedNode{{"q", q}, {"k", k}, {"k", k}}, o)
}

// AttentionWeightsQKV is [AttentionWeights] for [FlashAttentionQKV].
func AttentionWeightsQKV(qkv *gorgonia.Node, heads, kvHeads int, o AttentionOptions) (*gorgonia.Node, error) {
	a := &attention{name: "AttentionWeightsQKV", layout: BSHD, heads: heads, kvHeads: kvHeads}
	if heads < 1 || kvHeads < 1 {
		return nil, fmt.Errorf("%s: heads is %d and kvHeads is %d, each needs to be at least 1", a.name, heads, kvHeads)
	}
	return a.weights([]namedNode{{"qkv", qkv}}, o)
}

func (a *attention) weights(main []namedNode, o AttentionOptions) (*gorgonia.Node, error) {
	if o.QLens != nil || o.KVLens != nil {
		return nil, fmt.Errorf("%s: QLens or KVLens is given, it does not take packed sequences", a.name)
	}
	nodes, err := a.describe(main, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	p := a.problem(describeInputs(a.inputs, dtypeOf(a.dtype)), nil)
	n, err := gorgonia.ApplyOp(&attentionWeights{newSignature(a.name, nodes, nil, a.dtype, append(a.rows, p.K.Shape[2])...), a}, nodes...)
	if err == nil {
		a.mode = ModeOf(n.Graph())
	}
	return n, err
}

func describeInputs(inputs []attentionInput, dtype kernels.DType) []kernels.Tensor {
	tensors := make([]kernels.Tensor, len(inputs))
	for i, in := range inputs {
		tensors[i] = kernels.Contiguous(nil, dtype, in.shape...)
	}
	return tensors
}

type attentionWeights struct {
	signature
	a *attention
}

func (w *attentionWeights) Do(values ...gorgonia.Value) (gorgonia.Value, error) {
	w.a.begin()
	v, err := w.compute(values)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	return v, nil
}

// compute attends to the columns of an identity matrix, as many at a time as a head may be wide.
func (w *attentionWeights) compute(values []gorgonia.Value) (gorgonia.Value, error) {
	p, h, err := w.a.bind(values)
	if err != nil {
		return nil, err
	}
	out, err := h.Alloc(p.Q.DType, w.shape...)
	if err != nil {
		return nil, err
	}
	keys := p.K.Shape[2]
	for from := 0; from < keys; from += kernels.MaxHeadDim {
		to := min(from+kernels.MaxHeadDim, keys)
		columns, err := identity(h, p.Q.DType, keys, from, to)
		if err != nil {
			return nil, err
		}
		p.V = kernels.Tensor{
			Data: columns.Data, DType: columns.DType,
			Shape: []int{p.K.Shape[0], p.K.Shape[1], keys, to - from}, Strides: []int{0, 0, to - from, 1},
		}
		if err := h.AttentionForward(&p, kernels.AttentionOutputs{O: out.Slice(3, from, to)}); err != nil {
			return nil, err
		}
	}
	return h.value(out), nil
}

// identity is the given columns of an n × n identity matrix.
func identity(h *home, dtype kernels.DType, n, from, to int) (kernels.Tensor, error) {
	one, err := h.scalar(1, dtype)
	if err != nil {
		return one, err
	}
	t, err := h.Alloc(dtype, n, to-from)
	if err != nil {
		return t, err
	}
	if err := h.zero(t); err != nil {
		return t, err
	}
	for column := from; column < to; column++ {
		at := t.Slice(0, column, column+1).Slice(1, column-from, column-from+1)
		if err := h.copy(kernels.Contiguous(at.Data, dtype, 1), kernels.Contiguous(one.Data, dtype, 1)); err != nil {
			return t, err
		}
	}
	return t, nil
}
