package nn_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// lossCase is a loss of testdata/losses.json, or a function of x alone, whose targets are not
// looked at.
type lossCase struct {
	loss      func(x, targets nn.Tensor) nn.Tensor
	scale     float64 // of x, 0 for 1
	unit      bool    // targets from 0 to 1
	noTargets bool
}

func lossCases() map[string]lossCase {
	huber := func(delta float64) func(x, targets nn.Tensor) nn.Tensor {
		return func(x, targets nn.Tensor) nn.Tensor { return x.Huber(targets, delta) }
	}
	binary := func(weights ...float64) func(x, targets nn.Tensor) nn.Tensor {
		return func(x, targets nn.Tensor) nn.Tensor {
			return x.BinaryCrossEntropy(targets, nn.BinaryCrossEntropyOptions{PositiveWeights: weights})
		}
	}
	along := func(axis int) func(x, targets nn.Tensor) nn.Tensor {
		return func(x, _ nn.Tensor) nn.Tensor { return x.LogSumExp(axis) }
	}
	return map[string]lossCase{
		"mse":                {loss: nn.Tensor.MSE},
		"l1":                 {loss: nn.Tensor.L1},
		"huber 0.5":          {loss: huber(0.5)},
		"huber 1":            {loss: huber(1)},
		"huber 3 of 100":     {loss: huber(3), scale: 100},
		"huber 1000":         {loss: huber(1000)},
		"bce":                {loss: binary(), unit: true},
		"bce of 10000":       {loss: binary(), scale: 10000, unit: true},
		"bce weight 3":       {loss: binary(3), scale: 4, unit: true},
		"bce weights":        {loss: binary(0.5, 1, 2, 3, 4), scale: 4, unit: true},
		"logsumexp 0":        {loss: along(0), noTargets: true},
		"logsumexp 1":        {loss: along(1), noTargets: true},
		"logsumexp -1":       {loss: along(-1), noTargets: true},
		"logsumexp -1 of 30": {loss: along(-1), scale: 30, noTargets: true},

		"softmax 1":    {loss: ofX(func(x nn.Tensor) nn.Tensor { return x.Softmax(1) }), noTargets: true},
		"max 1":        {loss: ofX(func(x nn.Tensor) nn.Tensor { return x.Max(1) }), noTargets: true},
		"max 0 2":      {loss: ofX(func(x nn.Tensor) nn.Tensor { return x.Max(0, 2) }), noTargets: true},
		"exp log sqrt": {loss: ofX(func(x nn.Tensor) nn.Tensor { return x.Exp().Add(1).Log().Sqrt() }), noTargets: true},
		"abs div":      {loss: ofX(func(x nn.Tensor) nn.Tensor { return x.Abs().Div(x.Add(2)) }), noTargets: true},
		"topk gather scatter": {loss: ofX(func(x nn.Tensor) nn.Tensor {
			values, ids := x.TopK(3)
			return values.Mul(x.Square().Gather(ids)).Scatter(ids, 7)
		}), noTargets: true},
	}
}

// ofX is a function of x alone.
func ofX(f func(x nn.Tensor) nn.Tensor) func(x, targets nn.Tensor) nn.Tensor {
	return func(x, _ nn.Tensor) nn.Tensor { return f(x) }
}

// inputs are the nodes of x and of the targets.
func (c lossCase) inputs(g *gorgonia.ExprGraph, dtype tensor.Dtype) gorgonia.Nodes {
	of := func(name string, at func(v float64) float64) *gorgonia.Node {
		v := dense(dtype, []int{3, 4, 5}, func(i int) float64 { return at(value(name, i)) })
		return gorgonia.NewTensor(g, dtype, 3, gorgonia.WithShape(3, 4, 5), gorgonia.WithName(name), gorgonia.WithValue(v))
	}
	x := of("x", func(v float64) float64 {
		if c.scale != 0 {
			v *= c.scale
		}
		return v
	})
	if c.noTargets {
		return gorgonia.Nodes{x}
	}
	return gorgonia.Nodes{x, of("targets", func(v float64) float64 {
		if c.unit {
			v = (1 + v) / 2
		}
		return v
	})}
}

func (c lossCase) of(nodes gorgonia.Nodes) nn.Tensor {
	if c.noTargets {
		return c.loss(on(nodes[0]), nn.Tensor{})
	}
	return c.loss(on(nodes[0]), on(nodes[1]))
}

// Losses and functions are PyTorch's, with their gradients, on both machines.
func TestLossesAsInPyTorch(t *testing.T) {
	data, err := os.ReadFile("testdata/losses.json")
	if err != nil {
		t.Fatal(err)
	}
	var goldens map[string]golden
	if err := json.Unmarshal(data, &goldens); err != nil {
		t.Fatal(err)
	}
	cases := lossCases()
	if len(goldens) != len(cases) {
		t.Fatalf("there are %d golden losses, want %d", len(goldens), len(cases))
	}
	for name, c := range cases {
		variants(t, name, func(t *testing.T, dtype tensor.Dtype, machine string) {
			g := gorgonia.NewGraph()
			nodes := c.inputs(g, dtype)
			y := c.of(nodes)
			loss := y
			if len(y.Shape()) > 0 {
				loss = y.Mul(on(input(g, dtype, "out", y.Shape()...))).Sum()
			}
			var out gorgonia.Value
			gorgonia.Read(must(y), &out)
			differentiate(t, machine, g, must(loss), nodes)
			compare(t, "the output", dtype, floats(t, out), goldens[name].Out, 0)
			compareGradients(t, dtype, nodes, goldens[name])
		})
	}
}

// Gradients are those of finite differences.
func TestLossGradients(t *testing.T) {
	slow.Race(t)
	for name, c := range lossCases() {
		if c.scale > 100 {
			continue // steps of finite differences are too coarse for what is flat or a kink
		}
		err := gradcheck.Graph(func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
			nodes := c.inputs(g, dtype)
			y := c.of(nodes)
			return y.Node(), nodes, y.Err()
		}, gradcheck.Options{Single: true, Contiguous: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lossOf computes a loss of two lists and its gradients.
func lossOf(t *testing.T, dtype tensor.Dtype, machine string, x, targets []float64, loss func(x, targets nn.Tensor) nn.Tensor) (y float64, dx, dTargets []float64) {
	t.Helper()
	s := nn.NewScope(gorgonia.NewGraph(), nil)
	of := func(name string, list []float64) nn.Tensor {
		return s.Constant(name, dense(dtype, []int{len(list)}, func(i int) float64 { return list[i] }))
	}
	a, b := of("x", x), of("targets", targets)
	out := must(loss(a, b))
	differentiate(t, machine, s.Graph(), out, gorgonia.Nodes{a.Node(), b.Node()})
	var gradients [2][]float64
	for i, n := range []*gorgonia.Node{a.Node(), b.Node()} {
		v, err := n.Grad()
		if err != nil {
			t.Fatal(err)
		}
		gradients[i] = floats(t, v)
	}
	return floats(t, out.Value())[0], gradients[0], gradients[1]
}

// Large, small and equal numbers have losses and gradients of their definitions.
func TestLossesOfExtremes(t *testing.T) {
	huber := func(x, targets nn.Tensor) nn.Tensor { return x.Huber(targets, 1) }
	for _, c := range []struct {
		name           string
		loss           func(x, targets nn.Tensor) nn.Tensor
		x, targets     float64
		want, gradient float64
	}{
		{"l1", nn.Tensor.L1, 3, 3, 0, 0},
		{"mse", nn.Tensor.MSE, 3, 3, 0, 0},
		{"huber", huber, 3, 3, 0, 0},
		{"huber", huber, 1e-6, 0, 0.5e-12, 1e-6},
		{"huber", huber, 1, 0, 0.5, 1},
		{"huber", huber, -1e8, 0, 1e8 - 0.5, -1},
		{"huber", huber, 1e30, 0, 1e30, 1},
		{"bce", func(x, targets nn.Tensor) nn.Tensor { return x.BinaryCrossEntropy(targets) }, 1e4, 1, 0, 0},
		{"bce", func(x, targets nn.Tensor) nn.Tensor { return x.BinaryCrossEntropy(targets) }, 1e4, 0, 1e4, 1},
		{"bce", func(x, targets nn.Tensor) nn.Tensor { return x.BinaryCrossEntropy(targets) }, -1e4, 1, 1e4, -1},
		{"bce", func(x, targets nn.Tensor) nn.Tensor { return x.BinaryCrossEntropy(targets) }, -1e4, 0, 0, 0},
		{"bce", func(x, targets nn.Tensor) nn.Tensor { return x.BinaryCrossEntropy(targets) }, 0, 1, math.Ln2, -0.5},
	} {
		variants(t, c.name, func(t *testing.T, dtype tensor.Dtype, machine string) {
			y, dx, _ := lossOf(t, dtype, machine, []float64{c.x}, []float64{c.targets}, c.loss)
			near := func(what string, have, want float64) {
				if !(math.Abs(have-want) <= 4e-7*math.Abs(want)) {
					t.Errorf("x %v, target %v: the %s is %v, want %v", c.x, c.targets, what, have, want)
				}
			}
			near("loss", y, c.want)
			near("gradient", dx[0], c.gradient)
		})
	}
}

// A row of −∞ has a logsumexp of −∞ and gradients of 0, beside rows that have others.
func TestLogSumExpOfNothing(t *testing.T) {
	none := math.Inf(-1)
	values := []float64{none, none, none, none, 2, none, -1e4, 0, 1e4}
	want := []float64{none, 2, 1e4}
	gradient := []float64{0, 0, 0, 0, 1, 0, 0, 0, 1}
	for _, axis := range []int{0, 1} {
		variants(t, "", func(t *testing.T, dtype tensor.Dtype, machine string) {
			s := nn.NewScope(gorgonia.NewGraph(), nil)
			place := func(i int) int {
				if axis == 0 {
					return i%3*3 + i/3
				}
				return i
			}
			x := s.Constant("x", dense(dtype, []int{3, 3}, func(i int) float64 { return values[place(i)] }))
			y := x.LogSumExp(axis)
			var out gorgonia.Value
			gorgonia.Read(must(y), &out)
			differentiate(t, machine, s.Graph(), must(y.Sum()), gorgonia.Nodes{x.Node()})
			for i, have := range floats(t, out) {
				if have != want[i] {
					t.Errorf("axis %d: element %d is %v, want %v", axis, i, have, want[i])
				}
			}
			d, err := x.Node().Grad()
			if err != nil {
				t.Fatal(err)
			}
			for i, have := range floats(t, d) {
				if have != gradient[place(i)] {
					t.Errorf("axis %d: the gradient of element %d is %v, want %v", axis, i, have, gradient[place(i)])
				}
			}
		})
	}
}

// The loss of a vector is a scalar, and values of 16 bits are compared, and summed, in float32.
func TestLossesOfHalves(t *testing.T) {
	for name, loss := range map[string]func(x, y nn.Tensor) nn.Tensor{
		"mse":       nn.Tensor.MSE,
		"l1":        nn.Tensor.L1,
		"huber":     func(x, y nn.Tensor) nn.Tensor { return x.Huber(y, 0.25) },
		"bce":       func(x, y nn.Tensor) nn.Tensor { return x.BinaryCrossEntropy(y) },
		"logsumexp": func(x, _ nn.Tensor) nn.Tensor { return x.LogSumExp(0) },
	} {
		s := nn.NewScope(gorgonia.NewGraph(), nil)
		x := s.Constant("x", data.Floats([]float32{0.5, -0.75, 0.375}, 3))
		y := s.Constant("y", data.Floats([]float32{0.25, 1, 0.125}, 3))
		want := loss(x, y)
		for _, d := range []tensor.Dtype{ops.BFloat16, ops.Float16} {
			half := loss(x.Cast(d), y)
			if half.DType() != tensor.Float32 || len(half.Shape()) > 0 {
				t.Errorf("%s of %v is %v of shape %v, want a float32 scalar", name, d, half.DType(), half.Shape())
			}
			var difference gorgonia.Value
			gorgonia.Read(must(half.Sub(want)), &difference)
			evaluate(t, s.Graph())
			if have := floats(t, difference)[0]; have != 0 {
				t.Errorf("%s of %v differs by %v from float32's", name, d, have)
			}
		}
	}
}

func TestLossErrors(t *testing.T) {
	array := func(s *nn.Scope, name string, shape ...int) nn.Tensor {
		return s.Constant(name, dense(tensor.Float32, shape, func(int) float64 { return 0 }))
	}
	for want, model := range map[string]func(s *nn.Scope){
		"MSE: x has shape [3 1] and targets [3], they need to be of one shape with at least one axis": func(s *nn.Scope) {
			array(s, "x", 3, 1).MSE(array(s, "y", 3))
		},
		"L1: x has shape [] and targets [], they need to be of one shape with at least one axis": func(s *nn.Scope) {
			x := array(s, "x", 3).Sum()
			x.L1(x)
		},
		"L1: targets is a zero Tensor, it needs to be one of the model's": func(s *nn.Scope) { array(s, "x", 3).L1(nn.Tensor{}) },
		"MSE: targets belongs to another graph than x": func(s *nn.Scope) {
			array(s, "x", 3).MSE(array(nn.NewScope(gorgonia.NewGraph(), nil), "y", 3))
		},
		"MSE: x is float32 and targets float64, they need one type: Cast makes it": func(s *nn.Scope) {
			x := array(s, "x", 3)
			x.MSE(x.Cast(tensor.Float64))
		},
		"BinaryCrossEntropy: targets is int, it needs to be of floats": func(s *nn.Scope) {
			array(s, "x", 3).BinaryCrossEntropy(s.Constant("y", dense(tensor.Int, []int{3}, func(int) float64 { return 0 })))
		},
		"BinaryCrossEntropy: positive weights are 2, they need to be 1, or 3 as x's last axis": func(s *nn.Scope) {
			x := array(s, "x", 3)
			x.BinaryCrossEntropy(x, nn.BinaryCrossEntropyOptions{PositiveWeights: []float64{1, 2}})
		},
		"BinaryCrossEntropy: positive weight 1 is -1, it needs to be finite and not negative": func(s *nn.Scope) {
			x := array(s, "x", 3)
			x.BinaryCrossEntropy(x, nn.BinaryCrossEntropyOptions{PositiveWeights: []float64{1, -1, 1}})
		},
		"Huber: delta is 0, it needs to be positive and finite":   func(s *nn.Scope) { x := array(s, "x", 3); x.Huber(x, 0) },
		"Huber: delta is NaN, it needs to be positive and finite": func(s *nn.Scope) { x := array(s, "x", 3); x.Huber(x, math.NaN()) },
		"LogSumExp: axis is 2, it needs to be one of shape [3 4]": func(s *nn.Scope) { array(s, "x", 3, 4).LogSumExp(2) },
		"LogSumExp: x is int, it needs to be of floats": func(s *nn.Scope) {
			s.Constant("y", dense(tensor.Int, []int{3}, func(int) float64 { return 0 })).LogSumExp(0)
		},
	} {
		checkScope(t, want, model)
	}
}
