package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// SwiGLUMLPBiases are the biases of [SwiGLUMLP]; each may be nil.
type SwiGLUMLPBiases struct{ Gate, Up, Down *gorgonia.Node }

// SwiGLUMLP is the gated MLP of Llama, (silu(x·G)·(x·U))·D, with biases if there are: what calls of
// [Linear] and [SwiGLU] give, and their gradients, of which that of x is summed where it is
// computed. x is (..., in), gate and up are (in, hidden), down is (hidden, out). There is a change
// for each of the three, or none; that of down has no In.
func SwiGLUMLP(x, gate, up, down *gorgonia.Node, biases SwiGLUMLPBiases, changes ...Change) (*gorgonia.Node, error) {
	const layers = 3
	if changes = slices.Clone(changes); len(changes) == 0 {
		changes = make([]Change, layers)
	}
	if len(changes) != layers || changes[2].In != nil {
		return nil, fmt.Errorf("SwiGLUMLP: there are %d changes, it needs one for each of 3 layers, or none, and none for down with an In", len(changes))
	}
	k := swiGLUMLP{linears: linears{names: []string{"gate", "up"}, apart: true}}
	ofFirst, err := k.change(x, changes[:2])
	if err != nil {
		return nil, fmt.Errorf("SwiGLUMLP: %w", err)
	}
	var ofDown []input
	if k.down, ofDown, err = newLowRank(x, downName, changes[2:]); err != nil {
		return nil, fmt.Errorf("SwiGLUMLP: %w", err)
	}
	return apply("SwiGLUMLP", kernel{describe: k.describe, forward: k.forward, backward: k.backward}, slices.Concat([]input{k.changes.inputX(x)},
		layerInputs(x, "gate", gate, "gateBias", biases.Gate), layerInputs(x, "up", up, "upBias", biases.Up),
		layerInputs(x, "down", down, "downBias", biases.Down), ofFirst, ofDown)...)
}

type swiGLUMLP struct {
	linears // gate and up
	down    lowRank
}

var downName = []string{"down"}

// What a gated MLP saves besides what the first layers do: what these gave, the rows of up behind
// those of gate; their gated product, or what that is in 8 bits; down's rounded weight, and what
// that is in 8 bits; and what down's change does. The gated product is computed again where none of
// its elements is kept.
const (
	gatedZ, gatedHidden, gatedDown = linearsChanges + 3, linearsChanges + 4, linearsChanges + 5
	gatedFactor                    = linearsChanges + 6
	gatedDownFactor                = gatedFactor + savesOfFactor
	gatedChange                    = gatedDownFactor + savesOfFactor
)

// first are the inputs of the first two layers, or their gradients, and ofDown those of down's
// change.
func (k swiGLUMLP) first(in tensors) tensors {
	return slices.Concat(in[:5], in[7:7+inputsOfChange*len(k.changes.scales)])
}

func (k swiGLUMLP) ofDown(in tensors) tensors { return in[7+inputsOfChange*len(k.changes.scales):] }

// halves are the parts of gate and up in a matrix that has one behind the other along an axis.
func halves(t kernels.Tensor, axis int) (gate, up kernels.Tensor) {
	n := t.Shape[axis] / 2
	return t.Slice(axis, 0, n), t.Slice(axis, n, 2*n)
}

// lieBeside reports whether gate and up, in what the op saves, lie side by side, as their gradients
// do, which may then be written over them.
func (k swiGLUMLP) lieBeside(dtype kernels.DType) bool {
	return k.hasChanges() && dtype != dtype.Wide()
}

// halves are gate and up in what the op saves.
func (k swiGLUMLP) halves(z kernels.Tensor) (gate, up kernels.Tensor) {
	if k.lieBeside(z.DType) {
		return halves(z, 1)
	}
	return halves(z, 0)
}

func (k swiGLUMLP) describe(in tensors) (description, error) {
	x, gate, up := in[0], in[1], in[3]
	if err := checkLayer(x, "gate", gate, "gateBias", in[2]); err != nil {
		return description{}, err
	}
	if err := checkLayer(x, "up", up, "upBias", in[4]); err != nil {
		return description{}, err
	}
	if gate.Shape[1] != up.Shape[1] {
		return description{}, fmt.Errorf("up has shape %v, it needs as many columns as gate, which has shape %v", up.Shape, gate.Shape)
	}
	h := kernels.Contiguous(nil, x.DType, withLastAxis(x.Shape, gate.Shape[1])...)
	if err := checkLayer(h, "down", in[5], "downBias", in[6]); err != nil {
		return description{}, fmt.Errorf("between the layers: %w", err)
	}
	first := k.ofChanges(k.first(in))
	if err := k.changes.check(x, k.names, tensors{gate, up}, first); err != nil {
		return description{}, err
	}
	if err := k.down.check(h, downName, in[5:6], k.ofDown(in)); err != nil {
		return description{}, err
	}
	is := described(x.DType, withLastAxis(x.Shape, in[5].Shape[1])...)
	is.changed = slices.Concat(k.changes.named(k.names), k.down.named(downName))
	is.saves = make(tensors, gatedChange)
	copy(is.saves[linearsChanges:], k.changes.saves(x, first))
	is.saves[gatedZ] = kernels.Contiguous(nil, x.DType, 2*asMatrix(x).Shape[0], gate.Shape[1])
	if k.lieBeside(x.DType) {
		is.saves[gatedZ] = kernels.Contiguous(nil, x.DType, asMatrix(x).Shape[0], 2*gate.Shape[1])
	}
	is.saves = append(is.saves, k.down.saves(h, k.ofDown(in))...)
	if !k.hasChanges() {
		is.joins = joins{product: true, postpones: 1, takes: []int{0}}
	}
	return is, nil
}

func (k swiGLUMLP) forward(r *run, in, out tensors) error {
	h, err := k.hidden(r, in)
	if err != nil {
		return err
	}
	first := kernels.RowsProduct{X: asMatrix(in[0]), Weights: tensors{in[1], in[3]}, Biases: tensors{in[2], in[4]}, Gated: true}
	done, ofH := false, factor{Tensor: h}
	if !k.hasChanges() {
		if done, err = r.multiplyRows(first, h); err != nil {
			return err
		}
	}
	if !done {
		z, err := r.savedOrScratch(gatedZ)
		if err != nil {
			return err
		}
		gate, up := k.halves(z)
		first := len(r.scratched)
		if ofH, err = k.gated(r, in, gate, up, h); err != nil {
			return err
		}
		if r.widens(in[0], in[1], in[3]) {
			r.giveBack(first, len(r.scratched)) // down's floats take their place
		}
	}
	down, err := r.roundWeight(gatedDown, in[0].DType, in[5], k.wantsFirst(r))
	if err != nil {
		return err
	}
	if !k.hasChanges() && r.leaveRows(kernels.RowsProduct{X: h, Weights: tensors{down}, Biases: tensors{in[6]}}, out[0]) {
		return nil
	}
	if !r.unread() {
		if down, err = r.widenedWeight(gatedDown, h, down, k.wantsFirst(r)); err != nil {
			return err
		}
	}
	c, err := k.down.begin(r, gatedChange, h, tensors{down}, k.ofDown(in))
	if err != nil {
		return err
	}
	ofDown, err := r.weightFactor(gatedDownFactor, down, k.wantsFirst(r))
	if err != nil {
		return err
	}
	product := kernels.MatMul{A: h, RoundedA: ofH.rows, B: down, RoundedB: ofDown.columns, Plus: c.plus(0), Bias: in[6]}
	return r.lastMatMul(&product, kernels.MatMulOutputs{C: asMatrix(out[0])})
}

// wantsFirst reports whether the first two layers have gradients, for which the last one's weight
// is read: those of x, of the parameters and of changes.
func (k swiGLUMLP) wantsFirst(r *run) bool {
	for i := range inputsOfChange * len(k.changes.scales) {
		if r.wants(7 + i) {
			return true
		}
	}
	return r.wants(0, 1, 2, 3, 4)
}

// hasChanges reports whether any of the three layers has a change.
func (k swiGLUMLP) hasChanges() bool { return len(k.changes.scales)+len(k.down.scales) > 0 }

// hidden is memory for the gated product. In 8 bits it is kept as down's weight's gradient reads
// it.
func (k swiGLUMLP) hidden(r *run, in tensors) (kernels.Tensor, error) {
	rows, columns := asMatrix(in[0]).Shape[0], in[1].Shape[1]
	if r.wants(5) && !r.inFloat8() {
		return r.keep(gatedHidden, in[0].DType, rows, columns)
	}
	return r.scratch(in[0].DType, rows, columns)
}

// gated computes the first two layers and their gated product: in one kernel where they have no
// biases, and weights that are read as one type. It gives the product as down's layer reads it.
func (k swiGLUMLP) gated(r *run, in tensors, gate, up, h kernels.Tensor) (factor, error) {
	first, x := k.first(in), asMatrix(in[0])
	hasChanges := len(k.changes.scales) > 0
	apart := in[1].DType != in[3].DType && !k.joins(x.DType, tensors{in[1], in[3]}) && !r.widens(in[0], in[1], in[3])
	if in[2].IsSet() || in[4].IsSet() || apart || hasChanges && x.DType == x.DType.Wide() {
		if err := k.linears.forward(r, first, tensors{gate, up}); err != nil {
			return factor{}, err
		}
		if err := r.SwiGLU(gate, up, h); err != nil {
			return factor{}, err
		}
		return r.forwardFactor(gatedFactor, h, r.wants(5))
	}
	weights, _ := k.layers(first)
	weights, all, err := k.join(r, x, weights)
	if err != nil {
		return factor{}, err
	}
	rounded, err := r.forwardFactor(linearsX, x, k.wantsWeights(r))
	if err != nil {
		return factor{}, err
	}
	ofH, rounding, err := k.roundingOfHidden(r, h)
	if err != nil {
		return ofH, err
	}
	epilogue := kernels.Gate{BUp: weights[1], Pre: gate, Up: up, Rounding: rounding}
	product := kernels.MatMul{A: x, RoundedA: rounded.rows, B: weights[0]}
	joined, err := k.joinedFactor(r, all)
	if err != nil {
		return ofH, err
	}
	if joined.columns.IsSet() {
		parts := cutFactor(joined, weights)
		product.RoundedB, epilogue.RoundedBUp = parts[0].columns, parts[1].columns
	}
	product.Epilogue = epilogue
	if hasChanges {
		c, err := k.changes.begin(r, linearsChanges, x, weights, k.ofChanges(first))
		if err != nil {
			return ofH, err
		}
		ofGate, ofUp := halves(c.allB, 1)
		product.Plus = []kernels.Factors{{A: c.t, B: ofGate, BUp: ofUp}}
	}
	return ofH, r.MatMul(&product, kernels.MatMulOutputs{C: h})
}

// roundingOfHidden is how the gated product is rounded where it is made. Nothing but down reads it.
func (k swiGLUMLP) roundingOfHidden(r *run, h kernels.Tensor) (f factor, rounding kernels.Float8Rounding, err error) {
	if r.wants(5) {
		f, rounding, err = r.savedRounding(gatedFactor, h)
	} else {
		f, rounding, err = r.rounding(h, false)
	}
	rounding.Alone = rounding.IsSet() && len(k.down.scales) == 0
	return f, rounding, err
}

// backward computes, with g = x·G, u = x·U, h = silu(g)·u and dh = dy·Dᵀ,
//
//	dD = hᵀ·dy      dg = dh·u·silu'(g)      du = dh·silu(g)      dG = xᵀ·dg      dU = xᵀ·du      dx = dg·Gᵀ + du·Uᵀ
//
// and the gradient of a bias is the sum over the rows of its layer's.
func (k swiGLUMLP) backward(r *run, in, dOut, d tensors) error {
	dy, z := asMatrix(dOut[0]), r.saved(gatedZ)
	gate, up := k.halves(z)
	c, err := k.down.begin(r, gatedChange, gate, in[5:6], k.ofDown(in))
	if err != nil {
		return err
	}
	h, firstOfH := r.saved(gatedHidden), len(r.scratched)
	ofChange, ofWeight := slices.ContainsFunc(k.ofDown(d), kernels.Tensor.IsSet), d[5].IsSet() && !r.saved(gatedFactor).IsSet()
	switch {
	case h.IsSet() || !ofChange && !ofWeight:
	case !ofWeight && c.takesGate(gate, up):
		c.up = up
	default:
		if h, err = r.scratchLike(kernels.Contiguous(nil, gate.DType, gate.Shape...)); err == nil {
			err = r.SwiGLU(gate, up, h)
		}
	}
	if err != nil {
		return err
	}
	endOfH := len(r.scratched)
	ofFirst := slices.ContainsFunc(k.first(d), kernels.Tensor.IsSet)
	rounded, err := k.gradientsOfDown(r, h, gate, dy, d, ofFirst)
	if err != nil {
		return err
	}
	if !c.up.IsSet() {
		c.x = h
	}
	plus, err := c.gradients(tensors{dy}, dy, k.ofDown(d), ofFirst)
	if err != nil || !ofFirst {
		return err
	}
	r.giveBack(firstOfH, endOfH)
	firstOfDown := len(r.scratched)
	wide, err := r.widenedWeight(gatedDown, dy, r.roundedWeight(gatedDown, in[5]), false)
	if err != nil {
		return err
	}
	endOfDown := len(r.scratched)
	down := r.savedFactor(gatedDownFactor, wide).transposed()
	product := kernels.MatMul{
		A: dy, RoundedA: rounded.rows, B: down.Tensor, RoundedB: down.columns, Plus: plus,
		Epilogue: kernels.GateGradient{Z: gate, Up: up, DUp: up},
	}
	dz := z
	if !k.lieBeside(z.DType) || !r.writesGateGradientsOver(&product, gate) {
		if dz, err = r.scratch(z.DType, gate.Shape[0], 2*gate.Shape[1]); err != nil {
			return err
		}
	}
	dGate, dUp := halves(dz, 1)
	both, rounding, err := k.roundingOfGradients(r, in, d, dz)
	if err != nil {
		return err
	}
	product.Epilogue = kernels.GateGradient{Z: gate, Up: up, DUp: dUp, Rounding: rounding}
	if err := r.MatMul(&product, kernels.MatMulOutputs{C: dGate}); err != nil {
		return err
	}
	r.giveBack(firstOfDown, endOfDown)
	return k.gradients(r, k.first(in), k.first(d), tensors{dGate, dUp}, func(tensors) (factor, error) {
		err := r.turn(&both)
		return both, err
	})
}

// roundingOfGradients is how the gradients of gate and up are rounded where they are made. In 8
// bits nothing else reads them, unless there are biases or changes.
func (k swiGLUMLP) roundingOfGradients(r *run, in, d tensors, dz kernels.Tensor) (f factor, rounding kernels.Float8Rounding, err error) {
	rows, columns := k.roundsRows(k.first(in), k.first(d)), k.roundsColumns(k.first(d))
	if f.Tensor = dz; !rows && !columns {
		return f, rounding, nil
	}
	f, rounding, err = r.rounding(dz, columns)
	rounding.Alone = rounding.IsSet() && rows && !d[2].IsSet() && !d[4].IsSet() && len(k.changes.scales) == 0
	return f, rounding, err
}

// gradientsOfDown computes those of the last layer's parameters. It gives dy as the product for the
// layers before it reads it, if there is one. Where h is not set, it is of the shape of like.
func (swiGLUMLP) gradientsOfDown(r *run, h, like, dy kernels.Tensor, d tensors, rows bool) (factor, error) {
	rounded, err := r.gradientFactor(dy, rows, d[5].IsSet())
	if err != nil {
		return rounded, err
	}
	if !h.IsSet() {
		h = like // products read what it was rounded to
	}
	ofH, err := r.backwardFactor(gatedFactor, h, d[5].IsSet())
	if err != nil {
		return rounded, err
	}
	return rounded, r.gradientsOfLayer(ofH, rounded, d[5], d[6])
}
