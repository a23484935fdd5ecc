package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Norm normalises each row of C features: a layer norm to mean 0 and variance 1, an RMS norm to
// mean square 1. Then it scales and shifts each feature:
//
//	x    ← x + other                                             where Other is given
//	μ    = Σ x_c / C        var = Σ (x_c − μ)² / C        rstd = 1/√(var + eps)
//	x̂_c = (x_c − μ)·rstd   y_c = x̂_c·γ_c + β_c
//
// An RMS norm has μ = 0 and no β.
type Norm struct {
	RMS   bool
	X     Tensor  // (..., C)
	Other Tensor  // as X: a residual connection, which is added to X first; or left out
	Gamma Tensor  // (C), or left out: 1. Like Beta of X's dtype, or float32 beside a 16-bit X
	Beta  Tensor  // (C), or left out: 0
	Eps   float64 // added to the variance; 0 means 1e-5
}

// NormOutputs receives what the forward kernel computes.
type NormOutputs struct {
	Y   Tensor // as X
	Sum Tensor // as X: X + Other, where Other is given; may be either of them itself
	// Mean and RStd, (...), row-major, of X's wide dtype, are what the backward kernel needs. Both
	// are given, or neither. An RMS norm has no Mean.
	Mean, RStd Tensor
}

// NormGradients carries the backward kernel's inputs beside the problem itself, and what it
// computes. A gradient that is left out is not computed.
type NormGradients struct {
	DY         Tensor // as X
	DSum       Tensor // as X: the gradient of X itself, which is added to the rounded DX; or left out
	Mean, RStd Tensor // from the forward kernel

	DX            Tensor // as X; may be DY or DSum itself
	DGamma, DBeta Tensor // (C), of X's dtype or its wide one
	// DXSums, as DGamma, receives Σ over rows of DX, before or after DX is rounded: the gradient of
	// a bias in X. It may be left out.
	DXSums Tensor
}

// NormKernels normalise rows. Sums over rows are added in an order that depends on the shape alone.
// 16-bit tensors are computed in float32 and rounded once. Other and DSum are added as [AddKernels]
// would add them, which rounds once more.
type NormKernels interface {
	NormForward(n *Norm, out NormOutputs) error
	// NormBackward computes, with g_c = dy_c·γ_c, and without Σ g/C for an RMS norm,
	//
	//	dx_c = rstd·(g_c − Σ g/C − x̂_c·Σ(g·x̂)/C) + dSum_c
	//	dγ_c = Σ over rows of dy_c·x̂_c      dβ_c = Σ over rows of dy_c
	//
	// X is what was normalised: the sum, where Other was added to it. Other and Beta are not read.
	NormBackward(n *Norm, g NormGradients) error
}

// CheckForward returns what is wrong with a call of NormForward.
func (n *Norm) CheckForward(out NormOutputs) error {
	if err := n.Validate(); err != nil {
		return err
	}
	if err := n.checkMean(out.Mean); err != nil {
		return err
	}
	dtype, rows := n.X.DType, n.X.rowShape()
	mean, rstd := wide("mean", out.Mean, rows, dtype), wide("rstd", out.RStd, rows, dtype)
	mean.isOptional = n.RMS || !out.RStd.IsSet()
	rstd.isOptional = n.RMS || !out.Mean.IsSet()
	if err := checkOperands(append(n.operands(), writtenLike("y", out.Y, n.X.Shape, dtype), mean, rstd)...); err != nil {
		return err
	}
	return n.checkSum(out.Sum)
}

// CheckBackward returns what is wrong with a call of NormBackward.
func (n *Norm) CheckBackward(g NormGradients) error {
	if err := n.Validate(); err != nil {
		return err
	}
	if err := n.checkMean(g.Mean); err != nil {
		return err
	}
	if g.DXSums.IsSet() && !g.DX.IsSet() {
		return fmt.Errorf("dxSums has shape %v, it needs dx beside it, which is missing", g.DXSums.Shape)
	}
	if n.RMS && g.DBeta.IsSet() {
		return fmt.Errorf("dBeta has shape %v, it needs to be left out of an RMS norm", g.DBeta.Shape)
	}
	dtype, rows, features := n.X.DType, n.X.rowShape(), n.X.features()
	mean := wide("mean", g.Mean, rows, dtype)
	mean.isOptional = n.RMS
	return checkOperands(append(n.operands(),
		like("dy", g.DY, n.X.Shape, dtype), like("dSum", g.DSum, n.X.Shape, dtype).optional(),
		mean, wide("rstd", g.RStd, rows, dtype),
		writtenLike("dx", g.DX, n.X.Shape, dtype).optional(),
		ownOrWide("dGamma", g.DGamma, features, dtype).optional(), ownOrWide("dBeta", g.DBeta, features, dtype).optional(),
		ownOrWide("dxSums", g.DXSums, features, dtype).optional())...)
}

func (n *Norm) checkMean(mean Tensor) error {
	if n.RMS && mean.IsSet() {
		return fmt.Errorf("mean has shape %v, it needs to be left out of an RMS norm", mean.Shape)
	}
	return nil
}

func (n *Norm) operands() []operand {
	dtype, features := n.X.DType, n.X.features()
	return append(make([]operand, 0, 11), like("x", n.X, n.X.Shape, dtype),
		ownOrWide("gamma", n.Gamma, features, dtype).optional(), ownOrWide("beta", n.Beta, features, dtype).optional())
}

// checkSum checks Other and the sum: both are given, or neither.
func (n *Norm) checkSum(sum Tensor) error {
	addend, total := like("other", n.Other, n.X.Shape, n.X.DType), writtenLike("sum", sum, n.X.Shape, n.X.DType)
	if !n.Other.IsSet() && !sum.IsSet() {
		addend, total = addend.optional(), total.optional()
	}
	return checkOperands(addend, total)
}

// EffectiveEps is Eps, or 1e-5 where Eps is 0.
func (n *Norm) EffectiveEps() float64 {
	if n.Eps == 0 {
		return 1e-5
	}
	return n.Eps
}

// Validate returns what is wrong with the problem, naming the argument, what it was and what it
// needs to be, or nil.
func (n *Norm) Validate() error {
	if n == nil {
		return errNoProblem
	}
	if err := n.X.validateFeatures("x"); err != nil {
		return err
	}
	x, other := n.X, n.Other
	if other.IsSet() && (!slices.Equal(other.Shape, x.Shape) || other.DType != x.DType) {
		return fmt.Errorf("other is %v of shape %v, x is %v of shape %v: they need one dtype and shape",
			other.DType, other.Shape, x.DType, x.Shape)
	}
	if !(n.Eps >= 0) || math.IsInf(n.Eps, 0) {
		return fmt.Errorf("eps is %v, it needs to be positive, or 0 for 1e-5", n.Eps)
	}
	if err := validateNumber("eps", n.Eps, x.DType); err != nil {
		return err
	}
	if n.RMS && n.Beta.IsSet() {
		return fmt.Errorf("beta has shape %v, it needs to be left out of an RMS norm", n.Beta.Shape)
	}
	features := x.Shape[len(x.Shape)-1]
	if n.Gamma.IsSet() {
		if err := n.Gamma.validateVector("gamma", features, x.DType, "x"); err != nil {
			return err
		}
	}
	if n.Beta.IsSet() {
		return n.Beta.validateVector("beta", features, x.DType, "x")
	}
	return nil
}
