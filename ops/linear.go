package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// LinearOptions are the options of [Linear]. The zero value is x·W + b alone.
type LinearOptions struct {
	Activation kernels.Activation // is applied to the result, in the same pass
}

// Linear is act(x·W + b): x is (..., in), weight is (in, out), bias is (out) or nil, and the result is (..., out).
//
// With an activation, what it is applied to is kept from the forward run to the backward run of a graph that is
// differentiated.
func Linear(x, weight, bias *gorgonia.Node, o LinearOptions) (*gorgonia.Node, error) {
	return apply("Linear", &linear{activation: o.Activation},
		input{name: "x", node: x, form: denseForm},
		input{name: "weight", node: weight, form: stridedForm},
		input{name: "bias", node: bias, form: denseForm, optional: true, unread: true})
}

type linear struct {
	activation kernels.Activation
	pre, dz    kernels.Tensor // what the activation was applied to, and its gradient
	mixed      bool           // the weight has another type than x
	rounded    kernels.Tensor // and then this is the weight in the type of x
}

func (k *linear) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	x, weight, bias := in[0], in[1], in[2]
	features := x.Shape[len(x.Shape)-1]
	switch {
	case len(weight.Shape) != 2:
		return nil, fmt.Errorf("weight has shape %v, it needs two axes (in, out)", weight.Shape)
	case weight.Shape[0] != features:
		return nil, fmt.Errorf("weight has shape %v, it needs a row for each of x's %d features", weight.Shape, features)
	case weight.DType != x.DType && weight.DType != x.DType.Wide():
		return nil, errParameter("weight", weight, x)
	case bias.IsSet() && (len(bias.Shape) != 1 || bias.Shape[0] != weight.Shape[1]):
		return nil, fmt.Errorf("bias has shape %v, it needs one value for each of weight's %d columns", bias.Shape, weight.Shape[1])
	case bias.IsSet() && bias.DType != x.DType && bias.DType != x.DType.Wide():
		return nil, errParameter("bias", bias, x)
	}
	k.mixed = weight.DType != x.DType
	if err := k.activation.Validate(); err != nil {
		return nil, err
	}
	return described(x.DType, withLastAxis(x.Shape, weight.Shape[1])...), nil
}

// withLastAxis is a shape with another length of its last axis.
func withLastAxis(shape []int, length int) []int {
	return append(append([]int(nil), shape[:len(shape)-1]...), length)
}

// asMatrix views a row-major tensor as the matrix of its rows.
func asMatrix(t kernels.Tensor) kernels.Tensor {
	columns := t.Shape[len(t.Shape)-1]
	return t.Reshape(t.Elements()/columns, columns)
}

// errParameter says which types a parameter may have beside an input x.
func errParameter(name string, parameter, x kernels.Tensor) error {
	if own, wide := x.DType, x.DType.Wide(); own != wide {
		return fmt.Errorf("%s is %v, x is %v: it needs to be %v or %v", name, parameter.DType, own, own, wide)
	}
	return fmt.Errorf("%s is %v, x is %v: they need one dtype", name, parameter.DType, x.DType)
}

func (k *linear) source() source {
	if k.activation == kernels.NoActivation && !k.mixed {
		return fromInputs
	}
	return fromSaved
}

func (k *linear) forward(r *run, in, out []kernels.Tensor) error {
	outputs := kernels.MatMulOutputs{C: asMatrix(out[0])}
	if r.wanted != nil && k.activation != kernels.NoActivation {
		if err := r.keep(&k.pre, out[0].DType, outputs.C.Shape...); err != nil {
			return err
		}
		outputs.Pre = k.pre
	}
	weight, err := k.weight(r, in)
	if err != nil {
		return err
	}
	return r.MatMul(&kernels.MatMul{A: asMatrix(in[0]), B: weight, Bias: in[2], Activation: k.activation}, outputs)
}

// weight is the weight in the type of x. A rounded one is kept for the gradient of x.
func (k *linear) weight(r *run, in []kernels.Tensor) (kernels.Tensor, error) {
	if !k.mixed {
		return in[1], nil
	}
	lend := r.scratch
	if r.wants(0) {
		lend = r.keep
	}
	if err := lend(&k.rounded, in[0].DType, in[1].Shape...); err != nil {
		return in[1], err
	}
	return k.rounded, r.Copy(k.rounded, in[1])
}

// backward computes, with dz = dy·act'(z),
//
//	dx = dz·Wᵀ      dW = xᵀ·dz      db = Σ over rows of dz
func (k *linear) backward(r *run, in, dOut, d []kernels.Tensor) error {
	dz := asMatrix(dOut[0])
	if k.activation != kernels.NoActivation {
		if err := r.scratch(&k.dz, dz.DType, dz.Shape...); err != nil {
			return err
		}
		if err := r.ActivateBackward(k.activation, k.pre, dz, k.dz); err != nil {
			return err
		}
		dz = k.dz
	}
	if d[0].IsSet() {
		weight := in[1]
		if k.mixed {
			weight = k.rounded
		}
		if err := r.MatMul(&kernels.MatMul{A: dz, B: weight.Permute(1, 0)}, kernels.MatMulOutputs{C: asMatrix(d[0])}); err != nil {
			return err
		}
	}
	if d[1].IsSet() {
		if err := r.MatMul(&kernels.MatMul{A: asMatrix(in[0]).Permute(1, 0), B: dz}, kernels.MatMulOutputs{C: d[1]}); err != nil {
			return err
		}
	}
	if d[2].IsSet() {
		return r.SumRows(dz, d[2], false)
	}
	return nil
}
