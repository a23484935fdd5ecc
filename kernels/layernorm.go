package kernels

import (
	"fmt"
	"math"
	"slices"
)

// LayerNorm normalises each row of C features to mean 0 and variance 1, then scales and shifts each feature:
//
//	x    ← x + other                                             where Other is given
//	μ    = Σ x_c / C        var = Σ (x_c − μ)² / C        rstd = 1/√(var + eps)
//	x̂_c = (x_c − μ)·rstd   y_c = x̂_c·γ_c + β_c
type LayerNorm struct {
	X     Tensor  // (..., C)
	Other Tensor  // as X: what is added to X first, a residual connection; or left out. Backward takes the sum for X instead
	Gamma Tensor  // (C), or left out: 1. Like Beta of X's dtype, or float32 beside a 16-bit X
	Beta  Tensor  // (C), or left out: 0
	Eps   float64 // added to the variance; 0 means 1e-5
}

// LayerNormOutputs receives what the forward kernel computes.
type LayerNormOutputs struct {
	Y          Tensor // as X
	Sum        Tensor // as X: X + Other, where that is given; may be either of them itself
	Mean, RStd Tensor // (...), row-major, of X's wide dtype: what the backward kernel needs; both or neither
}

// LayerNormGradients carries the backward kernel's inputs beside the problem itself, and what it computes. A gradient
// that is left out is not computed.
type LayerNormGradients struct {
	DY         Tensor // as X
	DSum       Tensor // as X: the gradient of X itself, which is added to the rounded DX; or left out
	Mean, RStd Tensor // from the forward kernel

	DX            Tensor // as X; may be DY or DSum itself
	DGamma, DBeta Tensor // (C), of X's dtype or its wide one
	DXSums        Tensor // the same: receives Σ over rows of DX, before or after it is rounded, the gradient of a bias in X; or left out
}

// LayerNormKernels normalise rows. Sums over rows are added in an order that depends on the shape alone. 16-bit tensors are
// computed in float32 and rounded once; with Other and DSum they have the bits of an addition of its own, and so are rounded there too.
type LayerNormKernels interface {
	LayerNormForward(n *LayerNorm, out LayerNormOutputs) error
	// LayerNormBackward computes, with g_c = dy_c·γ_c,
	//
	//	dx_c = rstd·(g_c − Σ g/C − x̂_c·Σ(g·x̂)/C) + dSum_c      dγ_c = Σ over rows of dy_c·x̂_c      dβ_c = Σ over rows of dy_c
	LayerNormBackward(n *LayerNorm, g LayerNormGradients) error
}

// CheckForward returns what is wrong with a call of LayerNormForward.
func (n *LayerNorm) CheckForward(out LayerNormOutputs) error {
	if err := n.Validate(); err != nil {
		return err
	}
	dtype, rows := n.X.DType, n.X.rowShape()
	mean, rstd := wide("mean", out.Mean, rows, dtype), wide("rstd", out.RStd, rows, dtype)
	mean.isOptional = !out.RStd.IsSet()
	rstd.isOptional = !out.Mean.IsSet()
	if err := checkOperands(append(n.operands(), writtenLike("y", out.Y, n.X.Shape, dtype), mean, rstd)...); err != nil {
		return err
	}
	return checkSum(n.X, n.Other, out.Sum)
}

// CheckBackward returns what is wrong with a call of LayerNormBackward.
func (n *LayerNorm) CheckBackward(g LayerNormGradients) error {
	if err := n.Validate(); err != nil {
		return err
	}
	if g.DXSums.IsSet() && !g.DX.IsSet() {
		return fmt.Errorf("dxSums has shape %v, it needs dx beside it, which is missing", g.DXSums.Shape)
	}
	dtype, rows, features := n.X.DType, n.X.rowShape(), n.X.features()
	return checkOperands(append(n.operands(), like("dy", g.DY, n.X.Shape, dtype), like("dSum", g.DSum, n.X.Shape, dtype).optional(),
		wide("mean", g.Mean, rows, dtype), wide("rstd", g.RStd, rows, dtype),
		writtenLike("dx", g.DX, n.X.Shape, dtype).optional(),
		ownOrWide("dGamma", g.DGamma, features, dtype).optional(), ownOrWide("dBeta", g.DBeta, features, dtype).optional(),
		ownOrWide("dxSums", g.DXSums, features, dtype).optional())...)
}

func (n *LayerNorm) operands() []operand {
	dtype, features := n.X.DType, n.X.features()
	return append(make([]operand, 0, 10), like("x", n.X, n.X.Shape, dtype),
		ownOrWide("gamma", n.Gamma, features, dtype).optional(), ownOrWide("beta", n.Beta, features, dtype).optional())
}

// EffectiveEps is Eps, or 1e-5 where Eps is 0.
func (n *LayerNorm) EffectiveEps() float64 { return effectiveEps(n.Eps) }

// Validate returns what is wrong with the problem, naming the argument, what it was and what it needs to be, or nil.
func (n *LayerNorm) Validate() error {
	if n == nil {
		return errNoProblem
	}
	if err := validateNorm(n.X, n.Other, n.Gamma, n.Eps); err != nil || !n.Beta.IsSet() {
		return err
	}
	return n.Beta.validateVector("beta", n.X.Shape[len(n.X.Shape)-1], n.X.DType, "x")
}

func effectiveEps(eps float64) float64 {
	if eps == 0 {
		return 1e-5
	}
	return eps
}

// validateNorm checks what layer norm and RMS norm share.
func validateNorm(x, other, gamma Tensor, eps float64) error {
	if err := x.validateFeatures("x"); err != nil {
		return err
	}
	if other.IsSet() && (!slices.Equal(other.Shape, x.Shape) || other.DType != x.DType) {
		return fmt.Errorf("other is %v of shape %v, x is %v of shape %v: they need one dtype and shape", other.DType, other.Shape, x.DType, x.Shape)
	}
	if !(eps >= 0) || math.IsInf(eps, 0) {
		return fmt.Errorf("eps is %v, it needs to be positive, or 0 for 1e-5", eps)
	}
	if err := validateNumber("eps", eps, x.DType); err != nil {
		return err
	}
	if !gamma.IsSet() {
		return nil
	}
	return gamma.validateVector("gamma", x.Shape[len(x.Shape)-1], x.DType, "x")
}

// checkSum checks the other addend of a sum x + other, and the sum: both are given, or neither.
func checkSum(x, other, sum Tensor) error {
	addend, total := like("other", other, x.Shape, x.DType), writtenLike("sum", sum, x.Shape, x.DType)
	if !other.IsSet() && !sum.IsSet() {
		addend, total = addend.optional(), total.optional()
	}
	return checkOperands(addend, total)
}
