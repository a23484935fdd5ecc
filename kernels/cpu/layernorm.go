package cpu

import "github.com/stheno-ml/stheno/kernels"

// LayerNormForward normalises each row to mean 0 and variance 1, then scales and shifts it.
func (b *Backend) LayerNormForward(n *kernels.LayerNorm, out kernels.LayerNormOutputs) error {
	if err := checked("layer norm forward", n.CheckForward(out), "x", n.X); err != nil {
		return err
	}
	if n.X.DType == kernels.F32 {
		newNorm[float32](b, n.X, n.Gamma, n.Beta, n.EffectiveEps(), true).forward(out.Y, out.Mean, out.RStd)
	} else {
		newNorm[float64](b, n.X, n.Gamma, n.Beta, n.EffectiveEps(), true).forward(out.Y, out.Mean, out.RStd)
	}
	return nil
}

// LayerNormBackward computes the gradients of x, gamma and beta.
func (b *Backend) LayerNormBackward(n *kernels.LayerNorm, g kernels.LayerNormGradients) error {
	if err := checked("layer norm backward", n.CheckBackward(g), "x", n.X); err != nil {
		return err
	}
	if n.X.DType == kernels.F32 {
		newNorm[float32](b, n.X, n.Gamma, n.Beta, 0, true).backward(g.DY, g.Mean, g.RStd, g.DX, g.DGamma, g.DBeta)
	} else {
		newNorm[float64](b, n.X, n.Gamma, n.Beta, 0, true).backward(g.DY, g.Mean, g.RStd, g.DX, g.DGamma, g.DBeta)
	}
	return nil
}
