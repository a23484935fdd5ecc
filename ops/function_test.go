package ops_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// ofExp is an op of e to the x, which is positive.
func ofExp(op func(x *gorgonia.Node) (*gorgonia.Node, error)) func(in []*gorgonia.Node) (*gorgonia.Node, error) {
	return func(in []*gorgonia.Node) (*gorgonia.Node, error) {
		x, err := ops.Exp(in[0])
		if err != nil {
			return nil, err
		}
		return op(x)
	}
}

// each is what numbers become, and the gradients of a function of each.
func each(value, slope func(x float64) float64) func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
	return func(in []kernels.Tensor, dOut []float64) (y []float64, _ [][]float64) {
		var dx []float64
		for i, x := range float64sOf(in[0]) {
			y, dx = append(y, value(x)), append(dx, dOut[i]*slope(x))
		}
		return y, [][]float64{dx}
	}
}

func TestFunctions(t *testing.T) {
	one := func(float64) float64 { return 1 }
	var cases []opCase
	for _, shape := range elementShapes {
		x := []opInput{floats("x", shape...)}
		cases = append(cases,
			opCase{options: "Exp", in: x, apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Exp(in[0]) },
				want: each(math.Exp, math.Exp)},
			opCase{options: "Log", in: x, apply: ofExp(ops.Log), want: each(func(x float64) float64 { return x }, one)},
			opCase{options: "Sqrt", in: x, apply: ofExp(ops.Sqrt),
				want: each(func(x float64) float64 { return math.Exp(x / 2) }, func(x float64) float64 { return math.Exp(x/2) / 2 })},
			opCase{options: "Abs", in: x, apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Abs(in[0]) },
				want: each(math.Abs, func(x float64) float64 { return math.Copysign(1, x) })},
			opCase{options: "AddScalar", in: x, apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.AddScalar(in[0], -2.5) },
				want: each(func(x float64) float64 { return x - 2.5 }, one)},
			opCase{options: "Div", in: []opInput{floats("a", shape...), floats("b", shape...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
					b, err := ops.Exp(in[1])
					if err != nil {
						return nil, err
					}
					return ops.Div(in[0], b)
				},
				want: func(in []kernels.Tensor, dOut []float64) (c []float64, _ [][]float64) {
					var da, db []float64
					b := float64sOf(in[1])
					for i, a := range float64sOf(in[0]) {
						c, da = append(c, a*math.Exp(-b[i])), append(da, dOut[i]*math.Exp(-b[i]))
						db = append(db, -dOut[i]*a*math.Exp(-b[i]))
					}
					return c, [][]float64{da, db}
				}},
			opCase{options: "Softmax", in: x, apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Softmax(in[0]) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					y, dx := reference.Softmax(in[0], dOut)
					return y, [][]float64{dx}
				}})
	}
	testOp(t, cases)
}

func TestIndexed(t *testing.T) {
	var cases []opCase
	for _, shape := range [][]int{{1}, {7}, {3, 5}, {2, 3, 40}} {
		last := len(shape) - 1
		n := shape[last]
		k := min(3, n)
		few := append(append([]int(nil), shape[:last]...), k)
		cases = append(cases,
			opCase{options: "Gather", in: []opInput{floats("x", shape...), ids("ids", n, few...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Gather(in[0], in[1]) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					return reference.Gather[float64](in[0], in[1]), [][]float64{reference.Scatter(dOut, in[1], n), nil}
				}},
			opCase{options: "Scatter", in: []opInput{floats("x", few...), ids("ids", n, few...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Scatter(in[0], in[1], n) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					return reference.Scatter(float64sOf(in[0]), in[1], n), [][]float64{reference.Gather[float64](kernels.Of(dOut, shape...), in[1]), nil}
				}},
			opCase{options: "TopK, and Gather of what it found", in: []opInput{floats("x", shape...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
					values, found, err := ops.TopK(in[0], k)
					if err != nil {
						return nil, err
					}
					again, err := ops.Gather(in[0], found)
					if err != nil {
						return nil, err
					}
					return ops.Add(values, again)
				},
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					values, found := reference.TopK[float64](in[0], k)
					dx := reference.Scatter(dOut, kernels.Of(int64s(found), few...), n)
					return reference.Scale(2, values), [][]float64{reference.Scale(2, dx)}
				}})
		if last > 0 {
			cases = append(cases, opCase{options: "Max", in: []opInput{floats("x", shape...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Max(in[0]) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					values, found := reference.TopK[float64](in[0], 1)
					one := append(append([]int(nil), shape[:last]...), 1)
					return values, [][]float64{reference.Scatter(dOut, kernels.Of(int64s(found), one...), n)}
				}})
		}
	}
	testOp(t, cases)
}
