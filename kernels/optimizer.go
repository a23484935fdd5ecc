package kernels

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Update is what one step of every optimiser has in common. With γ the gradient scale, an optimiser
// sees γ·g where it says g.
type Update struct {
	LearningRate float64
	// WeightDecay is λ: how strongly a step pulls weights towards zero.
	WeightDecay float64
	// GradientScale is γ, for clipping and for means over accumulated gradients; 0 means 1.
	GradientScale float64
	// ClearGradients writes zeros to the gradients once they are used, at less cost than a pass of
	// its own.
	ClearGradients bool
	// Control, if it is set, is what PlanStep decided about this step: a vector of ControlSize
	// numbers. Its rate is then multiplied by LearningRate and its scale by GradientScale, and its
	// number of steps replaces AdamW.Step. A step that it skips changes nothing, but clears the
	// gradients if ClearGradients is set.
	Control Tensor
}

// A control vector holds what changes from step to step, in float64 and in the device's memory. The
// device decides about a step by it, and the host waits for no norm. These constants are the places
// of its numbers. The host writes all of them once. Before each step it writes the rates that the
// step may need: several, because it learns late whether an earlier step was skipped, and so does
// not know the step's number.
const (
	ControlSteps         = iota // steps that changed the weights
	ControlSkipped              // steps that did not, because the norm was not below LargestNorm
	ControlSkippedInARow        // the last ones of these
	ControlNorm                 // norm of all gradients together
	ControlVerdict              // StepMade, NoRate, StepAbandoned, or the first tensor with which the norm is not below LargestNorm
	ControlRate                 // learning rate
	ControlScale                // factor of the gradients
	ControlLossScale            // factor of the loss whose gradients the next step finds
	ControlGoodSteps            // steps since the loss scale changed
	ControlFirstRate            // the step, counted from 0, that the first of the rates is for
	ControlRates                // the first of RateWindow rates of steps that follow each other; NaN for none

	RateWindow  = 4
	ControlSize = ControlRates + RateWindow
)

// Verdicts of PlanStep that are no tensor's number.
const (
	StepMade      = -1 // the step changes weights
	NoRate        = -2 // there is no learning rate for the step
	StepAbandoned = -3 // a network of the device was aborted, and sums over its members mean nothing
)

// LargestNorm is the bound of a step's gradient norm: a step whose norm is not below it is skipped.
// The square of a larger gradient is infinite in float32. AdamW would keep that in v for ever, and
// the weight would never change again.
const LargestNorm = 1 << 64

// StepPlan says how the device decides about a step. With s the loss scale, n the number of runs
// that were added up and Σ the sum of the squares of all gradients:
//
//	norm  = √Σ / (n·s)
//	scale = min(1, limit/(norm + 1e-6)) / (n·s)      with a limit, as in PyTorch's clip_grad_norm_
//
// A step is skipped unless its norm is below LargestNorm: if it is larger, infinite or NaN.
type StepPlan struct {
	ClipNorm     float64 // the limit; 0 means none
	Accumulation int     // n; 0 means 1
	LossScaling  LossScaling
}

// LossScaling is how the loss scale changes, which keeps gradients of float16 from becoming zero or
// infinite. The zero value leaves it as it is.
type LossScaling struct {
	Growth   float64 // multiplies it after Interval steps in a row were made; 0 means 2
	Backoff  float64 // multiplies it after a step was skipped; 0 means 0.5
	Interval int     // 0 leaves the loss scale as it is
}

// AdamW is one step of Adam with decoupled weight decay, with PyTorch's arithmetic. With η the
// learning rate, λ the weight decay and t the step:
//
//	m ← m + (1 − β₁)(g − m)
//	v ← β₂·v + (1 − β₂)·g²
//	w ← (1 − η·λ)·w − η/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)
type AdamW struct {
	Update
	Beta1, Beta2, Epsilon float64
	Step                  int // t, which counts from 1; not used beside a control vector
}

// SGD is one step of gradient descent with momentum μ. The decay is classic unless it is decoupled:
// λ·w is a part of the gradient, and so of the momentum.
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

// OptimizerKernels update parameters in place, a list of them in one call. The tensors of a call
// are row-major and of one dtype, float32 or float64; lists are of one length, and the tensors in
// one place of them of one shape, none lying where another does. Numbers below the smallest normal
// one may be taken for zero.
type OptimizerKernels interface {
	// AdamW updates the weights w and their moments m and v by the gradients g.
	AdamW(o AdamW, w, g, m, v []Tensor) error
	// SGD updates the weights w and their momentum m by the gradients g. Without momentum, m is
	// nil. On a device that computes products of float16 faster, g may be that beside weights of
	// float32, without momentum and not to be cleared.
	SGD(o SGD, w, g, m []Tensor) error
	// Momentum moves the momenta m by the gradients g as SGD does, and puts into y what SGD would
	// add to weights at a learning rate of 1 and without decay: zeros in a step that is skipped.
	// sums receives the sums of the squares of y, as SumSquares does, or is left out.
	Momentum(o SGD, g, m, y []Tensor, sums Tensor) error
	// Normalize computes y = x·factor/√sum of each tensor, by the sums that SumSquares gives: zeros
	// where a sum is zero. The tensors of y are of x's type or, on a device that takes gradients of
	// float16, of that.
	Normalize(x []Tensor, sums Tensor, factor float64, y []Tensor) error
	// Lion updates the weights w and their momentum m by the gradients g.
	Lion(o Lion, w, g, m []Tensor) error
	// Adafactor updates the weights w and the means r, c and v of the squares of their gradients g.
	// Those are float32 or float64 as w is, and have the shapes of StateShapes; one without a shape
	// is the zero Tensor.
	Adafactor(o Adafactor, w, g, r, c, v []Tensor) error
	// SumSquares computes the sum of the squares of each tensor, in float64 and in an order that
	// depends on the shapes alone, into sums, a vector of float64. A sum is finite if and only if
	// all elements of its tensor are, except that elements of float64 beyond 1e150 count as
	// infinite.
	SumSquares(x []Tensor, sums Tensor) error
	// PlanStep decides about a step from the sums of the squares of its gradients: it writes the
	// norm, the verdict, the rate and the scale into a control vector, and counts the step as one
	// that was made or skipped. A step that has no finite rate in the control vector is neither,
	// and changes no weights. So is one on a device of which a network was aborted, until it joins
	// the next one.
	PlanStep(p StepPlan, sums, control Tensor) error
	// Zero writes zeros to all tensors.
	Zero(x []Tensor) error
}

// Check returns what is wrong with a call of AdamW.
func (o AdamW) Check(w, g, m, v []Tensor) error {
	dtype := F64 // that of no weights is any
	if len(w) > 0 {
		dtype = w[0].DType
	}
	if err := o.ValidateFor(dtype); err != nil {
		return err
	}
	return checkLists(tensorList{"w", w}, tensorList{"g", g}, tensorList{"m", m}, tensorList{"v", v})
}

// Check returns what is wrong with a call of SGD.
func (o SGD) Check(w, g, m []Tensor) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Momentum == 0 {
		if isHalf := len(g) > 0 && g[0].DType == F16; !isHalf {
			return checkLists(tensorList{"w", w}, tensorList{"g", g})
		}
		if o.ClearGradients {
			return errors.New("clear gradients is true, it needs to be false where g is float16")
		}
		return checkHalfLists(tensorList{"w", w}, tensorList{"g", g})
	}
	return checkLists(tensorList{"w", w}, tensorList{"g", g}, tensorList{"m", m})
}

// CheckMomentum returns what is wrong with a call of Momentum.
func (o SGD) CheckMomentum(g, m, y []Tensor, sums Tensor) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Momentum == 0 {
		return errors.New("momentum is 0, it needs to be positive")
	}
	if err := checkLists(tensorList{"y", y}, tensorList{"g", g}, tensorList{"m", m}); err != nil {
		return err
	}
	return checkOperands(float64s("sums", sums, len(y)).optional())
}

// CheckNormalize returns what is wrong with a call of Normalize.
func CheckNormalize(x []Tensor, sums Tensor, factor float64, y []Tensor) error {
	if math.IsNaN(factor) || math.IsInf(factor, 0) {
		return fmt.Errorf("factor is %v, it needs to be finite", factor)
	}
	if err := checkHalfLists(tensorList{"x", x}, tensorList{"y", y}); err != nil {
		return err
	}
	return checkOperands(float64s("sums", sums, len(x)))
}

// checkHalfLists is checkLists of two lists, the second of which may be float16 beside float32.
func checkHalfLists(lead, other tensorList) error {
	isHalf := len(lead.tensors) > 0 && lead.tensors[0].DType == F32 && len(other.tensors) > 0 && other.tensors[0].DType == F16
	if !isHalf {
		return checkLists(lead, other)
	}
	wide := tensorList{other.name, slices.Clone(other.tensors)}
	for i := range wide.tensors {
		if t := &wide.tensors[i]; t.DType == F16 {
			t.DType = F32
		} else {
			return fmt.Errorf("%s[%d] is %v, it needs %s[0]'s %v", other.name, i, t.DType, other.name, F16)
		}
	}
	return checkLists(lead, wide)
}

// Check returns what is wrong with a call of Lion.
func (o Lion) Check(w, g, m []Tensor) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return checkLists(tensorList{"w", w}, tensorList{"g", g}, tensorList{"m", m})
}

// CheckSumSquares returns what is wrong with a call of SumSquares.
func CheckSumSquares(x []Tensor, sums Tensor) error {
	if err := checkLists(tensorList{"x", x}); err != nil {
		return err
	}
	return checkOperands(float64s("sums", sums, len(x)))
}

// Check returns what is wrong with a call of PlanStep.
func (p StepPlan) Check(sums, control Tensor) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if len(sums.Shape) != 1 {
		return fmt.Errorf("sums has shape %v, it needs to be a vector", sums.Shape)
	}
	return checkOperands(float64s("sums", sums, sums.Shape[0]), float64s("control", control, ControlSize))
}

// CheckZero returns what is wrong with a call of Zero.
func CheckZero(x []Tensor) error { return checkLists(tensorList{"x", x}) }

// float64s is an operand that is a vector of float64.
func float64s(name string, t Tensor, n int) operand {
	return operand{name: name, tensor: t, shape: []int{n}, dtypes: [2]DType{F64}, layout: dense}
}

// tensorList is an argument that is a list of tensors.
type tensorList struct {
	name    string
	tensors []Tensor
}

// checkLists checks lists of row-major tensors: all of one dtype, and those in one place of all
// lists of one shape.
func checkLists(lists ...tensorList) error {
	lead := lists[0]
	for _, l := range lists[1:] {
		if len(l.tensors) != len(lead.tensors) {
			return fmt.Errorf("%s has %d tensors, it needs one for each of the %d of %s", l.name, len(l.tensors), len(lead.tensors), lead.name)
		}
	}
	if len(lead.tensors) == 0 {
		return nil
	}
	dtype := lead.tensors[0].DType
	if dtype != F32 && dtype != F64 {
		return fmt.Errorf("%s[0] is %v, it needs to be float32 or float64", lead.name, dtype)
	}
	for i := range lead.tensors {
		for _, l := range lists {
			o := operand{tensor: l.tensors[i], shape: lead.tensors[i].Shape, layout: dense}
			if o.tensor.DType == dtype && o.checkLayout() == nil {
				continue
			}
			o.name = fmt.Sprintf("%s[%d]", l.name, i) // made for the message alone: lists are long, and checked at each step
			if o.tensor.DType != dtype {
				return fmt.Errorf("%s is %v, it needs %s[0]'s %v", o.name, o.tensor.DType, lead.name, dtype)
			}
			return o.checkLayout()
		}
	}
	return nil
}

// EffectiveScale returns the factor of gradients: GradientScale, or 1 where that is 0.
func (u Update) EffectiveScale() float64 {
	if u.GradientScale == 0 {
		return 1
	}
	return u.GradientScale
}

// Validate returns what is wrong with the options, naming the option, what it was and what it needs
// to be, or nil.
func (u Update) Validate() error {
	switch {
	case !(u.LearningRate >= 0) || math.IsInf(u.LearningRate, 0):
		return fmt.Errorf("learning rate is %v, it needs to be finite and not negative", u.LearningRate)
	case !(u.WeightDecay >= 0) || math.IsInf(u.WeightDecay, 0):
		return fmt.Errorf("weight decay is %v, it needs to be finite and not negative", u.WeightDecay)
	case math.IsNaN(u.GradientScale) || math.IsInf(u.GradientScale, 0):
		return fmt.Errorf("gradient scale is %v, it needs to be finite, or 0 for 1", u.GradientScale)
	case !u.Control.IsSet():
		return nil
	}
	return checkOperands(float64s("control", u.Control, ControlSize))
}

// EffectiveAccumulation returns Accumulation, or 1 where that is 0.
func (p StepPlan) EffectiveAccumulation() int { return max(1, p.Accumulation) }

// EffectiveGrowth returns Growth, or 2 where that is 0.
func (l LossScaling) EffectiveGrowth() float64 {
	if l.Growth == 0 {
		return 2
	}
	return l.Growth
}

// EffectiveBackoff returns Backoff, or ½ where that is 0.
func (l LossScaling) EffectiveBackoff() float64 {
	if l.Backoff == 0 {
		return 0.5
	}
	return l.Backoff
}

// Validate returns what is wrong with the plan, or nil.
func (p StepPlan) Validate() error {
	l := p.LossScaling
	switch {
	case !(p.ClipNorm >= 0) || math.IsInf(p.ClipNorm, 0):
		return fmt.Errorf("clip norm is %v, it needs to be finite and positive, or 0 for no limit", p.ClipNorm)
	case p.Accumulation < 0:
		return fmt.Errorf("accumulation is %d, it needs to be positive, or 0 for 1", p.Accumulation)
	case l.Interval < 0:
		return fmt.Errorf("loss scaling's interval is %d, it needs to be positive, or 0 for none", l.Interval)
	case !(l.EffectiveGrowth() >= 1) || math.IsInf(l.Growth, 0):
		return fmt.Errorf("loss scaling's growth is %v, it needs to be finite and at least 1, or 0 for 2", l.Growth)
	case !(l.EffectiveBackoff() > 0 && l.EffectiveBackoff() <= 1):
		return fmt.Errorf("loss scaling's backoff is %v, it needs to be in (0, 1], or 0 for 0.5", l.Backoff)
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
	if o.Step < 1 && !o.Control.IsSet() {
		return fmt.Errorf("step is %d, it needs to be at least 1", o.Step)
	}
	return nil
}

// ValidateFor returns what is wrong with the options for weights of a dtype, or nil.
func (o AdamW) ValidateFor(dtype DType) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return validateNumber("epsilon", o.Epsilon, dtype)
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
