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

func (swiGLU) shape(in []kernels.Tensor) ([]int, error) {
	return in[0].Shape, checkSame("up", in[1], "gate", in[0])
}

func (swiGLU) forward(h *home, in []kernels.Tensor, out kernels.Tensor, _ []bool) error {
	return h.SwiGLU(in[0], in[1], out)
}

// backward computes both gradients even if one is wanted: they share their exponentials.
func (swiGLU) backward(h *home, in []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error {
	for i := range d {
		if !d[i].IsSet() {
			var err error
			if d[i], err = h.Alloc(dOut.DType, dOut.Shape...); err != nil {
				return err
			}
		}
	}
	return h.SwiGLUBackward(in[0], in[1], dOut, d[0], d[1])
}
