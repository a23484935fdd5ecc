package ops_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// What cannot be computed again is named, and so is a machine that cannot.
func TestRecomputeRefuses(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 3), gorgonia.WithName("x"), gorgonia.WithInit(gorgonia.Ones()))
	product := gorgonia.Must(gorgonia.HadamardProd(x, x))
	other := gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float32, gorgonia.WithShape(2, 3), gorgonia.WithName("other"))
	for _, c := range []struct {
		out, from *gorgonia.Node
		want      string
	}{
		{nil, x, "Recompute: out is nil, it needs to be a node"},
		{gorgonia.Must(ops.Add(product, x)), x, "it needs to be an op of this package, or one of a single input"},
		{gorgonia.Must(ops.Add(x, x)), other, "Recompute: from[0] belongs to another graph"},
	} {
		if _, err := ops.Recompute(c.out, c.from); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, it needs to say %q", err, c.want)
		}
	}
	g2 := gorgonia.NewGraph()
	y := gorgonia.NewMatrix(g2, tensor.Float32, gorgonia.WithShape(2, 3), gorgonia.WithName("y"), gorgonia.WithInit(gorgonia.Ones()))
	gorgonia.Must(ops.Sum(gorgonia.Must(ops.Recompute(gorgonia.Must(ops.Scale(y, 2)), y))))
	if err := gorgonia.NewLispMachine(g2).RunAll(); err == nil || !strings.Contains(err.Error(), "it needs to be a tapeMachine") {
		t.Errorf("the error of a lispMachine is %v", err)
	}
}

// What is computed again for its gradients leaves out the last product, which nothing reads.
func TestRecomputeLeavesOutLastProduct(t *testing.T) {
	const n = 256
	for name, c := range map[string]struct {
		weights int
		layer   func(x *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error)
	}{
		"Linear": {1, func(x *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.Linear(x, w[0], nil, ops.LinearOptions{})
		}},
		"MLP": {2, func(x *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.MLP(x, w[0], nil, w[1], nil, ops.MLPOptions{Activation: kernels.GELUTanh})
		}},
		"SwiGLUMLP": {3, func(x *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.SwiGLUMLP(x, w[0], w[1], w[2], ops.SwiGLUMLPBiases{})
		}},
	} {
		work := func(again bool) float64 {
			g := gorgonia.NewGraph()
			matrix := func(name string) *gorgonia.Node {
				return gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(n, n), gorgonia.WithName(name))
			}
			x := matrix("x")
			var w gorgonia.Nodes
			for i := range c.weights {
				w = append(w, matrix(string(rune('a'+i))))
			}
			y, err := c.layer(x, w)
			if err == nil && again {
				y, err = ops.Recompute(y, x)
			}
			if err != nil {
				t.Fatal(err)
			}
			ops.ReuseMemory(g)
			if _, err := gorgonia.Grad(gorgonia.Must(ops.Sum(y)), append(w, x)...); err != nil {
				t.Fatal(err)
			}
			e, err := ops.EstimateRun(g)
			if err != nil {
				t.Fatal(err)
			}
			return e.Work
		}
		const product = 2 * n * n * n
		more, least := work(true)-work(false), float64((c.weights-1)*product)
		if more < least || more >= least+product {
			t.Errorf("%s: it takes %.0f more, it needs to be the work of %d products of %d", name, more, c.weights-1, product)
		}
	}
}
