package ops

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Drop says what dropout drops while a graph trains; see [ModeOf]. Its zero value drops nothing.
type Drop struct {
	// P is the probability to drop an element, in [0, 1); 0 drops nothing. It is rounded to a
	// multiple of 2⁻¹⁶, and the factor of what is kept is that of the rounded one: means stay
	// exact.
	P float64
	// Seed, the training step and an element's position decide whether it is dropped, so give each
	// call in a graph a seed of its own.
	Seed uint64
}

// DropoutOptions are the options of [Dropout].
type DropoutOptions struct {
	Drop
	// Ranks says that x is the rows that this rank holds of a sequence, see [AttentionOptions]: (B,
	// S, features) or (S, features). Its masks are those of the whole.
	Ranks kernels.Ranks
}

// Dropout sets elements of x to 0 with probability P and multiplies the others by 1/(1−P), while
// the graph trains; when it evaluates, the result equals x. See [ModeOf].
func Dropout(x *gorgonia.Node, o DropoutOptions) (*gorgonia.Node, error) {
	k := dropout{shareOf(o.Ranks)}
	return apply("Dropout", kernel{
		describe: func(in tensors) (description, error) {
			is := like(in[0])
			is.dropout, is.again = kernels.Dropout{P: o.P, Seed: o.Seed}, k.again
			return is, errors.Join(k.check(in[0].Shape), is.dropout.Validate())
		},
		linear:   true,
		forward:  func(r *run, in, out tensors) error { return k.drop(r, in[0], out[0]) },
		backward: func(r *run, _, dOut, d tensors) error { return k.drop(r, dOut[0], d[0]) },
	}, input{name: "x", node: x, unread: true})
}

type dropout struct{ share *share }

// again drops the same elements once more.
func (dropout) again(c *call, _ int, a *again) (*gorgonia.Node, error) {
	x := c.operands[0].node
	behind, err := a.behind(x)
	if err != nil {
		return nil, err
	}
	r := newRepetition()
	r.made[x] = behind
	return one(r.again(c))
}

func (k dropout) check(shape []int) error {
	if k.share == nil {
		return nil
	}
	if axes := len(shape); axes != 2 && axes != 3 {
		return fmt.Errorf("x has shape %v, with Ranks it needs to be (batch, length, features) or (length, features)", shape)
	}
	return k.share.check("x", shape[len(shape)-2])
}

// drop drops elements of the rows that follow each other in the whole.
func (k dropout) drop(r *run, from, to kernels.Tensor) error {
	d := r.dropout()
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
