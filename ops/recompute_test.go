package ops_test

import (
	"strings"
	"testing"

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
