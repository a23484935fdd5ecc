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
	lora               *nn.LoRA // whose parameters are trained alone; nil for none
	wide               bool     // in float32 alone: in 16 bits other experts may be chosen
	slack              float64  // the bounds of 16 bits are so many times as large; 0 means 1
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

// translator predicts tokens from those before them and from all of them, which its encoder reads.
type translator struct{ *nn.EncoderDecoder }

func (m translator) Loss(tokens, targets nn.Tensor) nn.Tensor {
	return m.EncoderDecoder.Loss(tokens, targets, nn.DecodeInputs{Context: m.Encode(tokens, nn.EncoderInputs{})})
}

// seen is a classifier of three images.
type seen struct {
	*nn.Encoder
	s *nn.Scope
}

func (m seen) Loss(_, targets nn.Tensor) nn.Tensor {
	return m.Classify(m.Forward(pictures(m.s))).Reshape(3, 1, 5).CrossEntropy(targets)
}

// pictures are three, of two channels, in the type of the parameters.
func pictures(s *nn.Scope) nn.Tensor {
	return s.Constant("pictures", dense(s.Parameters()[0].Dtype(), []int{3, 2, 12, 16}, func(i int) float64 { return 2 * value("pictures", i) }))
}

// paired is a model of texts and the three images.
type paired struct {
	*nn.Contrastive
	s *nn.Scope
}

func (m paired) Loss(tokens, _ nn.Tensor) nn.Tensor {
	return m.Contrastive.Loss(m.Logits(m.Images(pictures(m.s)), m.Texts(tokens)))
}

func contrastive(sigmoid bool, change func(text, image *nn.TowerConfig)) func(s *nn.Scope) lossy {
	return func(s *nn.Scope) lossy {
		block := nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 48, Heads: 3}, Activation: kernels.QuickGELU}
		c := nn.ContrastiveConfig{
			Text: nn.TowerConfig{Dim: 40, Encoder: nn.EncoderConfig{Layers: 2, Block: block, Text: &nn.TextConfig{Vocab: 31, Context: 70}}},
			Image: nn.TowerConfig{Dim: 40, Encoder: nn.EncoderConfig{Layers: 2, Block: block,
				Patches: &nn.PatchEmbeddingConfig{Channels: 2, Height: 12, Width: 16, Patch: 4, ClassToken: true}}},
			Sigmoid: sigmoid,
		}
		change(&c.Text, &c.Image)
		return paired{nn.NewContrastive(s, c), s}
	}
}

// heard is a model that reads three sounds and predicts tokens.
type heard struct {
	*nn.EncoderDecoder
	s *nn.Scope
}

func (m heard) Loss(tokens, targets nn.Tensor) nn.Tensor {
	sounds := m.s.Constant("sounds", dense(m.s.Parameters()[0].Dtype(), []int{3, 40, 12}, func(i int) float64 { return value("sounds", i) }))
	return m.EncoderDecoder.Loss(tokens, targets, nn.DecodeInputs{Context: m.Encode(sounds, nn.EncoderInputs{})})
}

// translatorConfig is like T5, whose attention goes by distance and whose tokens both halves share.
func translatorConfig(vocab, context int) nn.EncoderDecoderConfig {
	block := nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 64, Heads: 4, NoBias: true}, Hidden: 96, Gated: true, RMSNorm: true}
	causal, distances := block, &nn.DistanceConfig{Buckets: 8, Farthest: 20}
	causal.Attention.Options.Causal = kernels.CausalBottomRight
	return nn.EncoderDecoderConfig{
		Shared:  true,
		Encoder: nn.EncoderConfig{Layers: 2, Text: &nn.TextConfig{Vocab: vocab, Context: context, NoPositions: true}, Distances: distances, Block: block},
		Decoder: nn.LanguageModelConfig{Vocab: vocab, Layers: 2, Distances: distances, Block: causal},
	}
}

// deberta has scores that go by the vectors of distances, each its own or those of ranges.
func deberta(c nn.DisentangledConfig) func(s *nn.Scope) lossy {
	return func(s *nn.Scope) lossy {
		return masked{nn.NewEncoder(s, nn.EncoderConfig{
			Layers: 2, Text: &nn.TextConfig{Vocab: 17, Context: 100, NoPositions: true}, Disentangled: &c, EmbeddingNorm: true, Heads: nn.EncoderHeads{Masked: true},
			Block: nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 64, Heads: 4}, Norms: nn.PostNorm},
		})}
	}
}

// experts are in the place of a block's MLP.
func experts(c *nn.BlockConfig) {
	c.NewMLP = func(s *nn.Scope, m nn.MLPConfig) nn.Layer {
		return nn.NewExperts(s, nn.ExpertsConfig{Dim: m.Dim, Hidden: 40, Count: 8, Router: kernels.RouterOptions{Chosen: 2, Normalize: true},
			Shared: nn.SharedExpert{Hidden: 32, Gated: true}})
	}
}

// latents are what a block's attention makes keys and values of.
func latents(c *nn.BlockConfig) {
	c.Attention.Latent = &nn.Latent{Rank: 24, QueryRank: 32, Turned: 16, Plain: 24, Values: 32}
}

func smallLlama(block func(c *nn.BlockConfig)) func(s *nn.Scope) lossy {
	return func(s *nn.Scope) lossy {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: 31, Layers: 2, Heads: 4, Dim: 64, Hidden: 96, Block: func(_ int, c *nn.BlockConfig) { block(c) }})
	}
}

var deviceModels = map[string]deviceModel{
	"gpt": {golden: "gpt", vocab: 13, rows: 2, steps: 7, build: func(s *nn.Scope) lossy {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 13, Context: 9, Layers: 2, Heads: 3, Dim: 12})
	}},
	"llama": {golden: "llama", vocab: 13, rows: 2, steps: 7, build: func(s *nn.Scope) lossy {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: 13, Layers: 2, Heads: 4, KVHeads: 2, Dim: 16, Hidden: 20})
	}},
	"qwen": {golden: "qwen", vocab: 13, rows: 2, steps: 7, build: func(s *nn.Scope) lossy {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: 13, Layers: 2, Heads: 4, KVHeads: 1, HeadDim: 6, Dim: 16, Hidden: 20, QKNorm: true, TiedHead: true})
	}},
	"wide gpt": {vocab: 131, rows: 3, steps: 100, build: func(s *nn.Scope) lossy {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 131, Context: 100, Layers: 3, Heads: 4, Dim: 128})
	}},
	"roberta":            {vocab: 17, rows: 3, steps: 100, build: roberta(kernels.GELUErf)},
	"roberta, QuickGELU": {vocab: 17, rows: 3, steps: 100, build: roberta(kernels.QuickGELU)},
	"roberta, Tanh":      {vocab: 17, rows: 3, steps: 100, build: roberta(kernels.Tanh)},
	"wide llama": {vocab: 131, rows: 3, steps: 100, build: func(s *nn.Scope) lossy {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: 131, Layers: 3, Heads: 4, KVHeads: 2, Dim: 128, Hidden: 200})
	}},
	"encoder-decoder": {vocab: 31, rows: 3, steps: 70, slack: 4, build: func(s *nn.Scope) lossy {
		return translator{nn.NewEncoderDecoder(s, translatorConfig(31, 100))}
	}},
	"DeBERTa":             {vocab: 17, rows: 3, steps: 70, slack: 4, build: deberta(nn.DisentangledConfig{Buckets: 80, Norm: true})},
	"DeBERTa with ranges": {vocab: 17, rows: 3, steps: 70, slack: 4, build: deberta(nn.DisentangledConfig{Buckets: 16, Farthest: 60, Norm: true})},
	"LoRA":                {vocab: 31, rows: 3, steps: 70, build: smallLlama(func(*nn.BlockConfig) {}), lora: &nn.LoRA{Rank: 4}, slack: 4},
	"DoRA":                {vocab: 31, rows: 3, steps: 70, build: smallLlama(func(*nn.BlockConfig) {}), lora: &nn.LoRA{Rank: 4, Decomposed: true}, slack: 4},
	"ViT": {vocab: 5, rows: 3, steps: 1, slack: 4, build: func(s *nn.Scope) lossy {
		return seen{nn.NewViT(s, nn.ViTConfig{Channels: 2, Height: 12, Width: 16, Patch: 4, Layers: 2, Heads: 3, Dim: 48, Classes: 5}), s}
	}},
	"CLIP": {vocab: 31, rows: 3, steps: 70, slack: 4, build: contrastive(false, func(text, _ *nn.TowerConfig) {
		text.End, text.Encoder.Block.Attention.Options.Causal = new(-1), kernels.CausalBottomRight
	})},
	"SigLIP": {vocab: 31, rows: 3, steps: 70, slack: 4, build: contrastive(true, func(_, image *nn.TowerConfig) {
		image.Probe, image.Encoder.Patches.ClassToken = true, false
	})},
	"Whisper": {vocab: 31, rows: 3, steps: 30, slack: 4, build: func(s *nn.Scope) lossy {
		c := translatorConfig(31, 0)
		c.Shared, c.Encoder.Distances, c.Encoder.Text, c.Encoder.Sound = false, nil, nil, &nn.SoundConfig{Bins: 12, Context: 20}
		return heard{nn.NewEncoderDecoder(s, c), s}
	}},
	"experts": {vocab: 31, rows: 3, steps: 70, wide: true, build: smallLlama(experts)},
	"latents": {vocab: 31, rows: 3, steps: 70, slack: 4, build: smallLlama(latents)},
	"scales of a residual, sinks and norms of q and k": {vocab: 31, rows: 3, steps: 70, build: smallLlama(func(c *nn.BlockConfig) {
		c.Scales, c.Attention.Sinks, c.Attention.QKNorm, c.NormPlusOne = true, true, true, true
	})},
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
			if m.wide && way.compute != tensor.Float32 {
				continue
			}
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
				bound := way.bound
				if m.slack != 0 && way.compute != tensor.Float32 {
					bound *= m.slack
				}
				loss := distance([]float64{got.Loss}, []float64{want.Loss}, 0)
				t.Logf("the loss %.2g and the gradient of %s %.2g off", loss, at, farthest)
				if len(got.Gradients) != len(want.Gradients) || !(farthest <= bound) || !(loss <= bound/10) {
					t.Errorf("the loss is %.3g off, the gradient of %s %.3g of its largest element, %v needed", loss, at, farthest, bound)
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
	if m.lora != nil {
		if err := p.SetLoRA(*m.lora); err != nil {
			t.Fatal(err)
		}
	}
	if device != nil {
		if err := p.MoveTo(device); err != nil {
			t.Fatal(err)
		}
	}
	s := nn.NewScope(g, p).DType(dtype).Compute(compute)
	model := m.build(s)
	parameters := model.Parameters()
	switch {
	case m.golden != "":
		setParameters(t, p, parameters)
	case m.lora != nil:
		parameters = s.Trainable()
		setParameters(t, p, parameters)
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
	gradients, err := gorgonia.Grad(loss, parameters...)
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
	for i, n := range parameters {
		result.Gradients[n.Name()] = read(gradients[i])
	}
	return result
}
