package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// costs are losses of x, (rows, 16), and a weight that makes 512 classes of it, for whose gradients
// float16 is too narrow.
var costs = map[string]func(x, weight, targets *gorgonia.Node) (*gorgonia.Node, error){
	"SoftmaxCrossEntropy": func(x, weight, targets *gorgonia.Node) (*gorgonia.Node, error) {
		logits, err := ops.Linear(x, weight, nil, ops.LinearOptions{})
		if err != nil {
			return nil, err
		}
		return ops.SoftmaxCrossEntropy(logits, targets, ops.CrossEntropyOptions{})
	},
	"LinearCrossEntropy": func(x, weight, targets *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.LinearCrossEntropy(x, weight, targets, ops.LinearCrossEntropyOptions{WeightTransposed: true})
	},
}

// scaledGradients are the loss, and the gradients of x and the weight, in a compute type and with a
// loss scale; 0 is without one.
func scaledGradients(t *testing.T, cost string, compute tensor.Dtype, scale float64) (loss float64, d [2][]float64) {
	t.Helper()
	const rows, features, classes = 2048, 16, 512
	random := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []float32 {
		list := make([]float32, n)
		for i := range list {
			list[i] = float32(random.NormFloat64())
		}
		return list
	}
	ids := make([]int, rows)
	for i := range ids {
		ids[i] = random.IntN(classes)
	}
	g := gorgonia.NewGraph()
	node := func(name string, value *tensor.Dense) *gorgonia.Node {
		return gorgonia.NewTensor(g, value.Dtype(), value.Dims(), gorgonia.WithShape(value.Shape()...), gorgonia.WithName(name), gorgonia.WithValue(value))
	}
	x := node("x", tensor.New(tensor.WithShape(rows, features), tensor.WithBacking(numbers(rows*features))))
	weight := node("weight", tensor.New(tensor.WithShape(features, classes), tensor.WithBacking(numbers(features*classes))))
	targets := node("targets", tensor.New(tensor.WithShape(rows), tensor.WithBacking(ids)))
	out := gorgonia.Must(costs[cost](gorgonia.Must(ops.Cast(x, compute)), weight, targets))
	gradients, err := gorgonia.Grad(out, x, weight)
	if err != nil {
		t.Fatal(err)
	}
	if scale > 0 {
		if err := ops.ScaleLoss(g, kernels.Of([]float64{scale}, 1)); err != nil {
			t.Fatal(err)
		}
	}
	var lossValue gorgonia.Value
	gorgonia.Read(out, &lossValue)
	machine, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	for i, n := range gradients {
		for _, v := range n.Value().Data().([]float32) {
			d[i] = append(d[i], float64(v))
		}
	}
	return float64(lossValue.Data().(float32)), d
}

// A loss scale multiplies the gradients and not the loss. In float32 it changes nothing else, and
// in float16 it decides before anything is rounded what becomes zero.
func TestScaleLoss(t *testing.T) {
	slow.Emulated(t)
	const scale = 1 << 14
	for cost := range costs {
		loss, want := scaledGradients(t, cost, tensor.Float32, 0)
		scaledLoss, scaled := scaledGradients(t, cost, tensor.Float32, scale)
		if loss != scaledLoss {
			t.Errorf("%s: the loss is %v, with a scale %v", cost, loss, scaledLoss)
		}
		for i := range want {
			for j := range want[i] {
				if scaled[i][j] != scale*want[i][j] {
					t.Fatalf("%s: gradient %d is %v at %d, with a scale of %d %v", cost, i, want[i][j], j, scale, scaled[i][j])
				}
			}
		}
		errors := func(factor float64) (worst [2]float64) {
			_, got := scaledGradients(t, cost, ops.Float16, factor)
			for i := range want {
				most := 0.0
				for j := range want[i] {
					worst[i], most = max(worst[i], math.Abs(got[i][j]/factor-want[i][j])), max(most, math.Abs(want[i][j]))
				}
				worst[i] /= most
			}
			return worst
		}
		small, large := errors(1.0/scale), errors(scale)
		if !(large[0] < 4e-3 && large[1] < 4e-3 && small[0] > 0.05) {
			t.Errorf("%s: float16's gradients are wrong by %.2g of the largest with a small scale, by %.2g with a large one", cost, small, large)
		}
	}
}

func TestScaleLossRefuses(t *testing.T) {
	for _, c := range []struct {
		g     *gorgonia.ExprGraph
		scale kernels.Tensor
		want  string
	}{
		{nil, kernels.Of([]float64{1}, 1), "ScaleLoss: g is nil, it needs to be a graph"},
		{gorgonia.NewGraph(), kernels.Of([]float32{1}, 1), "ScaleLoss: scale is float32 of shape [1], it needs to be a float64 of shape [1]"},
		{gorgonia.NewGraph(), kernels.Of([]float64{1, 2}, 2), "ScaleLoss: scale is float64 of shape [2], it needs to be a float64 of shape [1]"},
	} {
		if got := fmt.Sprint(ops.ScaleLoss(c.g, c.scale)); got != c.want {
			t.Errorf("the error is %q, it needs to be %q", got, c.want)
		}
	}
}
