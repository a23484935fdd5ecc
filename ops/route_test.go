package ops_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// assigned is what the reference chose for so many tokens.
func assigned(c reference.Chosen[float64], tokens int) kernels.Assignment {
	of := func(list []int, shape ...int) kernels.Tensor {
		numbers := make([]int32, len(list))
		for i, x := range list {
			numbers[i] = int32(x)
		}
		return kernels.Of(numbers, shape...)
	}
	chosen := len(c.Experts) / tokens
	return kernels.Assignment{
		Offsets: of(c.Offsets, len(c.Offsets)), Experts: of(c.Experts, tokens, chosen), Order: of(c.Order, len(c.Order)), Places: of(c.Places, tokens, chosen),
	}
}

// A mixture of experts: a router, two grouped layers with what is between them, and the weighted
// sum.
func TestMixture(t *testing.T) {
	slow.Emulated(t)
	const tokens, experts, in, hidden = 7, 5, 3, 4
	var cases []opCase
	for n, o := range []kernels.RouterOptions{
		{Chosen: 1}, {Chosen: 2, Normalize: true}, {Chosen: 3, Scores: kernels.SigmoidScores, Normalize: true, Epsilon: 1e-20, Scale: 2.5},
	} {
		biased := n == 2
		bias := []float64{0.5, -0.5, 0, 1, 0}
		cases = append(cases, opCase{
			options: fmt.Sprintf("%+v", o),
			in: []opInput{
				floats("x", tokens, in), floats("logits", tokens, experts), floats("gateup", experts, in, 2*hidden), floats("bias", experts, 2*hidden),
				floats("down", experts, hidden, in),
			},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				var correction *gorgonia.Node
				if biased {
					correction = input(in[0].Graph(), "correction", dense(in[0].Dtype(), bias, experts))
				}
				weights, a, err := ops.Route(in[1], correction, o)
				if err != nil {
					return nil, err
				}
				x := gorgonia.Must(ops.Dispatch(in[0], a))
				h := gorgonia.Must(ops.SwiGLUHalves(gorgonia.Must(ops.GroupedLinear(x, in[2], in[3], a))))
				return ops.Combine(gorgonia.Must(ops.GroupedLinear(h, in[4], nil, a)), weights, a)
			},
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				r := &kernels.Routing{Logits: in[1], RouterOptions: o}
				if biased {
					r.Bias = kernels.Of(bias, experts)
				}
				return mixture(in, r, dOut)
			},
		})
	}
	testOp(t, cases)
}

// mixture is the reference of TestMixture.
func mixture(in []kernels.Tensor, r *kernels.Routing, dOut []float64) (out []float64, d [][]float64) {
	tokens, hidden := in[0].Shape[0], in[4].Shape[1]
	chosen := reference.Route[float64](r)
	a, rows := assigned(chosen, tokens), tokens*r.Chosen
	x := kernels.Of(reference.Dispatch(float64sOf(in[0]), nil, a), rows, in[0].Shape[1])
	first := &kernels.GroupedMatMul{A: x, B: in[2], Bias: in[3], Offsets: a.Offsets}
	z := reference.GroupedMatMul[float64](first, nil)
	var gate, up []float64
	for i := range rows {
		gate, up = append(gate, z[i*2*hidden:][:hidden]...), append(up, z[(2*i+1)*hidden:][:hidden]...)
	}
	h, _, _ := reference.SwiGLU(gate, up, gate)
	second := &kernels.GroupedMatMul{A: kernels.Of(h, rows, hidden), B: in[4], Offsets: a.Offsets}
	y := reference.GroupedMatMul[float64](second, nil)
	out = reference.Combine(y, chosen.Weights, a)

	dy := kernels.Of(reference.Dispatch(dOut, chosen.Weights, a), rows, in[0].Shape[1])
	dh := reference.GroupedMatMul[float64](&kernels.GroupedMatMul{A: dy, B: in[4].Permute(0, 2, 1), Offsets: a.Offsets}, nil)
	_, dGate, dUp := reference.SwiGLU(gate, up, dh)
	var dz []float64
	for i := range rows {
		dz = append(append(dz, dGate[i*hidden:][:hidden]...), dUp[i*hidden:][:hidden]...)
	}
	ofZ := kernels.Of(dz, rows, 2*hidden)
	dx := reference.GroupedMatMul[float64](&kernels.GroupedMatMul{A: ofZ, B: in[2].Permute(0, 2, 1), Offsets: a.Offsets}, nil)
	return out, [][]float64{
		reference.Combine(dx, nil, a), reference.RouteGrad(r, reference.CombineFactors(y, dOut, a)),
		reference.GroupedMatMulGradient(first, dz), reference.GroupedSumRows[float64](ofZ, a.Offsets), reference.GroupedMatMulGradient(second, float64sOf(dy)),
	}
}

func TestClampedGate(t *testing.T) {
	gate := kernels.ClampedGate{Slope: 1.702, Limit: 1.2}
	testOp(t, []opCase{{
		options: "ClampedGate", in: []opInput{floats("x", 3, 5, 8)},
		apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.ClampedGate(in[0], gate) },
		want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
			y, dx := reference.ClampedGate(gate, float64sOf(in[0]), dOut)
			return y, [][]float64{dx}
		},
	}})
}

func TestBalanceLoss(t *testing.T) {
	const experts = 5
	testOp(t, []opCase{{
		options: "BalanceLoss",
		in:      []opInput{floats("first", 3, experts), floats("second", 4, experts)},
		apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			loss := gorgonia.NewConstant(0.0)
			if in[0].Dtype() == tensor.Float32 {
				loss = gorgonia.NewConstant(float32(0))
			}
			var list []ops.Assignment
			for _, logits := range in {
				weights, a, err := ops.Route(logits, nil, kernels.RouterOptions{Chosen: 2, Normalize: true})
				if err != nil {
					return nil, err
				}
				list = append(list, a)
				// A lispMachine needs all that a graph computes in its cost. The weights of a token
				// sum to 1.
				loss = gorgonia.Must(gorgonia.Add(loss, gorgonia.Must(ops.Sum(weights))))
			}
			balance, err := ops.BalanceLoss(in, list)
			if err != nil {
				return nil, err
			}
			return gorgonia.Add(balance, loss)
		},
		want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
			var logits []float64
			var offsets []int32
			for _, t := range in {
				logits = append(logits, float64sOf(t)...)
				r := &kernels.Routing{Logits: t, RouterOptions: kernels.RouterOptions{Chosen: 2}}
				offsets = append(offsets, kernels.Host[int32](assigned(reference.Route[float64](r), t.Shape[0]).Offsets)...)
			}
			loss, d := reference.BalanceLoss(kernels.Of(logits, 7, experts), kernels.Of(offsets, 2, experts+1), dOut[0])
			return []float64{loss + 7}, [][]float64{d[:15], d[15:]}
		},
	}})
}

// Weights of 16 bits beside float32, and layers in 16 bits with weights of float32, compute what
// their rounded weights say.
func TestGroupedLinearOfKeptWeights(t *testing.T) {
	g := gorgonia.NewGraph()
	values := func(n int) (list []float64) {
		for i := range n {
			list = append(list, float64((i*7)%11)/8-0.5) // as bfloat16 has them
		}
		return list
	}
	x := input(g, "x", dense(tensor.Float32, values(6), 3, 2))
	w := input(g, "w", dense(tensor.Float32, values(24), 4, 2, 3))
	_, a, err := ops.Route(input(g, "logits", dense(tensor.Float32, values(12), 3, 4)), nil, kernels.RouterOptions{Chosen: 2})
	if err != nil {
		t.Fatal(err)
	}
	rows := gorgonia.Must(ops.Dispatch(x, a))
	want := gorgonia.Must(ops.GroupedLinear(rows, w, nil, a))
	kept, err := ops.Converted(w.Value().(*tensor.Dense), ops.BFloat16)
	if err != nil {
		t.Fatal(err)
	}
	outs := gorgonia.Nodes{
		gorgonia.Must(ops.GroupedLinear(rows, input(g, "kept", kept), nil, a)),
		gorgonia.Must(ops.Cast(gorgonia.Must(ops.GroupedLinear(gorgonia.Must(ops.Cast(rows, ops.BFloat16)), w, nil, a)), tensor.Float32)),
	}
	run(t, gorgonia.NewTapeMachine(g))
	for i, out := range outs {
		if got, want := float64s(t, out.Value()), float64s(t, want.Value()); !slices.Equal(got, want) && i == 0 || !near(got, want, 1e-2) {
			t.Errorf("case %d: %v, want %v", i, got, want)
		}
	}
}

func near(a, b []float64, within float64) bool {
	for i := range a {
		if !(a[i]-b[i] <= within && b[i]-a[i] <= within) {
			return false
		}
	}
	return len(a) == len(b)
}

func TestRouteBuildErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	f := func(shape ...int) *gorgonia.Node { return node(g, fmt.Sprint("f", shape), tensor.Float32, shape...) }
	weights, a, err := ops.Route(f(3, 4), nil, kernels.RouterOptions{Chosen: 2})
	if err != nil {
		t.Fatal(err)
	}
	second := func(_ *gorgonia.Node, _ ops.Assignment, err error) error { return err }
	of := func(_ *gorgonia.Node, err error) error { return err }
	for _, c := range []struct {
		err  error
		want string
	}{
		{second(ops.Route(f(3, 4), nil, kernels.RouterOptions{})), "Route: chosen is 0, it needs to be from 1 to the 4 experts"},
		{second(ops.Route(f(2, 3, 4), nil, kernels.RouterOptions{Chosen: 1, Groups: 3, KeptGroups: 1})), "Route: groups is 3, it needs to divide the 4 experts"},
		{second(ops.Route(f(3, 4), f(3), kernels.RouterOptions{Chosen: 1})), "Route: bias is float32 of shape [3], it needs to be float32 of shape [4]"},
		{of(ops.Dispatch(f(4, 7), a)), "Dispatch: the assignment has 23 numbers, for 4 tokens of 4 experts it needs 29"},
		{of(ops.Dispatch(f(3, 7), ops.Assignment{})), "Dispatch: assignment is nil, it needs to be a node"},
		{of(ops.Combine(f(5, 7), weights, a)), "Combine: x has shape [5 7] and weights [3 2], they need to be (tokens·2, features) and (tokens, 2)"},
		{of(ops.GroupedLinear(f(6, 7), f(4, 6, 5), nil, a)), "GroupedLinear: weight has shape [4 6 5], it needs (4, 7, out): a matrix for each expert, of a row for each of x's features"},
		{of(ops.GroupedLinear(f(6, 7), f(4, 7, 5), f(4, 7), a)), "GroupedLinear: bias has shape [4 7], it needs (4, 5): a row for each of b's matrices"},
		{of(ops.SwiGLUHalves(f(2, 3))), "SwiGLUHalves: x has shape [2 3], it needs an even number of features"},
		{of(ops.BalanceLoss(gorgonia.Nodes{f(3, 4)}, nil)), "BalanceLoss: there are 1 logits and 0 assignments, it needs as many of both, and at least one"},
		{of(ops.BalanceLoss(gorgonia.Nodes{f(3, 5)}, []ops.Assignment{a})), "BalanceLoss: logits[0] has shape [3 5], it needs (..., 4): an assignment's experts, as many in all layers"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("the error is %v, it needs to be: %s", c.err, c.want)
		}
	}
}
