package kernels

import (
	"errors"
	"fmt"
	"slices"
)

// Reduction says how the losses of rows become one number.
type Reduction int

const (
	MeanReduction Reduction = iota // their sum divided by the number of rows that are not ignored
	SumReduction                   // their sum
	NoReduction                    // not at all: the loss of each row is an output
)

// CrossEntropyOptions are what cross-entropy and its fusion with a linear layer share. With LSE_i =
// log Σ_v exp z_iv, t the row's target, w_v the weight of a class and ε the label smoothing,
//
//	loss_i = (1 − ε)·w_t·(LSE_i − z_it) + ε·Σ_v w_v·(LSE_i − z_iv)/V
//
// and the mean is Σ loss_i/n, where n = Σ w_t over the rows that are not ignored: their number,
// where all weights are 1. A row whose target is IgnoreIndex has no loss and no gradient; if all
// are ignored, or n is 0, the loss and all gradients are 0 in every reduction.
type CrossEntropyOptions struct {
	IgnoreIndex    *int    // the target of rows that do not count, such as new(-100); nil: every target must be from 0 to V−1
	LabelSmoothing float64 // ε, in [0, 1)
	Reduction      Reduction
	Weights        Tensor // (V), row-major, of the logits' wide dtype and not negative: w; left out: 1 for each class
}

// CrossEntropy is the loss of predicting targets from logits.
type CrossEntropy struct {
	Logits  Tensor // (..., V)
	Targets Tensor // (...), int32 or int64
	CrossEntropyOptions
}

// CrossEntropyOutputs receives what the forward kernel computes.
type CrossEntropyOutputs struct {
	Loss Tensor // (): a scalar, or (...), row-major, without a reduction. Like LSE float32 beside 16-bit logits, of their dtype otherwise
	LSE  Tensor // (...), row-major: what the backward kernel needs; or left out
}

// CrossEntropyGradients carries the backward kernel's inputs beside the problem itself, and what it
// computes.
type CrossEntropyGradients struct {
	DLoss   Tensor // as Loss, or left out: 1
	LSE     Tensor // from the forward kernel
	DLogits Tensor // as Logits; may be Logits itself, for who does not need them any more
}

// CrossEntropyKernels compute the loss and its gradient, and never hold the probabilities.
type CrossEntropyKernels interface {
	CrossEntropyForward(c *CrossEntropy, out CrossEntropyOutputs) error
	// CrossEntropyBackward computes
	//
	//	dz_iv = (exp(z_iv − LSE_i)·((1 − ε)·w_t + ε·Σ_u w_u/V) − (1 − ε)·w_t·[v = t] − ε·w_v/V)·dLoss/n
	//
	// without /n for a sum, and with the row's own dLoss_i for no reduction.
	CrossEntropyBackward(c *CrossEntropy, g CrossEntropyGradients) error
	// LinearCrossEntropy computes the loss of logits = hidden·weightᵀ and the gradients of both
	// factors in one pass, a few rows of logits at a time. It has a reduction, since it computes
	// gradients before those of losses are known.
	LinearCrossEntropy(c *LinearCrossEntropy, out LinearCrossEntropyOutputs) error
}

// LinearCrossEntropy is the loss of predicting targets from a linear layer without bias, such as a
// language model's head: cross-entropy of the logits hidden·weightᵀ.
type LinearCrossEntropy struct {
	Hidden  Tensor // (N, C), contiguous rows
	Weight  Tensor // (V, C), any strides: a (C, V) weight is its Permute(1, 0). Of Hidden's dtype or its wide one, which is rounded
	Targets Tensor // (N), int32 or int64
	CrossEntropyOptions
	DLoss     Tensor    // (), the gradient of the loss, of Hidden's wide dtype; left out: 1
	Precision Precision // of the products of float32 tensors
}

// LinearCrossEntropyOutputs receives the loss and the gradients; what is left out is not computed.
type LinearCrossEntropyOutputs struct {
	Loss    Tensor // (), of Hidden's wide dtype
	DHidden Tensor // (N, C), contiguous rows, of Hidden's dtype
	DWeight Tensor // (V, C), contiguous along one of the axes, of Weight's dtype or its wide one, of which its sums are
}

// CheckForward returns what is wrong with a call of CrossEntropyForward, apart from the targets'
// values.
func (c *CrossEntropy) CheckForward(out CrossEntropyOutputs) error {
	if err := c.Validate(); err != nil {
		return err
	}
	z := c.Logits
	return checkOperands(like("logits", z, z.Shape, z.DType), indices("targets", c.Targets), c.weights(z.features(), z.DType),
		wide("loss", out.Loss, c.LossShape(), z.DType), wide("lse", out.LSE, z.rowShape(), z.DType).optional())
}

// CheckBackward returns what is wrong with a call of CrossEntropyBackward, apart from the targets'
// values.
func (c *CrossEntropy) CheckBackward(g CrossEntropyGradients) error {
	if err := c.Validate(); err != nil {
		return err
	}
	z := c.Logits
	return checkOperands(like("logits", z, z.Shape, z.DType), indices("targets", c.Targets), c.weights(z.features(), z.DType),
		wide("dLoss", g.DLoss, c.LossShape(), z.DType).optional(), wide("lse", g.LSE, z.rowShape(), z.DType),
		writtenLike("dLogits", g.DLogits, z.Shape, z.DType))
}

// LossShape is the shape of the loss: none, or that of the targets without a reduction.
func (c *CrossEntropy) LossShape() []int {
	if c.Reduction == NoReduction {
		return c.Logits.rowShape()
	}
	return scalar
}

// Check returns what is wrong with a call of LinearCrossEntropy, apart from the targets' values.
func (c *LinearCrossEntropy) Check(out LinearCrossEntropyOutputs) error {
	if err := c.Validate(); err != nil {
		return err
	}
	h, w := c.Hidden, c.Weight
	dWeight := writtenLike("dWeight", out.DWeight, w.Shape, w.DType).optional()
	if out.DWeight.IsTransposed() {
		dWeight = writtenLike("dWeight", out.DWeight.Permute(1, 0), []int{w.Shape[1], w.Shape[0]}, w.DType)
	}
	dWeight.dtypes[1] = w.DType.Wide()
	return checkOperands(like("hidden", h, h.Shape, h.DType),
		operand{name: "weight", tensor: w, shape: w.Shape, dtypes: [2]DType{w.DType}}, indices("targets", c.Targets),
		c.weights(w.Shape[:1], h.DType), wide("dLoss", c.DLoss, scalar, h.DType).optional(), wide("loss", out.Loss, scalar, h.DType).optional(),
		writtenLike("dHidden", out.DHidden, h.Shape, h.DType).optional(), dWeight)
}

// Validate returns what is wrong with the problem, apart from the targets' values, naming the
// argument, what it was and what it needs to be, or nil.
func (c *CrossEntropy) Validate() error {
	if c == nil {
		return errNoProblem
	}
	if err := c.Logits.validateFeatures("logits"); err != nil {
		return err
	}
	if err := c.Targets.validateIndices("targets"); err != nil {
		return err
	}
	if want := c.Logits.Shape[:len(c.Logits.Shape)-1]; !slices.Equal(c.Targets.Shape, want) {
		return fmt.Errorf("targets has shape %v, it needs one target for each row of logits: %v", c.Targets.Shape, want)
	}
	return c.CrossEntropyOptions.validate(c.Logits.features()[0], c.Logits.DType)
}

// Validate returns what is wrong with the problem, apart from the targets' values, naming the
// argument, what it was and what it needs to be, or nil.
func (c *LinearCrossEntropy) Validate() error {
	if c == nil {
		return errNoProblem
	}
	if err := c.Hidden.validateLayout("hidden"); err != nil {
		return err
	}
	if len(c.Hidden.Shape) != 2 {
		return fmt.Errorf("hidden has shape %v, it needs two axes (rows, features)", c.Hidden.Shape)
	}
	if err := c.Hidden.validateFloat("hidden"); err != nil {
		return err
	}
	w := c.Weight
	if !w.IsSet() {
		return fmt.Errorf("weight is missing")
	}
	if len(w.Shape) != 2 || len(w.Strides) != 2 || w.Shape[0] < 1 || w.Shape[1] != c.Hidden.Shape[1] {
		return fmt.Errorf("weight has shape %v and strides %v, it needs two axes (vocabulary, hidden's %d features)", w.Shape, w.Strides, c.Hidden.Shape[1])
	}
	if w.Strides[0] < 0 || w.Strides[1] < 0 {
		return fmt.Errorf("weight has strides %v, none can be negative", w.Strides)
	}
	if d := c.Hidden.DType; w.DType != d && w.DType != d.Wide() {
		return fmt.Errorf("weight is %v, with hidden of %v it needs to be %s", w.DType, d, either([2]DType{d, d.Wide()}))
	}
	if err := c.Targets.validateIndices("targets"); err != nil {
		return err
	}
	if want := c.Hidden.Shape[:1]; !slices.Equal(c.Targets.Shape, want) {
		return fmt.Errorf("targets has shape %v, it needs one target for each row of hidden: %v", c.Targets.Shape, want)
	}
	if c.Reduction == NoReduction {
		return errors.New("reduction is NoReduction, it needs to be MeanReduction or SumReduction: gradients are computed before those of single losses are known")
	}
	if err := c.Precision.validateSixteenBits(); err != nil {
		return err
	}
	return c.CrossEntropyOptions.validate(w.Shape[0], c.Hidden.DType)
}

// weights is the operand of the classes' weights.
func (o *CrossEntropyOptions) weights(classes []int, dtype DType) operand {
	return wide("weights", o.Weights, classes, dtype).optional()
}

func (o *CrossEntropyOptions) validate(classes int, dtype DType) error {
	if !(o.LabelSmoothing >= 0 && o.LabelSmoothing < 1) {
		return fmt.Errorf("label smoothing is %v, it needs to be in [0, 1)", o.LabelSmoothing)
	}
	if o.Reduction < MeanReduction || o.Reduction > NoReduction {
		return fmt.Errorf("reduction is %d, it needs to be MeanReduction, SumReduction or NoReduction", o.Reduction)
	}
	if w := o.Weights; w.IsSet() && (len(w.Shape) != 1 || w.Shape[0] != classes) {
		return fmt.Errorf("weights has shape %v, it needs one value for each of the %d classes", w.Shape, classes)
	}
	if w := o.Weights; w.IsSet() && w.DType != dtype.Wide() {
		return fmt.Errorf("weights is %v, it needs to be %v", w.DType, dtype.Wide())
	}
	return nil
}

// Ignores reports whether rows with a target do not count.
func (o *CrossEntropyOptions) Ignores(target int) bool {
	return o.IgnoreIndex != nil && target == *o.IgnoreIndex
}
