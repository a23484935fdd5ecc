package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// NormOptions are the options of [LayerNorm] and [RMSNorm].
type NormOptions struct {
	Epsilon float64 // is added to the variance or mean square; 0 means 1e-5
}

// LayerNorm normalises each row of x, (..., C), to mean 0 and variance 1, then multiplies by gamma and adds beta, both
// (C); either may be nil. [kernels.LayerNorm] has the equations.
func LayerNorm(x, gamma, beta *gorgonia.Node, o NormOptions) (*gorgonia.Node, error) {
	return apply("LayerNorm", &layerNorm{eps: o.Epsilon},
		input{name: "x", node: x},
		input{name: "gamma", node: gamma, form: denseForm, optional: true},
		input{name: "beta", node: beta, form: denseForm, optional: true, unread: true})
}

type layerNorm struct {
	eps        float64
	mean, rstd kernels.Tensor
}

func (k *layerNorm) problem(in []kernels.Tensor) *kernels.LayerNorm {
	return &kernels.LayerNorm{X: in[0], Gamma: in[1], Beta: in[2], Eps: k.eps}
}

func (k *layerNorm) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), k.problem(in).Validate()
}

func (k *layerNorm) source() source { return fromSaved }

func (k *layerNorm) forward(r *run, in, out []kernels.Tensor) error {
	outputs := kernels.LayerNormOutputs{Y: out[0]}
	if r.wanted != nil {
		for _, statistic := range []*kernels.Tensor{&k.mean, &k.rstd} {
			if err := r.keep(statistic, in[0].DType.Wide(), rowShape(in[0])...); err != nil {
				return err
			}
		}
		outputs.Mean, outputs.RStd = k.mean, k.rstd
	}
	return r.LayerNormForward(k.problem(in), outputs)
}

// rowShape is the shape of values that a tensor has one of for each row.
func rowShape(t kernels.Tensor) []int { return t.Shape[:len(t.Shape)-1] }

func (k *layerNorm) backward(r *run, in, dOut, d []kernels.Tensor) error {
	p := k.problem(in)
	p.Beta = kernels.Tensor{}
	return r.LayerNormBackward(p, kernels.LayerNormGradients{
		DY: dOut[0], Mean: k.mean, RStd: k.rstd, DX: d[0], DGamma: d[1], DBeta: d[2],
	})
}
