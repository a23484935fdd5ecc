package cpu

import "github.com/stheno-ml/stheno/kernels"

// RMSNormForward divides each row by its root mean square, then scales it.
func (b *Backend) RMSNormForward(n *kernels.RMSNorm, out kernels.RMSNormOutputs) error {
	if err := checked("rms norm forward", n.CheckForward(out)); err != nil {
		return err
	}
	b.normForward(uncentred(n), false, kernels.LayerNormOutputs{Y: out.Y, Sum: out.Sum, RStd: out.RStd})
	return nil
}

// RMSNormBackward computes the gradients of x and gamma.
func (b *Backend) RMSNormBackward(n *kernels.RMSNorm, g kernels.RMSNormGradients) error {
	if err := checked("rms norm backward", n.CheckBackward(g)); err != nil {
		return err
	}
	b.normBackward(uncentred(n), false, kernels.LayerNormGradients{DY: g.DY, DSum: g.DSum, RStd: g.RStd, DX: g.DX, DGamma: g.DGamma})
	return nil
}

func uncentred(n *kernels.RMSNorm) kernels.LayerNorm {
	return kernels.LayerNorm{X: n.X, Other: n.Other, Gamma: n.Gamma, Eps: n.EffectiveEps()}
}
