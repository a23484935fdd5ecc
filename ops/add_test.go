package ops_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

func TestAdd(t *testing.T) {
	var cases []opCase
	for _, shape := range elementShapes {
		cases = append(cases, opCase{
			options: "Add", in: []opInput{floats("a", shape...), floats("b", shape...)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(in[0], in[1]) },
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				return reference.Add[float64](in[0], in[1]), [][]float64{dOut, dOut}
			},
		})
	}
	testOp(t, cases)
}
