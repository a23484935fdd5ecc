package ops

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// SwiGLUMLPBiases are the biases of [SwiGLUMLP]; each may be nil.
type SwiGLUMLPBiases struct{ Gate, Up, Down *gorgonia.Node }

// SwiGLUMLP is the gated MLP of Llama, (silu(x·G)·(x·U))·D, with biases if there are: what calls of [Linear] and [SwiGLU] give, and
// their gradients, of which that of x is summed where it is computed. x is (..., in), gate and up are (in, hidden), down is (hidden, out).
func SwiGLUMLP(x, gate, up, down *gorgonia.Node, biases SwiGLUMLPBiases) (*gorgonia.Node, error) {
	bias := func(name string, n *gorgonia.Node) input {
		return input{name: name, node: n, form: denseForm, optional: true, unread: true}
	}
	return apply("SwiGLUMLP", &swiGLUMLP{},
		input{name: "x", node: x, form: denseForm},
		input{name: "gate", node: gate, form: weightForm(x, gate), roundsTo: floatOf(x)}, bias("gateBias", biases.Gate),
		input{name: "up", node: up, form: weightForm(x, up), roundsTo: floatOf(x)}, bias("upBias", biases.Up),
		input{name: "down", node: down, form: weightForm(x, down), roundsTo: floatOf(x)}, bias("downBias", biases.Down))
}

type swiGLUMLP struct {
	linears // gate and up
	down    layerWeight
	z       kernels.Tensor // what the layers gave, the rows of up behind those of gate
	h       kernels.Tensor // their gated product
}

// first are the inputs of the first two layers, or their gradients.
func (*swiGLUMLP) first(in []kernels.Tensor) []kernels.Tensor { return in[:5] }

// halves are the parts of gate and up in a matrix that has one behind the other along an axis.
func halves(t kernels.Tensor, axis int) (gate, up kernels.Tensor) {
	n := t.Shape[axis] / 2
	return t.Slice(axis, 0, n), t.Slice(axis, n, 2*n)
}

func (k *swiGLUMLP) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	x, gate, up := in[0], in[1], in[3]
	if err := checkLayer(x, "gate", gate, "gateBias", in[2]); err != nil {
		return nil, err
	}
	if err := checkLayer(x, "up", up, "upBias", in[4]); err != nil {
		return nil, err
	}
	if gate.Shape[1] != up.Shape[1] {
		return nil, fmt.Errorf("up has shape %v, it needs as many columns as gate, which has shape %v", up.Shape, gate.Shape)
	}
	h := kernels.Contiguous(nil, x.DType, withLastAxis(x.Shape, gate.Shape[1])...)
	if err := checkLayer(h, "down", in[5], "downBias", in[6]); err != nil {
		return nil, fmt.Errorf("between the layers: %w", err)
	}
	k.weights.joins = x.DType != x.DType.Wide()
	return described(x.DType, withLastAxis(x.Shape, in[5].Shape[1])...), nil
}

func (k *swiGLUMLP) source() source { return fromSaved }

func (k *swiGLUMLP) forward(r *run, in, out []kernels.Tensor) error {
	rows, hidden := asMatrix(in[0]).Shape[0], in[1].Shape[1]
	lend := r.scratch
	if r.wanted != nil {
		lend = r.keep
	}
	if err := errors.Join(lend(&k.z, in[0].DType, 2*rows, hidden), lend(&k.h, in[0].DType, rows, hidden)); err != nil {
		return err
	}
	gate, up := halves(k.z, 0)
	if err := k.gated(r, in, gate, up); err != nil {
		return err
	}
	down, err := k.down.in(r, in[0].DType, in[5], r.wants(0) || r.wants(1) || r.wants(2) || r.wants(3) || r.wants(4))
	if err != nil {
		return err
	}
	return r.MatMul(&kernels.MatMul{A: k.h, B: down, Bias: in[6]}, kernels.MatMulOutputs{C: asMatrix(out[0])})
}

// gated computes the first two layers and their gated product, where they have no biases in one kernel.
func (k *swiGLUMLP) gated(r *run, in []kernels.Tensor, gate, up kernels.Tensor) error {
	if in[2].IsSet() || in[4].IsSet() {
		if err := k.linears.forward(r, k.first(in), []kernels.Tensor{gate, up}); err != nil {
			return err
		}
		return r.SwiGLU(gate, up, k.h)
	}
	weights, _ := k.layers(k.first(in))
	weights, _, err := k.weights.in(r, in[0].DType, r.wants(0), weights)
	if err != nil {
		return err
	}
	product := kernels.MatMul{A: asMatrix(in[0]), B: weights[0], Epilogue: kernels.Gate{BUp: weights[1], Pre: gate, Up: up}}
	return r.MatMul(&product, kernels.MatMulOutputs{C: k.h})
}

// backward computes, with g = x·G, u = x·U, h = silu(g)·u and dh = dy·Dᵀ,
//
//	dD = hᵀ·dy      dg = dh·u·silu'(g)      du = dh·silu(g)      dG = xᵀ·dg      dU = xᵀ·du      dx = dg·Gᵀ + du·Uᵀ
//
// and the gradient of a bias is the sum over the rows of its layer's.
func (k *swiGLUMLP) backward(r *run, in, dOut, d []kernels.Tensor) error {
	x, dy := asMatrix(in[0]), asMatrix(dOut[0])
	if err := k.ofLayer(r, k.h, dy, d[5], d[6]); err != nil {
		return err
	}
	wanted := false
	for _, gradient := range k.first(d) {
		wanted = wanted || gradient.IsSet()
	}
	if !wanted {
		return nil
	}
	if err := r.scratch(&k.dz, x.DType, k.h.Shape[0], 2*k.h.Shape[1]); err != nil {
		return err
	}
	gate, up := halves(k.z, 0)
	dGate, dUp := halves(k.dz, 1)
	product := kernels.MatMul{
		A: dy, B: k.down.of(in[5]).Permute(1, 0), Epilogue: kernels.GateGradient{Z: gate, Up: up, DUp: dUp},
	}
	if err := r.MatMul(&product, kernels.MatMulOutputs{C: dGate}); err != nil {
		return err
	}
	each := []kernels.Tensor{dGate, dUp}
	weights, _ := k.layers(k.first(in))
	dWeights, dBiases := k.layers(k.first(d))
	for i := range each {
		if err := k.ofLayer(r, x, each[i], dWeights[i], dBiases[i]); err != nil {
			return err
		}
	}
	if !d[0].IsSet() {
		return nil
	}
	return k.weights.dx(r, k.dz, each, weights, asMatrix(d[0]))
}
