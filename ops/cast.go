package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Cast rounds x to another type of floats, to nearest, ties to even: float32, float64, [BFloat16] or [Float16]. Its gradient is
// rounded to the type of x. A node that has the type already is returned as it is.
func Cast(x *gorgonia.Node, dtype tensor.Dtype) (*gorgonia.Node, error) {
	if x != nil && x.Dtype() == dtype {
		return x, nil
	}
	return apply("Cast", cast{to: dtype}, input{name: "x", node: x, unread: true})
}

type cast struct {
	stateless
	to tensor.Dtype
}

func (k cast) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	dtype := dtypeOf(k.to)
	if dtype == kernels.NoDType {
		return nil, fmt.Errorf("dtype is %v, it needs to be %s", k.to, floatTypes)
	}
	return described(dtype, in[0].Shape...), nil
}

func (cast) forward(r *run, in, out []kernels.Tensor) error { return r.Copy(out[0], in[0]) }

func (cast) backward(r *run, _, dOut, d []kernels.Tensor) error { return r.Copy(d[0], dOut[0]) }
