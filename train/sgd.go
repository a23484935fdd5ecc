package train

import "github.com/stheno-ml/stheno/kernels"

// SGD is gradient descent, with momentum if that is positive.
type SGD struct {
	Momentum float64
	// Nesterov looks ahead: a step goes along the gradient and the momentum that it leaves.
	Nesterov bool
	// WeightDecay times the weights is a part of the gradients, and so of the momentum, as in
	// PyTorch. With Decoupled it is a step of its own, as in [AdamW].
	WeightDecay float64
	Decoupled   bool
}

// Name is SGD.
func (s SGD) Name() string { return "SGD" }

// State is the momentum, m, if there is any.
func (s SGD) State() []string {
	if s.Momentum == 0 {
		return nil
	}
	return []string{"m"}
}

// Validate checks momentum and decay.
func (s SGD) Validate(kernels.DType) error {
	return s.kernel(kernels.Update{WeightDecay: s.WeightDecay}).Validate()
}

// Update is one kernel for all parameters.
func (s SGD) Update(u Update) error {
	var momentum []kernels.Tensor
	if len(u.State) > 0 {
		momentum = u.State[0]
	}
	return u.Backend.SGD(s.kernel(u.withDecay(s.WeightDecay)), u.Weights, u.Gradients, momentum)
}

func (s SGD) kernel(u kernels.Update) kernels.SGD {
	return kernels.SGD{Update: u, Momentum: s.Momentum, Nesterov: s.Nesterov, Decoupled: s.Decoupled}
}
