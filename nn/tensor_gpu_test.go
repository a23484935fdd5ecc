//go:build gpu

package nn_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// tensorPrograms are losses of x, (2, 3, 8), and y, (2, 1, 8).
var tensorPrograms = map[string]func(s *nn.Scope, x, y nn.Tensor) nn.Tensor{
	"arithmetic": func(_ *nn.Scope, x, y nn.Tensor) nn.Tensor {
		out := x.Add(1).Mul(y).Sub(x.Mean(1).Reshape(2, 1, 8)).Tanh().Add(x.ReLU()).Mul(x.Sigmoid()).Chunk(-1, 2)
		values, ids := out[0].Softmax(1).Add(out[1].Exp().Sqrt()).TopK(3)
		parts := values.Add(out[1].Abs().Add(1).Log().Gather(ids)).Scatter(ids, 4).Div(out[0].Sigmoid().Add(1))
		one, other := parts.Square().Mean(), out[0].Add(out[1].Sum(0).Mul(0.5)).ReLU().Max(1).Mean()
		return one.Add(other.Mul(0.5)).Sub(1).Mul(3)
	},
	"what is detached": func(_ *nn.Scope, x, y nn.Tensor) nn.Tensor {
		return x.Mul(x.Square().Detach()).Add(y.Detach().Exp()).Mul(y).Sum()
	},
	"functions": func(_ *nn.Scope, x, y nn.Tensor) nn.Tensor {
		return x.GELU().Add(x.SiLU().SoftCap(0.7)).Mul(x.LayerNorm()).Sub(x.Mul(y).LogSoftmax()).Square().Mean()
	},
	"losses": func(_ *nn.Scope, x, y nn.Tensor) nn.Tensor {
		other := x.Permute(0, 1, 2).Mul(0.3).Add(y)
		loss := x.MSE(other).Add(x.L1(other)).Add(x.Huber(other, 0.5)).Add(x.BinaryCrossEntropy(other.Sigmoid()))
		return loss.Add(x.LogSumExp(1).Mean()).Add(x.Mul(2).LogSumExp(-1).Mean())
	},
	"windows": func(_ *nn.Scope, x, y nn.Tensor) nn.Tensor {
		two := ops.Sliding{Size: 2, Stride: 1, Padding: 1}
		patches := x.Pad(1, 1, 2, 0.5).Patches(0.25, ops.Sliding{Size: 3, Stride: 2}).Square().Mean()
		return patches.Add(x.MeanPool(two).Tanh().Sum()).Add(x.MaxPool(two).Exp().Mean()).Add(x.Slice(2, 1, 5).Mul(y.Slice(2, 3, 7)).Sum()).Add(x.Select(1, 2).Square().Mean())
	},
	"convolutions": func(s *nn.Scope, x, y nn.Tensor) nn.Tensor {
		wide := nn.NewConv(s.Sub("wide"), nn.ConvConfig{In: 8, Out: 12, Windows: []ops.Sliding{{Size: 3, Padding: 1}}})
		groups := nn.NewConv(s.Sub("groups"), nn.ConvConfig{In: 12, Out: 6, Groups: 3, Windows: []ops.Sliding{{Size: 2, Padding: 1}}})
		return x.Add(y).Through(wide).GELU().Through(groups).Square().Mean()
	},
	"second derivatives": func(s *nn.Scope, x, y nn.Tensor) nn.Tensor {
		h := x.Mul(y).Tanh().Through(nn.NewLinear(s.Sub("h"), nn.LinearConfig{In: 8, Out: 6, Activation: kernels.SiLU}))
		slopes, err := ops.Gradients(must(h.LayerNorm().Square().Mul(h).Sum()), x.Node())
		if err != nil {
			return s.Fail(err)
		}
		return on(slopes[0]).Square().Mean()
	},
	"products": func(_ *nn.Scope, x, y nn.Tensor) nn.Tensor {
		return x.MatMul(y.Permute(0, 2, 1)).Add(x.Sum(-1).Reshape(2, 3, 1)).Exp().Mean()
	},
}

// On a device arithmetic broadcasts as on the host, and functions are the host's, with the same
// gradients.
func TestTensorsOnTheDevice(t *testing.T) {
	device := openDevice(t)
	for name, program := range tensorPrograms {
		t.Run(name, func(t *testing.T) {
			run := func(device *ops.Device) (results [][]float64) {
				p := nn.NewParameters(3)
				if device != nil {
					if err := p.MoveTo(device); err != nil {
						t.Fatal(err)
					}
				}
				s := nn.NewScope(gorgonia.NewGraph(), p)
				loss := must(program(s, s.Parameter("x", nn.Normal(1), 2, 3, 8), s.Parameter("y", nn.Normal(1), 2, 1, 8)))
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
		})
	}
}
