package gradcheck_test

import (
	"fmt"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A layer of one's own is checked with all of its parameters.
func ExampleGraph() {
	gated := func(s *nn.Scope, x nn.Tensor) nn.Tensor {
		return s.Linear("gate", x, 4).Sigmoid().Mul(s.Linear("value", x, 4))
	}
	err := gradcheck.Graph(func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
		s := nn.NewScope(g, nn.NewParameters(1)).DType(dtype)
		x := s.Parameter("x", nn.Normal(1), 5, 3)
		y := gated(s, x)
		return y.Node(), s.Trainable(), s.Err()
	}, gradcheck.Options{Single: true})
	fmt.Println(err)
	// Output: <nil>
}

// A gradient that someone derived by hand.
func ExampleFunction() {
	x := []float64{1, 2, 3}
	product := func() float64 { return x[0] * x[1] * x[2] }
	gradient := []float64{6, 3, 2.001}
	err := gradcheck.Function(product, []gradcheck.Variable{{Name: "x", X: x, Gradient: gradient}}, gradcheck.Options{Seed: 2, Elements: -1})
	fmt.Println(err != nil)
	// Output: true
}

var _ gradcheck.Device = (*ops.Device)(nil)
