//go:build gpu

package nn_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// On a device arithmetic broadcasts as on the host, with the same gradients, and what has no kernel
// there is an error that says so.
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
		out := x.Add(1).Mul(y).Sub(x.Mean(1).Reshape(2, 1, 8)).Tanh().Chunk(-1, 2)
		loss := must(out[0].Add(out[1].Sum(0).Mul(0.5)).Square().Mean())
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
	p := nn.NewParameters(1)
	if err := p.MoveTo(device); err != nil {
		t.Fatal(err)
	}
	for name, op := range map[string]func(x nn.Tensor) nn.Tensor{
		"Exp": nn.Tensor.Exp, "ReLU": nn.Tensor.ReLU, "Div": func(x nn.Tensor) nn.Tensor { return x.Div(x) },
	} {
		s := nn.NewScope(gorgonia.NewGraph(), p)
		if op(s.Parameter(name, nn.Normal(1), 2, 3)); !errors.Is(s.Err(), errors.ErrUnsupported) {
			t.Errorf("%s on a device: %v, want an error that wraps ErrUnsupported", name, s.Err())
		}
	}
}
