package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// LinearOptions are the options of [Linear]. The zero value is x·W + b alone.
type LinearOptions struct {
	Activation kernels.Activation // is applied to the result, in the same pass
	Change     Change             // is added to x·W, in the same pass
}

// Linear is act(x·W + b): x is (..., in), weight is (in, out), bias is (out) or nil, and the result
// is (..., out). The weight may be kept in less memory: in 16 bits beside an x of float32, or
// packed as [Packed] makes it of (out, in). It counts as it is, and is a constant to a gradient. On
// the host it is read as it lies, for few rows of x in the time that its memory takes.
//
// With an activation, what it is applied to is kept from the forward run to the backward run of a
// graph that is differentiated.
func Linear(x, weight, bias *gorgonia.Node, o LinearOptions) (*gorgonia.Node, error) {
	changes, inputs, err := newLowRank(x, linearNames, []Change{o.Change})
	if err != nil {
		return nil, fmt.Errorf("Linear: %w", err)
	}
	k := linear{o.Activation, changes}
	layer := layerInputs(x, "weight", weight, "bias", bias)
	if o.Activation != kernels.NoActivation {
		layer[1].unread = false // its gradient's gradient reads it
	}
	return apply("Linear", kernel{describe: k.describe, forward: k.forward, backward: k.backward, second: byNodes(k.second)},
		slices.Concat([]input{changes.inputX(x)}, layer, inputs)...)
}

type linear struct {
	activation kernels.Activation
	changes    lowRank
}

var linearNames = []string{"weight"}

// What a linear layer saves: what the activation was applied to, a rounded weight, what x and the
// weight are in 8 bits, and what its change does.
const (
	linearPre, linearWeight = 0, 1
	linearX                 = 2
	linearFactor            = linearX + savesOfFactor
	linearChange            = linearFactor + savesOfFactor
)

func (k linear) describe(in tensors) (description, error) {
	x, weight := in[0], in[1]
	if err := checkLayer(x, "weight", weight, "bias", in[2]); err != nil {
		return description{}, err
	}
	if err := k.changes.check(x, linearNames, in[1:2], in[3:]); err != nil {
		return description{}, err
	}
	is := described(x.DType, withLastAxis(x.Shape, weight.Shape[1])...)
	if len(k.changes.scales) == 0 {
		is.joins = joins{product: true, postpones: 1, takes: []int{0}}
	}
	is.changed = k.changes.named(linearNames)
	changes := k.changes.saves(x, in[3:])
	if is.saves = append(make(tensors, linearChange), changes...); k.activation != kernels.NoActivation {
		is.saves[linearPre] = asMatrix(is.outputs[0])
		return is, k.activation.Validate()
	}
	if is.bias = 2; changes == nil && !isMixed(weight, x.DType) {
		is.saves = nil
	}
	return is, nil
}

func (k linear) forward(r *run, in, out tensors) error {
	weight, err := r.roundWeight(linearWeight, in[0].DType, in[1], r.wants(0))
	if err != nil {
		return err
	}
	x, changes := asMatrix(in[0]), len(k.changes.scales) > 0
	if p := (kernels.RowsProduct{X: x, Weights: tensors{weight}, Biases: tensors{in[2]}}); k.activation == kernels.NoActivation && !changes {
		if r.postponed(0) == nil && r.leaveRows(p, out[0]) {
			return nil
		}
		if done, err := r.multiplyRows(p, out[0]); done || err != nil {
			return err
		}
	}
	if err := r.catchUp(0); err != nil {
		return err
	}
	if !r.unread() {
		if weight, err = r.widenedWeight(linearWeight, x, weight, r.wants(0)); err != nil {
			return err
		}
	}
	c, err := k.changes.begin(r, linearChange, x, tensors{weight}, in[3:])
	if err != nil {
		return err
	}
	rounded, err := r.forwardFactor(linearX, x, r.wants(1))
	if err != nil {
		return err
	}
	ofWeight, err := r.weightFactor(linearFactor, weight, r.wants(0))
	if err != nil {
		return err
	}
	epilogue := kernels.Activate{Activation: k.activation, Pre: r.saved(linearPre)}
	product := kernels.MatMul{A: x, RoundedA: rounded.rows, B: weight, RoundedB: ofWeight.columns, Plus: c.plus(0), Bias: in[2], Epilogue: epilogue}
	if k.activation == kernels.NoActivation {
		return r.lastMatMul(&product, kernels.MatMulOutputs{C: asMatrix(out[0])})
	}
	return r.MatMul(&product, kernels.MatMulOutputs{C: asMatrix(out[0])})
}

// backward computes, with dz = dy·act'(z),
//
//	dx = dz·Wᵀ      dW = xᵀ·dz      db = Σ over rows of dz
//
// and what a change adds to that.
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
	x := asMatrix(in[0])
	c, err := k.changes.begin(r, linearChange, x, in[1:2], in[3:])
	if err != nil {
		return err
	}
	plus, err := c.gradients(tensors{dz}, dz, d[3:], d[0].IsSet())
	if err != nil {
		return err
	}
	rounded, err := r.gradientFactor(dz, d[0].IsSet(), d[1].IsSet())
	if err != nil {
		return err
	}
	if d[0].IsSet() {
		wide, err := r.widenedWeight(linearWeight, dz, r.roundedWeight(linearWeight, in[1]), false)
		if err != nil {
			return err
		}
		weight := r.savedFactor(linearFactor, wide).transposed()
		product := kernels.MatMul{A: dz, RoundedA: rounded.rows, B: weight.Tensor, RoundedB: weight.columns, Plus: plus}
		if err := r.MatMul(&product, kernels.MatMulOutputs{C: asMatrix(d[0])}); err != nil {
			return err
		}
	}
	ofX, err := r.backwardFactor(linearX, x, d[1].IsSet())
	if err != nil {
		return err
	}
	return r.gradientsOfLayer(ofX, rounded, d[1], d[2])
}
