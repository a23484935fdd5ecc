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
	rstd kernels.Tensor
}

func (k *rmsNorm) problem(in []kernels.Tensor) *kernels.RMSNorm {
	return &kernels.RMSNorm{X: in[0], Gamma: in[1], Eps: k.eps}
}

func (k *rmsNorm) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), k.problem(in).Validate()
}

func (k *rmsNorm) source() source { return fromSaved }

func (k *rmsNorm) forward(r *run, in, out []kernels.Tensor) error {
	outputs := kernels.RMSNormOutputs{Y: out[0]}
	if r.wanted != nil {
		if err := r.keep(&k.rstd, in[0].DType.Wide(), rowShape(in[0])...); err != nil {
			return err
		}
		outputs.RStd = k.rstd
	}
	return r.RMSNormForward(k.problem(in), outputs)
}

func (k *rmsNorm) backward(r *run, in, dOut, d []kernels.Tensor) error {
	return r.RMSNormBackward(k.problem(in), kernels.RMSNormGradients{DY: dOut[0], RStd: k.rstd, DX: d[0], DGamma: d[1]})
}
