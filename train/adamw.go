package train

import "github.com/stheno-ml/stheno/kernels"

// AdamW is Adam whose weight decay is a step of its own, not a part of the gradient.
type AdamW struct {
	Beta1       float64 // of the mean of gradients; 0 means 0.9
	Beta2       float64 // of the mean of their squares; 0 means 0.999
	Epsilon     float64 // keeps the divisor from zero; 0 means 1e-8
	WeightDecay float64 // a step multiplies weights by 1 − learning rate · this; 0 means none
}

// Name is AdamW.
func (a AdamW) Name() string { return "AdamW" }

// State is the mean of the gradients, m, and that of their squares, v.
func (a AdamW) State() []string { return []string{"m", "v"} }

// Validate checks betas, epsilon and decay.
func (a AdamW) Validate(dtype kernels.DType) error {
	k := a.kernel(kernels.Update{WeightDecay: a.WeightDecay})
	k.Step = 1
	return k.ValidateFor(dtype)
}

// Update is one kernel for all parameters.
func (a AdamW) Update(u Update) error {
	return u.Backend.AdamW(a.kernel(u.withDecay(a.WeightDecay)), u.Weights, u.Gradients, u.State[0], u.State[1])
}

func (a AdamW) kernel(u kernels.Update) kernels.AdamW {
	return kernels.AdamW{Update: u, Beta1: or(a.Beta1, 0.9), Beta2: or(a.Beta2, 0.999), Epsilon: or(a.Epsilon, 1e-8)}
}
