package ops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

func TestRMSNorm(t *testing.T) {
	var cases []opCase
	for _, shape := range append(normShapes, []int{1}, []int{1, 1}) {
		for _, parameters := range []int{0, 1} {
			for _, eps := range []float64{0, 0.1} {
				cases = append(cases, opCase{
					options: fmt.Sprintf("RMSNorm with epsilon %v", eps),
					in:      []opInput{floats("x", shape...), floats("gamma", shape[len(shape)-1])}[:1+parameters],
					apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
						in = append(in[:len(in):len(in)], nil)
						return ops.RMSNorm(in[0], in[1], ops.NormOptions{Epsilon: eps})
					},
					want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
						in = append(in[:len(in):len(in)], kernels.Tensor{})
						n := &kernels.RMSNorm{X: in[0], Gamma: in[1], Eps: eps}
						out, _ := reference.RMSNorm[float64](n)
						dx, dGamma := reference.RMSNormGrad(n, dOut)
						return out, [][]float64{dx, dGamma}
					},
				})
			}
		}
	}
	testOp(t, cases)
}
