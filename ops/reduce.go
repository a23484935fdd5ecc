package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Sum is the sum of all elements of x, a scalar that [gorgonia.Grad] takes as a cost.
func Sum(x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Sum", &reduction{}, input{name: "x", node: x, unread: true})
}

// Mean is the mean of all elements of x, a scalar that [gorgonia.Grad] takes as a cost.
func Mean(x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Mean", &reduction{mean: true}, input{name: "x", node: x, unread: true})
}

type reduction struct {
	stateless
	mean bool
}

func (*reduction) shape([]kernels.Tensor) ([]int, error) { return nil, nil }

func (k *reduction) forward(h *home, in []kernels.Tensor, out kernels.Tensor, _ []bool) error {
	if k.mean {
		return h.Mean(in[0], out)
	}
	return h.Sum(in[0], out)
}

func (k *reduction) backward(h *home, _ []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error {
	factor := 1.0
	if k.mean {
		factor = 1 / float64(d[0].Elements())
	}
	return h.Broadcast(dOut, factor, d[0])
}
