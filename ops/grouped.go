package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// GroupedLinear is the linear layers of experts: each row of x, (tokens·Chosen, in) in the order of
// [Dispatch], times the weight of its own expert, of weight (experts, in, out), and plus that one's
// bias, of bias (experts, out) or nil. No row is dropped, however many an expert has. As with
// [Linear], weights are float32 or of x's type, or constants of 16 bits beside an x of float32.
func GroupedLinear(x, weight, bias *gorgonia.Node, a Assignment) (*gorgonia.Node, error) {
	k := groupedLinear{a}
	return apply("GroupedLinear", kernel{describe: k.describe, forward: k.forward, backward: k.backward},
		input{name: "x", node: x},
		input{name: "weight", node: weight, form: weightForm(x, weight, stridedForm), roundsTo: floatOf(x)},
		input{name: "bias", node: bias, form: denseForm, optional: true, unread: true},
		a.input())
}

type groupedLinear struct{ Assignment }

const groupedWeight = 0 // what it saves: the rounded weight

func (k groupedLinear) describe(in tensors) (is description, err error) {
	x, weight, bias := in[0], in[1], in[2]
	switch {
	case len(x.Shape) != 2 || x.Shape[0]%max(1, k.Chosen) != 0:
		return is, fmt.Errorf("x has shape %v, it needs two axes (tokens·%d, in), as Dispatch gives it", x.Shape, k.Chosen)
	case len(weight.Shape) != 3 || weight.Shape[0] != k.Experts || weight.Shape[1] != x.Shape[1]:
		return is, fmt.Errorf("weight has shape %v, it needs (%d, %d, out): a matrix for each expert, of a row for each of x's features", weight.Shape, k.Experts, x.Shape[1])
	case weight.DType != x.DType && weight.DType != x.DType.Wide() && !isKept(weight, x.DType):
		return is, errParameter("weight", weight, x)
	case bias.IsSet() && bias.DType != x.DType && bias.DType != x.DType.Wide():
		return is, errParameter("bias", bias, x)
	}
	if _, err := k.of(in[3], x.Shape[0]/max(1, k.Chosen)); err != nil {
		return is, err
	}
	is = described(x.DType, x.Shape[0], weight.Shape[2])
	is.saves = make(tensors, 1)
	if isMixed(weight, x.DType) {
		weight.DType = x.DType
	}
	return is, k.problem(x, weight, bias, in[3].Slice(0, 0, k.Experts+1)).Validate()
}

func (k groupedLinear) problem(x, weight, bias, offsets kernels.Tensor) *kernels.GroupedMatMul {
	return &kernels.GroupedMatMul{A: x, B: weight, Bias: bias, Offsets: offsets}
}

// offsets are where experts' rows begin.
func (k groupedLinear) offsets(in tensors) kernels.Tensor { return in[3].Slice(0, 0, k.Experts+1) }

func (k groupedLinear) forward(r *run, in, out tensors) error {
	weight, err := r.roundWeight(groupedWeight, in[0].DType, in[1], r.wants(0))
	if err != nil {
		return err
	}
	return r.GroupedMatMul(k.problem(in[0], weight, in[2], k.offsets(in)), out[0])
}

// backward computes, for the rows of each expert,
//
//	dx = dy·Wᵀ      dW = xᵀ·dy      db = Σ dy
func (k groupedLinear) backward(r *run, in, dOut, d tensors) error {
	dy := dOut[0]
	if d[1].IsSet() {
		p := k.problem(in[0], in[1], kernels.Tensor{}, k.offsets(in))
		p.B.DType = in[0].DType // its shape alone is read
		if err := r.GroupedMatMulGradient(p, dy, d[1]); err != nil {
			return err
		}
	}
	if d[2].IsSet() {
		if err := r.GroupedSumRows(dy, k.offsets(in), d[2]); err != nil {
			return err
		}
	}
	if !d[0].IsSet() {
		return nil
	}
	weight := r.roundedWeight(groupedWeight, in[1])
	return r.GroupedMatMul(k.problem(dy, weight.Permute(0, 2, 1), kernels.Tensor{}, k.offsets(in)), d[0])
}

// ClampedGate is the gate of gpt-oss' experts, of an x, (..., 2n), whose gates are the features at
// even places: (..., n). See [kernels.ClampedGate].
func ClampedGate(x *gorgonia.Node, gate kernels.ClampedGate) (*gorgonia.Node, error) {
	return apply("ClampedGate", kernel{
		describe: func(in tensors) (description, error) {
			last := in[0].Shape[len(in[0].Shape)-1]
			if last%2 != 0 {
				return description{}, fmt.Errorf("x has shape %v, it needs an even number of features", in[0].Shape)
			}
			return described(in[0].DType, withLastAxis(in[0].Shape, last/2)...), gate.Validate(in[0].DType)
		},
		forward:  func(r *run, in, out tensors) error { return r.ClampedGate(gate, in[0], out[0]) },
		backward: func(r *run, in, dOut, d tensors) error { return r.ClampedGateBackward(gate, in[0], dOut[0], d[0]) },
	}, input{name: "x", node: x})
}

// SwiGLUHalves is silu(gate)·up of an x, (..., 2n), whose first n features are gate and whose last
// are up, such as one product of both layers gives: (..., n).
func SwiGLUHalves(x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("SwiGLUHalves", kernel{
		describe: func(in tensors) (description, error) {
			last := len(in[0].Shape) - 1
			if n := in[0].Shape[last]; n%2 != 0 {
				return description{}, fmt.Errorf("x has shape %v, it needs an even number of features", in[0].Shape)
			}
			return described(in[0].DType, withLastAxis(in[0].Shape, in[0].Shape[last]/2)...), nil
		},
		forward: func(r *run, in, out tensors) error {
			gate, up := halves(in[0], len(in[0].Shape)-1)
			return r.SwiGLU(gate, up, out[0])
		},
		backward: func(r *run, in, dOut, d tensors) error {
			last := len(in[0].Shape) - 1
			gate, up := halves(in[0], last)
			dGate, dUp := halves(d[0], last)
			return r.SwiGLUBackward(gate, up, dOut[0], dGate, dUp)
		},
	}, input{name: "x", node: x})
}
