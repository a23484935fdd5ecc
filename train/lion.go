package train

import "github.com/stheno-ml/stheno/kernels"

// Lion moves every weight by the learning rate, in the direction of a momentum's sign. It wants a
// learning rate 3 to 10 times smaller than AdamW's, a decay larger by as much, and half AdamW's
// memory.
type Lion struct {
	Beta1       float64 // how much of the momentum is in a step's direction; 0 means 0.9
	Beta2       float64 // of the momentum; 0 means 0.99
	WeightDecay float64 // a step multiplies weights by 1 − learning rate · this; 0 means none
}

// Name is Lion.
func (l Lion) Name() string { return "Lion" }

// State is the momentum, m.
func (l Lion) State() []string { return []string{"m"} }

// Validate checks betas and decay.
func (l Lion) Validate(kernels.DType) error {
	return l.kernel(kernels.Update{WeightDecay: l.WeightDecay}).Validate()
}

// Update is one kernel for all parameters.
func (l Lion) Update(u Update) error {
	return u.Backend.Lion(l.kernel(u.withDecay(l.WeightDecay)), u.Weights, u.Gradients, u.State[0])
}

func (l Lion) kernel(u kernels.Update) kernels.Lion {
	return kernels.Lion{Update: u, Beta1: or(l.Beta1, 0.9), Beta2: or(l.Beta2, 0.99)}
}
