package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// SwiGLU is silu(gate)·up, element by element: the middle of Llama's MLP, whose gate and up are two linear layers.
func SwiGLU(gate, up *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("SwiGLU", swiGLU{}, input{name: "gate", node: gate}, input{name: "up", node: up})
}

type swiGLU struct{ stateless }

func (swiGLU) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), checkSame("up", in[1], "gate", in[0])
}

func (swiGLU) forward(r *run, in, out []kernels.Tensor) error {
	return r.SwiGLU(in[0], in[1], out[0])
}

// backward computes both gradients even if one is wanted: they share their exponentials.
func (swiGLU) backward(r *run, in, dOut, d []kernels.Tensor) error {
	for i := range d {
		if !d[i].IsSet() {
			if err := r.scratch(&d[i], dOut[0].DType, dOut[0].Shape...); err != nil {
				return err
			}
		}
	}
	return r.SwiGLUBackward(in[0], in[1], dOut[0], d[0], d[1])
}
