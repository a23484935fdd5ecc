package nn_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Models that compute in 16 bits, or whose blocks multiply in 8, have the loss and the gradients of
// those that compute in float32, to the digits that those bits have, and their parameters and
// gradients stay float32.
func TestComputeTypes(t *testing.T) {
	type made struct {
		loss       float64
		parameters gorgonia.Nodes
		gradients  gorgonia.Nodes
	}
	models := map[string]func(s *nn.Scope) *nn.LanguageModel{
		"GPT": func(s *nn.Scope) *nn.LanguageModel {
			return nn.NewGPT(s, nn.GPTConfig{Vocab: 19, Context: 8, Layers: 2, Heads: 2, Dim: 16})
		},
		"Llama": func(s *nn.Scope) *nn.LanguageModel {
			c := nn.LlamaConfig{Vocab: 19, Layers: 2, Heads: 2, KVHeads: 1, Dim: 16, Hidden: 24, QKNorm: true}.Model()
			c.Block.NormPlusOne = true
			return nn.NewLanguageModel(s, c)
		},
	}
	for name, model := range models {
		run := func(compute tensor.Dtype, precision kernels.Precision) made {
			g := gorgonia.NewGraph()
			if err := ops.ModeOf(g).AllowPrecision(precision); err != nil {
				t.Fatal(err)
			}
			m := model(nn.NewScope(g, nn.NewParameters(3)).Compute(compute))
			ids := func(name string, from int) *gorgonia.Node {
				list := make([]int, 2*8)
				for i := range list {
					list[i] = (from + 5*i) % 19
				}
				return gorgonia.NodeFromAny(g, tensor.New(tensor.WithShape(2, 8), tensor.WithBacking(list)), gorgonia.WithName(name))
			}
			loss := must(m.Loss(on(ids("tokens", 0)), on(ids("targets", 5))))
			gradients, err := gorgonia.Grad(loss, m.Parameters()...)
			if err != nil {
				t.Fatal(err)
			}
			if err := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())).RunAll(); err != nil {
				t.Fatalf("%s in %v: %v", name, compute, err)
			}
			number, err := ops.ReadNumber(loss.Value())
			if err != nil {
				t.Fatal(err)
			}
			x, err := number.Float64()
			if err != nil {
				t.Fatal(err)
			}
			return made{x, m.Parameters(), gradients}
		}
		want := run(tensor.Float32, kernels.PrecisionAuto)
		for _, c := range []struct {
			compute   tensor.Dtype
			precision kernels.Precision
			digits    float64
		}{
			{ops.BFloat16, kernels.PrecisionAuto, 1.0 / (1 << 8)}, {ops.Float16, kernels.PrecisionAuto, 1.0 / (1 << 11)},
			{tensor.Float32, kernels.PrecisionFloat8, 1.0 / (1 << 6)}, {ops.BFloat16, kernels.PrecisionFloat8, 1.0 / (1 << 6)},
		} {
			compute, digits := c.compute, c.digits
			got := run(compute, c.precision)
			if relative := math.Abs(got.loss-want.loss) / want.loss; !(relative <= digits) {
				t.Errorf("%s in %v: the loss is %v, in float32 %v", name, compute, got.loss, want.loss)
			}
			for i, n := range got.gradients {
				d, ok := n.Value().Data().([]float32)
				if !ok || got.parameters[i].Dtype() != tensor.Float32 {
					t.Fatalf("%s in %v: %s is %v and its gradient a %T", name, compute, got.parameters[i].Name(), got.parameters[i].Dtype(), n.Value().Data())
				}
				var off, size float64
				for j, x := range want.gradients[i].Value().Data().([]float32) {
					off, size = off+math.Pow(float64(x-d[j]), 2), size+math.Pow(float64(x), 2)
				}
				if !(math.Sqrt(off) <= 8*digits*math.Sqrt(size)) {
					t.Errorf("%s in %v: the gradient of %s differs by %.3g of its norm", name, compute, got.parameters[i].Name(), math.Sqrt(off/size))
				}
				parameter := got.parameters[i].Name()
				ofLayer := strings.HasPrefix(parameter, "blocks.") && strings.HasSuffix(parameter, ".weight") && !strings.Contains(parameter, "norm")
				if coarse := math.Sqrt(off) > 6*math.Sqrt(size)/(1<<8); ofLayer && !coarse && c.precision == kernels.PrecisionFloat8 {
					t.Errorf("%s in %v: the gradient of %s differs by %.3g of its norm alone: nothing was rounded to 8 bits", name, compute, parameter, math.Sqrt(off/size))
				}
			}
		}
	}
	checkError(t, errors.Unwrap(nn.NewScope(gorgonia.NewGraph(), nil).Compute(tensor.Int).Err()),
		"Scope: compute is int, beside parameters of float32 it needs to be float32, or BFloat16 or Float16 beside float32")
}
