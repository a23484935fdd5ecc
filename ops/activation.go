package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Activate applies an activation to every element of x. [Linear] applies one in the same pass as its product.
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

func activate(name string, x *gorgonia.Node, kind kernels.Activation) (*gorgonia.Node, error) {
	return apply(name, activation{kind: kind}, input{name: "x", node: x})
}

type activation struct {
	stateless
	kind kernels.Activation
}

func (k activation) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), k.kind.Validate()
}

func (k activation) forward(r *run, in, out []kernels.Tensor) error {
	return r.Activate(k.kind, in[0], out[0])
}

func (k activation) backward(r *run, in, dOut, d []kernels.Tensor) error {
	return r.ActivateBackward(k.kind, in[0], dOut[0], d[0])
}
