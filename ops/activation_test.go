package ops_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// elementShapes are shapes for ops that work element by element.
var elementShapes = [][]int{{1}, {1, 1}, {7}, {3, 5}, {2, 3, 17}, {2, 1, 3, 31}}

func TestActivations(t *testing.T) {
	var cases []opCase
	for name, c := range map[string]struct {
		apply func(*gorgonia.Node) (*gorgonia.Node, error)
		kind  kernels.Activation
	}{
		"GELU":        {ops.GELU, kernels.GELUTanh},
		"GELUErf":     {ops.GELUErf, kernels.GELUErf},
		"SiLU":        {ops.SiLU, kernels.SiLU},
		"ReLUSquared": {ops.ReLUSquared, kernels.ReLUSquared},
		"ReLU":        {ops.ReLU, kernels.ReLU},
		"QuickGELU":   {ops.QuickGELU, kernels.QuickGELU},
		"Sigmoid":     {ops.Sigmoid, kernels.Sigmoid},
		"Tanh":        {ops.Tanh, kernels.Tanh},
		"Activate with NoActivation": {func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Activate(x, kernels.NoActivation)
		}, kernels.NoActivation},
		"Activate with SiLU": {func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Activate(x, kernels.SiLU) }, kernels.SiLU},
	} {
		for _, shape := range elementShapes {
			cases = append(cases, opCase{
				options: name, in: []opInput{floats("x", shape...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return c.apply(in[0]) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					y, dx := reference.Activation(c.kind, float64sOf(in[0]), dOut)
					return y, [][]float64{dx}
				},
			})
		}
	}
	testOp(t, cases)
}
