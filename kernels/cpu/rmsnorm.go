package cpu

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// RMSNormForward divides each row by its root mean square, then scales it.
func (b *Backend) RMSNormForward(n *kernels.RMSNorm, out kernels.RMSNormOutputs) error {
	if err := checkRMSNorm("rms norm forward", n, func() []operand {
		return []operand{rowOperand("y", out.Y, n.X.Shape), {"rstd", out.RStd, perRow(n.X), dense}}
	}); err != nil {
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
	if err := checkRMSNorm("rms norm backward", n, func() []operand {
		list := []operand{
			rowOperand("dy", g.DY, n.X.Shape), {"rstd", g.RStd, perRow(n.X), denseNeeded},
			{"dGamma", g.DGamma, n.X.Shape[len(n.X.Shape)-1:], dense},
		}
		if g.DX.IsSet() {
			list = append(list, rowOperand("dx", g.DX, n.X.Shape))
		}
		return list
	}); err != nil {
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

func checkRMSNorm(kernel string, n *kernels.RMSNorm, more func() []operand) error {
	if err := n.Validate(); err != nil {
		return fmt.Errorf("cpu: %s: %w", kernel, err)
	}
	inputs := []operand{rowOperand("x", n.X, n.X.Shape), {"gamma", n.Gamma, n.Gamma.Shape, dense}}
	return checkOperands(kernel, append(inputs, more()...)...)
}
