package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// RMSNorm divides each row of x, (..., C), by its root mean square, then multiplies by gamma, (C), which may be nil.
// [kernels.Norm] has the equations.
func RMSNorm(x, gamma *gorgonia.Node, o NormOptions) (*gorgonia.Node, error) {
	return apply("RMSNorm", &rmsNorm{eps: o.Epsilon},
		input{name: "x", node: x},
		input{name: "gamma", node: gamma, form: denseForm, optional: true})
}

// RMSNormStatistics is [RMSNorm] that also gives what it found in each row of x: 1/√(mean square + epsilon), (...). As in
// [LayerNormStatistics] that is a constant to a gradient.
func RMSNormStatistics(x, gamma *gorgonia.Node, o NormOptions) (y, rstd *gorgonia.Node, err error) {
	outputs, err := applyAll("RMSNormStatistics", &rmsNormStatistics{rmsNorm{eps: o.Epsilon}},
		input{name: "x", node: x},
		input{name: "gamma", node: gamma, form: denseForm, optional: true})
	if err != nil {
		return nil, nil, err
	}
	return outputs[0], outputs[1], nil
}

// AddRMSNorm is the sum of x and other, and [RMSNorm] of the sum; see [AddLayerNorm].
func AddRMSNorm(x, other, gamma *gorgonia.Node, o NormOptions) (sum, y *gorgonia.Node, err error) {
	return applyToSum("AddRMSNorm", &addRMSNorm{rmsNorm{eps: o.Epsilon}}, x, other,
		input{name: "gamma", node: gamma, form: denseForm, optional: true})
}

// RMSNormOfSum is [AddRMSNorm] of a sum that nothing else reads.
func RMSNormOfSum(x, other, gamma *gorgonia.Node, o NormOptions) (*gorgonia.Node, error) {
	return apply("RMSNormOfSum", &rmsNormOfSum{addRMSNorm: addRMSNorm{rmsNorm{eps: o.Epsilon}}}, addends(x, other,
		input{name: "gamma", node: gamma, form: denseForm, optional: true})...)
}

type rmsNorm struct {
	eps  float64
	rstd kernels.Tensor
}

func (k *rmsNorm) problem(in []kernels.Tensor) *kernels.Norm {
	return &kernels.Norm{RMS: true, X: in[0], Gamma: in[1], Eps: k.eps}
}

func (k *rmsNorm) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), k.problem(in).Validate()
}

func (k *rmsNorm) source() source { return fromSaved }

func (k *rmsNorm) forward(r *run, in, out []kernels.Tensor) error {
	return k.normalise(r, k.problem(in), kernels.NormOutputs{Y: out[0]})
}

// normalise keeps the statistic where gradients will be asked for.
func (k *rmsNorm) normalise(r *run, p *kernels.Norm, out kernels.NormOutputs) error {
	if r.wanted != nil {
		if err := r.keep(&k.rstd, p.X.DType.Wide(), rowShape(p.X)...); err != nil {
			return err
		}
		out.RStd = k.rstd
	}
	return r.NormForward(p, out)
}

func (k *rmsNorm) backward(r *run, in, dOut, d []kernels.Tensor) error {
	return r.NormBackward(k.problem(in), kernels.NormGradients{DY: dOut[0], RStd: k.rstd, DX: d[0], DGamma: d[1]})
}

// rmsNormStatistics has the outputs y and rstd.
type rmsNormStatistics struct{ rmsNorm }

func (k *rmsNormStatistics) firstStatistic() int { return 1 }

func (k *rmsNormStatistics) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	statistic := kernels.Contiguous(nil, in[0].DType.Wide(), rowShape(in[0])...)
	return []kernels.Tensor{in[0], statistic}, k.problem(in).Validate()
}

func (k *rmsNormStatistics) forward(r *run, in, out []kernels.Tensor) error {
	err := k.normalise(r, k.problem(in), kernels.NormOutputs{Y: out[0], RStd: out[1]})
	if err != nil || r.wanted == nil {
		return err
	}
	return r.Copy(out[1], k.rstd)
}

// addRMSNorm has the inputs x, other and gamma, and the outputs sum and y.
type addRMSNorm struct{ rmsNorm }

func (k *addRMSNorm) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return []kernels.Tensor{in[0], in[0]}, k.ofSum(in).Validate()
}

func (k *addRMSNorm) ofSum(in []kernels.Tensor) *kernels.Norm {
	return &kernels.Norm{RMS: true, X: in[0], Other: in[1], Gamma: in[2], Eps: k.eps}
}

func (k *addRMSNorm) source() source { return fromOutputs }

func (k *addRMSNorm) forward(r *run, in, out []kernels.Tensor) error {
	return k.normalise(r, k.ofSum(in), kernels.NormOutputs{Sum: out[0], Y: out[1]})
}

func (k *addRMSNorm) backward(r *run, in, dOut, d []kernels.Tensor) error {
	if !dOut[1].IsSet() {
		return gradientOfSum(r, dOut[0], d)
	}
	return k.gradients(r, r.out[0], in, dOut[1], dOut[0], d)
}

// gradients computes those of the inputs from the sum and the gradients of its norm and, where it has one, of itself.
func (k *addRMSNorm) gradients(r *run, sum kernels.Tensor, in []kernels.Tensor, dy, dSum kernels.Tensor, d []kernels.Tensor) error {
	return r.NormBackward(&kernels.Norm{RMS: true, X: sum, Gamma: in[2], Eps: k.eps}, kernels.NormGradients{
		DY: dy, DSum: dSum, RStd: k.rstd, DX: d[0], DGamma: d[2],
	})
}

// rmsNormOfSum has the same inputs, and the output y.
type rmsNormOfSum struct {
	addRMSNorm
	sum kernels.Tensor
}

func (k *rmsNormOfSum) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), k.ofSum(in).Validate()
}

func (k *rmsNormOfSum) source() source { return fromSaved }

func (k *rmsNormOfSum) forward(r *run, in, out []kernels.Tensor) error {
	if err := r.lendSum(&k.sum, in[0]); err != nil {
		return err
	}
	return k.normalise(r, k.ofSum(in), kernels.NormOutputs{Sum: k.sum, Y: out[0]})
}

func (k *rmsNormOfSum) backward(r *run, in, dOut, d []kernels.Tensor) error {
	return k.gradients(r, k.sum, in, dOut[0], kernels.Tensor{}, d)
}
