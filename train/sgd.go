package train

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// SGDConfig describes gradient descent, with momentum if that is positive.
type SGDConfig struct {
	Options
	Momentum float64
	// Nesterov looks ahead: a step goes along the gradient and the momentum that it leaves.
	Nesterov bool
	// WeightDecay times the weights is a part of the gradients, and so of the momentum, as in PyTorch. With Decoupled
	// it is a step of its own, as in [AdamWConfig].
	WeightDecay float64
	Decoupled   bool
}

// NewSGD makes an optimiser that goes down the gradient.
func NewSGD(parameters gorgonia.Nodes, c SGDConfig) (*Optimizer, error) {
	r := sgd{kernels.SGD{Momentum: c.Momentum, Nesterov: c.Nesterov, Decoupled: c.Decoupled}}
	r.kernel.WeightDecay = c.WeightDecay
	return newOptimizer("SGD", parameters, r, c.Options)
}

type sgd struct{ kernel kernels.SGD }

func (r sgd) validate(kernels.DType) error { return r.kernel.Validate() }

func (r sgd) slots() []string {
	if r.kernel.Momentum == 0 {
		return nil
	}
	return []string{"m"}
}

func (r sgd) decay() float64 { return r.kernel.WeightDecay }

func (r sgd) update(b kernels.Backend, u kernels.Update, w, g []kernels.Tensor, state [][]kernels.Tensor) error {
	r.kernel.Update = u
	if len(state) == 0 {
		return b.SGD(r.kernel, w, g, nil)
	}
	return b.SGD(r.kernel, w, g, state[0])
}
