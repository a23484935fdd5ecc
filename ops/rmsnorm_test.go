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
						n := &kernels.Norm{RMS: true, X: in[0], Gamma: in[1], Eps: eps}
						out, _, _ := reference.Norm[float64](n)
						dx, dGamma, _ := reference.NormGrad(n, dOut)
						return out, [][]float64{dx, dGamma}
					},
				})
			}
		}
	}
	testOp(t, cases)
}

func TestAddRMSNorm(t *testing.T) {
	var cases []opCase
	for _, shape := range normShapes {
		for use, u := range sumUses {
			in := []opInput{floats("x", shape...), floats("other", shape...), floats("gamma", shape[len(shape)-1])}
			if use == "sum" {
				in = in[:2]
			}
			cases = append(cases, opCase{
				options: "AddRMSNorm, used: " + use, in: in,
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
					in = append(in[:len(in):len(in)], nil)
					o := ops.NormOptions{Epsilon: 0.1}
					if use == "norm alone" {
						return ops.RMSNormOfSum(in[0], in[1], in[2], o)
					}
					sum, y, err := ops.AddRMSNorm(in[0], in[1], in[2], o)
					if err != nil {
						return nil, err
					}
					return u.apply(sum, y)
				},
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					in = append(in[:len(in):len(in)], kernels.Tensor{})
					n := &kernels.Norm{RMS: true, X: in[0], Other: in[1], Gamma: in[2], Eps: 0.1}
					y, _, _ := reference.Norm[float64](n)
					out, dSum, dY := u.gradient(reference.Add[float64](in[0], in[1]), y, dOut)
					dx, dGamma, _ := reference.NormGrad(n, dY)
					dx = total(dx, dSum)
					return out, [][]float64{dx, dx, dGamma}
				},
			})
		}
	}
	testOnSum(t, cases)
}
