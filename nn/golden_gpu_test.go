//go:build gpu

package nn_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// deviceModel is a language model that a device computes.
type deviceModel struct {
	golden             string // its name in the golden file; empty: it is compared with float64 on the CPU
	vocab, rows, steps int    // of the tokens
	build              func(s *nn.Scope) lossy
}

// lossy is a model and what it is trained with.
type lossy interface {
	Loss(tokens, targets nn.Tensor) nn.Tensor
	Parameters() gorgonia.Nodes
}

// masked is an encoder that predicts a token at each place.
type masked struct{ *nn.Encoder }

func (m masked) Loss(tokens, targets nn.Tensor) nn.Tensor {
	return m.Predict(m.Forward(tokens)).CrossEntropy(targets)
}

// roberta counts positions behind padding, which is token 1.
func roberta(a kernels.Activation) func(s *nn.Scope) lossy {
	return func(s *nn.Scope) lossy {
		return masked{nn.NewBERT(s, nn.BERTConfig{Vocab: 17, Context: 100, Types: 1, Layers: 2, Heads: 4, Dim: 128, FirstPosition: 2,
			Activation: a, Norms: nn.PostNorm, EmbeddingNorm: true, Masked: true})}
	}
}

var deviceModels = map[string]deviceModel{
	"gpt": {"gpt", 13, 2, 7, func(s *nn.Scope) lossy {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 13, Context: 9, Layers: 2, Heads: 3, Dim: 12})
	}},
	"llama": {"llama", 13, 2, 7, func(s *nn.Scope) lossy {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: 13, Layers: 2, Heads: 4, KVHeads: 2, Dim: 16, Hidden: 20})
	}},
	"qwen": {"qwen", 13, 2, 7, func(s *nn.Scope) lossy {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: 13, Layers: 2, Heads: 4, KVHeads: 1, HeadDim: 6, Dim: 16, Hidden: 20, QKNorm: true, TiedHead: true})
	}},
	"wide gpt": {"", 131, 3, 100, func(s *nn.Scope) lossy {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 131, Context: 100, Layers: 3, Heads: 4, Dim: 128})
	}},
	"roberta":            {"", 17, 3, 100, roberta(kernels.GELUErf)},
	"roberta, QuickGELU": {"", 17, 3, 100, roberta(kernels.QuickGELU)},
	"roberta, Tanh":      {"", 17, 3, 100, roberta(kernels.Tanh)},
	"wide llama": {"", 131, 3, 100, func(s *nn.Scope) lossy {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: 131, Layers: 3, Heads: 4, KVHeads: 2, Dim: 128, Hidden: 200})
	}},
}

// On a device whole models have the losses and the gradients of the golden files, or of float64 on
// the CPU, in every type.
func TestModelsOnTheDevice(t *testing.T) {
	device := openDevice(t)
	goldens := readGolden(t, "models.json")
	for name, m := range deviceModels {
		want := goldens[m.golden]
		if m.golden == "" {
			want = m.compute(t, nil, tensor.Float64, tensor.Float64)
		}
		for _, way := range []struct {
			name    string
			compute tensor.Dtype
			bound   float64 // of the largest error of a gradient, relative to its largest element; the loss has a tenth
		}{{"float32", tensor.Float32, 1e-5}, {"bfloat16", ops.BFloat16, 0.08}, {"float16", ops.Float16, 0.02}} {
			t.Run(name+"/"+way.name, func(t *testing.T) {
				got := m.compute(t, device, tensor.Float32, way.compute)
				farthest, at, scale := 0.0, "", 0.0
				for _, gradient := range want.Gradients {
					scale = max(scale, slices.Max(gradient), -slices.Min(gradient))
				}
				for parameter, gradient := range want.Gradients {
					if len(got.Gradients[parameter]) != len(gradient) {
						t.Fatalf("the gradient of %s has %d elements, want %d", parameter, len(got.Gradients[parameter]), len(gradient))
					}
					if far := distance(got.Gradients[parameter], gradient, scale); !(far <= farthest) {
						farthest, at = far, parameter
					}
				}
				loss := distance([]float64{got.Loss}, []float64{want.Loss}, 0)
				t.Logf("the loss %.2g and the gradient of %s %.2g off", loss, at, farthest)
				if len(got.Gradients) != len(want.Gradients) || !(farthest <= way.bound) || !(loss <= way.bound/10) {
					t.Errorf("the loss is %.3g off, the gradient of %s %.3g of its largest element, %v needed", loss, at, farthest, way.bound)
				}
			})
		}
	}
}

// distance is the largest difference, relative to the largest element that is wanted, or to scale
// where that is nothing beside it; NaN where there is one.
func distance(got, want []float64, scale float64) float64 {
	worst, largest := 0.0, 0.0
	for i, x := range want {
		largest = max(largest, math.Abs(x))
		worst = max(worst, math.Abs(got[i]-x))
	}
	if largest < 1e-12*scale {
		largest = scale
	}
	return worst / largest
}

// compute gives the loss and the gradients, of the golden file's weights or of those of a seed.
func (m deviceModel) compute(t *testing.T, device *ops.Device, dtype, compute tensor.Dtype) golden {
	t.Helper()
	p, g := nn.NewParameters(1), gorgonia.NewGraph()
	if device != nil {
		if err := p.MoveTo(device); err != nil {
			t.Fatal(err)
		}
	}
	model := m.build(nn.NewScope(g, p).DType(dtype).Compute(compute))
	if m.golden != "" {
		setParameters(t, p, model.Parameters())
	}
	var feeds []*ops.Feed
	ids := func(name string) *gorgonia.Node {
		feed, err := ops.NewFeed(device, dense(tensor.Int, []int{m.rows, m.steps}, func(i int) float64 { return float64(word(name, i) % uint32(m.vocab)) }))
		if err != nil {
			t.Fatal(err)
		}
		feeds = append(feeds, feed)
		return feed.Node(g, name)
	}
	loss := must(model.Loss(on(ids("tokens")), on(ids("targets"))))
	gradients, err := gorgonia.Grad(loss, model.Parameters()...)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	for _, feed := range feeds {
		if err := feed.Send(); err != nil {
			t.Fatal(err)
		}
	}
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	read := func(n *gorgonia.Node) []float64 {
		if device == nil {
			return floats(t, n.Value())
		}
		v, err := ops.Download(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		return floats(t, v)
	}
	result := golden{Loss: read(loss)[0], Gradients: map[string][]float64{}}
	for i, n := range model.Parameters() {
		result.Gradients[n.Name()] = read(gradients[i])
	}
	return result
}
