package ops_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
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
						n := &kernels.Norm{X: in[0], Gamma: in[1], Beta: in[2], Eps: eps}
						out, _, _ := reference.Norm[float64](n)
						dx, dGamma, dBeta := reference.NormGrad(n, dOut)
						return out, [][]float64{dx, dGamma, dBeta}
					},
				})
			}
		}
	}
	testOp(t, cases)
}

// sumUses are the ways in which the outputs of the norm of a sum are used: their product, and each
// alone. Each gives the result, and the gradients of the sum and of the norm.
var sumUses = map[string]struct {
	apply    func(sum, y *gorgonia.Node) (*gorgonia.Node, error)
	gradient func(sum, y, dOut []float64) (out, dSum, dY []float64)
}{
	"both": {ops.Mul, func(sum, y, dOut []float64) (out, dSum, dY []float64) {
		return product(sum, y), product(dOut, y), product(dOut, sum)
	}},
	"sum": {func(sum, _ *gorgonia.Node) (*gorgonia.Node, error) { return sum, nil }, func(sum, y, dOut []float64) (out, dSum, dY []float64) {
		return sum, dOut, make([]float64, len(y))
	}},
	"y": {func(_, y *gorgonia.Node) (*gorgonia.Node, error) { return y, nil }, func(sum, y, dOut []float64) (out, dSum, dY []float64) {
		return y, make([]float64, len(y)), dOut
	}},
	"norm alone": {nil, func(sum, y, dOut []float64) (out, dSum, dY []float64) { // of ops that have no sum among their outputs
		return y, make([]float64, len(y)), dOut
	}},
}

func product(a, b []float64) []float64 {
	list := make([]float64, len(a))
	for i := range a {
		list[i] = a[i] * b[i]
	}
	return list
}

func total(a, b []float64) []float64 {
	list := make([]float64, len(a))
	for i := range a {
		list[i] = a[i] + b[i]
	}
	return list
}

// testOnSum is testOp; but a lispMachine runs no graph with an output that nothing uses.
func testOnSum(t *testing.T, cases []opCase) {
	t.Helper()
	var all []opCase
	for i, c := range cases {
		if strings.HasSuffix(c.options, "both") || strings.HasSuffix(c.options, "norm alone") {
			all = append(all, c)
			continue
		}
		c.seed = uint64(i) + 1
		a := c.build(t, tensor.Float64)
		compare(t, opRun{c, "tapeMachine"}, a.run(t, "tapeMachine", a.floats()), c.expected(a.out.Shape()), bounds[tensor.Float64])
	}
	testOp(t, all)
}

func TestAddLayerNorm(t *testing.T) {
	var cases []opCase
	for _, shape := range normShapes {
		for use, u := range sumUses {
			c := shape[len(shape)-1]
			in := []opInput{floats("x", shape...), floats("other", shape...), floats("gamma", c), floats("beta", c)}
			if use == "sum" {
				in = in[:2]
			}
			cases = append(cases, opCase{
				options: "AddLayerNorm, used: " + use, in: in,
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
					in = append(in[:len(in):len(in)], nil, nil)
					o := ops.NormOptions{Epsilon: 0.1}
					if use == "norm alone" {
						return ops.LayerNormOfSum(in[0], in[1], in[2], in[3], o)
					}
					sum, y, err := ops.AddLayerNorm(in[0], in[1], in[2], in[3], o)
					if err != nil {
						return nil, err
					}
					return u.apply(sum, y)
				},
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					in = append(in[:len(in):len(in)], kernels.Tensor{}, kernels.Tensor{})
					n := &kernels.Norm{X: in[0], Other: in[1], Gamma: in[2], Beta: in[3], Eps: 0.1}
					y, _, _ := reference.Norm[float64](n)
					out, dSum, dY := u.gradient(reference.Add[float64](in[0], in[1]), y, dOut)
					dx, dGamma, dBeta := reference.NormGrad(n, dY)
					dx = total(dx, dSum)
					return out, [][]float64{dx, dx, dGamma, dBeta}
				},
			})
		}
	}
	testOnSum(t, cases)
}

// A bias of the layer that a sum's norm reads has the gradient that it has elsewhere, whether the
// norm sums it up or, since its gradient is not all of the layer's, the layer does.
func TestBiasBeforeAddLayerNorm(t *testing.T) {
	var cases []opCase
	for _, shape := range normShapes {
		for _, use := range []string{"sum and norm", "norm", "sum, norm and layer"} {
			c := shape[len(shape)-1]
			cases = append(cases, opCase{
				options: "norm of a sum with a layer, used: " + use,
				in:      []opInput{floats("x", shape...), floats("weight", c, c), floats("bias", c), floats("residual", shape...), floats("gamma", c)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
					layer, err := ops.Linear(in[0], in[1], in[2], ops.LinearOptions{})
					if err != nil {
						return nil, err
					}
					o := ops.NormOptions{Epsilon: 0.1}
					if use == "norm" {
						return ops.LayerNormOfSum(in[3], layer, in[4], nil, o)
					}
					sum, y, err := ops.AddLayerNorm(in[3], layer, in[4], nil, o)
					if err != nil {
						return nil, err
					}
					out, err := ops.Mul(sum, y)
					if err != nil || use == "sum and norm" {
						return out, err
					}
					return ops.Add(out, layer)
				},
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					layer, _ := linearByReference(kernels.NoActivation, in[:3], dOut)
					n := &kernels.Norm{X: in[3], Other: kernels.Of(layer, in[3].Shape...), Gamma: in[4], Eps: 0.1}
					y, _, _ := reference.Norm[float64](n)
					sum := reference.Add[float64](n.X, n.Other)
					dY := product(dOut, sum)
					if use == "norm" {
						dY = dOut
					}
					dResidual, dGamma, _ := reference.NormGrad(n, dY)
					out := y
					if use != "norm" {
						out, dResidual = product(sum, y), total(dResidual, product(dOut, y))
					}
					dLayer := dResidual
					if use == "sum, norm and layer" {
						out, dLayer = total(out, layer), total(dLayer, dOut)
					}
					_, d := linearByReference(kernels.NoActivation, in[:3], dLayer)
					return out, append(d, dResidual, dGamma)
				},
			})
		}
	}
	testOp(t, cases)
}
