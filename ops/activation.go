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

func (k activation) shape(in []kernels.Tensor) ([]int, error) { return in[0].Shape, k.kind.Validate() }

func (k activation) forward(h *home, in []kernels.Tensor, out kernels.Tensor, _ []bool) error {
	return h.Activate(k.kind, in[0], out)
}

func (k activation) backward(h *home, in []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error {
	return h.ActivateBackward(k.kind, in[0], dOut, d[0])
}
