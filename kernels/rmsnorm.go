package kernels

// RMSNorm divides each row of C features by its root mean square, then scales each feature:
//
//	x    ← x + other                    where Other is given
//	rstd = 1/√(Σ x_c²/C + eps)      x̂_c = x_c·rstd      y_c = x̂_c·γ_c
type RMSNorm struct {
	X     Tensor  // (..., C)
	Other Tensor  // as X: what is added to X first, a residual connection; or left out. Backward takes the sum for X instead
	Gamma Tensor  // (C), or left out: 1. Of X's dtype, or float32 beside a 16-bit X
	Eps   float64 // added to the mean square; 0 means 1e-5
}

// RMSNormOutputs receives what the forward kernel computes.
type RMSNormOutputs struct {
	Y    Tensor // as X
	Sum  Tensor // as X: X + Other, where that is given; may be either of them itself
	RStd Tensor // (...), row-major, of X's wide dtype: what the backward kernel needs; or left out
}

// RMSNormGradients carries the backward kernel's inputs beside the problem itself, and what it computes. A gradient
// that is left out is not computed.
type RMSNormGradients struct {
	DY   Tensor // as X
	DSum Tensor // as X: the gradient of X itself, which is added to the rounded DX; or left out
	RStd Tensor // from the forward kernel

	DX     Tensor // as X; may be DY or DSum itself
	DGamma Tensor // (C), of X's dtype or its wide one
}

// RMSNormKernels normalise rows without centring them. Sums over rows are added in an order that depends on the shape
// alone. 16-bit tensors are computed in float32 and rounded as by [LayerNormKernels].
type RMSNormKernels interface {
	RMSNormForward(n *RMSNorm, out RMSNormOutputs) error
	// RMSNormBackward computes, with g_c = dy_c·γ_c,
	//
	//	dx_c = rstd·(g_c − x̂_c·Σ(g·x̂)/C) + dSum_c      dγ_c = Σ over rows of dy_c·x̂_c
	RMSNormBackward(n *RMSNorm, g RMSNormGradients) error
}

// CheckForward returns what is wrong with a call of RMSNormForward.
func (n *RMSNorm) CheckForward(out RMSNormOutputs) error {
	if err := n.Validate(); err != nil {
		return err
	}
	dtype := n.X.DType
	if err := checkOperands(like("x", n.X, n.X.Shape, dtype), ownOrWide("gamma", n.Gamma, n.X.features(), dtype).optional(),
		writtenLike("y", out.Y, n.X.Shape, dtype), wide("rstd", out.RStd, n.X.rowShape(), dtype).optional()); err != nil {
		return err
	}
	return checkSum(n.X, n.Other, out.Sum)
}

// CheckBackward returns what is wrong with a call of RMSNormBackward.
func (n *RMSNorm) CheckBackward(g RMSNormGradients) error {
	if err := n.Validate(); err != nil {
		return err
	}
	dtype, features := n.X.DType, n.X.features()
	return checkOperands(like("x", n.X, n.X.Shape, dtype), ownOrWide("gamma", n.Gamma, features, dtype).optional(),
		like("dy", g.DY, n.X.Shape, dtype), like("dSum", g.DSum, n.X.Shape, dtype).optional(), wide("rstd", g.RStd, n.X.rowShape(), dtype),
		writtenLike("dx", g.DX, n.X.Shape, dtype).optional(), ownOrWide("dGamma", g.DGamma, features, dtype).optional())
}

// EffectiveEps is Eps, or 1e-5 where Eps is 0.
func (n *RMSNorm) EffectiveEps() float64 { return effectiveEps(n.Eps) }

// Validate returns what is wrong with the problem, naming the argument, what it was and what it needs to be, or nil.
func (n *RMSNorm) Validate() error {
	if n == nil {
		return errNoProblem
	}
	return validateNorm(n.X, n.Other, n.Gamma, n.Eps)
}
