//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// RMSNormForward divides each row, of x or of x + other, by its root mean square, then scales it.
func (d *Device) RMSNormForward(n *kernels.RMSNorm, out kernels.RMSNormOutputs) error {
	k := &norm{device: d, kernel: "rms norm forward", entry: "rms_norm", x: n.X}
	if err := d.checked(k.kernel, n.CheckForward(out), n.X.DType); err != nil {
		return err
	}
	return k.forward(n.Other, n.Gamma, kernels.Tensor{}, out.Y, out.Sum, kernels.Tensor{}, out.RStd, n.EffectiveEps())
}

// RMSNormBackward computes the gradients of x and gamma.
func (d *Device) RMSNormBackward(n *kernels.RMSNorm, g kernels.RMSNormGradients) error {
	k := &norm{device: d, kernel: "rms norm backward", entry: "rms_norm", x: n.X}
	if err := d.checked(k.kernel, n.CheckBackward(g), n.X.DType); err != nil {
		return err
	}
	return k.backward(n.Gamma, g.DY, g.DSum, kernels.Tensor{}, g.RStd, g.DX, g.DGamma, kernels.Tensor{}, kernels.Tensor{})
}
