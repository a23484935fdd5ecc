package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// RMSNorm divides each row of x, (..., C), by its root mean square, then multiplies by gamma, (C), which may be nil.
// [kernels.RMSNorm] has the equations.
func RMSNorm(x, gamma *gorgonia.Node, o NormOptions) (*gorgonia.Node, error) {
	return apply("RMSNorm", &rmsNorm{eps: o.Epsilon},
		input{name: "x", node: x},
		input{name: "gamma", node: gamma, form: denseForm, optional: true})
}

type rmsNorm struct {
	eps  float64
	rstd buffer
}

func (k *rmsNorm) problem(in []kernels.Tensor) *kernels.RMSNorm {
	return &kernels.RMSNorm{X: in[0], Gamma: in[1], Eps: k.eps}
}

func (k *rmsNorm) shape(in []kernels.Tensor) ([]int, error) {
	return in[0].Shape, k.problem(in).Validate()
}

func (k *rmsNorm) source() source { return fromSaved }

func (k *rmsNorm) forward(h *home, in []kernels.Tensor, out kernels.Tensor, want []bool) (err error) {
	outputs := kernels.RMSNormOutputs{Y: out}
	if want != nil {
		if outputs.RStd, err = k.rstd.get(h, out.DType, rowShape(out)...); err != nil {
			return err
		}
	}
	return h.RMSNormForward(k.problem(in), outputs)
}

func (k *rmsNorm) backward(h *home, in []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error {
	return h.RMSNormBackward(k.problem(in), kernels.RMSNormGradients{DY: dOut, RStd: k.rstd.t, DX: d[0], DGamma: d[1]})
}
