package gradcheck_test

import (
	"errors"
	"fmt"
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

// smooth is a function of two variables, with its gradient.
type smooth struct {
	f        func(x, y []float64) float64
	gradient func(x, y []float64) (dx, dy []float64)
}

var functions = map[string]smooth{
	"a product": {func(x, y []float64) float64 { return x[0] * y[0] * y[1] }, func(x, y []float64) (dx, dy []float64) {
		return []float64{y[0] * y[1], 0}, []float64{x[0] * y[1], x[0] * y[0]}
	}},
	"an exponential": {func(x, y []float64) float64 { return math.Exp(3*x[0] - y[1]) }, func(x, y []float64) (dx, dy []float64) {
		e := math.Exp(3*x[0] - y[1])
		return []float64{3 * e, 0}, []float64{0, -e}
	}},
	"a sum that cancels": {func(x, y []float64) float64 { return 1e6 + x[0]*y[0] - 1e6 + math.Sin(x[1]) }, func(x, y []float64) (dx, dy []float64) {
		return []float64{y[0], math.Cos(x[1])}, []float64{x[0], 0}
	}},
	"an edge nearby": {func(x, y []float64) float64 { return math.Abs(x[0]-0.3001) + y[0] }, func(x, y []float64) (dx, dy []float64) {
		return []float64{math.Copysign(1, x[0]-0.3001), 0}, []float64{1, 0}
	}},
	"large numbers": {func(x, y []float64) float64 { return 1e9 * x[0] * x[0] * y[1] }, func(x, y []float64) (dx, dy []float64) {
		return []float64{2e9 * x[0] * y[1], 0}, []float64{0, 1e9 * x[0] * x[0]}
	}},
}

// A right gradient passes. One that is wrong by ten times what is allowed does not, and the error
// says where.
func TestFunction(t *testing.T) {
	for name, c := range functions {
		x, y := []float64{0.3, -1.7}, []float64{2.1, 0.4}
		check := func(change func(dx, dy []float64), o gradcheck.Options) error {
			dx, dy := c.gradient(x, y)
			change(dx, dy)
			return gradcheck.Function(func() float64 { return c.f(x, y) }, []gradcheck.Variable{
				{Name: "x", Shape: []int{1, 2}, X: x, Gradient: dx}, {Name: "y", X: y, Gradient: dy}}, o)
		}
		for seed := range uint64(10) {
			if err := check(func(_, _ []float64) {}, gradcheck.Options{Seed: seed}); err != nil {
				t.Errorf("%s, seed %d: %v", name, seed, err)
			}
		}
		for i, want := range []string{"the gradient of x[0 0]", "the gradient of x[0 1]", "the gradient of y[0]", "the gradient of y[1]"} {
			wrong := func(by float64) func(dx, dy []float64) {
				return func(dx, dy []float64) { [][]float64{dx, dy}[i/2][i%2] += by }
			}
			var m *gradcheck.Mismatch
			dx, dy := c.gradient(x, y)
			if err := check(wrong(1+math.Abs([][]float64{dx, dy}[i/2][i%2])), gradcheck.Options{}); !errors.As(err, &m) {
				t.Fatalf("%s: no mismatch: %v", name, err)
			}
			by := 10 * m.Allowed
			if bound := 1e-5*(1+math.Abs(m.Slope)) + 1e-11*math.Abs(c.f(x, y)); !(m.Allowed <= bound) {
				t.Errorf("%s: %s may be off by %.3g, that is more than %.3g", name, want, m.Allowed, bound)
			}
			if err := check(wrong(by), gradcheck.Options{Directions: -1}); err == nil || !strings.Contains(err.Error(), want+" is ") {
				t.Errorf("%s: a gradient that is off by %.3g: %v, want %s", name, by, err, want)
			}
			if err := check(wrong(by*1e3), gradcheck.Options{Elements: -1, Directions: -1}); err == nil {
				t.Errorf("%s: all elements miss what some find", name)
			}
		}
		if fmt.Sprint(x, y) != "[0.3 -1.7] [2.1 0.4]" {
			t.Errorf("%s: the variables became %v and %v", name, x, y)
		}
	}
}

// A direction finds what is wrong in an element that was not drawn.
func TestDirections(t *testing.T) {
	x, gradient := make([]float64, 1000), make([]float64, 1000)
	for i := range x {
		x[i] = math.Sin(float64(i))
		gradient[i] = 2 * x[i]
	}
	sum := func() (s float64) {
		for _, v := range x {
			s += v * v
		}
		return s
	}
	variables := []gradcheck.Variable{{Name: "x", X: x, Gradient: gradient}}
	if err := gradcheck.Function(sum, variables, gradcheck.Options{Elements: 1}); err != nil {
		t.Error(err)
	}
	gradient[777] += 1e-3
	err := gradcheck.Function(sum, variables, gradcheck.Options{Elements: 1})
	if err == nil || !strings.Contains(err.Error(), "along random direction 0") {
		t.Errorf("the error is %v", err)
	}
}

func TestFunctionErrors(t *testing.T) {
	x := []float64{0}
	for want, f := range map[string]func() float64{
		"x[0]: the function is not smooth enough": func() float64 { return math.Sqrt(max(x[0], 0)) },
		"x[0]: the function is NaN":               func() float64 { return math.Sqrt(x[0]) },
	} {
		err := gradcheck.Function(f, []gradcheck.Variable{{Name: "x", X: x, Gradient: []float64{0.5}}}, gradcheck.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	for want, gradient := range map[string][]float64{
		"the gradient of x has 2 elements, it needs 1": {1, 2},
		"the gradient of x[0] is NaN":                  {math.NaN()},
	} {
		err := gradcheck.Function(func() float64 { return x[0] }, []gradcheck.Variable{{Name: "x", X: x, Gradient: gradient}}, gradcheck.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

// input adds an input of waves to a graph.
func input(g *gorgonia.ExprGraph, dtype tensor.Dtype, name string, shape ...int) *gorgonia.Node {
	data := make([]float64, tensor.Shape(shape).TotalSize())
	for i := range data {
		data[i] = math.Sin(float64(3*i+len(name))) + 0.01
	}
	v := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data), tensor.WithEngine(ops.Engine()))
	if dtype != tensor.Float64 {
		var err error
		if v, err = ops.Converted(v, dtype); err != nil {
			panic(err)
		}
	}
	return gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(v))
}

// elsewhere is a device that is the host.
type elsewhere struct{}

func (elsewhere) String() string { return "elsewhere" }
func (elsewhere) Upload(t *tensor.Dense) (*tensor.Dense, error) {
	return t.Clone().(*tensor.Dense), nil
}

// graphs are an op, a score, a whole model and a scalar, with what a check of each leaves out.
var graphs = map[string]struct {
	build gradcheck.Build
	o     gradcheck.Options
}{
	"an op": {func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
		x, w := input(g, dtype, "x", 3, 5), input(g, dtype, "w", 5, 2)
		y, err := ops.Linear(x, w, nil, ops.LinearOptions{Activation: kernels.GELUErf})
		return y, gorgonia.Nodes{x, w}, err
	}, gradcheck.Options{}},
	"a score": {func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
		q, bias := input(g, dtype, "q", 1, 2, 5, 3), input(g, dtype, "bias", 5)
		y, err := ops.FlashAttention(q, q, q, ops.AttentionOptions{Score: func(p ops.Pair) ops.Expr {
			return p.Score.Mul(p.Score).Add(ops.Lookup(bias, p.Key))
		}})
		return y, gorgonia.Nodes{q, bias}, err
	}, gradcheck.Options{Contiguous: true}},
	"a model": {func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
		s := nn.NewScope(g, nn.NewParameters(1)).DType(dtype)
		x := s.Tensor(input(g, dtype, "x", 2, 3, 8), nil)
		y := s.Stack("blocks", x, 1, nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Heads: 2}})
		return y.Node(), s.Trainable(), s.Err()
	}, gradcheck.Options{Elements: 3}},
	"a loss": {func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
		x := input(g, dtype, "x", 3, 4)
		y, err := ops.Mean(x)
		return y, gorgonia.Nodes{x}, err
	}, gradcheck.Options{}},
}

// All ways to their gradients agree.
func TestGraph(t *testing.T) {
	for name, c := range graphs {
		if !c.o.Contiguous {
			c.o.Single, c.o.Device = true, elsewhere{}
		}
		if err := gradcheck.Graph(c.build, c.o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A graph that is not the same each time has gradients of another function: each way of computing
// them notices, however little it is.
func TestGraphNotices(t *testing.T) {
	for which, want := range []string{
		"lispMachine: the gradient of x[", "lispMachine", "a second run", "inputs that are views", "float32", "elsewhere", "tapeMachine",
	} {
		built := 0
		err := gradcheck.Graph(func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
			x := input(g, dtype, "x", 3, 4)
			factor := 2.0
			if built == which {
				factor = map[bool]float64{true: 2 + 1e-9, false: 2.1}[dtype == tensor.Float64]
			}
			built++
			y, err := ops.Scale(x, factor)
			return y, gorgonia.Nodes{x}, err
		}, gradcheck.Options{Single: true, Device: elsewhere{}, Tolerance: 0.5})
		var m *gradcheck.Mismatch
		if !errors.As(err, &m) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("build %d is another function: %v, want an error of %s", which, err, want)
		}
	}
}

func TestGraphErrors(t *testing.T) {
	fault := errors.New("a fault")
	if err := gradcheck.Graph(func(*gorgonia.ExprGraph, tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
		return nil, nil, fault
	}, gradcheck.Options{}); !errors.Is(err, fault) {
		t.Errorf("the error is %v", err)
	}
	if err := gradcheck.Graph(func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
		return input(g, dtype, "x", 2), nil, nil
	}, gradcheck.Options{}); err == nil || !strings.Contains(err.Error(), "it needs a result and at least one input") {
		t.Errorf("the error is %v", err)
	}
}

// Second derivatives are checked too, and what has none says so.
func TestSecond(t *testing.T) {
	build := func(layer func(s *nn.Scope, x nn.Tensor) nn.Tensor) error {
		return gradcheck.Graph(func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
			s := nn.NewScope(g, nn.NewParameters(1)).DType(dtype)
			y := layer(s, s.Parameter("x", nn.Normal(1), 2, 3))
			return y.Node(), s.Trainable(), s.Err()
		}, gradcheck.Options{Second: true, Elements: 5})
	}
	if err := build(func(s *nn.Scope, x nn.Tensor) nn.Tensor { return s.Linear("layer", x, 2).Sigmoid() }); err != nil {
		t.Error(err)
	}
	err := build(func(s *nn.Scope, x nn.Tensor) nn.Tensor {
		return x.CrossEntropy(s.Constant("targets", tensor.New(tensor.WithBacking([]int{0, 2}))))
	})
	if err == nil || !strings.Contains(err.Error(), "SoftmaxCrossEntropy: its gradient has no gradient") {
		t.Errorf("the error is %v", err)
	}
}
