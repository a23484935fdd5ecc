package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// SoftCap bounds every element of x to ±cap, smoothly: cap·tanh(x/cap).
func SoftCap(x *gorgonia.Node, cap float64) (*gorgonia.Node, error) {
	return softCap("SoftCap", x, cap)
}

func softCap(name string, x *gorgonia.Node, cap float64) (*gorgonia.Node, error) {
	return apply(name, kernel{
		describe: func(in tensors) (description, error) {
			return like(in[0]), kernels.ValidateCap(cap, in[0].DType)
		},
		forward: func(r *run, in, out tensors) error { return r.SoftCap(cap, in[0], out[0]) },
		backward: func(r *run, in, dOut, d tensors) error { // y anew, in the memory of dx: x is at hand and y is not
			if err := r.SoftCap(cap, in[0], d[0]); err != nil {
				return err
			}
			return r.SoftCapBackward(cap, d[0], dOut[0], d[0])
		},
		second: secondOfElements(softCapGradient(cap), softCapCurve(cap)),
	}, input{name: "x", node: x})
}
