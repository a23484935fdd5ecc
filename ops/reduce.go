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

func (*reduction) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return described(in[0].DType.Wide()), nil
}

func (k *reduction) forward(r *run, in, out []kernels.Tensor) error {
	if k.mean {
		return r.Mean(in[0], out[0])
	}
	return r.Sum(in[0], out[0])
}

func (k *reduction) backward(r *run, _, dOut, d []kernels.Tensor) error {
	factor := 1.0
	if k.mean {
		factor = 1 / float64(d[0].Elements())
	}
	return r.Broadcast(dOut[0], factor, d[0])
}
