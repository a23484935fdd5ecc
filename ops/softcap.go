package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// SoftCap bounds every element of x to ±cap, smoothly: cap·tanh(x/cap).
func SoftCap(x *gorgonia.Node, cap float64) (*gorgonia.Node, error) {
	return apply("SoftCap", softCap{cap: cap}, input{name: "x", node: x})
}

type softCap struct {
	stateless
	cap float64
}

func (k softCap) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), kernels.ValidateCap(k.cap, in[0].DType)
}

func (k softCap) forward(r *run, in, out []kernels.Tensor) error {
	return r.SoftCap(k.cap, in[0], out[0])
}

// backward computes y anew, in the memory of dx: x is at hand and y is not.
func (k softCap) backward(r *run, in, dOut, d []kernels.Tensor) error {
	if err := r.SoftCap(k.cap, in[0], d[0]); err != nil {
		return err
	}
	return r.SoftCapBackward(k.cap, d[0], dOut[0], d[0])
}
