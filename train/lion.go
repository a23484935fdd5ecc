package train

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// LionConfig describes a Lion optimiser, which moves every weight by the learning rate, in the direction of a momentum's
// sign. It wants a learning rate 3 to 10 times smaller than AdamW's, a decay larger by as much, and half AdamW's memory.
type LionConfig struct {
	Options
	Beta1       float64 // how much of the momentum is in a step's direction; 0 means 0.9
	Beta2       float64 // of the momentum; 0 means 0.99
	WeightDecay float64 // a step multiplies weights by 1 − learning rate · this; 0 means none
}

// NewLion makes a Lion optimiser over parameters.
func NewLion(parameters gorgonia.Nodes, c LionConfig) (*Optimizer, error) {
	r := lion{kernels.Lion{Beta1: or(c.Beta1, 0.9), Beta2: or(c.Beta2, 0.99)}}
	r.kernel.WeightDecay = c.WeightDecay
	return newOptimizer("Lion", parameters, r, c.Options)
}

type lion struct{ kernel kernels.Lion }

func (r lion) validate(kernels.DType) error { return r.kernel.Validate() }

func (r lion) slots() []string { return []string{"m"} }

func (r lion) decay() float64 { return r.kernel.WeightDecay }

func (r lion) update(b kernels.Backend, u kernels.Update, w, g []kernels.Tensor, state [][]kernels.Tensor) error {
	r.kernel.Update = u
	return b.Lion(r.kernel, w, g, state[0])
}
