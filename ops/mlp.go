package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// MLPOptions are the options of [MLP].
type MLPOptions struct {
	Activation kernels.Activation // between the two layers
}

// MLP is two linear layers, act(x·W₁ + b₁)·W₂ + b₂: what two calls of [Linear] give, and their gradients, of which one is
// computed in the pass that computes another. x is (..., in), in is (in, hidden) with a bias of (hidden), out is (hidden, out) with a
// bias of (out), and either bias may be nil.
func MLP(x, in, inBias, out, outBias *gorgonia.Node, o MLPOptions) (*gorgonia.Node, error) {
	return apply("MLP", &mlp{activation: o.Activation},
		input{name: "x", node: x, form: denseForm},
		input{name: "in", node: in, form: weightForm(x, in), roundsTo: floatOf(x)},
		input{name: "inBias", node: inBias, form: denseForm, optional: true, unread: true},
		input{name: "out", node: out, form: weightForm(x, out), roundsTo: floatOf(x)},
		input{name: "outBias", node: outBias, form: denseForm, optional: true, unread: true})
}

type mlp struct {
	activation kernels.Activation
	in, out    layerWeight
	pre, h, dz kernels.Tensor // what the activation was applied to, what it gave, and the gradient of pre
}

func (k *mlp) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	x := in[0]
	if err := checkLayer(x, "in", in[1], "inBias", in[2]); err != nil {
		return nil, err
	}
	h := kernels.Contiguous(nil, x.DType, withLastAxis(x.Shape, in[1].Shape[1])...)
	if err := checkLayer(h, "out", in[3], "outBias", in[4]); err != nil {
		return nil, fmt.Errorf("between the layers: %w", err)
	}
	return described(x.DType, withLastAxis(x.Shape, in[3].Shape[1])...), k.activation.Validate()
}

func (k *mlp) bias() int { return 4 }

func (k *mlp) source() source { return fromSaved }

func (k *mlp) forward(r *run, in, out []kernels.Tensor) error {
	x := asMatrix(in[0])
	rows, hidden := x.Shape[0], in[1].Shape[1]
	lend := r.scratch
	if k.pre = (kernels.Tensor{}); r.wanted != nil {
		lend = r.keep
		if err := r.keep(&k.pre, x.DType, rows, hidden); err != nil {
			return err
		}
	}
	if err := lend(&k.h, x.DType, rows, hidden); err != nil {
		return err
	}
	ofZ := r.wants(0) || r.wants(1) || r.wants(2)
	first, err := k.in.in(r, x.DType, in[1], r.wants(0))
	if err != nil {
		return err
	}
	product := kernels.MatMul{A: x, B: first, Bias: in[2], Epilogue: kernels.Activate{Activation: k.activation, Pre: k.pre}}
	if err := r.MatMul(&product, kernels.MatMulOutputs{C: k.h}); err != nil {
		return err
	}
	second, err := k.out.in(r, x.DType, in[3], ofZ)
	if err != nil {
		return err
	}
	return r.MatMul(&kernels.MatMul{A: k.h, B: second, Bias: in[4]}, kernels.MatMulOutputs{C: asMatrix(out[0])})
}

// backward computes, with z = x·W₁ + b₁, h = act(z) and dz = dy·W₂ᵀ·act'(z),
//
//	dW₂ = hᵀ·dy      db₂ = Σ over rows of dy      dW₁ = xᵀ·dz      db₁ = Σ over rows of dz      dx = dz·W₁ᵀ
func (k *mlp) backward(r *run, in, dOut, d []kernels.Tensor) error {
	x, dy := asMatrix(in[0]), asMatrix(dOut[0])
	if d[4].IsSet() {
		if err := r.SumRows(dy, d[4], false); err != nil {
			return err
		}
	}
	if d[3].IsSet() {
		if err := r.MatMul(&kernels.MatMul{A: k.h.Permute(1, 0), B: dy}, kernels.MatMulOutputs{C: d[3]}); err != nil {
			return err
		}
	}
	if !d[0].IsSet() && !d[1].IsSet() && !d[2].IsSet() {
		return nil
	}
	if err := r.scratch(&k.dz, x.DType, k.pre.Shape...); err != nil {
		return err
	}
	product := kernels.MatMul{A: dy, B: k.out.of(in[3]).Permute(1, 0), Epilogue: kernels.TimesSlope{Activation: k.activation, Z: k.pre}}
	if err := r.MatMul(&product, kernels.MatMulOutputs{C: k.dz, ColumnSums: d[2]}); err != nil {
		return err
	}
	if d[1].IsSet() {
		if err := r.MatMul(&kernels.MatMul{A: x.Permute(1, 0), B: k.dz}, kernels.MatMulOutputs{C: d[1]}); err != nil {
			return err
		}
	}
	if !d[0].IsSet() {
		return nil
	}
	return r.MatMul(&kernels.MatMul{A: k.dz, B: k.in.of(in[1]).Permute(1, 0)}, kernels.MatMulOutputs{C: asMatrix(d[0])})
}
