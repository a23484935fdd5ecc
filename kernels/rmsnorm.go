package kernels

// RMSNorm divides each row of C features by its root mean square, then scales each feature:
//
//	rstd = 1/√(Σ x_c²/C + eps)      x̂_c = x_c·rstd      y_c = x̂_c·γ_c
type RMSNorm struct {
	X     Tensor  // (..., C)
	Gamma Tensor  // (C), or left out: 1
	Eps   float64 // added to the mean square; 0 means 1e-5
}

// RMSNormOutputs receives what the forward kernel computes.
type RMSNormOutputs struct {
	Y    Tensor // shaped as X
	RStd Tensor // (...), row-major: what the backward kernel needs; or left out
}

// RMSNormGradients carries the backward kernel's inputs beside the problem itself, and what it computes. A gradient
// that is left out is not computed.
type RMSNormGradients struct {
	DY   Tensor // shaped as X
	RStd Tensor // from the forward kernel

	DX     Tensor // shaped as X; may be DY itself
	DGamma Tensor // (C)
}

// RMSNormKernels normalise rows without centring them. Sums over rows are added in an order that depends on the shape
// alone.
type RMSNormKernels interface {
	RMSNormForward(n *RMSNorm, out RMSNormOutputs) error
	// RMSNormBackward computes, with g_c = dy_c·γ_c,
	//
	//	dx_c = rstd·(g_c − x̂_c·Σ(g·x̂)/C)      dγ_c = Σ over rows of dy_c·x̂_c
	RMSNormBackward(n *RMSNorm, g RMSNormGradients) error
}

// EffectiveEps is Eps, or 1e-5 where Eps is 0.
func (n *RMSNorm) EffectiveEps() float64 { return effectiveEps(n.Eps) }

// Validate returns what is wrong with the problem, naming the argument, what it was and what it needs to be, or nil.
func (n *RMSNorm) Validate() error { return validateNorm(n.X, n.Gamma, n.Eps) }
