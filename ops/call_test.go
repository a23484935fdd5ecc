package ops_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// opCase is one use of an op with one output, beside what the reference says about it. The values
// of its inputs follow from the seed.
type opCase struct {
	options string
	in      []opInput
	apply   func(in []*gorgonia.Node) (*gorgonia.Node, error)
	// want gives the output, and the gradients of the inputs for the gradient dOut: nil for one
	// without.
	want func(in []kernels.Tensor, dOut []float64) (out []float64, d [][]float64)
	seed uint64
}

// opInput is an input: floats of a shape, or integers.
type opInput struct {
	name  string
	shape []int
	ids   []int
}

func floats(name string, shape ...int) opInput { return opInput{name: name, shape: shape} }

// ids are integers from 0 to limit−1.
func ids(name string, limit int, shape ...int) opInput {
	in := opInput{name: name, shape: shape}
	r := rand.New(rand.NewPCG(uint64(limit), 7))
	for range elements(shape) {
		in.ids = append(in.ids, r.IntN(limit))
	}
	return in
}

func (c opCase) String() string {
	var inputs []string
	for _, in := range c.in {
		inputs = append(inputs, fmt.Sprint(in.name, in.shape))
	}
	return fmt.Sprintf("%s of %s, seed %d", c.options, strings.Join(inputs, " "), c.seed)
}

// values are the inputs' for the reference.
func (c opCase) values() []kernels.Tensor {
	r := rand.New(rand.NewPCG(c.seed, 2))
	var list []kernels.Tensor
	for _, in := range c.in {
		if in.ids != nil {
			list = append(list, kernels.Of(int64s(in.ids), in.shape...))
		} else {
			list = append(list, kernels.Of(normal(r, elements(in.shape)), in.shape...))
		}
	}
	return list
}

func int64s(list []int) []int64 {
	wide := make([]int64, len(list))
	for i, x := range list {
		wide[i] = int64(x)
	}
	return wide
}

// dOut is the gradient of the output.
func (c opCase) dOut(shape tensor.Shape) []float64 {
	return normal(rand.New(rand.NewPCG(c.seed, 3)), shape.TotalSize())
}

// opGraph is a case as a graph.
type opGraph struct {
	g         *gorgonia.ExprGraph
	in        gorgonia.Nodes
	out, loss *gorgonia.Node
}

// floats are the inputs that have gradients.
func (a *opGraph) floats() gorgonia.Nodes {
	var list gorgonia.Nodes
	for _, n := range a.in {
		if d := n.Dtype(); d == tensor.Float32 || d == tensor.Float64 {
			list = append(list, n)
		}
	}
	return list
}

// build makes the graph of Σ out·dOut.
func (c opCase) build(t testing.TB, dtype tensor.Dtype) *opGraph {
	t.Helper()
	a := c.buildIn(t, gorgonia.NewGraph(), dtype)
	dOut := c.dOut(a.out.Shape())
	if a.out.IsScalar() {
		factor := gorgonia.NewConstant(dOut[0])
		if dtype == tensor.Float32 {
			factor = gorgonia.NewConstant(float32(dOut[0]))
		}
		a.loss = gorgonia.Must(gorgonia.Mul(a.out, factor))
	} else {
		weights := input(a.g, "weights", dense(dtype, dOut, a.out.Shape()...))
		a.loss = gorgonia.Must(ops.Sum(gorgonia.Must(gorgonia.HadamardProd(a.out, weights))))
	}
	return a
}

// buildIn adds inputs and output to a graph.
func (c opCase) buildIn(t testing.TB, g *gorgonia.ExprGraph, dtype tensor.Dtype) *opGraph {
	t.Helper()
	a := &opGraph{g: g}
	ops.ModeOf(a.g).Train(step)
	for i, v := range c.values() {
		in := c.in[i]
		if in.ids != nil {
			a.in = append(a.in, input(a.g, in.name, tensor.New(tensor.WithShape(in.shape...), tensor.WithBacking(slices.Clone(in.ids)))))
		} else {
			a.in = append(a.in, input(a.g, in.name, dense(dtype, kernels.Host[float64](v), in.shape...)))
		}
	}
	var err error
	if a.out, err = c.apply(a.in); err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return a
}

// run gives the output and the gradients of the inputs, by name.
func (a *opGraph) run(t testing.TB, machine string, wrt gorgonia.Nodes) map[string][]float64 {
	t.Helper()
	if machine == "lispMachine" {
		run(t, gorgonia.NewLispMachine(a.g))
	} else {
		if _, err := gorgonia.Grad(a.loss, wrt...); err != nil {
			t.Fatal(err)
		}
		run(t, gorgonia.NewTapeMachine(a.g, gorgonia.BindDualValues(wrt...)))
	}
	got := map[string][]float64{"out": numbers(t, a.out.Value())}
	for _, n := range wrt {
		got["d"+n.Name()] = gradientOf(t, n)
	}
	return got
}

// numbers are the elements of a tensor or a scalar.
func numbers(t testing.TB, v gorgonia.Value) []float64 {
	t.Helper()
	switch x := v.Data().(type) {
	case float64:
		return []float64{x}
	case float32:
		return []float64{float64(x)}
	}
	return float64s(t, v)
}

// expected is what the reference says, by name.
func (c opCase) expected(shape tensor.Shape) map[string][]float64 {
	out, d := c.want(c.values(), c.dOut(shape))
	want := map[string][]float64{"out": out}
	for i, in := range c.in {
		if d[i] != nil {
			want["d"+in.name] = d[i]
		}
	}
	return want
}

type opRun struct {
	opCase
	how string
}

func (r opRun) String() string { return r.how + " " + r.opCase.String() }

var machines = []string{"tapeMachine", "lispMachine"}

// testOp compares cases with the reference, in both types and under both machines, with all inputs
// and with each alone differentiated, and with finite differences. Of these -short takes one in
// eight: where gradients are the reference's, so are slopes.
func testOp(t *testing.T, cases []opCase) {
	t.Helper()
	for i, c := range cases {
		c.seed = uint64(i) + 1
		for dtype, bound := range bounds {
			for _, machine := range machines {
				a := c.build(t, dtype)
				want := c.expected(a.out.Shape())
				compare(t, opRun{c, fmt.Sprint(machine, " ", dtype)}, a.run(t, machine, a.floats()), want, bound)
			}
		}
		for i, n := range c.build(t, tensor.Float64).in {
			if n.Dtype() != tensor.Float64 {
				continue
			}
			a := c.build(t, tensor.Float64)
			got := a.run(t, "tapeMachine", a.in[i:i+1])
			compare(t, opRun{c, "wrt " + n.Name() + " alone"}, got, c.expected(a.out.Shape()), bounds[tensor.Float64])
		}
		if !testing.Short() || i%8 == 0 {
			c.differences(t)
		}
	}
}

// differences compares the gradients with slopes of the loss, on both machines, at some elements of
// each input.
func (c opCase) differences(t *testing.T) {
	t.Helper()
	build := func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
		a := c.buildIn(t, g, dtype)
		return a.out, a.floats(), nil
	}
	if err := gradcheck.Graph(build, gradcheck.Options{Seed: c.seed, Elements: 4, Directions: 1, Contiguous: true}); err != nil {
		t.Errorf("%v: %v", c, err)
	}
}

func float64sOf(t kernels.Tensor) []float64 { return kernels.Host[float64](t) }
