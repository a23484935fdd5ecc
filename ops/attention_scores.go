package ops

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
)

// AttentionScores are the scores of rows of q with all keys as they enter the softmax of
// [FlashAttention] with the same options: scaled, capped, with slopes and bias, changed by Score,
// and −∞ where the mask hides the key. They are (B, Hq, rows, Sk) in every layout, in float32 where
// q has 16 bits, and rows are row numbers of each batch item; none means all.
//
// They are for looking at: without a gradient, and not for packed sequences. On a device that
// cannot compute them, as no GPU can, the error of a machine of [NewMachine] wraps
// [errors.ErrUnsupported]: [Download] q and k. Sinks and Dropout, which come later, are not looked
// at.
func AttentionScores(q, k *gorgonia.Node, o AttentionOptions, rows ...int) (*gorgonia.Node, error) {
	const name = "AttentionScores"
	if err := o.checkWhole(name); err != nil {
		return nil, err
	}
	o.Sinks, o.Dropout = nil, Drop{}
	a, err := newAttention(name, o, input{name: "q", node: q}, input{name: "k", node: k}, input{name: "k", node: k})
	if err != nil {
		return nil, err
	}
	s := attentionScores{a, slices.Clone(rows)}
	return apply(name, kernel{describe: s.describe, forward: s.forward}, a.inputs...)
}

// checkWhole returns an error for sequences that lie end to end, or that ranks share: what shows
// attention does not take them.
func (o *AttentionOptions) checkWhole(name string) error {
	switch {
	case o.QLens != nil || o.KVLens != nil:
		return fmt.Errorf("%s: QLens or KVLens is given, it does not take packed sequences", name)
	case shareOf(o.Ranks) != nil:
		return fmt.Errorf("%s: Ranks is given, it does not take sequences that ranks share", name)
	}
	return nil
}

type attentionScores struct {
	*attention
	rows []int // none means all
}

func (s attentionScores) describe(in tensors) (description, error) {
	p, err := s.check(in)
	if err != nil {
		return description{}, err
	}
	length := p.Q.Shape[2]
	for _, i := range s.rows {
		if i < 0 || i >= length {
			return description{}, fmt.Errorf("row %d is asked for, it needs to be from 0 to %d", i, length-1)
		}
	}
	if len(s.rows) > 0 {
		length = len(s.rows)
	}
	is := described(p.Q.DType.Wide(), p.Q.Shape[0], p.Q.Shape[1], length, p.K.Shape[2])
	is.gradients = noGradient
	return is, nil
}

func (s attentionScores) forward(r *run, in, out tensors) error {
	rows := s.rows
	for i := 0; len(s.rows) == 0 && i < out[0].Shape[2]; i++ {
		rows = append(rows, i)
	}
	return r.AttentionScores(s.problem(r, in), rows, out[0])
}
