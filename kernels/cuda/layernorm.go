//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// LayerNormForward normalises each row, of x or of x + other, to mean 0 and variance 1, then scales and shifts it.
func (d *Device) LayerNormForward(n *kernels.LayerNorm, out kernels.LayerNormOutputs) error {
	k := &norm{device: d, kernel: "layer norm forward", entry: "layer_norm", x: n.X}
	if err := d.checked(k.kernel, n.CheckForward(out), n.X.DType); err != nil {
		return err
	}
	return k.forward(n.Other, n.Gamma, n.Beta, out.Y, out.Sum, out.Mean, out.RStd, n.EffectiveEps())
}

// LayerNormBackward computes the gradients of x, gamma and beta, and the sums of that of x.
func (d *Device) LayerNormBackward(n *kernels.LayerNorm, g kernels.LayerNormGradients) error {
	k := &norm{device: d, kernel: "layer norm backward", entry: "layer_norm", x: n.X}
	if err := d.checked(k.kernel, n.CheckBackward(g), n.X.DType); err != nil {
		return err
	}
	return k.backward(n.Gamma, g.DY, g.DSum, g.Mean, g.RStd, g.DX, g.DGamma, g.DBeta, g.DXSums)
}
