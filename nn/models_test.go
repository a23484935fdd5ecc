package nn_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The models of this file are written as their users would: each is a few lines over a scope.
// examples/dit is another.

func blocksOf(heads int) nn.BlockConfig {
	return nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Heads: heads}}
}

func visionTransformer(s *nn.Scope, images nn.Tensor) nn.Tensor {
	x := s.Stack("body", s.Patches("patches", images, 4, 16), 2, blocksOf(2))
	return s.Linear("head", x.Mean(1), 10)
}

func maskedBERT(s *nn.Scope, tokens nn.Tensor) nn.Tensor {
	x := s.LayerNorm("norm", s.Positions("places", s.Embedding("words", tokens, 20, 16)))
	x = s.LayerNorm("out", s.Linear("transform", s.Stack("body", x, 2, blocksOf(2)), 16).GELU())
	return s.Linear("predict", x, 20)
}

func t5Block(s *nn.Scope, x, context nn.Tensor, table nn.Tensor, causal bool) nn.Tensor {
	o := ops.AttentionOptions{Scale: 1, Score: ops.RelativeBias(table.Node(), 128, !causal)}
	if causal {
		o.Causal = kernels.CausalBottomRight
	}
	x = x.Add(s.Attention("self", s.RMSNorm("norm1", x), 2, o))
	if !context.IsZero() {
		x = x.Add(s.CrossAttention("cross", s.RMSNorm("norm2", x), context, 2, ops.AttentionOptions{Scale: 1}))
	}
	h := s.RMSNorm("norm3", x)
	return x.Add(s.Linear("down", s.Linear("up", h, 32, nn.NoBias).ReLU(), 16, nn.NoBias))
}

func t5(s *nn.Scope, source, said nn.Tensor) nn.Tensor {
	words := nn.NewEmbedding(s.Sub("words"), nn.EmbeddingConfig{Vocab: 20, Dim: 16, Init: nn.Normal(1)})
	read, write := s.Parameter("read", nn.Normal(0.1), 2, 32), s.Parameter("write", nn.Normal(0.1), 2, 32)
	context, x := words.Forward(source), words.Forward(said)
	for i := range 2 {
		context = t5Block(s.Sub(fmt.Sprint("encoder", i)), context, nn.Tensor{}, read, false)
	}
	for i := range 2 {
		x = t5Block(s.Sub(fmt.Sprint("decoder", i)), x, s.RMSNorm(fmt.Sprint("context", i), context), write, true)
	}
	return words.Logits(s.RMSNorm("norm", x).Mul(1 / math.Sqrt(16)))
}

func moe(s *nn.Scope, tokens nn.Tensor) nn.Tensor {
	x := s.Positions("places", s.Embedding("words", tokens, 20, 16))
	for i := range 2 {
		b := s.Sub(fmt.Sprint("block", i))
		x = x.Add(b.Attention("attn", b.LayerNorm("norm1", x), 2, causal))
		x = x.Add(b.Experts("moe", b.LayerNorm("norm2", x), nn.ExpertsConfig{Hidden: 8, Count: 3, Router: kernels.RouterOptions{Chosen: 2}}))
	}
	return s.Linear("head", s.LayerNorm("norm", x), 20)
}

func whisper(s *nn.Scope, sound, said nn.Tensor) nn.Tensor {
	x := s.Conv1d("conv1", sound, 16, ops.Sliding{Size: 3, Padding: 1}).GELU()
	x = s.Conv1d("conv2", x, 16, ops.Sliding{Size: 3, Stride: 2, Padding: 1}).GELU()
	x = s.Stack("encoder", s.Positions("sound", x, nn.Normal(0.5)), 1, blocksOf(2))
	c := nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 16, Heads: 2, Options: causal}, Cross: true}
	write := nn.NewStack(s.Sub("decoder"), nn.StackConfig{Layers: 1, Block: c})
	h := s.Positions("text", s.Embedding("words", said, 20, 16))
	return s.Linear("head", write.ForwardWith(h, nn.BlockInputs{Context: x}), 20)
}

// clip is the loss of pictures and texts that belong together, row by row.
func clip(s *nn.Scope, images, tokens, rows nn.Tensor) nn.Tensor {
	unit := func(x nn.Tensor) nn.Tensor { return x.Div(x.Square().Sum(-1).Sqrt().Reshape(-1, 1)) }
	picture := unit(s.Linear("picture", visionTransformer(s.Sub("vision"), images), 16, nn.NoBias))
	text := unit(s.Linear("text", maskedBERT(s.Sub("words"), tokens).Mean(1), 16, nn.NoBias))
	logits := picture.MatMul(text, ops.MatMulOptions{TransposeB: true}).Mul(s.Parameter("scale", nn.Constant(2.66), 1, 1).Exp())
	return logits.CrossEntropy(rows).Add(logits.Permute(1, 0).CrossEntropy(rows)).Mul(0.5)
}

// dpo prefers the first half of the texts to the second, beside a model that is frozen.
func dpo(s *nn.Scope, tokens, targets nn.Tensor) nn.Tensor {
	logp := func(s *nn.Scope) nn.Tensor {
		none := kernels.NoReduction
		logits := nn.NewGPT(s, nn.GPTConfig{Vocab: 20, Context: 8, Layers: 1, Heads: 2, Dim: 16}).Forward(tokens)
		return logits.CrossEntropy(targets, ops.CrossEntropyOptions{Reduction: none}).Sum(1).Mul(-1)
	}
	gain := logp(s.Sub("policy")).Sub(logp(s.Sub("reference"))).Chunk(0, 2)
	return gain[0].Sub(gain[1]).Mul(0.1).Sigmoid().Log().Mean().Mul(-1)
}

func convolutionalLSTM(s *nn.Scope, sound nn.Tensor) nn.Tensor {
	x, l := s.Conv1d("conv", sound, 8, ops.Sliding{Size: 3, Padding: 1}).ReLU(), s.Sub("lstm")
	again := nn.NewLinear(l.Sub("again"), nn.LinearConfig{In: 8, Out: 4 * 8, NoBias: true})
	h, c := x.Select(1, 0).Mul(0), x.Select(1, 0).Mul(0)
	for _, step := range l.Linear("in", x, 4*8).Unbind(1, x.Dim(1)) {
		g := step.Add(again.Forward(h)).Chunk(-1, 4)
		c = g[0].Sigmoid().Mul(c).Add(g[1].Sigmoid().Mul(g[2].Tanh()))
		h = g[3].Sigmoid().Mul(c.Tanh())
	}
	return s.Linear("head", h, 10)
}

// Models of one's own have a loss and gradients that are finite, and each parameter has one that is
// not zero.
func TestModelsOfOnesOwn(t *testing.T) {
	for name, model := range map[string]func(s *nn.Scope, in func(name string, shape ...int) nn.Tensor, ids func(name string, below int, shape ...int) nn.Tensor) nn.Tensor{
		"ViT": func(s *nn.Scope, in func(string, ...int) nn.Tensor, ids func(string, int, ...int) nn.Tensor) nn.Tensor {
			return visionTransformer(s, in("images", 2, 3, 8, 8)).CrossEntropy(ids("labels", 10, 2))
		},
		"masked BERT": func(s *nn.Scope, _ func(string, ...int) nn.Tensor, ids func(string, int, ...int) nn.Tensor) nn.Tensor {
			return maskedBERT(s, ids("tokens", 20, 2, 6)).CrossEntropy(ids("targets", 20, 2, 6))
		},
		"T5": func(s *nn.Scope, _ func(string, ...int) nn.Tensor, ids func(string, int, ...int) nn.Tensor) nn.Tensor {
			return t5(s, ids("source", 20, 2, 6), ids("said", 20, 2, 5)).CrossEntropy(ids("targets", 20, 2, 5))
		},
		"MoE": func(s *nn.Scope, _ func(string, ...int) nn.Tensor, ids func(string, int, ...int) nn.Tensor) nn.Tensor {
			return moe(s, ids("tokens", 20, 2, 6)).CrossEntropy(ids("targets", 20, 2, 6))
		},
		"Whisper": func(s *nn.Scope, in func(string, ...int) nn.Tensor, ids func(string, int, ...int) nn.Tensor) nn.Tensor {
			return whisper(s, in("sound", 2, 12, 5), ids("said", 20, 2, 6)).CrossEntropy(ids("targets", 20, 2, 6))
		},
		"CLIP": func(s *nn.Scope, in func(string, ...int) nn.Tensor, ids func(string, int, ...int) nn.Tensor) nn.Tensor {
			return clip(s, in("images", 3, 3, 8, 8), ids("tokens", 20, 3, 6), ids("rows", 3, 3))
		},
		"DPO": func(s *nn.Scope, _ func(string, ...int) nn.Tensor, ids func(string, int, ...int) nn.Tensor) nn.Tensor {
			s.Values().Freeze(func(name string) bool { return name[0] == 'r' })
			return dpo(s, ids("tokens", 20, 4, 8), ids("targets", 20, 4, 8))
		},
		"convolution and LSTM": func(s *nn.Scope, in func(string, ...int) nn.Tensor, ids func(string, int, ...int) nn.Tensor) nn.Tensor {
			return convolutionalLSTM(s, in("sound", 2, 7, 5)).CrossEntropy(ids("labels", 10, 2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := gorgonia.NewGraph()
			s := nn.NewScope(g, nn.NewParameters(1))
			loss := must(model(s, func(name string, shape ...int) nn.Tensor { return on(input(g, tensor.Float32, name, shape...)) },
				func(name string, below int, shape ...int) nn.Tensor { return on(integers(g, name, below, shape...)) }))
			trained := s.Trainable()
			differentiate(t, "tape", g, loss, trained)
			if x := floats(t, loss.Value())[0]; !(x > 0 && x < 10) {
				t.Errorf("the loss is %v", x)
			}
			for _, n := range trained {
				gradient, err := n.Grad()
				if err != nil {
					t.Fatalf("%s: %v", n.Name(), err)
				}
				largest := 0.0
				for _, x := range floats(t, gradient) {
					largest = math.Max(largest, math.Abs(x))
				}
				if !(largest > 0 && largest < 1e3) {
					t.Errorf("the largest element of the gradient of %s is %v", n.Name(), largest)
				}
			}
		})
	}
}
