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

func (k softCap) shape(in []kernels.Tensor) ([]int, error) {
	return in[0].Shape, kernels.ValidateCap(k.cap)
}

func (k softCap) forward(h *home, in []kernels.Tensor, out kernels.Tensor, _ []bool) error {
	return h.SoftCap(k.cap, in[0], out)
}

// backward computes y anew, in the memory of dx: x is at hand and y is not.
func (k softCap) backward(h *home, in []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error {
	if err := h.SoftCap(k.cap, in[0], d[0]); err != nil {
		return err
	}
	return h.SoftCapBackward(k.cap, d[0], dOut, d[0])
}
