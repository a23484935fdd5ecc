package ops_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestDropout(t *testing.T) {
	var cases []opCase
	for _, shape := range append(elementShapes, []int{3, 67}) {
		for _, p := range []float64{0, 0.1, 0.5} {
			d := kernels.Dropout{P: p, Seed: 99, Step: step}
			cases = append(cases, opCase{
				options: fmt.Sprintf("Dropout of %v", p), in: []opInput{floats("x", shape...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
					return ops.Dropout(in[0], ops.DropoutOptions{Drop: ops.Drop{P: p, Seed: 99}})
				},
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					return reference.Dropout[float64](d, in[0]), [][]float64{reference.Dropout[float64](d, kernels.Of(dOut, shape...))}
				},
			})
		}
	}
	testOp(t, cases)
}

// TestDropoutModes runs a graph of ones, whose gradient is its output, in both modes and in none.
func TestDropoutModes(t *testing.T) {
	const n = 4000
	g := gorgonia.NewGraph()
	x := input(g, "x", dense(tensor.Float64, filled(n, 1), n))
	out := gorgonia.Must(ops.Dropout(x, ops.DropoutOptions{Drop: ops.Drop{P: 0.25, Seed: 1}}))
	gradients, err := gorgonia.Grad(gorgonia.Must(ops.Sum(out)), x)
	if err != nil {
		t.Fatal(err)
	}
	m := gorgonia.NewTapeMachine(g)
	next := func() []float64 {
		run(t, m)
		y := float64s(t, out.Value())
		if !slices.Equal(y, float64s(t, gradients[0].Value())) {
			t.Errorf("the gradient has another mask than the output")
		}
		return y
	}
	first, second := next(), next()
	if slices.Equal(first, second) {
		t.Error("without a mode, two runs have one mask")
	}
	mean := 0.0
	for _, y := range first {
		mean += y / n
	}
	if deviation := math.Sqrt(0.25 / 0.75 / n); !(math.Abs(mean-1) <= 5*deviation) {
		t.Errorf("the mean of dropped ones is %v, more than 5 standard deviations of %v from 1", mean, deviation)
	}
	mode := ops.ModeOf(g)
	mode.Train(0)
	if !slices.Equal(first, next()) {
		t.Error("step 0 does not have the mask of the first run")
	}
	mode.Evaluate()
	if !slices.Equal(next(), filled(n, 1)) {
		t.Error("evaluation drops something")
	}
	mode.Train(1)
	if !slices.Equal(second, next()) {
		t.Error("step 1 does not have the mask of the second run")
	}
}
