package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// ListedKeysOptions are the options of [ListedKeysAttention]. The zero value is softmax(q·k/√D)
// over (B, H, S, D).
type ListedKeysOptions struct {
	Layout Layout  // of q, k, v and the output
	Scale  float64 // the factor of q·k; 0 means 1/√D

	Deterministic bool // gradients that are bit-equal from run to run; on the CPU they always are
}

// ListedKeysAttention is attention in which each query reads the keys on a list of its own, chosen
// at run time: q, k and v are those of [FlashAttention], and lists is (1|B, 1|Hk, Sq, n), of int,
// int32 or int64: numbers of rows of k, from 0 to Sk−1. −1 is no key, and a key that is listed
// several times counts as often. The query heads of a group read the same keys.
//
//	_, keys, err := ops.TopK(scores, 512)   // (B, 1, Sq, Sk)
//	out, err := ops.ListedKeysAttention(q, k, v, keys, ops.ListedKeysOptions{})
//
// Time and memory grow with Sq·n: keys that no list has are not read. It pays where several query
// heads share a list, as keys are brought together once for all of them. On a Hopper GPU, lists
// that have a good part of the keys are computed by full attention, with up to 512 MiB of scratch
// memory. Nothing else hides a key, so that the choice needs to leave out the future. A query
// without keys has an output of 0. The choice has no gradient; q, k and v have. An index that is
// none is an error of the run. A GPU takes it for no key, and the next call that waits for the
// device returns the error. Heads have up to 256 elements there.
func ListedKeysAttention(q, k, v, lists *gorgonia.Node, o ListedKeysOptions) (*gorgonia.Node, error) {
	const name = "ListedKeysAttention"
	if o.Layout != BHSD && o.Layout != BSHD {
		return nil, fmt.Errorf("%s: layout is %d, it needs to be BHSD or BSHD", name, o.Layout)
	}
	a := &listedKeys{layout: o.Layout, scale: o.Scale, deterministic: o.Deterministic}
	return apply(name, kernel{describe: a.describe, forward: a.forward, backward: a.backward},
		input{name: "q", node: q, form: ownRowsForm}, input{name: "k", node: k, form: ownRowsForm}, input{name: "v", node: v, form: ownRowsForm},
		input{name: "lists", node: lists, form: indexForm})
}

// listedKeys is the kernel of ListedKeysAttention.
type listedKeys struct {
	layout        Layout
	scale         float64
	deterministic bool
}

// view is a tensor of rows as (B, H, S, D).
func (a *listedKeys) view(t kernels.Tensor) kernels.Tensor {
	if a.layout == BSHD && t.IsSet() {
		return t.Permute(0, 2, 1, 3)
	}
	return t
}

func (a *listedKeys) problem(in tensors) *kernels.ListedAttention {
	return &kernels.ListedAttention{Q: a.view(in[0]), K: a.view(in[1]), V: a.view(in[2]), Lists: in[3], Scale: a.scale, Deterministic: a.deterministic}
}

func (a *listedKeys) describe(in tensors) (is description, err error) {
	for i, name := range []string{"q", "k", "v"} {
		if err := checkAxes(name, in[i].Shape, layoutAxes[a.layout]); err != nil {
			return is, err
		}
	}
	p := a.problem(in)
	if err := p.Validate(); err != nil {
		return is, err
	}
	shape := slices.Clone(in[0].Shape)
	shape[3] = in[2].Shape[3]
	is = described(p.Q.DType, shape...)
	is.saves, is.readsOutputs = tensors{kernels.Contiguous(nil, p.Q.DType.Wide(), p.Q.Shape[:3]...)}, 1
	return is, nil
}

// device is the run's, if it has kernels for this.
func (a *listedKeys) device(r *run) (kernels.ListedKernels, error) {
	if device, ok := r.Backend.(kernels.ListedKernels); ok {
		return device, nil
	}
	return nil, kernels.Unsupported{Device: r.Name(), What: "attention to listed keys"}
}

func (a *listedKeys) forward(r *run, in, out tensors) error {
	device, err := a.device(r)
	if err != nil {
		return err
	}
	return device.ListedForward(a.problem(in), kernels.AttentionOutputs{O: a.view(out[0]), LSE: r.saved(attentionLSE)})
}

func (a *listedKeys) backward(r *run, in, dOut, d tensors) error {
	device, err := a.device(r)
	if err != nil {
		return err
	}
	p := a.problem(in)
	g := kernels.AttentionGradients{DO: a.view(dOut[0]), LSE: r.saved(attentionLSE)}
	if g.Delta, err = r.scratchLike(r.c.is.saves[attentionLSE]); err != nil {
		return err
	}
	if err := r.AttentionDelta(p.Plain(), a.view(r.out[0]), g.DO, kernels.Tensor{}, g.Delta); err != nil {
		return err
	}
	rows := slices.Clone(d[:3])
	for i := range rows {
		if !rows[i].IsSet() {
			if rows[i], err = r.scratchLike(in[i]); err != nil {
				return err
			}
		}
	}
	g.DQ, g.DK, g.DV = a.view(rows[0]), a.view(rows[1]), a.view(rows[2])
	return device.ListedBackward(p, g)
}
