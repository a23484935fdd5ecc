package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/ring"
)

// sharedAttention is attention over a sequence that ranks share.
type sharedAttention struct {
	*attention
	share *share
}

// over is the kernel of a process alone, or of one of several ranks.
func (a *attention) over(ranks kernels.Ranks) kernel {
	s := shareOf(ranks)
	if s == nil {
		return a.alone()
	}
	k := sharedAttention{a, s}
	return kernel{describe: k.describe, forward: k.forward, backward: k.backward}
}

func (s sharedAttention) describe(in tensors) (description, error) {
	p, err := s.describeProblem(in)
	if err != nil {
		return description{}, err
	}
	return s.describeRows(p), ring.Check(p, s.share)
}

func (s sharedAttention) forward(r *run, in, out tensors) (err error) {
	outputs := s.outputs(r, out)
	if !outputs.LSE.IsSet() {
		if outputs.LSE, err = r.savedOrScratch(attentionLSE); err != nil {
			return err
		}
	}
	if err := ring.Forward(r, s.share, s.problem(r, in), outputs, r.scratchRow); err != nil {
		return err
	}
	return s.copyLSE(r, out)
}

func (s sharedAttention) backward(r *run, in, dOut, d tensors) error {
	p := s.problem(r, in)
	rows := *p // lengths are those of the whole, and δ is one row's alone
	rows.QLens, rows.KVLens = nil, nil
	g, err := s.gradients(r, &rows, in, dOut, d)
	if err != nil {
		return err
	}
	return ring.Backward(r, s.share, p, g, r.scratchRow)
}

// scratchRow is scratch of one axis.
func (r *run) scratchRow(dtype kernels.DType, elements int) (kernels.Tensor, error) {
	return r.scratch(dtype, elements)
}
