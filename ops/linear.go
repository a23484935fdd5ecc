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
	pre, dz    buffer // what the activation was applied to, and its gradient
}

func (k *linear) shape(in []kernels.Tensor) ([]int, error) {
	x, weight, bias := in[0], in[1], in[2]
	features := x.Shape[len(x.Shape)-1]
	switch {
	case len(weight.Shape) != 2:
		return nil, fmt.Errorf("weight has shape %v, it needs two axes (in, out)", weight.Shape)
	case weight.Shape[0] != features:
		return nil, fmt.Errorf("weight has shape %v, it needs a row for each of x's %d features", weight.Shape, features)
	case weight.DType != x.DType:
		return nil, fmt.Errorf("weight is %v, x is %v: they need one dtype", weight.DType, x.DType)
	case bias.IsSet() && (len(bias.Shape) != 1 || bias.Shape[0] != weight.Shape[1]):
		return nil, fmt.Errorf("bias has shape %v, it needs one value for each of weight's %d columns", bias.Shape, weight.Shape[1])
	case bias.IsSet() && bias.DType != x.DType:
		return nil, fmt.Errorf("bias is %v, x is %v: they need one dtype", bias.DType, x.DType)
	}
	if err := k.activation.Validate(); err != nil {
		return nil, err
	}
	return withLastAxis(x.Shape, weight.Shape[1]), nil
}

// withLastAxis is a shape with another length of its last axis.
func withLastAxis(shape []int, length int) []int {
	return append(append([]int(nil), shape[:len(shape)-1]...), length)
}

// asMatrix views a row-major tensor as the matrix of its rows.
func asMatrix(t kernels.Tensor) kernels.Tensor {
	columns := t.Shape[len(t.Shape)-1]
	return kernels.Contiguous(t.Data, t.DType, t.Elements()/columns, columns)
}

func (k *linear) source() source {
	if k.activation == kernels.NoActivation {
		return fromInputs
	}
	return fromSaved
}

func (k *linear) forward(h *home, in []kernels.Tensor, out kernels.Tensor, want []bool) (err error) {
	outputs := kernels.MatMulOutputs{C: asMatrix(out)}
	if want != nil && k.source() == fromSaved {
		if outputs.Pre, err = k.pre.get(h, out.DType, outputs.C.Shape...); err != nil {
			return err
		}
	}
	return h.MatMul(&kernels.MatMul{A: asMatrix(in[0]), B: in[1], Bias: in[2], Activation: k.activation}, outputs)
}

// backward computes, with dz = dy·act'(z),
//
//	dx = dz·Wᵀ      dW = xᵀ·dz      db = Σ over rows of dz
func (k *linear) backward(h *home, in []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error {
	dz := asMatrix(dOut)
	if k.source() == fromSaved {
		var err error
		if dz, err = k.dz.get(h, dOut.DType, dz.Shape...); err != nil {
			return err
		}
		if err := h.ActivateBackward(k.activation, k.pre.t, asMatrix(dOut), dz); err != nil {
			return err
		}
	}
	if d[0].IsSet() {
		if err := h.MatMul(&kernels.MatMul{A: dz, B: in[1].Permute(1, 0)}, kernels.MatMulOutputs{C: asMatrix(d[0])}); err != nil {
			return err
		}
	}
	if d[1].IsSet() {
		if err := h.MatMul(&kernels.MatMul{A: asMatrix(in[0]).Permute(1, 0), B: dz}, kernels.MatMulOutputs{C: d[1]}); err != nil {
			return err
		}
	}
	if d[2].IsSet() {
		return h.SumRows(dz, d[2], false)
	}
	return nil
}
