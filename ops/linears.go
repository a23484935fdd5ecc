package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Linears is several linear layers of one x, such as the projections to queries, keys and values:
// what as many calls of [Linear] give, and their gradients, of which that of x is summed where it
// is computed. x is (..., in), a weight is (in, out) with a bias of (out), and each result is (...,
// out). biases may be nil, and so may each of them. There is a change for each layer, or none.
func Linears(x *gorgonia.Node, weights, biases gorgonia.Nodes, changes ...Change) (gorgonia.Nodes, error) {
	return newLinears("Linears", linears{}, x, weights, biases, changes)
}

// LinearsSideBySide is [Linears] whose results are one, (..., sum of all outs), in which they lie
// side by side, as [FlashAttentionQKV] takes queries, keys and values. Nothing is copied for that,
// nor for the gradients.
func LinearsSideBySide(x *gorgonia.Node, weights, biases gorgonia.Nodes, changes ...Change) (*gorgonia.Node, error) {
	return one(newLinears("LinearsSideBySide", linears{sideBySide: true}, x, weights, biases, changes))
}

func newLinears(name string, k linears, x *gorgonia.Node, weights, biases gorgonia.Nodes, changes []Change) (gorgonia.Nodes, error) {
	switch {
	case len(weights) == 0:
		return nil, fmt.Errorf("%s: there are no weights, it needs at least one", name)
	case biases != nil && len(biases) != len(weights):
		return nil, fmt.Errorf("%s: there are %d biases for %d weights, it needs as many, or none", name, len(biases), len(weights))
	}
	inputs := []input{{}}
	for i, w := range weights {
		var bias *gorgonia.Node
		if biases != nil {
			bias = biases[i]
		}
		k.names = append(k.names, fmt.Sprintf("weights[%d]", i))
		inputs = append(inputs, layerInputs(x, k.names[i], w, fmt.Sprintf("biases[%d]", i), bias)...)
	}
	changed, err := k.change(x, changes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	inputs[0] = k.changes.inputX(x)
	return applyAll(name, kernel{describe: k.describe, forward: k.forward, backward: k.backward}, append(inputs, changed...)...)
}

// change gives the layers changes, and returns the inputs for them.
func (k *linears) change(x *gorgonia.Node, changes []Change) (inputs []input, err error) {
	k.changes, inputs, err = newLowRank(x, k.names, changes)
	return inputs, err
}

// linears is several layers of one input, and their changes. In 16 bits their weights are copied to
// lie side by side, (in, all outs), or packed ones become floats that do, and so are the gradients
// of the outputs, (rows, all outs): one product then sums the gradient of the input over the layers
// too, in float32.
type linears struct {
	names      []string // of the weights
	sideBySide bool     // there is one output
	apart      bool     // weights of the input's type stay where they are
	changes    lowRank
}

// What it saves: the weights, where they lie side by side, or the first two where packed ones do
// not; what x and these weights are in 8 bits, and what the changes do.
const (
	linearsWeights = 0
	linearsSecond  = 1
	linearsX       = 2
	linearsFactor  = linearsX + savesOfFactor
	linearsChanges = linearsFactor + savesOfFactor
)

// joins reports whether weights are copied to lie side by side.
func (k linears) joins(dtype kernels.DType, weights tensors) bool {
	other := func(w kernels.Tensor) bool { return w.DType != dtype }
	return dtype != dtype.Wide() && !slices.ContainsFunc(weights, isPacked) && (!k.apart || slices.ContainsFunc(weights, other))
}

// layers are the weights and the biases among the inputs.
func (k linears) layers(in tensors) (weights, biases tensors) {
	for i := range k.names {
		weights, biases = append(weights, in[1+2*i]), append(biases, in[2+2*i])
	}
	return weights, biases
}

// ofChanges are the inputs that are of changes.
func (k linears) ofChanges(in tensors) tensors { return in[1+2*len(k.names):] }

func (k linears) describe(in tensors) (description, error) {
	weights, biases := k.layers(in)
	var is description
	for i, w := range weights {
		if err := checkLayer(in[0], fmt.Sprintf("weights[%d]", i), w, fmt.Sprintf("biases[%d]", i), biases[i]); err != nil {
			return is, err
		}
		is.outputs = append(is.outputs, kernels.Contiguous(nil, in[0].DType, withLastAxis(in[0].Shape, w.Shape[1])...))
	}
	if k.sideBySide {
		is = described(in[0].DType, withLastAxis(in[0].Shape, columnsOf(weights))...)
	}
	if err := k.changes.check(in[0], k.names, weights, k.ofChanges(in)); err != nil {
		return is, err
	}
	is.changed = k.changes.named(k.names)
	if is.saves = k.changes.saves(in[0], k.ofChanges(in)); is.saves != nil || k.joins(in[0].DType, weights) {
		is.saves = append(make(tensors, linearsChanges), is.saves...)
	}
	if len(k.changes.scales) == 0 {
		is.joins = joins{product: true, takes: []int{0}}
	}
	return is, nil
}

func (k linears) forward(r *run, in, out tensors) error {
	weights, biases := k.layers(in)
	weights, all, err := k.join(r, in[0], weights)
	if err != nil {
		return err
	}
	x, done := asMatrix(in[0]), false
	if p := (kernels.RowsProduct{X: x, Weights: weights, Biases: biases}); k.sideBySide && len(k.changes.scales) == 0 {
		done, err = r.multiplyRows(p, out[0])
	} else {
		err = r.catchUp(0)
	}
	if done || err != nil {
		return err
	}
	c, err := k.changes.begin(r, linearsChanges, x, weights, k.ofChanges(in))
	if err != nil {
		return err
	}
	rounded, err := r.forwardFactor(linearsX, x, k.wantsWeights(r))
	if err != nil {
		return err
	}
	joined, err := k.joinedFactor(r, all)
	if err != nil {
		return err
	}
	product := kernels.MatMul{A: x, RoundedA: rounded.rows}
	if k.sideBySide && all.IsSet() && !slices.ContainsFunc(biases, kernels.Tensor.IsSet) {
		product.B, product.RoundedB, product.Plus = all, joined.columns, c.plusAll()
		return r.MatMul(&product, kernels.MatMulOutputs{C: asMatrix(out[0])})
	}
	out = k.each(out, weights)
	for i := 0; i < len(weights) && err == nil; i++ {
		if all.IsSet() {
			product.RoundedB = cutFactor(joined, weights)[i].columns
		}
		product.B, product.Plus, product.Bias = weights[i], c.plus(i), biases[i]
		err = r.MatMul(&product, kernels.MatMulOutputs{C: out[i]})
	}
	return err
}

// joinedFactor is weights that lie side by side, if they do.
func (k linears) joinedFactor(r *run, all kernels.Tensor) (factor, error) {
	if !all.IsSet() {
		return factor{}, nil
	}
	return r.weightFactor(linearsFactor, all, r.wants(0) && !r.gathersAnew())
}

// wantsWeights reports whether the gradient of any weight will be asked for.
func (k linears) wantsWeights(r *run) bool {
	for i := range k.names {
		if r.wants(1 + 2*i) {
			return true
		}
	}
	return false
}

// each gives the outputs, or their gradients, of each layer as matrices. One that nothing uses
// stays as it is.
func (k linears) each(out, weights tensors) tensors {
	if k.sideBySide {
		return cut(1, asMatrix(out[0]), weights)
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
func (k linears) backward(r *run, in, dOut, d tensors) error {
	weights, _ := k.layers(in)
	return k.gradients(r, in, d, k.each(dOut, weights), func(each tensors) (joined factor, err error) {
		var all kernels.Tensor
		if k.sideBySide {
			all = asMatrix(dOut[0])
		} else if all, err = k.joinGradients(r, asMatrix(in[0]), each, weights); err != nil {
			return joined, err
		}
		return r.gradientFactor(all, k.roundsRows(in, d), k.roundsColumns(d))
	})
}

// gradients computes those of the inputs from those of the outputs, which all gives side by side
// where weights lie so.
func (k linears) gradients(r *run, in, d, each tensors, all func(each tensors) (factor, error)) error {
	x := asMatrix(in[0])
	weights, _ := k.layers(in)
	dWeights, dBiases := k.layers(d)
	widens, ofChanges := r.widens(x, weights...), k.ofChanges(d)
	joins := k.joins(x.DType, weights) || widens && !k.apart
	var dz factor
	if joins && d[0].IsSet() || len(ofChanges) > 0 && x.DType != x.DType.Wide() {
		var err error
		if dz, err = all(each); err != nil {
			return err
		}
	}
	if err := k.gradientsOfLayers(r, x, each, dz, weights, dWeights, dBiases); err != nil {
		return err
	}
	c, err := k.changes.begin(r, linearsChanges, x, weights, k.ofChanges(in))
	if err != nil {
		return err
	}
	plus, err := c.gradients(each, dz.Tensor, ofChanges, d[0].IsSet())
	if err != nil || !d[0].IsSet() {
		return err
	}
	dx, joined := asMatrix(d[0]), r.saved(linearsWeights)
	if widens {
		if weights, joined, err = k.widened(r, x, weights, false); err != nil {
			return err
		}
	}
	if joins {
		if !joined.IsSet() {
			if joined, err = r.scratch(dx.DType, weights[0].Shape[0], columnsOf(weights)); err != nil {
				return err
			}
			if err := copyEach(r, cut(1, joined, weights), weights); err != nil {
				return err
			}
		}
		ofWeights := r.savedFactor(linearsFactor, joined).transposed()
		product := kernels.MatMul{A: dz.Tensor, RoundedA: dz.rows, B: ofWeights.Tensor, RoundedB: ofWeights.columns, Plus: plus}
		return r.MatMul(&product, kernels.MatMulOutputs{C: dx})
	}
	if weights, err = r.roundBesidePacked(dx.DType, weights); err != nil {
		return err
	}
	return k.sumGradients(r, dx, each, weights, plus)
}

// roundsRows and roundsColumns report whether products read the rows, and the columns, of the
// gradients of all outputs side by side.
func (k linears) roundsRows(in, d tensors) bool {
	weights, _ := k.layers(in)
	return k.joins(in[0].DType, weights) && d[0].IsSet()
}

func (k linears) roundsColumns(d tensors) bool {
	dWeights, _ := k.layers(d)
	return slices.ContainsFunc(dWeights, kernels.Tensor.IsSet)
}

// gradientsOfLayers computes the gradients of the parameters. dz is those of all outputs side by
// side, or not set.
func (k linears) gradientsOfLayers(r *run, x kernels.Tensor, each tensors, dz factor, weights, dWeights, dBiases tensors) error {
	ofX, err := r.backwardFactor(linearsX, x, slices.ContainsFunc(dWeights, kernels.Tensor.IsSet))
	if err != nil {
		return err
	}
	var parts []factor
	if dz.columns.IsSet() {
		parts = cutFactor(dz, weights)
	}
	for i, dy := range each {
		if !dy.IsSet() { // nothing uses the layer
			if err := errors.Join(zeroed(r, dWeights[i]), zeroed(r, dBiases[i])); err != nil {
				return err
			}
			continue
		}
		f := factor{Tensor: dy}
		if parts != nil {
			f = parts[i]
		}
		if err := r.gradientsOfLayer(ofX, f, dWeights[i], dBiases[i]); err != nil {
			return err
		}
	}
	return nil
}

// sumGradients computes the sum of what each layer gives to the gradient of x, and of what their
// changes do.
func (linears) sumGradients(r *run, dx kernels.Tensor, each, weights tensors, plus []kernels.Factors) (err error) {
	var products []kernels.Factors
	for i, dy := range each {
		if dy.IsSet() {
			products = append(products, kernels.Factors{A: dy, B: weights[i].Permute(1, 0)})
		}
	}
	if !slices.ContainsFunc(products, func(f kernels.Factors) bool { return f.B.DType != dx.DType }) {
		m := kernels.MatMul{A: products[0].A, B: products[0].B, Plus: append(products[1:], plus...)}
		return r.MatMul(&m, kernels.MatMulOutputs{C: dx})
	}
	sum := dx
	if wide := dx.DType.Wide(); wide != dx.DType { // dx would round every sum
		if sum, err = r.scratch(wide, dx.Shape...); err != nil {
			return err
		}
	}
	for i, f := range products {
		m := kernels.MatMul{A: f.A, B: f.B, Accumulate: i > 0}
		if i == 0 {
			m.Plus = plus
		}
		if err := r.MatMul(&m, kernels.MatMulOutputs{C: sum}); err != nil {
			return err
		}
	}
	if sum.DType == dx.DType {
		return nil
	}
	return r.Copy(dx, sum)
}

// join gives the weights in the type of x, and all of them as one where they lie side by side. It
// saves copies for the backward run where that needs them. Where someone looks for memory, weights
// that need no rounding are copied twice instead: that takes a quarter of the time that anything
// else takes to save so much.
func (k linears) join(r *run, x kernels.Tensor, weights tensors) (each tensors, all kernels.Tensor, err error) {
	dtype, save := x.DType, r.wants(0) && !r.gathersAnew()
	if r.widens(x, weights...) {
		return k.widened(r, x, weights, save)
	}
	if slices.ContainsFunc(weights, isPacked) {
		weights, err = r.roundBesidePacked(dtype, weights)
		return weights, all, err
	}
	mixed := slices.ContainsFunc(weights, func(t kernels.Tensor) bool { return t.DType != dtype })
	if !k.joins(dtype, weights) || !save && !mixed {
		return weights, all, nil
	}
	if save && (mixed || r.inFloat8() || r.c.state.regions.chosen == nil) {
		if all, err = r.rounded(dtype, weights...); err != nil {
			return nil, all, err
		}
		if r.c.last.saved[linearsWeights] = all; all.IsSet() {
			return cut(1, all, weights), all, nil
		}
		all, err = r.keep(linearsWeights, dtype, weights[0].Shape[0], columnsOf(weights))
	} else {
		all, err = r.scratch(dtype, weights[0].Shape[0], columnsOf(weights))
	}
	if err != nil {
		return nil, all, err
	}
	each = cut(1, all, weights)
	return each, all, copyEach(r, each, weights)
}

func isPacked(w kernels.Tensor) bool { return w.DType.IsPacked() }

// roundBesidePacked gives weights some of which are packed, and stay so, the others in a type of
// their input.
func (r *run) roundBesidePacked(dtype kernels.DType, weights tensors) (list tensors, err error) {
	if !slices.ContainsFunc(weights, isPacked) {
		return weights, nil
	}
	for _, w := range weights {
		if w, err = r.roundWeight(0, dtype, w, false); err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return list, nil
}

// widened is join of packed weights that become floats.
func (k linears) widened(r *run, x kernels.Tensor, weights tensors, save bool) (each tensors, all kernels.Tensor, err error) {
	if !k.apart {
		if all, err = r.widened(linearsWeights, x.DType, save, weights...); err != nil {
			return nil, all, err
		}
		return cut(1, all, weights), all, nil
	}
	for i, w := range weights {
		if w, err = r.widenedWeight(linearsWeights+i, x, w, save); err != nil {
			return nil, all, err
		}
		each = append(each, w)
	}
	return each, all, nil
}

// joinGradients copies the gradients of the outputs to lie side by side.
func (k linears) joinGradients(r *run, x kernels.Tensor, each, weights tensors) (kernels.Tensor, error) {
	all, err := r.scratch(x.DType, x.Shape[0], columnsOf(weights))
	if err != nil {
		return all, err
	}
	return all, copyEach(r, cut(1, all, weights), each)
}

// copyEach copies tensors, and zeros for one that is not set.
func copyEach(r *run, to, from tensors) error {
	for i, t := range to {
		var err error
		if from[i].IsSet() {
			err = r.Copy(t, from[i])
		} else {
			err = r.Fill(t, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func columnsOf(weights tensors) int {
	columns := 0
	for _, w := range weights {
		columns += w.Shape[1]
	}
	return columns
}
