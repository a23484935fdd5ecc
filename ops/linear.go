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

// Linear is act(x·W + b): x is (..., in), weight is (in, out), bias is (out) or nil, and the result is (..., out). Beside an x of float32
// the weight may be kept in 16 bits: it counts as it is, and is a constant to a gradient. On the host it is read as it lies, for few rows of x
// in half the time of float32.
//
// With an activation, what it is applied to is kept from the forward run to the backward run of a graph that is
// differentiated.
func Linear(x, weight, bias *gorgonia.Node, o LinearOptions) (*gorgonia.Node, error) {
	return apply("Linear", &linear{activation: o.Activation},
		input{name: "x", node: x, form: denseForm},
		input{name: "weight", node: weight, form: weightForm(x, weight), roundsTo: floatOf(x)},
		input{name: "bias", node: bias, form: denseForm, optional: true, unread: true})
}

type linear struct {
	activation kernels.Activation
	weight     layerWeight
	pre, dz    kernels.Tensor // what the activation was applied to, and its gradient
}

func (k *linear) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	x, weight := in[0], in[1]
	if err := checkLayer(x, "weight", weight, "bias", in[2]); err != nil {
		return nil, err
	}
	k.weight.mixed = weight.DType != x.DType && !isKept(weight, x)
	return described(x.DType, withLastAxis(x.Shape, weight.Shape[1])...), k.activation.Validate()
}

// checkLayer makes sure that a weight and a bias, which may be left out, go together with a layer's input.
func checkLayer(x kernels.Tensor, name string, weight kernels.Tensor, biasName string, bias kernels.Tensor) error {
	features := x.Shape[len(x.Shape)-1]
	switch {
	case len(weight.Shape) != 2:
		return fmt.Errorf("%s has shape %v, it needs two axes (in, out)", name, weight.Shape)
	case weight.Shape[0] != features:
		return fmt.Errorf("%s has shape %v, it needs a row for each of x's %d features", name, weight.Shape, features)
	case weight.DType != x.DType && weight.DType != x.DType.Wide() && !isKept(weight, x):
		return errParameter(name, weight, x)
	case bias.IsSet() && (len(bias.Shape) != 1 || bias.Shape[0] != weight.Shape[1]):
		return fmt.Errorf("%s has shape %v, it needs one value for each of %s's %d columns", biasName, bias.Shape, name, weight.Shape[1])
	case bias.IsSet() && bias.DType != x.DType && bias.DType != x.DType.Wide():
		return errParameter(biasName, bias, x)
	}
	return nil
}

// isKept reports whether a weight is kept in 16 bits beside an input of float32.
func isKept(weight, x kernels.Tensor) bool {
	return x.DType == kernels.F32 && (weight.DType == kernels.BF16 || weight.DType == kernels.F16)
}

// weightForm is the form of a weight, which has no gradient where it is kept in 16 bits.
func weightForm(x, weight *gorgonia.Node) form {
	if x == nil || weight == nil || !isKept(kernels.Tensor{DType: dtypeOf(weight.Dtype())}, kernels.Tensor{DType: dtypeOf(x.Dtype())}) {
		return stridedForm
	}
	return constantForm
}

// layerWeight is the weight of a layer in the type of its input.
type layerWeight struct {
	mixed   bool           // the weight has another type
	rounded kernels.Tensor // and then this is the weight
}

// in gives the weight in the type of the input, and keeps a rounded one for the backward run if that is asked for.
func (w *layerWeight) in(r *run, dtype kernels.DType, weight kernels.Tensor, keep bool) (kernels.Tensor, error) {
	if w.mixed = weight.DType != dtype && !isKept(weight, kernels.Tensor{DType: dtype}); !w.mixed {
		return weight, nil
	}
	lend := r.scratch
	if keep {
		var err error
		if w.rounded, err = r.rounded(dtype, weight); err != nil || w.rounded.IsSet() {
			return w.rounded, err
		}
		lend = r.keep
	}
	if err := lend(&w.rounded, dtype, weight.Shape...); err != nil {
		return weight, err
	}
	return w.rounded, r.Copy(w.rounded, weight)
}

// of is the weight that was kept, or that needed no rounding.
func (w *layerWeight) of(weight kernels.Tensor) kernels.Tensor {
	if w.mixed {
		return w.rounded
	}
	return weight
}

// withLastAxis is a shape with another length of its last axis.
func withLastAxis(shape []int, length int) []int {
	return append(append([]int(nil), shape[:len(shape)-1]...), length)
}

// asMatrix views a row-major tensor as the matrix of its rows. A matrix is one already, however it lies.
func asMatrix(t kernels.Tensor) kernels.Tensor {
	if len(t.Shape) == 2 {
		return t
	}
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

func (k *linear) bias() int {
	if k.activation != kernels.NoActivation {
		return -1
	}
	return 2
}

func (k *linear) source() source {
	if k.activation == kernels.NoActivation && !k.weight.mixed {
		return fromInputs
	}
	return fromSaved
}

func (k *linear) forward(r *run, in, out []kernels.Tensor) error {
	c, epilogue := asMatrix(out[0]), kernels.Activate{Activation: k.activation}
	if r.wanted != nil && k.activation != kernels.NoActivation {
		if err := r.keep(&k.pre, out[0].DType, c.Shape...); err != nil {
			return err
		}
		epilogue.Pre = k.pre
	}
	weight, err := k.weight.in(r, in[0].DType, in[1], r.wants(0))
	if err != nil {
		return err
	}
	product := kernels.MatMul{A: asMatrix(in[0]), B: weight, Bias: in[2], Epilogue: epilogue}
	return r.MatMul(&product, kernels.MatMulOutputs{C: c})
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
		if err := r.MatMul(&kernels.MatMul{A: dz, B: k.weight.of(in[1]).Permute(1, 0)}, kernels.MatMulOutputs{C: asMatrix(d[0])}); err != nil {
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
