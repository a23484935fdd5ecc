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

func (multiplication) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), checkSame("b", in[1], "a", in[0])
}

func (multiplication) forward(r *run, in, out []kernels.Tensor) error {
	return r.Mul(in[0], in[1], out[0])
}

// backward computes da = dc·b and db = dc·a.
func (multiplication) backward(r *run, in, dOut, d []kernels.Tensor) error {
	for i := range d {
		if !d[i].IsSet() {
			continue
		}
		if err := r.Mul(dOut[0], in[1-i], d[i]); err != nil {
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

func (k scaling) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), kernels.ValidateFactor(k.factor, in[0].DType)
}

func (k scaling) forward(r *run, in, out []kernels.Tensor) error {
	return r.MulScalar(k.factor, in[0], out[0])
}

func (k scaling) backward(r *run, _, dOut, d []kernels.Tensor) error {
	return r.MulScalar(k.factor, dOut[0], d[0])
}
