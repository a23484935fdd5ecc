package ops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

func TestLinear(t *testing.T) {
	var cases []opCase
	for _, c := range []struct {
		x   []int
		out int
	}{{[]int{1}, 1}, {[]int{5}, 3}, {[]int{1, 1}, 1}, {[]int{1, 7}, 1}, {[]int{3, 1}, 5}, {[]int{2, 3, 5}, 7}, {[]int{2, 17, 13}, 33}, {[]int{3, 2, 2, 4}, 6}} {
		in := c.x[len(c.x)-1]
		for _, act := range kernels.Activations() {
			for _, bias := range []bool{true, false} {
				if !bias && act > kernels.GELUTanh {
					continue
				}
				list := []opInput{floats("x", c.x...), floats("weight", in, c.out)}
				if bias {
					list = append(list, floats("bias", c.out))
				}
				cases = append(cases, opCase{
					options: fmt.Sprint("Linear with ", act), in: list,
					apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
						var b *gorgonia.Node
						if bias {
							b = in[2]
						}
						return ops.Linear(in[0], in[1], b, ops.LinearOptions{Activation: act})
					},
					want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
						return linearByReference(act, in, dOut)
					},
				})
			}
		}
	}
	testOp(t, cases)
}

func linearByReference(act kernels.Activation, in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
	features, columns := in[1].Shape[0], in[1].Shape[1]
	x := kernels.Of(float64sOf(in[0]), in[0].Elements()/features, features)
	m := kernels.MatMul{A: x, B: in[1], Epilogue: kernels.Activate{Activation: act}}
	if len(in) > 2 {
		m.Bias = in[2]
	}
	out, pre := reference.MatMul[float64](&m, nil)
	_, dz := reference.Activation(act, pre, dOut)
	dzT := kernels.Of(dz, len(dz)/columns, columns)
	dx, _ := reference.MatMul[float64](&kernels.MatMul{A: dzT, B: in[1].Permute(1, 0)}, nil)
	dw, _ := reference.MatMul[float64](&kernels.MatMul{A: x.Permute(1, 0), B: dzT}, nil)
	d := [][]float64{dx, dw}
	if len(in) > 2 {
		d = append(d, reference.SumRows[float64](dzT))
	}
	return out, d
}
