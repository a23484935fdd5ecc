package cpu

import "github.com/stheno-ml/stheno/kernels"

// RMSNormForward divides each row by its root mean square, then scales it.
func (b *Backend) RMSNormForward(n *kernels.RMSNorm, out kernels.RMSNormOutputs) error {
	if err := checked("rms norm forward", n.CheckForward(out), "x", n.X); err != nil {
		return err
	}
	if n.X.DType == kernels.F32 {
		newNorm[float32](b, n.X, n.Gamma, kernels.Tensor{}, n.EffectiveEps(), false).forward(out.Y, kernels.Tensor{}, out.RStd)
	} else {
		newNorm[float64](b, n.X, n.Gamma, kernels.Tensor{}, n.EffectiveEps(), false).forward(out.Y, kernels.Tensor{}, out.RStd)
	}
	return nil
}

// RMSNormBackward computes the gradients of x and gamma.
func (b *Backend) RMSNormBackward(n *kernels.RMSNorm, g kernels.RMSNormGradients) error {
	if err := checked("rms norm backward", n.CheckBackward(g), "x", n.X); err != nil {
		return err
	}
	none := kernels.Tensor{}
	if n.X.DType == kernels.F32 {
		newNorm[float32](b, n.X, n.Gamma, none, 0, false).backward(g.DY, none, g.RStd, g.DX, g.DGamma, none)
	} else {
		newNorm[float64](b, n.X, n.Gamma, none, 0, false).backward(g.DY, none, g.RStd, g.DX, g.DGamma, none)
	}
	return nil
}
