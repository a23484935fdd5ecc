package ops_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

func TestMul(t *testing.T) {
	var cases []opCase
	for _, shape := range elementShapes {
		cases = append(cases, opCase{
			options: "Mul", in: []opInput{floats("a", shape...), floats("b", shape...)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Mul(in[0], in[1]) },
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				c, da, db := reference.Mul(float64sOf(in[0]), float64sOf(in[1]), dOut)
				return c, [][]float64{da, db}
			},
		}, opCase{
			options: "Scale", in: []opInput{floats("x", shape...)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Scale(in[0], -2.5) },
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				return reference.Scale(-2.5, float64sOf(in[0])), [][]float64{reference.Scale(-2.5, dOut)}
			},
		}, opCase{
			options: "SoftCap", in: []opInput{floats("x", shape...)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.SoftCap(in[0], 0.8) },
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				y, dx := reference.SoftCap(0.8, float64sOf(in[0]), dOut)
				return y, [][]float64{dx}
			},
		})
	}
	testOp(t, cases)
}
