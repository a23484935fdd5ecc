package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// DropoutOptions are the options of [Dropout].
type DropoutOptions struct {
	P float64 // the probability to drop an element, in [0, 1); 0 drops nothing
	// Seed, the training step and an element's position decide whether it is dropped, so give each call in a graph a
	// seed of its own.
	Seed uint64
	// Ranks says that x is the rows that this rank holds of a sequence, see [AttentionOptions]: (B, S, features) or (S, features). Its
	// masks are those of the whole.
	Ranks kernels.Ranks
}

// Dropout sets elements of x to 0 with probability P and multiplies the others by 1/(1−P), while the graph trains; when
// it evaluates, the result equals x. See [ModeOf].
func Dropout(x *gorgonia.Node, o DropoutOptions) (*gorgonia.Node, error) {
	k := &dropout{share: shareOf(o.Ranks), dropping: dropping{options: kernels.Dropout{P: o.P, Seed: o.Seed}}}
	return apply("Dropout", k, input{name: "x", node: x, unread: true})
}

type dropout struct {
	stateless // what it keeps costs nothing and is always kept
	dropping
	share *share
}

func (k *dropout) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	if k.share != nil {
		if axes := len(in[0].Shape); axes != 2 && axes != 3 {
			return nil, fmt.Errorf("x has shape %v, with Ranks it needs to be (batch, length, features) or (length, features)", in[0].Shape)
		}
		if err := k.share.check("x", in[0].Shape[len(in[0].Shape)-2]); err != nil {
			return nil, err
		}
	}
	return alike(in[0]), k.options.Validate()
}

func (k *dropout) forward(r *run, in, out []kernels.Tensor) error {
	d, err := k.begin(r)
	if err != nil {
		return err
	}
	return k.drop(r, d, in[0], out[0])
}

func (k *dropout) backward(r *run, _, dOut, d []kernels.Tensor) error {
	return k.drop(r, k.last, dOut[0], d[0])
}

// drop drops elements of the rows that follow each other in the whole.
func (k *dropout) drop(r *run, d kernels.Dropout, from, to kernels.Tensor) error {
	if k.share == nil || d.P == 0 {
		return r.Dropout(d, from, to)
	}
	length := from.Shape[len(from.Shape)-2]
	if len(from.Shape) == 2 {
		from, to = from.Unflatten(0, length), to.Unflatten(0, length)
	}
	for b := range from.Shape[0] {
		if err := k.share.each(length, func(at, count, position int) error {
			d.Row = b*length*k.share.Size() + position
			part := func(t kernels.Tensor) kernels.Tensor { return t.Slice(0, b, b+1).Slice(1, at, at+count) }
			return r.Dropout(d, part(from), part(to))
		}); err != nil {
			return err
		}
	}
	return nil
}
