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
	k := &dropout{o: kernels.Dropout{P: o.P, Seed: o.Seed}}
	n, err := apply("Dropout", k, input{name: "x", node: x, unread: true})
	if err == nil {
		k.mode = ModeOf(n.Graph())
	}
	return n, err
}

type dropout struct {
	stateless // what it keeps costs nothing and is always kept
	o         kernels.Dropout
	mode      *Mode
	runs      uint32          // forward runs that began
	last      kernels.Dropout // of the last forward run
}

func (k *dropout) shape(in []kernels.Tensor) ([]int, error) { return in[0].Shape, k.o.Validate() }

func (k *dropout) forward(h *home, in []kernels.Tensor, out kernels.Tensor, _ []bool) error {
	k.last = kernels.Dropout{}
	if step, on := k.mode.step(k.runs); on {
		k.last = k.o
		k.last.Step = step
	}
	k.runs++
	return h.Dropout(k.last, in[0], out)
}

func (k *dropout) backward(h *home, _ []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error {
	return h.Dropout(k.last, dOut, d[0])
}
