//go:build gpu

package nn_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// On a device arithmetic broadcasts as on the host, and functions are the host's, with the same
// gradients.
func TestTensorsOnTheDevice(t *testing.T) {
	device := openDevice(t)
	run := func(device *ops.Device) (results [][]float64) {
		p := nn.NewParameters(3)
		if device != nil {
			if err := p.MoveTo(device); err != nil {
				t.Fatal(err)
			}
		}
		s := nn.NewScope(gorgonia.NewGraph(), p)
		x, y := s.Parameter("x", nn.Normal(1), 2, 3, 8), s.Parameter("y", nn.Normal(1), 2, 1, 8)
		out := x.Add(1).Mul(y).Sub(x.Mean(1).Reshape(2, 1, 8)).Tanh().Add(x.ReLU()).Mul(x.Sigmoid()).Chunk(-1, 2)
		values, ids := out[0].Softmax(1).Add(out[1].Exp().Sqrt()).TopK(3)
		parts := values.Add(out[1].Abs().Add(1).Log().Gather(ids)).Scatter(ids, 4).Div(out[0].Sigmoid().Add(1))
		one, other := parts.Square().Mean(), out[0].Add(out[1].Sum(0).Mul(0.5)).ReLU().Max(1).Mean()
		loss := must(one.Add(other.Mul(0.5)).Sub(1).Mul(3))
		gradients, err := gorgonia.Grad(loss, s.Parameters()...)
		if err != nil {
			t.Fatal(err)
		}
		machine, err := ops.NewMachine(s.Graph())
		if err != nil {
			t.Fatal(err)
		}
		defer machine.Close()
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		for _, n := range append(gradients, loss) {
			v := n.Value()
			if device != nil {
				if v, err = ops.Download(v); err != nil {
					t.Fatal(err)
				}
			}
			results = append(results, floats(t, v))
		}
		return results
	}
	want, have := run(nil), run(device)
	for i := range want {
		for k, x := range want[i] {
			if !(math.Abs(have[i][k]-x) <= 1e-5*(1+math.Abs(x))) {
				t.Errorf("result %d: element %d is %v, on the host %v", i, k, have[i][k], x)
			}
		}
	}
}
