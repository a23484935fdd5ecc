package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// LinearOptions are the options of [Linear]. The zero value is x·W + b alone.
type LinearOptions struct {
	Activation kernels.Activation // is applied to the result, in the same pass
}

// Linear is act(x·W + b): x is (..., in), weight is (in, out), bias is (out) or nil, and the result
// is (..., out). The weight may be kept in less memory: in 16 bits beside an x of float32, or
// packed as [Packed] makes it of (out, in). It counts as it is, and is a constant to a gradient. On
// the host it is read as it lies, for few rows of x in the time that its memory takes.
//
// With an activation, what it is applied to is kept from the forward run to the backward run of a
// graph that is differentiated.
func Linear(x, weight, bias *gorgonia.Node, o LinearOptions) (*gorgonia.Node, error) {
	k := linear{activation: o.Activation}
	return apply("Linear", kernel{k.describe, k.forward, k.backward}, append([]input{{name: "x", node: x, form: denseForm}},
		layerInputs(x, "weight", weight, "bias", bias)...)...)
}

type linear struct{ activation kernels.Activation }

// What a linear layer saves: what the activation was applied to, and a rounded weight.
const linearPre, linearWeight = 0, 1

func (k linear) describe(in tensors) (description, error) {
	x, weight := in[0], in[1]
	if err := checkLayer(x, "weight", weight, "bias", in[2]); err != nil {
		return description{}, err
	}
	is := described(x.DType, withLastAxis(x.Shape, weight.Shape[1])...)
	if is.saves = make(tensors, 2); k.activation != kernels.NoActivation {
		is.saves[linearPre] = asMatrix(is.outputs[0])
		return is, k.activation.Validate()
	}
	if is.bias = 2; !isMixed(weight, x.DType) {
		is.saves = nil
	}
	return is, nil
}

func (k linear) forward(r *run, in, out tensors) error {
	weight, err := r.roundWeight(linearWeight, in[0].DType, in[1], r.wants(0))
	if err != nil {
		return err
	}
	epilogue := kernels.Activate{Activation: k.activation, Pre: r.saved(linearPre)}
	product := kernels.MatMul{A: asMatrix(in[0]), B: weight, Bias: in[2], Epilogue: epilogue}
	return r.MatMul(&product, kernels.MatMulOutputs{C: asMatrix(out[0])})
}

// backward computes, with dz = dy·act'(z),
//
//	dx = dz·Wᵀ      dW = xᵀ·dz      db = Σ over rows of dz
func (k linear) backward(r *run, in, dOut, d tensors) (err error) {
	dz := asMatrix(dOut[0])
	if k.activation != kernels.NoActivation {
		dy := dz
		if dz, err = r.scratchLike(dy); err != nil {
			return err
		}
		if err := r.ActivateBackward(k.activation, r.saved(linearPre), dy, dz); err != nil {
			return err
		}
	}
	if d[0].IsSet() {
		weight := r.roundedWeight(linearWeight, in[1])
		if err := r.product(dz, weight.Permute(1, 0), kernels.Tensor{}, asMatrix(d[0])); err != nil {
			return err
		}
	}
	return r.gradientsOfLayer(asMatrix(in[0]), dz, d[1], d[2])
}
