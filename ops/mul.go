package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Mul is a·b, element by element, of two tensors of one shape: a gate.
func Mul(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Mul", multiplication{}, input{name: "a", node: a}, input{name: "b", node: b})
}

type multiplication struct{ stateless }

func (multiplication) shape(in []kernels.Tensor) ([]int, error) {
	return in[0].Shape, checkSame("b", in[1], "a", in[0])
}

func (multiplication) forward(h *home, in []kernels.Tensor, out kernels.Tensor, _ []bool) error {
	return h.Mul(in[0], in[1], out)
}

// backward computes da = dc·b and db = dc·a.
func (multiplication) backward(h *home, in []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error {
	for i := range d {
		if !d[i].IsSet() {
			continue
		}
		if err := h.Mul(dOut, in[1-i], d[i]); err != nil {
			return err
		}
	}
	return nil
}

// Scale multiplies every element of x by a number.
func Scale(x *gorgonia.Node, factor float64) (*gorgonia.Node, error) {
	return apply("Scale", scaling{factor: factor}, input{name: "x", node: x, unread: true})
}

type scaling struct {
	stateless
	factor float64
}

func (k scaling) shape(in []kernels.Tensor) ([]int, error) {
	return in[0].Shape, kernels.ValidateFactor(k.factor)
}

func (k scaling) forward(h *home, in []kernels.Tensor, out kernels.Tensor, _ []bool) error {
	return h.MulScalar(k.factor, in[0], out)
}

func (k scaling) backward(h *home, _ []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error {
	return h.MulScalar(k.factor, dOut, d[0])
}
