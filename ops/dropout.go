package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// DropoutOptions are the options of [Dropout].
type DropoutOptions struct {
	P float64 // the probability to drop an element, in [0, 1); 0 drops nothing
	// Seed, the training step and an element's position decide whether it is dropped, so give each call in a graph a
	// seed of its own.
	Seed uint64
}

// Dropout sets elements of x to 0 with probability P and multiplies the others by 1/(1−P), while the graph trains; when
// it evaluates, the result equals x. See [ModeOf].
func Dropout(x *gorgonia.Node, o DropoutOptions) (*gorgonia.Node, error) {
	k := &dropout{dropping: dropping{options: kernels.Dropout{P: o.P, Seed: o.Seed}}}
	return apply("Dropout", k, input{name: "x", node: x, unread: true})
}

type dropout struct {
	stateless // what it keeps costs nothing and is always kept
	dropping
}

func (k *dropout) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), k.options.Validate()
}

func (k *dropout) forward(r *run, in, out []kernels.Tensor) error {
	d, err := k.begin(r)
	if err != nil {
		return err
	}
	return r.Dropout(d, in[0], out[0])
}

func (k *dropout) backward(r *run, _, dOut, d []kernels.Tensor) error {
	return r.Dropout(k.last, dOut[0], d[0])
}
