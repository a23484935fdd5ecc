package nn_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Experts of which tokens have all are the sum of gated MLPs, weighted by the router's
// probabilities.
func TestExpertsAreMLPs(t *testing.T) {
	const dim, hidden, count = 6, 5, 3
	p := nn.NewParameters(3)
	g := gorgonia.NewGraph()
	s := nn.NewScope(g, p).DType(tensor.Float64)
	x := on(input(g, tensor.Float64, "x", 2, 4, dim))
	got := nn.NewExperts(s.Sub("moe"), nn.ExpertsConfig{Dim: dim, Hidden: hidden, Count: count, Router: kernels.RouterOptions{Chosen: count}}).Forward(x)
	gateup, down := floats(t, p.Value("moe.gateup.weight")), floats(t, p.Value("moe.down.weight"))
	matrix := func(rows, columns int, at func(i, j int) float64) nn.Tensor {
		list := make([]float64, rows*columns)
		for i := range list {
			list[i] = at(i/columns, i%columns)
		}
		return s.Constant(strings.Repeat("m", len(g.AllNodes())), tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(list)))
	}
	router := s.Constant("router", p.Value("moe.router.weight"))
	weights := x.MatMul(router).Softmax()
	var want nn.Tensor
	for e := range count {
		of := func(from int) nn.Tensor {
			return matrix(dim, hidden, func(i, j int) float64 { return gateup[(e*dim+i)*2*hidden+from+j] })
		}
		h := x.MatMul(of(0)).SiLU().Mul(x.MatMul(of(hidden)))
		y := h.MatMul(matrix(hidden, dim, func(i, j int) float64 { return down[(e*hidden+i)*dim+j] }))
		if y = y.Mul(weights.Slice(-1, e, e+1)); e == 0 {
			want = y
		} else {
			want = want.Add(y)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	evaluate(t, g)
	for i, w := range floats(t, want.Node().Value()) {
		if y := floats(t, got.Node().Value())[i]; math.Abs(y-w) > 1e-12 {
			t.Fatalf("element %d is %v, want %v", i, y, w)
		}
	}
}

// With another activation, of gates and of what all tokens have, experts of which tokens have one
// are the MLP of it.
func TestExpertsOfOtherActivations(t *testing.T) {
	for _, act := range []kernels.Activation{kernels.GELUTanh, kernels.ReLU} {
		p := nn.NewParameters(3)
		g := gorgonia.NewGraph()
		s := nn.NewScope(g, p).DType(tensor.Float64)
		x := on(input(g, tensor.Float64, "x", 2, 4, 6))
		got := s.Experts("moe", x, nn.ExpertsConfig{Hidden: 5, Count: 1, Router: kernels.RouterOptions{Chosen: 1}, Activation: act, Shared: nn.SharedExpert{Hidden: 5}})
		shared := nn.NewMLP(s.Sub("other"), nn.MLPConfig{Dim: 6, Hidden: 5, Gated: true, NoBias: true, Activation: act})
		one := nn.NewMLP(s.Sub("one"), nn.MLPConfig{Dim: 6, Hidden: 5, Gated: true, NoBias: true, Activation: act})
		want := shared.Forward(x).Add(one.Forward(x))
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"gate", "up", "down"} {
			copy(floats(t, p.Value("other."+part+".weight")), floats(t, p.Value("moe.shared."+part+".weight")))
		}
		gateup := floats(t, p.Value("moe.gateup.weight"))
		for i := range 30 {
			floats(t, p.Value("one.gate.weight"))[i] = gateup[i/5*10+i%5]
			floats(t, p.Value("one.up.weight"))[i] = gateup[i/5*10+5+i%5]
		}
		copy(floats(t, p.Value("one.down.weight")), floats(t, p.Value("moe.down.weight")))
		evaluate(t, g)
		for i, w := range floats(t, want.Node().Value()) {
			if y := floats(t, got.Node().Value())[i]; math.Abs(y-w) > 1e-12 {
				t.Fatalf("%v: element %d is %v, want %v", act, i, y, w)
			}
		}
	}
}

// Gradients of a layer that has everything are slopes, on both machines.
func TestExpertsGradients(t *testing.T) {
	for name, c := range map[string]nn.ExpertsConfig{
		"plain":   {Router: kernels.RouterOptions{Chosen: 2, Normalize: true}},
		"clamped": {Router: kernels.RouterOptions{Chosen: 1}, Clamped: &kernels.ClampedGate{Slope: 1.5, Limit: 0.9}},
		"GELU":    {Router: kernels.RouterOptions{Chosen: 2}, Activation: kernels.GELUErf, Bias: true, Shared: nn.SharedExpert{Hidden: 3}},
		"all": {
			Router: kernels.RouterOptions{Chosen: 2, Scores: kernels.SigmoidScores, Normalize: true, Epsilon: 1e-20, Scale: 2.5, Groups: 2, KeptGroups: 1, GroupChoice: kernels.GroupByBestTwo},
			Bias:   true, RouterBias: true, Corrected: true, Shared: nn.SharedExpert{Hidden: 3, Gated: true},
		},
	} {
		c.Hidden, c.Count = 5, 4
		err := gradcheck.Graph(func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
			s := nn.NewScope(g, nn.NewParameters(7)).DType(dtype)
			x := s.Parameter("x", nn.Normal(1), 2, 3, 6)
			y := s.Experts("moe", x, c)
			loss := y.Mul(y).Mean().Add(s.BalanceLoss())
			return loss.Node(), s.Trainable(), s.Err()
		}, gradcheck.Options{Elements: 3, Directions: 1})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The correction of the choice is a parameter that is saved and not trained.
func TestCorrectionIsNotTrained(t *testing.T) {
	s := nn.NewScope(gorgonia.NewGraph(), nil)
	nn.NewExperts(s, nn.ExpertsConfig{Dim: 2, Hidden: 2, Count: 2, Router: kernels.RouterOptions{Chosen: 1}, Corrected: true})
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if all, trained := len(s.Parameters()), len(s.Trainable()); all != 4 || trained != 3 {
		t.Errorf("%d parameters, %d of them trained, want 4 and 3", all, trained)
	}
}

// Experts whose weights are kept in 16 bits compute what their rounded weights say.
func TestExpertsOfKeptWeights(t *testing.T) {
	c := nn.ExpertsConfig{Hidden: 5, Count: 4, Router: kernels.RouterOptions{Chosen: 2}}
	compute := func(p *nn.Parameters) []float64 {
		g := gorgonia.NewGraph()
		s := nn.NewScope(g, p)
		y := s.Experts("moe", on(input(g, tensor.Float32, "x", 3, 6)), c)
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		evaluate(t, g)
		return floats(t, y.Node().Value())
	}
	kept := nn.NewParameters(1)
	if err := kept.KeepWeights(ops.BFloat16); err != nil {
		t.Fatal(err)
	}
	got, rounded := compute(kept), nn.NewParameters(1)
	for _, name := range kept.Names() {
		wide := kept.Value(name)
		if wide.Dtype() == ops.BFloat16 {
			var err error
			if wide, err = ops.Converted(wide, tensor.Float32); err != nil {
				t.Fatal(err)
			}
		}
		if err := rounded.Set(name, wide); err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range compute(rounded) {
		if math.Abs(got[i]-w) > 1e-6 {
			t.Fatalf("element %d is %v, want %v", i, got[i], w)
		}
	}
	packed := nn.NewParameters(1)
	if err := packed.KeepWeights(ops.Int8); err != nil {
		t.Fatal(err)
	}
	s := nn.NewScope(gorgonia.NewGraph(), packed)
	nn.NewExperts(s, nn.ExpertsConfig{Dim: 32, Hidden: 32, Count: 2, Router: kernels.RouterOptions{Chosen: 1}})
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "which can be kept in BFloat16 or Float16, not in Int8") {
		t.Errorf("the error is %v", err)
	}
}
