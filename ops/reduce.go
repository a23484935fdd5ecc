package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Sum is the sum of all elements of x, a scalar that [gorgonia.Grad] takes as a cost.
func Sum(x *gorgonia.Node) (*gorgonia.Node, error) {
	k := reduction(func(r *run, x, out kernels.Tensor) error { return r.Sum(x, out) }, func(int) float64 { return 1 })
	return apply("Sum", k, input{name: "x", node: x, unread: true})
}

// Mean is the mean of all elements of x, a scalar that [gorgonia.Grad] takes as a cost.
func Mean(x *gorgonia.Node) (*gorgonia.Node, error) {
	k := reduction(func(r *run, x, out kernels.Tensor) error { return r.Mean(x, out) }, func(n int) float64 { return 1 / float64(n) })
	return apply("Mean", k, input{name: "x", node: x, unread: true})
}

func reduction(reduce func(r *run, x, out kernels.Tensor) error, factor func(elements int) float64) kernel {
	return kernel{
		linear:   true,
		describe: func(in tensors) (description, error) { return described(in[0].DType.Wide()), nil },
		forward:  func(r *run, in, out tensors) error { return reduce(r, in[0], out[0]) },
		backward: func(r *run, _, dOut, d tensors) error {
			return r.Broadcast(dOut[0], factor(d[0].Elements()), d[0])
		},
	}
}
