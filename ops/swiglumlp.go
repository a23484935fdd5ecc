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
// computed. x is (..., in), gate and up are (in, hidden), down is (hidden, out).
func SwiGLUMLP(x, gate, up, down *gorgonia.Node, biases SwiGLUMLPBiases) (*gorgonia.Node, error) {
	var k swiGLUMLP
	return apply("SwiGLUMLP", kernel{k.describe, k.forward, k.backward}, slices.Concat([]input{{name: "x", node: x, form: denseForm}},
		layerInputs(x, "gate", gate, "gateBias", biases.Gate), layerInputs(x, "up", up, "upBias", biases.Up),
		layerInputs(x, "down", down, "downBias", biases.Down))...)
}

type swiGLUMLP struct{ linears } // gate and up

// What a gated MLP saves besides the first layers' weights: what these layers gave, the rows of up
// behind those of gate; their gated product; and down's rounded weight.
const gatedWeights, gatedZ, gatedHidden, gatedDown = linearsWeights, 1, 2, 3

// first are the inputs of the first two layers, or their gradients.
func (swiGLUMLP) first(in tensors) tensors { return in[:5] }

// halves are the parts of gate and up in a matrix that has one behind the other along an axis.
func halves(t kernels.Tensor, axis int) (gate, up kernels.Tensor) {
	n := t.Shape[axis] / 2
	return t.Slice(axis, 0, n), t.Slice(axis, n, 2*n)
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
	z := kernels.Contiguous(nil, x.DType, 2*asMatrix(x).Shape[0], gate.Shape[1])
	is := described(x.DType, withLastAxis(x.Shape, in[5].Shape[1])...)
	is.saves = tensors{gatedWeights: {}, gatedZ: z, gatedHidden: asMatrix(h), gatedDown: {}}
	return is, nil
}

func (k swiGLUMLP) forward(r *run, in, out tensors) error {
	z, err := r.savedOrScratch(gatedZ)
	if err != nil {
		return err
	}
	h, err := r.savedOrScratch(gatedHidden)
	if err != nil {
		return err
	}
	gate, up := halves(z, 0)
	if err := k.gated(r, in, gate, up, h); err != nil {
		return err
	}
	down, err := r.roundWeight(gatedDown, in[0].DType, in[5], r.wants(0, 1, 2, 3, 4))
	if err != nil {
		return err
	}
	return r.product(h, down, in[6], asMatrix(out[0]))
}

// gated computes the first two layers and their gated product, where they have no biases in one
// kernel.
func (k swiGLUMLP) gated(r *run, in tensors, gate, up, h kernels.Tensor) error {
	if in[2].IsSet() || in[4].IsSet() {
		if err := k.linears.forward(r, k.first(in), tensors{gate, up}); err != nil {
			return err
		}
		return r.SwiGLU(gate, up, h)
	}
	weights, _ := k.layers(k.first(in))
	weights, _, err := k.join(r, in[0].DType, weights)
	if err != nil {
		return err
	}
	product := kernels.MatMul{A: asMatrix(in[0]), B: weights[0], Epilogue: kernels.Gate{BUp: weights[1], Pre: gate, Up: up}}
	return r.MatMul(&product, kernels.MatMulOutputs{C: h})
}

// backward computes, with g = x·G, u = x·U, h = silu(g)·u and dh = dy·Dᵀ,
//
//	dD = hᵀ·dy      dg = dh·u·silu'(g)      du = dh·silu(g)      dG = xᵀ·dg      dU = xᵀ·du      dx = dg·Gᵀ + du·Uᵀ
//
// and the gradient of a bias is the sum over the rows of its layer's.
func (k swiGLUMLP) backward(r *run, in, dOut, d tensors) error {
	dy, h := asMatrix(dOut[0]), r.saved(gatedHidden)
	if err := r.gradientsOfLayer(h, dy, d[5], d[6]); err != nil || !r.wants(0, 1, 2, 3, 4) {
		return err
	}
	dz, err := r.scratch(h.DType, h.Shape[0], 2*h.Shape[1])
	if err != nil {
		return err
	}
	gate, up := halves(r.saved(gatedZ), 0)
	dGate, dUp := halves(dz, 1)
	product := kernels.MatMul{
		A: dy, B: r.roundedWeight(gatedDown, in[5]).Permute(1, 0), Epilogue: kernels.GateGradient{Z: gate, Up: up, DUp: dUp},
	}
	if err := r.MatMul(&product, kernels.MatMulOutputs{C: dGate}); err != nil {
		return err
	}
	return k.gradients(r, k.first(in), k.first(d), tensors{dGate, dUp}, func(tensors) (kernels.Tensor, error) { return dz, nil })
}
