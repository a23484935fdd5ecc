package ops_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

func TestReductions(t *testing.T) {
	var cases []opCase
	for _, shape := range elementShapes {
		for _, mean := range []bool{false, true} {
			c := opCase{
				options: "Sum", in: []opInput{floats("x", shape...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Sum(in[0]) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					return []float64{reference.Sum[float64](in[0])}, [][]float64{filled(in[0].Elements(), dOut[0])}
				},
			}
			if mean {
				c.options = "Mean"
				c.apply = func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Mean(in[0]) }
				c.want = func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					n := in[0].Elements()
					return []float64{reference.Mean[float64](in[0])}, [][]float64{filled(n, dOut[0]/float64(n))}
				}
			}
			cases = append(cases, c)
		}
	}
	testOp(t, cases)
}

func filled(n int, x float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = x
	}
	return list
}
