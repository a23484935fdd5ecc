package ops

import (
	"errors"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// NormOptions are the options of [LayerNorm] and [RMSNorm].
type NormOptions struct {
	Epsilon float64 // is added to the variance or mean square; 0 means 1e-5
}

// LayerNorm normalises each row of x, (..., C), to mean 0 and variance 1, then multiplies by gamma and adds beta, both
// (C); either may be nil. [kernels.Norm] has the equations.
func LayerNorm(x, gamma, beta *gorgonia.Node, o NormOptions) (*gorgonia.Node, error) {
	return apply("LayerNorm", &layerNorm{eps: o.Epsilon},
		input{name: "x", node: x},
		input{name: "gamma", node: gamma, form: denseForm, optional: true},
		input{name: "beta", node: beta, form: denseForm, optional: true, unread: true})
}

// LayerNormStatistics is [LayerNorm] that also gives what it found in each row of x: the mean, and 1/√(variance + epsilon), both
// (...), in float32 where x has 16 bits. They are there to be looked at: to a gradient they are constants.
func LayerNormStatistics(x, gamma, beta *gorgonia.Node, o NormOptions) (y, mean, rstd *gorgonia.Node, err error) {
	outputs, err := applyAll("LayerNormStatistics", &layerNormStatistics{layerNorm{eps: o.Epsilon}},
		input{name: "x", node: x},
		input{name: "gamma", node: gamma, form: denseForm, optional: true},
		input{name: "beta", node: beta, form: denseForm, optional: true, unread: true})
	if err != nil {
		return nil, nil, nil, err
	}
	return outputs[0], outputs[1], outputs[2], nil
}

// AddLayerNorm is the sum of x and other, and [LayerNorm] of the sum: a residual connection and the norm behind it, in one pass.
// So is the gradient of x, which is other's too.
func AddLayerNorm(x, other, gamma, beta *gorgonia.Node, o NormOptions) (sum, y *gorgonia.Node, err error) {
	return applyToSum("AddLayerNorm", &addLayerNorm{layerNorm{eps: o.Epsilon}}, x, other,
		input{name: "gamma", node: gamma, form: denseForm, optional: true},
		input{name: "beta", node: beta, form: denseForm, optional: true, unread: true})
}

// LayerNormOfSum is [AddLayerNorm] of a sum that nothing else reads.
func LayerNormOfSum(x, other, gamma, beta *gorgonia.Node, o NormOptions) (*gorgonia.Node, error) {
	return apply("LayerNormOfSum", &layerNormOfSum{addLayerNorm: addLayerNorm{layerNorm{eps: o.Epsilon}}}, addends(x, other,
		input{name: "gamma", node: gamma, form: denseForm, optional: true},
		input{name: "beta", node: beta, form: denseForm, optional: true, unread: true})...)
}

// applyToSum adds a sum and its norm to the graph.
func applyToSum(name string, k kernel, x, other *gorgonia.Node, parameters ...input) (sum, y *gorgonia.Node, err error) {
	outputs, err := applyAll(name, k, addends(x, other, parameters...)...)
	if err != nil {
		return nil, nil, err
	}
	return outputs[0], outputs[1], nil
}

// addends are the inputs of the norm of a sum.
func addends(x, other *gorgonia.Node, parameters ...input) []input {
	return append([]input{{name: "x", node: x, unread: true}, {name: "other", node: other, unread: true, shared: true}}, parameters...)
}

type layerNorm struct {
	eps        float64
	mean, rstd kernels.Tensor
}

func (k *layerNorm) problem(in []kernels.Tensor) *kernels.Norm {
	return &kernels.Norm{X: in[0], Gamma: in[1], Beta: in[2], Eps: k.eps}
}

func (k *layerNorm) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), k.problem(in).Validate()
}

func (k *layerNorm) source() source { return fromSaved }

func (k *layerNorm) forward(r *run, in, out []kernels.Tensor) error {
	return k.normalise(r, k.problem(in), kernels.NormOutputs{Y: out[0]})
}

// normalise keeps the statistics where gradients will be asked for.
func (k *layerNorm) normalise(r *run, p *kernels.Norm, out kernels.NormOutputs) error {
	if r.wanted != nil {
		for _, statistic := range []*kernels.Tensor{&k.mean, &k.rstd} {
			if err := r.keep(statistic, p.X.DType.Wide(), rowShape(p.X)...); err != nil {
				return err
			}
		}
		out.Mean, out.RStd = k.mean, k.rstd
	}
	return r.NormForward(p, out)
}

// rowShape is the shape of values that a tensor has one of for each row.
func rowShape(t kernels.Tensor) []int { return t.Shape[:len(t.Shape)-1] }

func (k *layerNorm) backward(r *run, in, dOut, d []kernels.Tensor) error {
	p := k.problem(in)
	p.Beta = kernels.Tensor{}
	return r.NormBackward(p, kernels.NormGradients{
		DY: dOut[0], Mean: k.mean, RStd: k.rstd, DX: d[0], DGamma: d[1], DBeta: d[2],
	})
}

// layerNormStatistics has the outputs y, mean and rstd.
type layerNormStatistics struct{ layerNorm }

func (k *layerNormStatistics) firstStatistic() int { return 1 }

func (k *layerNormStatistics) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	statistic := kernels.Contiguous(nil, in[0].DType.Wide(), rowShape(in[0])...)
	return []kernels.Tensor{in[0], statistic, statistic}, k.problem(in).Validate()
}

func (k *layerNormStatistics) forward(r *run, in, out []kernels.Tensor) error {
	err := k.normalise(r, k.problem(in), kernels.NormOutputs{Y: out[0], Mean: out[1], RStd: out[2]})
	if err != nil || r.wanted == nil {
		return err
	}
	return errors.Join(r.Copy(out[1], k.mean), r.Copy(out[2], k.rstd))
}

// addLayerNorm has the inputs x, other, gamma and beta, and the outputs sum and y.
type addLayerNorm struct{ layerNorm }

func (k *addLayerNorm) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return []kernels.Tensor{in[0], in[0]}, k.ofSum(in).Validate()
}

func (k *addLayerNorm) ofSum(in []kernels.Tensor) *kernels.Norm {
	return &kernels.Norm{X: in[0], Other: in[1], Gamma: in[2], Beta: in[3], Eps: k.eps}
}

func (k *addLayerNorm) source() source { return fromOutputs }

func (k *addLayerNorm) forward(r *run, in, out []kernels.Tensor) error {
	return k.normalise(r, k.ofSum(in), kernels.NormOutputs{Sum: out[0], Y: out[1]})
}

func (k *addLayerNorm) backward(r *run, in, dOut, d []kernels.Tensor) error {
	if !dOut[1].IsSet() {
		return gradientOfSum(r, dOut[0], d)
	}
	return k.gradients(r, r.out[0], in, dOut[1], dOut[0], d)
}

// gradients computes those of the inputs from the sum and the gradients of its norm and, where it has one, of itself.
func (k *addLayerNorm) gradients(r *run, sum kernels.Tensor, in []kernels.Tensor, dy, dSum kernels.Tensor, d []kernels.Tensor) error {
	g := kernels.NormGradients{DY: dy, DSum: dSum, Mean: k.mean, RStd: k.rstd, DX: d[0], DGamma: d[2], DBeta: d[3]}
	if d[0].IsSet() {
		var err error
		if g.DXSums, err = r.biasBefore(1); err != nil {
			return err
		}
	}
	return r.NormBackward(&kernels.Norm{X: sum, Gamma: in[2], Eps: k.eps}, g)
}

// layerNormOfSum has the same inputs, and the output y.
type layerNormOfSum struct {
	addLayerNorm
	sum kernels.Tensor
}

func (k *layerNormOfSum) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), k.ofSum(in).Validate()
}

func (k *layerNormOfSum) source() source { return fromSaved }

func (k *layerNormOfSum) forward(r *run, in, out []kernels.Tensor) error {
	if err := r.lendSum(&k.sum, in[0]); err != nil {
		return err
	}
	return k.normalise(r, k.ofSum(in), kernels.NormOutputs{Sum: k.sum, Y: out[0]})
}

// lendSum gives memory for the sum that a norm is of, which backward reads.
func (r *run) lendSum(sum *kernels.Tensor, x kernels.Tensor) error {
	if r.wanted != nil {
		return r.keep(sum, x.DType, x.Shape...)
	}
	return r.scratch(sum, x.DType, x.Shape...)
}

func (k *layerNormOfSum) backward(r *run, in, dOut, d []kernels.Tensor) error {
	return k.gradients(r, k.sum, in, dOut[0], kernels.Tensor{}, d)
}

// gradientOfSum is the gradients of a sum's norm that nothing uses: that of the sum, and zeros for the parameters.
func gradientOfSum(r *run, dSum kernels.Tensor, d []kernels.Tensor) error {
	for _, parameter := range d[2:] {
		if parameter.IsSet() {
			if err := r.Fill(parameter, 0); err != nil {
				return err
			}
		}
	}
	if !d[0].IsSet() {
		return nil
	}
	return r.Copy(d[0], dSum)
}
