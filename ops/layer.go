package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// This file is what linear layers have in common, alone and several in one op.

// layerInputs are the inputs for a layer's weight and its bias, which may be nil.
func layerInputs(x *gorgonia.Node, name string, weight *gorgonia.Node, biasName string, bias *gorgonia.Node) []input {
	return []input{
		{name: name, node: weight, form: weightForm(x, weight, packedColumnsForm), roundsTo: floatOf(x)},
		{name: biasName, node: bias, form: denseForm, optional: true, unread: true},
	}
}

// weightForm is the form of a weight, which has no gradient where it is kept in less memory than it
// is computed with. If it is packed, it has the given form.
func weightForm(x, weight *gorgonia.Node, packed form) form {
	switch {
	case x == nil || weight == nil || x.Type() == nil || weight.Type() == nil:
		return stridedForm
	case packedDTypeOf(weight.Dtype()) != kernels.NoDType:
		return packed
	case isKept(kernels.Tensor{DType: dtypeOf(weight.Dtype())}, dtypeOf(x.Dtype())):
		return constantForm
	}
	return stridedForm
}

// isKept reports whether a weight is kept in less memory than it is computed with: packed, or in 16
// bits beside an input of float32.
func isKept(weight kernels.Tensor, x kernels.DType) bool {
	return weight.DType.IsPacked() && x != kernels.F64 || x == kernels.F32 && (weight.DType == kernels.BF16 || weight.DType == kernels.F16)
}

// isMixed reports whether a weight is rounded to the type of the input.
func isMixed(weight kernels.Tensor, x kernels.DType) bool {
	return weight.DType != x && !isKept(weight, x)
}

// checkLayer makes sure that a weight and a bias, which may be left out, go together with a layer's
// input.
func checkLayer(x kernels.Tensor, name string, weight kernels.Tensor, biasName string, bias kernels.Tensor) error {
	features := x.Shape[len(x.Shape)-1]
	switch {
	case len(weight.Shape) != 2:
		return fmt.Errorf("%s has shape %v, it needs two axes (in, out)", name, weight.Shape)
	case weight.Shape[0] != features:
		return fmt.Errorf("%s has shape %v, it needs a row for each of x's %d features", name, weight.Shape, features)
	case weight.DType != x.DType && weight.DType != x.DType.Wide() && !isKept(weight, x.DType):
		return errParameter(name, weight, x)
	case bias.IsSet() && (len(bias.Shape) != 1 || bias.Shape[0] != weight.Shape[1]):
		return fmt.Errorf("%s has shape %v, it needs one value for each of %s's %d columns", biasName, bias.Shape, name, weight.Shape[1])
	case bias.IsSet() && bias.DType != x.DType && bias.DType != x.DType.Wide():
		return errParameter(biasName, bias, x)
	}
	return nil
}

// roundWeight gives a layer's weight in the type of the input, and saves a rounded one for the
// backward run if that is asked for.
func (r *run) roundWeight(i int, dtype kernels.DType, weight kernels.Tensor, save bool) (t kernels.Tensor, err error) {
	switch {
	case !isMixed(weight, dtype):
		return weight, nil
	case !save:
		t, err = r.scratch(dtype, weight.Shape...)
	default:
		flat := weight
		if weight.IsRowMajor() {
			flat = asMatrix(weight)
		}
		if t, err = r.rounded(dtype, flat); err != nil || t.IsSet() {
			t = t.Reshape(weight.Shape...)
			r.c.last.saved[i] = t
			return t, err
		}
		t, err = r.keep(i, dtype, weight.Shape...)
	}
	if err != nil {
		return t, err
	}
	return t, r.Copy(t, weight)
}

// roundedWeight is the weight that roundWeight saved, or that needed no rounding.
func (r *run) roundedWeight(i int, weight kernels.Tensor) kernels.Tensor {
	if t := r.saved(i); t.IsSet() {
		return t
	}
	return weight
}

// widens reports whether packed weights become floats for the time of a run on x, rather than for
// that of a product: several products then read what was made once, and graphs of trainings share
// the memory.
func (r *run) widens(x kernels.Tensor, weights ...kernels.Tensor) bool {
	device, ok := r.Backend.(kernels.Widener)
	if !ok || r.c.plan == nil || !r.c.plan.trains || x.DType == x.DType.Wide() || r.inFloat8() || !device.WidensFor(asMatrix(x).Shape[0]) {
		return false
	}
	return !slices.ContainsFunc(weights, func(w kernels.Tensor) bool { return !w.DType.IsPacked() || w.Strides[0] != 1 })
}

// widened gives packed weights as floats of a type side by side, as they lie: their columns are
// contiguous. A forward run that is made again for gradients saves them for these, if that is asked
// for.
func (r *run) widened(i int, dtype kernels.DType, save bool, weights ...kernels.Tensor) (all kernels.Tensor, err error) {
	if all = r.saved(i); r.backward && all.IsSet() {
		return all, nil
	}
	rows, columns := weights[0].Shape[0], columnsOf(weights)
	saves := save && r.c.repeats && !r.backward
	if saves {
		all, err = r.keep(i, dtype, columns, rows)
	} else {
		all, err = r.scratch(dtype, columns, rows)
	}
	if err != nil {
		return all, err
	}
	if all = all.Permute(1, 0); saves {
		r.c.last.saved[i] = all
	}
	for n, to := range cut(1, all, weights) {
		if err := r.Backend.(kernels.Widener).Widen(weights[n], to); err != nil {
			return all, err
		}
	}
	return all, nil
}

// widenedWeight gives a weight for products with x, or with gradients of what x gives. Where widens
// says so, a packed weight becomes floats.
func (r *run) widenedWeight(i int, x, weight kernels.Tensor, save bool) (kernels.Tensor, error) {
	if !r.widens(x, weight) {
		return weight, nil
	}
	return r.widened(i, x.DType, save && i < len(r.c.last.saved), weight)
}

// product computes a·b + bias.
func (r *run) product(a, b factor, bias, out kernels.Tensor) error {
	m := kernels.MatMul{A: a.Tensor, B: b.Tensor, Bias: bias, RoundedA: a.rows, RoundedB: b.columns}
	return r.MatMul(&m, kernels.MatMulOutputs{C: out})
}

// transposed is a factor for products with the matrix's transpose on the right.
func (f factor) transposed() factor {
	return factor{Tensor: f.Permute(1, 0), rows: f.columns, columns: f.rows}
}

// gradientsOfLayer computes the gradients of a layer's parameters that are wanted.
func (r *run) gradientsOfLayer(x, dy factor, dWeight, dBias kernels.Tensor) error {
	switch {
	case dWeight.IsSet():
		m := kernels.MatMul{A: x.Permute(1, 0), B: dy.Tensor, RoundedA: x.columns, RoundedB: dy.columns}
		return r.MatMul(&m, kernels.MatMulOutputs{C: dWeight, SumsOfB: dBias})
	case dBias.IsSet():
		return r.SumRows(dy.Tensor, dBias, false)
	}
	return nil
}

// zeroed sets a gradient that is wanted to zero.
func zeroed(r *run, d kernels.Tensor) error {
	if !d.IsSet() {
		return nil
	}
	return r.Fill(d, 0)
}

// withLastAxis is a shape with another length of its last axis.
func withLastAxis(shape []int, length int) []int {
	return append(append([]int(nil), shape[:len(shape)-1]...), length)
}

// asMatrix views a row-major tensor as the matrix of its rows. A matrix is one already, however it
// lies.
func asMatrix(t kernels.Tensor) kernels.Tensor {
	if len(t.Shape) == 2 {
		return t
	}
	return t.Reshape(rowCount(t), t.Shape[len(t.Shape)-1])
}

// rowCount is how many rows a tensor has along its last axis, which may have a length of 0.
func rowCount(t kernels.Tensor) int {
	return kernels.Tensor{Shape: t.Shape[:len(t.Shape)-1]}.Elements()
}

// errParameter says which types a parameter may have beside an input x.
func errParameter(name string, parameter, x kernels.Tensor) error {
	if own, wide := x.DType, x.DType.Wide(); own != wide {
		return fmt.Errorf("%s is %v, x is %v: it needs to be %v or %v", name, parameter.DType, own, own, wide)
	}
	return fmt.Errorf("%s is %v, x is %v: they need one dtype", name, parameter.DType, x.DType)
}
