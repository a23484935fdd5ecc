package cpu

import "github.com/stheno-ml/stheno/kernels"

// LayerNormForward normalises each row to mean 0 and variance 1, then scales and shifts it.
func (b *Backend) LayerNormForward(n *kernels.LayerNorm, out kernels.LayerNormOutputs) error {
	if err := checked("layer norm forward", n.CheckForward(out)); err != nil {
		return err
	}
	b.normForward(*n, true, out)
	return nil
}

// LayerNormBackward computes the gradients of x, gamma and beta.
func (b *Backend) LayerNormBackward(n *kernels.LayerNorm, g kernels.LayerNormGradients) error {
	if err := checked("layer norm backward", n.CheckBackward(g)); err != nil {
		return err
	}
	b.normBackward(*n, true, g)
	if g.DXSums.IsSet() {
		return b.SumRows(g.DX, g.DXSums, false)
	}
	return nil
}
