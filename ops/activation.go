package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Activate applies an activation to every element of x. [Linear] applies one in the same pass as
// its product.
func Activate(x *gorgonia.Node, kind kernels.Activation) (*gorgonia.Node, error) {
	return activate("Activate", x, kind)
}

// GELU is x·Φ(x) in the approximation by a tanh, which GPT-2 uses.
func GELU(x *gorgonia.Node) (*gorgonia.Node, error) { return activate("GELU", x, kernels.GELUTanh) }

// GELUErf is x·Φ(x), exactly.
func GELUErf(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activate("GELUErf", x, kernels.GELUErf)
}

// SiLU is x·σ(x).
func SiLU(x *gorgonia.Node) (*gorgonia.Node, error) { return activate("SiLU", x, kernels.SiLU) }

// ReLUSquared is max(x, 0)².
func ReLUSquared(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activate("ReLUSquared", x, kernels.ReLUSquared)
}

// ReLU is max(x, 0).
func ReLU(x *gorgonia.Node) (*gorgonia.Node, error) { return activate("ReLU", x, kernels.ReLU) }

// QuickGELU is x·σ(1.702·x), which CLIP uses.
func QuickGELU(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activate("QuickGELU", x, kernels.QuickGELU)
}

// Sigmoid is σ(x) = 1/(1 + e⁻ˣ).
func Sigmoid(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activate("Sigmoid", x, kernels.Sigmoid)
}

// Tanh is tanh(x): [SoftCap] of 1.
func Tanh(x *gorgonia.Node) (*gorgonia.Node, error) { return softCap("Tanh", x, 1) }

func activate(name string, x *gorgonia.Node, kind kernels.Activation) (*gorgonia.Node, error) {
	return apply(name, kernel{
		describe: func(in tensors) (description, error) { return like(in[0]), kind.Validate() },
		forward:  func(r *run, in, out tensors) error { return r.Activate(kind, in[0], out[0]) },
		backward: func(r *run, in, dOut, d tensors) error {
			return r.ActivateBackward(kind, in[0], dOut[0], d[0])
		},
		second: secondOfElements(activationGradient(kind), activationCurve(kind)),
	}, input{name: "x", node: x})
}
