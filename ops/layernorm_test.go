package ops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// normShapes have rows of every awkward length, and one row.
var normShapes = [][]int{{3}, {1, 4}, {3, 1}, {5, 3}, {2, 3, 17}, {70, 5}, {2, 2, 2, 33}}

func TestLayerNorm(t *testing.T) {
	var cases []opCase
	for _, shape := range normShapes {
		for _, parameters := range []int{0, 1, 2} {
			for _, eps := range []float64{0, 0.1} {
				c := shape[len(shape)-1]
				cases = append(cases, opCase{
					options: fmt.Sprintf("LayerNorm with epsilon %v", eps),
					in:      []opInput{floats("x", shape...), floats("gamma", c), floats("beta", c)}[:1+parameters],
					apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
						in = append(in[:len(in):len(in)], nil, nil)
						return ops.LayerNorm(in[0], in[1], in[2], ops.NormOptions{Epsilon: eps})
					},
					want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
						in = append(in[:len(in):len(in)], kernels.Tensor{}, kernels.Tensor{})
						n := &kernels.LayerNorm{X: in[0], Gamma: in[1], Beta: in[2], Eps: eps}
						out, _, _ := reference.LayerNorm[float64](n)
						dx, dGamma, dBeta := reference.LayerNormGrad(n, dOut)
						return out, [][]float64{dx, dGamma, dBeta}
					},
				})
			}
		}
	}
	testOp(t, cases)
}
