package ops_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file has small graphs of what package graphtest found in graphs that were drawn.

// leaf is an input with some values.
func leaf(g *gorgonia.ExprGraph, name string, shape ...int) *gorgonia.Node {
	x := make([]float64, tensor.Shape(shape).TotalSize())
	for i := range x {
		x[i] = float64((i*5+len(name))%7)/4 - 0.6
	}
	if len(x) == 0 {
		return gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(shape...))))
	}
	return input(g, name, dense(tensor.Float64, x, shape...))
}

// gradientsIn runs a graph twice and gives its gradients. shared says that memory is reused.
func gradientsIn(t *testing.T, shared bool, build func(g *gorgonia.ExprGraph) (cost *gorgonia.Node, wrt gorgonia.Nodes)) (list [][]float64) {
	t.Helper()
	g := gorgonia.NewGraph()
	if shared {
		ops.ReuseMemory(g)
	}
	cost, wrt := build(g)
	if _, err := gorgonia.Grad(cost, wrt...); err != nil {
		t.Fatal(err)
	}
	m, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for range 2 {
		run(t, m)
	}
	for _, n := range wrt {
		d, err := n.Grad()
		switch {
		case err != nil:
			t.Fatal(err)
		case slices.Contains(n.Shape(), 0):
			list = append(list, nil)
		default:
			list = append(list, slices.Clone(d.Data().([]float64)))
		}
	}
	return list
}

// The gradient of a parameter that is added to something is that of the sum, which other gradients
// are computed from too. Shared memory keeps it until the next run.
func TestGradientOfTermIsKept(t *testing.T) {
	for name, sum := range map[string]func(h, position *gorgonia.Node) (*gorgonia.Node, error){
		"Add": ops.Add,
		"AddLayerNorm": func(h, position *gorgonia.Node) (*gorgonia.Node, error) {
			_, y, err := ops.AddLayerNorm(h, position, nil, nil, ops.NormOptions{})
			return y, err
		},
	} {
		model := func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
			x, w, position, out := leaf(g, "x", 2, 4), leaf(g, "w", 4, 3), leaf(g, "position", 2, 3), leaf(g, "out", 3, 3)
			h := gorgonia.Must(ops.Linear(x, w, nil, ops.LinearOptions{}))
			for range 3 {
				h = gorgonia.Must(ops.SiLU(h))
			}
			h = gorgonia.Must(ops.Linear(gorgonia.Must(sum(h, position)), out, nil, ops.LinearOptions{}))
			return gorgonia.Must(ops.Sum(gorgonia.Must(ops.SiLU(h)))), gorgonia.Nodes{w, position, out}
		}
		if want, got := gradientsIn(t, false, model), gradientsIn(t, true, model); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the gradients in shared memory are %v, they need to be %v", name, got, want)
		}
	}
}

// A gradient that Gorgonia adds to another, in place, is that of a reshaped parameter too.
func TestReshapeBesideSum(t *testing.T) {
	got := gradientsIn(t, false, func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
		x, y := leaf(g, "x", 1, 1), leaf(g, "y", 1)
		s := nn.NewScope(g, nil).DType(tensor.Float64)
		a := s.Tensor(x, nil)
		cost := a.Permute(1, 0).Mul(5).Sum().Add(a.Add(s.Tensor(y, nil)).Mul(s.Constant("two", dense(tensor.Float64, []float64{2}, 1, 1))).Sum())
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		return cost.Node(), gorgonia.Nodes{x, y}
	})
	if want := [][]float64{{7}, {2}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the gradients are %v, they need to be %v", got, want)
	}
}

// The gradients of a scalar that several ops read are added by Gorgonia.
func TestScalarIsUsedTwice(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(x *gorgonia.Node) (*gorgonia.Node, error)
		want float64
	}{
		"x + x/2": {func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(x, gorgonia.Must(ops.Scale(x, 0.5))) }, 1.5},
		"x·x":     {func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Mul(x, x) }, 2 * 3},
		"2x/x":    {func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Div(gorgonia.Must(ops.Scale(x, 2)), x) }, 0},
	} {
		got := gradientsIn(t, false, func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
			x := input(g, "x", dense(tensor.Float64, []float64{1, 2}, 2))
			return gorgonia.Must(c.of(gorgonia.Must(ops.Sum(x)))), gorgonia.Nodes{x}
		})
		if math.Abs(got[0][0]-c.want) > 1e-12 {
			t.Errorf("%s: the gradient is %v, it needs to be %v", name, got, c.want)
		}
	}
}

// A lispMachine adds up gradients where a node is read both reshaped and not. It takes a graph with
// something detached, and one that uses only the statistics of a norm.
func TestLispMachineAddsUp(t *testing.T) {
	for name, build := range map[string]func(s *nn.Scope, x nn.Tensor) nn.Tensor{
		"Reshape": func(_ *nn.Scope, x nn.Tensor) nn.Tensor {
			return x.Reshape(6).SoftCap(1).Sum().Add(x.Mul(x).Sum())
		},
		"Detach": func(_ *nn.Scope, x nn.Tensor) nn.Tensor { return x.Mul(x.Detach()).Sum() },
		"statistics": func(s *nn.Scope, x nn.Tensor) nn.Tensor {
			_, mean, _, err := ops.LayerNormStatistics(x.Node(), nil, nil, ops.NormOptions{})
			return s.Tensor(mean, err).Mul(x.Sum(1)).Sum()
		},
	} {
		model := func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
			s := nn.NewScope(g, nil).DType(tensor.Float64)
			x := leaf(g, "x", 2, 3)
			cost := build(s, s.Tensor(x, nil))
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			return cost.Node(), gorgonia.Nodes{x}
		}
		want := gradientsIn(t, false, model)[0]
		g := gorgonia.NewGraph()
		cost, wrt := model(g)
		if len(g.Roots()) > 1 {
			g = g.SubgraphRoots(cost)
		}
		m := gorgonia.NewLispMachine(g)
		if err := m.RunAll(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		d, err := wrt[0].Grad()
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range d.Data().([]float64) {
			if math.Abs(got-want[i]) > 1e-12 {
				t.Errorf("%s: the gradient of a lispMachine is %v, it needs to be %v", name, d, want)
				break
			}
		}
	}
}

// Gradients that depend on inputs through what the forward run left alone, and have no gradient: to
// differentiate them is an error, and not 0.
func TestSecondDerivativesAreNotLeftOut(t *testing.T) {
	for name, build := range map[string]func(g *gorgonia.ExprGraph, x *gorgonia.Node) (*gorgonia.Node, error){
		"LinearCrossEntropy": func(g *gorgonia.ExprGraph, x *gorgonia.Node) (*gorgonia.Node, error) {
			targets := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(2), gorgonia.WithName("targets"),
				gorgonia.WithValue(tensor.New(tensor.WithShape(2), tensor.WithBacking([]int{0, 1}))))
			return ops.LinearCrossEntropy(x, leaf(g, "w", 4, 3), targets, ops.LinearCrossEntropyOptions{})
		},
		"LayerNormOfSum": func(g *gorgonia.ExprGraph, x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.LayerNormOfSum(x, leaf(g, "other", 2, 3), nil, nil, ops.NormOptions{})
		},
		"AddRMSNorm": func(g *gorgonia.ExprGraph, x *gorgonia.Node) (*gorgonia.Node, error) {
			_, y, err := ops.AddRMSNorm(x, leaf(g, "other", 2, 3), nil, ops.NormOptions{})
			return y, err
		},
		"MLP": func(g *gorgonia.ExprGraph, x *gorgonia.Node) (*gorgonia.Node, error) {
			bias := gorgonia.Must(ops.Reshape(x, 6))
			return ops.MLP(leaf(g, "rows", 2, 4), leaf(g, "in", 4, 6), bias, leaf(g, "out", 6, 2), nil, ops.MLPOptions{Activation: kernels.SiLU})
		},
	} {
		g := gorgonia.NewGraph()
		x := leaf(g, "x", 2, 3)
		y, err := build(g, x)
		if err != nil {
			t.Fatal(err)
		}
		if !y.IsScalar() {
			y = gorgonia.Must(ops.Sum(y))
		}
		d, err := ops.Gradients(y, x)
		if err != nil {
			t.Fatal(err)
		}
		cost := gorgonia.Must(ops.Add(gorgonia.Must(ops.Sum(d[0])), gorgonia.Must(ops.Sum(x))))
		if _, err := gorgonia.Grad(cost, x); err == nil || !strings.Contains(err.Error(), name+": its gradient has no gradient") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// What the statistics of a norm were computed from gets no gradient through them, in a region that
// is computed again too.
func TestRecomputeOfStatistics(t *testing.T) {
	gradient := func(again bool) []float64 {
		return gradientsIn(t, true, func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
			gamma := leaf(g, "gamma", 2)
			_, mean, _, err := ops.LayerNormStatistics(leaf(g, "x", 2, 3), nil, nil, ops.NormOptions{})
			if err != nil {
				t.Fatal(err)
			}
			y := gorgonia.Must(ops.Mul(gorgonia.Must(ops.SiLU(mean)), gamma))
			if again {
				y = gorgonia.Must(ops.Recompute(y))
			}
			return gorgonia.Must(ops.Sum(y)), gorgonia.Nodes{gamma}
		})[0]
	}
	if want, got := gradient(false), gradient(true); !slices.Equal(got, want) {
		t.Errorf("the gradient is %v, it needs to be %v", got, want)
	}
}

// A batch of no matrices times one matrix is no matrices, and inputs without elements may be used
// twice, in any run.
func TestEmptyBatches(t *testing.T) {
	gradientsIn(t, true, func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
		x := leaf(g, "x", 0, 2, 4)
		y := gorgonia.Must(ops.MatMul(x, leaf(g, "w", 4, 1), ops.MatMulOptions{}))
		if want := []int{0, 2, 1}; !slices.Equal(y.Shape(), want) {
			t.Fatalf("the product has shape %v, it needs %v", y.Shape(), want)
		}
		square := gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(x, x))))
		return gorgonia.Must(ops.Add(gorgonia.Must(ops.Sum(y)), square)), gorgonia.Nodes{x}
	})
	for _, shared := range []bool{false, true} {
		got := gradientsIn(t, shared, func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
			a, b := leaf(g, "a", 2, 3), leaf(g, "b", 0, 3, 4)
			kept := gorgonia.Must(ops.Sum(gorgonia.Must(ops.SiLU(gorgonia.Must(ops.Scale(a, 2))))))
			product := gorgonia.Must(ops.Sum(gorgonia.Must(ops.MatMul(gorgonia.Must(ops.Scale(a, 3)), b, ops.MatMulOptions{}))))
			return gorgonia.Must(ops.Add(gorgonia.Must(ops.Scale(kept, 0)), product)), gorgonia.Nodes{a}
		})
		if want := make([]float64, 6); !slices.Equal(got[0], want) {
			t.Errorf("the gradient of a product with an empty batch is %v, it needs to be %v", got[0], want)
		}
	}
}

// A region may be told twice what it begins with.
func TestRecomputeFromTwice(t *testing.T) {
	got := gradientsIn(t, true, func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
		x := leaf(g, "x", 2, 3)
		h := gorgonia.Must(ops.Scale(x, 3))
		y := gorgonia.Must(ops.Recompute(gorgonia.Must(ops.Scale(h, 2)), h, h))
		return gorgonia.Must(ops.Sum(y)), gorgonia.Nodes{x}
	})
	if want := [][]float64{{6, 6, 6, 6, 6, 6}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the gradient is %v, it needs to be %v", got, want)
	}
}

// The gradient of the bias of a layer whose result a norm adds to itself.
func TestBiasBeforeNormOfItselfTwice(t *testing.T) {
	gradient := func(sum func(h *gorgonia.Node) (*gorgonia.Node, error)) []float64 {
		return gradientsIn(t, false, func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
			bias := leaf(g, "bias", 3)
			h := gorgonia.Must(ops.Linear(leaf(g, "x", 2, 4), leaf(g, "w", 4, 3), bias, ops.LinearOptions{}))
			return gorgonia.Must(ops.Sum(gorgonia.Must(ops.SiLU(gorgonia.Must(sum(h)))))), gorgonia.Nodes{bias}
		})[0]
	}
	got := gradient(func(h *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.LayerNormOfSum(h, h, nil, nil, ops.NormOptions{})
	})
	want := gradient(func(h *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.LayerNorm(gorgonia.Must(ops.Add(h, h)), nil, nil, ops.NormOptions{})
	})
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-9 {
			t.Fatalf("the gradient is %v, it needs to be %v", got, want)
		}
	}
}

// The gradient of |x| can be differentiated where x is a scalar too.
func TestSecondDerivativesOfScalars(t *testing.T) {
	got := gradientsIn(t, false, func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
		x := leaf(g, "x", 2)
		sum := gorgonia.Must(ops.Sum(x))
		d, err := ops.Gradients(gorgonia.Must(ops.Mul(gorgonia.Must(ops.Abs(sum)), sum)), sum)
		if err != nil {
			t.Fatal(err)
		}
		return d[0], gorgonia.Nodes{x}
	})
	if math.Abs(math.Abs(got[0][0])-2) > 1e-12 {
		t.Errorf("the second derivative of x·|x| is %v", got)
	}
}

// A value that is a view may be reshaped: a part of rows, and of a single row.
func TestReshapeOfViews(t *testing.T) {
	for _, rows := range []int{1, 2} {
		g := gorgonia.NewGraph()
		whole := dense(tensor.Float64, []float64{1, 2, 3, 4, 5, 6, 7, 8}[:rows*4], 1, rows, 4)
		part, err := whole.Slice(nil, nil, gorgonia.S(1, 3))
		if err != nil {
			t.Fatal(err)
		}
		x := gorgonia.NewTensor(g, tensor.Float64, 3, gorgonia.WithShape(1, rows, 2), gorgonia.WithName("x"))
		if err := gorgonia.Let(x, part); err != nil {
			t.Fatal(err)
		}
		y := gorgonia.Must(ops.Reshape(x, 2*rows, 1))
		run(t, gorgonia.NewTapeMachine(g))
		if want := []float64{2, 3, 6, 7}[:2*rows]; !slices.Equal(y.Value().Data().([]float64), want) {
			t.Errorf("%d rows: the value is %v, it needs to be %v", rows, y.Value().Data(), want)
		}
	}
}

// A region has ops whose gradients nobody wants: those of inputs that are not trained.
func TestRecomputeOfConstants(t *testing.T) {
	gradient := func(again bool) []float64 {
		return gradientsIn(t, true, func(g *gorgonia.ExprGraph) (*gorgonia.Node, gorgonia.Nodes) {
			x := leaf(g, "x", 3, 4)
			quotient := gorgonia.Must(ops.Div(leaf(g, "a", 3, 4), leaf(g, "b", 3, 4)))
			y := gorgonia.Must(ops.Mul(quotient, gorgonia.Must(ops.SiLU(x))))
			if again {
				y = gorgonia.Must(ops.Recompute(y))
			}
			return gorgonia.Must(ops.Sum(y)), gorgonia.Nodes{x}
		})[0]
	}
	if want, got := gradient(false), gradient(true); !slices.Equal(got, want) {
		t.Errorf("the gradient is %v, it needs to be %v", got, want)
	}
}
