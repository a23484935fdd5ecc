package kernels

import (
	"fmt"
	"math"
)

// Update is what one step of every optimiser has in common. With γ the gradient scale, an optimiser sees γ·g where it
// says g.
type Update struct {
	LearningRate float64
	// WeightDecay is λ: how strongly a step pulls weights towards zero.
	WeightDecay float64
	// GradientScale is γ, for clipping and for means over accumulated gradients; 0 means 1.
	GradientScale float64
	// ClearGradients writes zeros to the gradients once they are used, at less cost than a pass of its own.
	ClearGradients bool
}

// AdamW is one step of Adam with decoupled weight decay, with PyTorch's arithmetic. With η the learning rate, λ the
// weight decay and t the step:
//
//	m ← m + (1 − β₁)(g − m)
//	v ← β₂·v + (1 − β₂)·g²
//	w ← (1 − η·λ)·w − η/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)
type AdamW struct {
	Update
	Beta1, Beta2, Epsilon float64
	Step                  int // t, which counts from 1
}

// SGD is one step of gradient descent with momentum μ. The decay is classic unless it is decoupled: λ·w is a part of
// the gradient, and so of the momentum.
//
//	g ← g + λ·w                        if the decay is classic
//	m ← μ·m + g                        if there is momentum
//	w ← (1 − η·λ)·w                    if the decay is decoupled
//	w ← w − η·m                        with momentum, −η·(g + μ·m) if it is Nesterov's, −η·g without any
type SGD struct {
	Update
	Momentum  float64
	Nesterov  bool
	Decoupled bool
}

// Lion is one step of Lion, which follows the sign of a momentum:
//
//	w ← (1 − η·λ)·w − η·sign(β₁·m + (1 − β₁)·g)
//	m ← β₂·m + (1 − β₂)·g
type Lion struct {
	Update
	Beta1, Beta2 float64
}

// OptimizerKernels update parameters in place, a list of them in one call. The tensors of a call are row-major and of
// one dtype; lists are of one length, and the tensors in one place of them of one shape, none lying where another does.
// Numbers below the smallest normal one may be taken for zero.
type OptimizerKernels interface {
	// AdamW updates the weights w and their moments m and v by the gradients g.
	AdamW(o AdamW, w, g, m, v []Tensor) error
	// SGD updates the weights w and their momentum m by the gradients g. Without momentum, m is nil.
	SGD(o SGD, w, g, m []Tensor) error
	// Lion updates the weights w and their momentum m by the gradients g.
	Lion(o Lion, w, g, m []Tensor) error
	// SumSquares computes the sum of the squares of each tensor, in float64 and in an order that depends on the shapes
	// alone, into sums, a vector of float64. A sum is finite if and only if all elements of its tensor are, except that
	// elements of float64 beyond 1e150 count as infinite.
	SumSquares(x []Tensor, sums Tensor) error
	// Zero writes zeros to all tensors.
	Zero(x []Tensor) error
}

// EffectiveScale returns the factor of gradients: GradientScale, or 1 where that is 0.
func (u Update) EffectiveScale() float64 {
	if u.GradientScale == 0 {
		return 1
	}
	return u.GradientScale
}

// Validate returns what is wrong with the options, naming the option, what it was and what it needs to be, or nil.
func (u Update) Validate() error {
	switch {
	case !(u.LearningRate >= 0) || math.IsInf(u.LearningRate, 0):
		return fmt.Errorf("learning rate is %v, it needs to be finite and not negative", u.LearningRate)
	case !(u.WeightDecay >= 0) || math.IsInf(u.WeightDecay, 0):
		return fmt.Errorf("weight decay is %v, it needs to be finite and not negative", u.WeightDecay)
	case math.IsNaN(u.GradientScale) || math.IsInf(u.GradientScale, 0):
		return fmt.Errorf("gradient scale is %v, it needs to be finite, or 0 for 1", u.GradientScale)
	}
	return nil
}

// Validate returns what is wrong with the options, or nil.
func (o AdamW) Validate() error {
	if err := o.Update.Validate(); err != nil {
		return err
	}
	if err := validateBetas(o.Beta1, o.Beta2); err != nil {
		return err
	}
	if !(o.Epsilon >= 0) || math.IsInf(o.Epsilon, 0) {
		return fmt.Errorf("epsilon is %v, it needs to be finite and not negative", o.Epsilon)
	}
	if o.Step < 1 {
		return fmt.Errorf("step is %d, it needs to be at least 1", o.Step)
	}
	return nil
}

// Validate returns what is wrong with the options, or nil.
func (o SGD) Validate() error {
	if err := o.Update.Validate(); err != nil {
		return err
	}
	if err := validateShare("momentum", o.Momentum); err != nil {
		return err
	}
	if o.Nesterov && o.Momentum == 0 {
		return fmt.Errorf("momentum is 0, Nesterov's needs it to be positive")
	}
	return nil
}

// Validate returns what is wrong with the options, or nil.
func (o Lion) Validate() error {
	if err := o.Update.Validate(); err != nil {
		return err
	}
	return validateBetas(o.Beta1, o.Beta2)
}

func validateBetas(beta1, beta2 float64) error {
	if err := validateShare("beta1", beta1); err != nil {
		return err
	}
	return validateShare("beta2", beta2)
}

func validateShare(name string, x float64) error {
	if !(x >= 0 && x < 1) {
		return fmt.Errorf("%s is %v, it needs to be in [0, 1)", name, x)
	}
	return nil
}
