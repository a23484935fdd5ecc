package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// MLPOptions are the options of [MLP].
type MLPOptions struct {
	Activation kernels.Activation // between the two layers
}

// MLP is two linear layers, act(x·W₁ + b₁)·W₂ + b₂: what two calls of [Linear] give, and their
// gradients, of which one is computed in the pass that computes another. x is (..., in), in is (in,
// hidden) with a bias of (hidden), out is (hidden, out) with a bias of (out), and either bias may
// be nil.
func MLP(x, in, inBias, out, outBias *gorgonia.Node, o MLPOptions) (*gorgonia.Node, error) {
	k := mlp{activation: o.Activation}
	return apply("MLP", kernel{describe: k.describe, forward: k.forward, backward: k.backward}, slices.Concat([]input{{name: "x", node: x, form: denseForm}},
		layerInputs(x, "in", in, "inBias", inBias), layerInputs(x, "out", out, "outBias", outBias))...)
}

type mlp struct{ activation kernels.Activation }

// What an MLP saves: what the activation was applied to, what it gave, rounded weights, and what x,
// what the activation gave and the weights are in 8 bits.
const (
	mlpPre, mlpHidden, mlpIn, mlpOut = 0, 1, 2, 3
	mlpX                             = 4
	mlpHiddenFactor                  = mlpX + savesOfFactor
	mlpInFactor                      = mlpHiddenFactor + savesOfFactor
	mlpOutFactor                     = mlpInFactor + savesOfFactor
	mlpSaves                         = mlpOutFactor + savesOfFactor
)

func (k mlp) describe(in tensors) (description, error) {
	x := in[0]
	if err := checkLayer(x, "in", in[1], "inBias", in[2]); err != nil {
		return description{}, err
	}
	h := kernels.Contiguous(nil, x.DType, withLastAxis(x.Shape, in[1].Shape[1])...)
	if err := checkLayer(h, "out", in[3], "outBias", in[4]); err != nil {
		return description{}, fmt.Errorf("between the layers: %w", err)
	}
	is := described(x.DType, withLastAxis(x.Shape, in[3].Shape[1])...)
	is.bias, is.saves = 4, tensors{mlpPre: asMatrix(h), mlpHidden: asMatrix(h), mlpSaves - 1: {}}
	return is, k.activation.Validate()
}

func (k mlp) forward(r *run, in, out tensors) error {
	x := asMatrix(in[0])
	h, err := r.savedOrScratch(mlpHidden)
	if err != nil {
		return err
	}
	first, err := r.roundWeight(mlpIn, x.DType, in[1], r.wants(0))
	if err != nil {
		return err
	}
	rounded, err := r.forwardFactor(mlpX, x, r.wants(1))
	if err != nil {
		return err
	}
	ofFirst, err := r.weightFactor(mlpInFactor, first, r.wants(0))
	if err != nil {
		return err
	}
	product := kernels.MatMul{
		A: x, RoundedA: rounded.rows, B: first, RoundedB: ofFirst.columns, Bias: in[2], Epilogue: kernels.Activate{Activation: k.activation, Pre: r.saved(mlpPre)},
	}
	if err := r.MatMul(&product, kernels.MatMulOutputs{C: h}); err != nil {
		return err
	}
	second, err := r.roundWeight(mlpOut, x.DType, in[3], r.wants(0, 1, 2))
	if err != nil {
		return err
	}
	if rounded, err = r.forwardFactor(mlpHiddenFactor, h, r.wants(3)); err != nil {
		return err
	}
	ofSecond, err := r.weightFactor(mlpOutFactor, second, r.wants(0, 1, 2))
	if err != nil {
		return err
	}
	product = kernels.MatMul{A: h, RoundedA: rounded.rows, B: second, RoundedB: ofSecond.columns, Bias: in[4]}
	return r.lastMatMul(&product, kernels.MatMulOutputs{C: asMatrix(out[0])})
}

// backward computes, with z = x·W₁ + b₁, h = act(z) and dz = dy·W₂ᵀ·act'(z),
//
//	dW₂ = hᵀ·dy      db₂ = Σ over rows of dy      dW₁ = xᵀ·dz      db₁ = Σ over rows of dz      dx = dz·W₁ᵀ
func (k mlp) backward(r *run, in, dOut, d tensors) error {
	x, dy, pre := asMatrix(in[0]), asMatrix(dOut[0]), r.saved(mlpPre)
	rounded, err := r.gradientFactor(dy, r.wants(0, 1, 2), d[3].IsSet())
	if err != nil {
		return err
	}
	ofH, err := r.backwardFactor(mlpHiddenFactor, r.saved(mlpHidden), d[3].IsSet())
	if err != nil {
		return err
	}
	if err := r.gradientsOfLayer(ofH, rounded, d[3], d[4]); err != nil || !r.wants(0, 1, 2) {
		return err
	}
	dz, err := r.scratchLike(pre)
	if err != nil {
		return err
	}
	second := r.savedFactor(mlpOutFactor, r.roundedWeight(mlpOut, in[3])).transposed()
	product := kernels.MatMul{
		A: dy, RoundedA: rounded.rows, B: second.Tensor, RoundedB: second.columns, Epilogue: kernels.TimesSlope{Activation: k.activation, Z: pre},
	}
	if err := r.MatMul(&product, kernels.MatMulOutputs{C: dz, ColumnSums: d[2]}); err != nil {
		return err
	}
	if rounded, err = r.gradientFactor(dz, d[0].IsSet(), d[1].IsSet()); err != nil {
		return err
	}
	ofX, err := r.backwardFactor(mlpX, x, d[1].IsSet())
	if err != nil {
		return err
	}
	if err := r.gradientsOfLayer(ofX, rounded, d[1], kernels.Tensor{}); err != nil || !d[0].IsSet() {
		return err
	}
	first := r.savedFactor(mlpInFactor, r.roundedWeight(mlpIn, in[1])).transposed()
	return r.product(rounded, first, kernels.Tensor{}, asMatrix(d[0]))
}
