package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Linears is several linear layers of one x, such as the projections to queries, keys and values: what as many calls of [Linear]
// give, and their gradients, of which that of x is summed where it is computed. x is (..., in), a weight is (in, out) with a bias of
// (out), and each result is (..., out). biases may be nil, and so may each of them.
func Linears(x *gorgonia.Node, weights, biases gorgonia.Nodes) (gorgonia.Nodes, error) {
	return newLinears("Linears", &linears{}, x, weights, biases)
}

// LinearsSideBySide is [Linears] whose results are one, (..., sum of all outs), in which they lie side by side, as [FlashAttentionQKV]
// takes queries, keys and values. Nothing is copied for that, nor for the gradients.
func LinearsSideBySide(x *gorgonia.Node, weights, biases gorgonia.Nodes) (*gorgonia.Node, error) {
	return one(newLinears("LinearsSideBySide", &linears{sideBySide: true}, x, weights, biases))
}

func newLinears(name string, k *linears, x *gorgonia.Node, weights, biases gorgonia.Nodes) (gorgonia.Nodes, error) {
	switch {
	case len(weights) == 0:
		return nil, fmt.Errorf("%s: there are no weights, it needs at least one", name)
	case biases != nil && len(biases) != len(weights):
		return nil, fmt.Errorf("%s: there are %d biases for %d weights, it needs as many, or none", name, len(biases), len(weights))
	}
	inputs := []input{{name: "x", node: x, form: denseForm}}
	for i, w := range weights {
		var bias *gorgonia.Node
		if biases != nil {
			bias = biases[i]
		}
		inputs = append(inputs, input{name: fmt.Sprintf("weights[%d]", i), node: w, form: weightForm(x, w), roundsTo: floatOf(x)},
			input{name: fmt.Sprintf("biases[%d]", i), node: bias, form: denseForm, optional: true, unread: true})
	}
	return applyAll(name, k, inputs...)
}

type linears struct {
	sideBySide bool // there is one output
	weights    joinedWeights
	dz         kernels.Tensor // the gradients of the outputs, side by side
}

// layers are the weights and the biases among the inputs.
func (*linears) layers(in []kernels.Tensor) (weights, biases []kernels.Tensor) {
	for i := 1; i < len(in); i += 2 {
		weights, biases = append(weights, in[i]), append(biases, in[i+1])
	}
	return weights, biases
}

func (k *linears) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	weights, biases := k.layers(in)
	var list []kernels.Tensor
	for i, w := range weights {
		if err := checkLayer(in[0], fmt.Sprintf("weights[%d]", i), w, fmt.Sprintf("biases[%d]", i), biases[i]); err != nil {
			return nil, err
		}
		list = append(list, kernels.Contiguous(nil, in[0].DType, withLastAxis(in[0].Shape, w.Shape[1])...))
	}
	k.weights.joins = in[0].DType != in[0].DType.Wide()
	if k.sideBySide {
		return described(in[0].DType, withLastAxis(in[0].Shape, columnsOf(weights))...), nil
	}
	return list, nil
}

func (k *linears) source() source { return k.weights.source() }

func (k *linears) forward(r *run, in, out []kernels.Tensor) error {
	weights, biases := k.layers(in)
	weights, all, err := k.weights.in(r, in[0].DType, r.wants(0), weights)
	if k.sideBySide && all.IsSet() && !slices.ContainsFunc(biases, kernels.Tensor.IsSet) && err == nil {
		return r.MatMul(&kernels.MatMul{A: asMatrix(in[0]), B: all}, kernels.MatMulOutputs{C: asMatrix(out[0])})
	}
	out = k.each(out, weights)
	for i := 0; i < len(weights) && err == nil; i++ {
		err = r.MatMul(&kernels.MatMul{A: asMatrix(in[0]), B: weights[i], Bias: biases[i]}, kernels.MatMulOutputs{C: out[i]})
	}
	return err
}

// each gives the outputs, or their gradients, of each layer as matrices. One that nothing uses stays as it is.
func (k *linears) each(out, weights []kernels.Tensor) []kernels.Tensor {
	if k.sideBySide {
		return sideBySide(asMatrix(out[0]), weights)
	}
	list := slices.Clone(out)
	for i, t := range list {
		if t.IsSet() {
			list[i] = asMatrix(t)
		}
	}
	return list
}

// backward computes, with dy of each layer,
//
//	dx = Σ over layers of dy·Wᵀ      dW = xᵀ·dy      db = Σ over rows of dy
func (k *linears) backward(r *run, in, dOut, d []kernels.Tensor) error {
	weights, _ := k.layers(in)
	dWeights, dBiases := k.layers(d)
	x, each := asMatrix(in[0]), k.each(dOut, weights)
	for i, dy := range each {
		if !dy.IsSet() { // nothing uses the layer
			if err := errors.Join(zeroed(r, dWeights[i]), zeroed(r, dBiases[i])); err != nil {
				return err
			}
			continue
		}
		if err := k.ofLayer(r, x, dy, dWeights[i], dBiases[i]); err != nil {
			return err
		}
	}
	if !d[0].IsSet() {
		return nil
	}
	var all kernels.Tensor
	switch {
	case k.sideBySide:
		all = asMatrix(dOut[0])
	case k.weights.joins:
		var err error
		if all, err = k.join(r, x, each, weights); err != nil {
			return err
		}
	}
	return k.weights.dx(r, all, each, weights, asMatrix(d[0]))
}

// join copies the gradients of the outputs to lie side by side.
func (k *linears) join(r *run, x kernels.Tensor, each, weights []kernels.Tensor) (kernels.Tensor, error) {
	parts, err := k.weights.gradients(r, &k.dz, x.DType, x.Shape[0], weights)
	for i := 0; i < len(parts) && err == nil; i++ {
		if each[i].IsSet() {
			err = r.Copy(parts[i], each[i])
		} else {
			err = zeroed(r, parts[i])
		}
	}
	return k.dz, err
}

// ofLayer computes the gradients of a layer's parameters that are wanted.
func (*linears) ofLayer(r *run, x, dy, dWeight, dBias kernels.Tensor) error {
	if dWeight.IsSet() {
		if err := r.MatMul(&kernels.MatMul{A: x.Permute(1, 0), B: dy}, kernels.MatMulOutputs{C: dWeight}); err != nil {
			return err
		}
	}
	if !dBias.IsSet() {
		return nil
	}
	return r.SumRows(dy, dBias, false)
}

// zeroed sets a gradient that is wanted to zero.
func zeroed(r *run, d kernels.Tensor) error {
	if !d.IsSet() {
		return nil
	}
	return r.Fill(d, 0)
}

// joinedWeights are the weights of layers of one input. In 16 bits they are copied to lie side by side, (in, all outs), and so are the
// gradients of the outputs, (rows, all outs): one product then sums the gradient of the input over the layers too, in float32.
type joinedWeights struct {
	joins bool           // the input has 16 bits
	all   kernels.Tensor // and then these are the weights
	kept  bool           // from the forward run
}

func (w *joinedWeights) source() source {
	if w.joins {
		return fromSaved
	}
	return fromInputs
}

// in gives the weights in the type of the input, and all of them as one where they lie side by side. It keeps copies for the backward run
// if that is asked for.
func (w *joinedWeights) in(r *run, dtype kernels.DType, keep bool, weights []kernels.Tensor) (each []kernels.Tensor, all kernels.Tensor, err error) {
	other := func(t kernels.Tensor) bool { return t.DType != dtype }
	keep = keep && !r.gathersAnew()
	w.kept = keep
	if !w.joins || !keep && !slices.ContainsFunc(weights, other) {
		return weights, all, nil
	}
	lend := r.scratch
	if keep {
		if w.all, err = r.rounded(dtype, weights...); err != nil {
			return nil, all, err
		}
		if w.all.IsSet() {
			return sideBySide(w.all, weights), w.all, nil
		}
		lend = r.keep
	}
	each, err = w.join(r, lend, dtype, weights)
	return each, w.all, err
}

// join copies the weights to lie side by side.
func (w *joinedWeights) join(
	r *run, lend func(*kernels.Tensor, kernels.DType, ...int) error, dtype kernels.DType, weights []kernels.Tensor,
) ([]kernels.Tensor, error) {
	if err := lend(&w.all, dtype, weights[0].Shape[0], columnsOf(weights)); err != nil {
		return nil, err
	}
	parts := sideBySide(w.all, weights)
	for i, part := range parts {
		if err := r.Copy(part, weights[i]); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// gradients gives scratch memory for the gradients of the outputs, in *all, and each layer's part of it. It is not set where nothing
// is joined.
func (w *joinedWeights) gradients(r *run, all *kernels.Tensor, dtype kernels.DType, rows int, weights []kernels.Tensor) ([]kernels.Tensor, error) {
	if !w.joins {
		return make([]kernels.Tensor, len(weights)), nil
	}
	if err := r.scratch(all, dtype, rows, columnsOf(weights)); err != nil {
		return nil, err
	}
	return sideBySide(*all, weights), nil
}

// dx computes the gradient of the input from those of the outputs: all, if they are joined, or each.
func (w *joinedWeights) dx(r *run, all kernels.Tensor, each, weights []kernels.Tensor, dx kernels.Tensor) error {
	if w.joins && !w.kept {
		if _, err := w.join(r, r.scratch, dx.DType, weights); err != nil {
			return err
		}
	}
	if w.joins {
		return r.MatMul(&kernels.MatMul{A: all, B: w.all.Permute(1, 0)}, kernels.MatMulOutputs{C: dx})
	}
	began := false
	for i, dy := range each {
		if !dy.IsSet() {
			continue
		}
		if err := r.MatMul(&kernels.MatMul{A: dy, B: weights[i].Permute(1, 0), Accumulate: began}, kernels.MatMulOutputs{C: dx}); err != nil {
			return err
		}
		began = true
	}
	return nil
}

func columnsOf(weights []kernels.Tensor) int {
	columns := 0
	for _, w := range weights {
		columns += w.Shape[1]
	}
	return columns
}

// sideBySide are views of a matrix, each of as many columns as a weight has.
func sideBySide(t kernels.Tensor, weights []kernels.Tensor) []kernels.Tensor {
	var list []kernels.Tensor
	at := 0
	for _, w := range weights {
		list = append(list, t.Slice(1, at, at+w.Shape[1]))
		at += w.Shape[1]
	}
	return list
}
