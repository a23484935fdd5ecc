package train

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// AdamWConfig describes an AdamW optimiser: Adam whose weight decay is a step of its own, not a part of the gradient.
type AdamWConfig struct {
	Options
	Beta1       float64 // of the mean of gradients; 0 means 0.9
	Beta2       float64 // of the mean of their squares; 0 means 0.999
	Epsilon     float64 // keeps the divisor from zero; 0 means 1e-8
	WeightDecay float64 // a step multiplies weights by 1 − learning rate · this; 0 means none
}

// NewAdamW makes an AdamW optimiser over parameters.
func NewAdamW(parameters gorgonia.Nodes, c AdamWConfig) (*Optimizer, error) {
	r := adamw{kernels.AdamW{Beta1: or(c.Beta1, 0.9), Beta2: or(c.Beta2, 0.999), Epsilon: or(c.Epsilon, 1e-8)}}
	r.kernel.WeightDecay = c.WeightDecay
	return newOptimizer("AdamW", parameters, r, c.Options)
}

type adamw struct{ kernel kernels.AdamW }

func (r adamw) validate(dtype kernels.DType) error {
	r.kernel.Step = 1
	return r.kernel.ValidateFor(dtype)
}

func (r adamw) slots() []string { return []string{"m", "v"} }

func (r adamw) decay() float64 { return r.kernel.WeightDecay }

func (r adamw) update(b kernels.Backend, u kernels.Update, w, g []kernels.Tensor, state [][]kernels.Tensor) error {
	r.kernel.Update = u
	return b.AdamW(r.kernel, w, g, state[0], state[1])
}

// or is x, or what 0 stands for.
func or(x, otherwise float64) float64 {
	if x == 0 {
		return otherwise
	}
	return x
}
