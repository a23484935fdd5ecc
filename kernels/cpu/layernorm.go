package cpu

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// LayerNormForward normalises each row to mean 0 and variance 1, then scales and shifts it.
func (b *Backend) LayerNormForward(n *kernels.LayerNorm, out kernels.LayerNormOutputs) error {
	statistics := dense
	if out.Mean.IsSet() || out.RStd.IsSet() {
		statistics = denseNeeded
	}
	if err := checkLayerNorm("layer norm forward", n, func() []operand {
		return []operand{rowOperand("y", out.Y, n.X.Shape), {"mean", out.Mean, perRow(n.X), statistics}, {"rstd", out.RStd, perRow(n.X), statistics}}
	}); err != nil {
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
	if err := checkLayerNorm("layer norm backward", n, func() []operand {
		features := n.X.Shape[len(n.X.Shape)-1:]
		list := []operand{
			rowOperand("dy", g.DY, n.X.Shape), {"mean", g.Mean, perRow(n.X), denseNeeded}, {"rstd", g.RStd, perRow(n.X), denseNeeded},
			{"dGamma", g.DGamma, features, dense}, {"dBeta", g.DBeta, features, dense},
		}
		if g.DX.IsSet() {
			list = append(list, rowOperand("dx", g.DX, n.X.Shape))
		}
		return list
	}); err != nil {
		return err
	}
	if n.X.DType == kernels.F32 {
		newNorm[float32](b, n.X, n.Gamma, n.Beta, 0, true).backward(g.DY, g.Mean, g.RStd, g.DX, g.DGamma, g.DBeta)
	} else {
		newNorm[float64](b, n.X, n.Gamma, n.Beta, 0, true).backward(g.DY, g.Mean, g.RStd, g.DX, g.DGamma, g.DBeta)
	}
	return nil
}

func checkLayerNorm(kernel string, n *kernels.LayerNorm, more func() []operand) error {
	if err := n.Validate(); err != nil {
		return fmt.Errorf("cpu: %s: %w", kernel, err)
	}
	inputs := []operand{rowOperand("x", n.X, n.X.Shape), {"gamma", n.Gamma, n.Gamma.Shape, dense}, {"beta", n.Beta, n.Beta.Shape, dense}}
	return checkOperands(kernel, append(inputs, more()...)...)
}
