package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// AttentionScores are the scores of rows of q with all keys as they enter the softmax of [FlashAttention] with the same options:
// scaled, capped, with slopes and bias, changed by Score, and −∞ where the mask hides the key. They are (B, Hq, rows, Sk) in every
// layout, in float32 where q has 16 bits, and rows are row numbers of each batch item; none means all.
//
// They are for looking at: without a gradient, not for packed sequences, and computed on the host where q's device does not.
// Sinks and Dropout, which come later, are not looked at.
func AttentionScores(q, k *gorgonia.Node, o AttentionOptions, rows ...int) (*gorgonia.Node, error) {
	const name = "AttentionScores"
	if o.QLens != nil || o.KVLens != nil {
		return nil, fmt.Errorf("%s: QLens or KVLens is given, it does not take packed sequences", name)
	}
	if shareOf(o.Ranks) != nil {
		return nil, fmt.Errorf("%s: Ranks is given, it does not take sequences that ranks share", name)
	}
	o.Sinks, o.Dropout = nil, 0
	a, err := newAttention(name, o, input{name: "q", node: q}, input{name: "k", node: k}, input{name: "k", node: k})
	if err != nil {
		return nil, err
	}
	return apply(name, &attentionScores{a, slices.Clone(rows)}, a.inputs...)
}

type attentionScores struct {
	*attention
	rows []int
}

func (s *attentionScores) source() source { return noGradient }

func (s *attentionScores) rereads() bool { return false }

func (s *attentionScores) backward(*run, []kernels.Tensor, []kernels.Tensor, []kernels.Tensor) error {
	return nil // looking at scores does not keep a lispMachine from differentiating the rest
}

func (s *attentionScores) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	p, err := s.check(in)
	if err != nil {
		return nil, err
	}
	length := p.Q.Shape[2]
	if len(s.rows) == 0 {
		for i := range length {
			s.rows = append(s.rows, i)
		}
	}
	for _, i := range s.rows {
		if i < 0 || i >= length {
			return nil, fmt.Errorf("row %d is asked for, it needs to be from 0 to %d", i, length-1)
		}
	}
	return described(p.Q.DType.Wide(), p.Q.Shape[0], p.Q.Shape[1], len(s.rows), p.K.Shape[2]), nil
}

func (s *attentionScores) forward(r *run, in, out []kernels.Tensor) error {
	p, err := s.problem(in)
	if err != nil {
		return err
	}
	p.V = p.K
	err = r.AttentionScores(p, s.rows, out[0])
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	read := []*kernels.Tensor{&p.Q, &p.K, &p.Bias}
	for i := range p.Tables {
		read = append(read, &p.Tables[i])
	}
	return r.onHost(read, out[0], func(scores kernels.Tensor) error {
		p.V = p.K
		return host.AttentionScores(p, s.rows, scores)
	})
}
