package nn_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// failure is the error of one of the functions that give a result and an error.
func failure[T any](_ T, err error) error { return err }

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// checkScope checks the error of a model, and that it comes after its line.
func checkScope(t *testing.T, want string, model func(s *nn.Scope)) {
	t.Helper()
	s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(0))
	model(s)
	if err := s.Err(); err == nil {
		t.Errorf("got  no error\nwant %s", want)
	} else if at, message, _ := strings.Cut(err.Error(), ": "); message != want || !strings.Contains(at, "_test.go:") {
		t.Errorf("got  %v\nwant %s, after its line", err, want)
	}
}

// TestConfigErrors has what is wrong with a layer before it is used.
func TestConfigErrors(t *testing.T) {
	linear := func(c nn.LinearConfig) func(s *nn.Scope) { return func(s *nn.Scope) { nn.NewLinear(s, c) } }
	embedding := func(c nn.EmbeddingConfig) func(s *nn.Scope) { return func(s *nn.Scope) { nn.NewEmbedding(s, c) } }
	norm := func(c nn.NormConfig) func(s *nn.Scope) { return func(s *nn.Scope) { nn.NewNorm(s, c) } }
	mlp := func(c nn.MLPConfig) func(s *nn.Scope) { return func(s *nn.Scope) { nn.NewMLP(s, c) } }
	attention := func(c nn.MultiHeadAttentionConfig) func(s *nn.Scope) {
		return func(s *nn.Scope) { nn.NewMultiHeadAttention(s, c) }
	}
	block := func(c nn.BlockConfig) func(s *nn.Scope) {
		c.Attention.Dim, c.Attention.Heads = 8, 2
		return func(s *nn.Scope) { nn.NewBlock(s, c) }
	}
	experts := func(c nn.ExpertsConfig) func(s *nn.Scope) {
		c.Dim, c.Hidden = 4, 4
		return func(s *nn.Scope) { nn.NewExperts(s, c) }
	}
	gpt := func(c nn.GPTConfig) func(s *nn.Scope) { return func(s *nn.Scope) { nn.NewGPT(s, c) } }
	llama := func(c nn.LlamaConfig) func(s *nn.Scope) { return func(s *nn.Scope) { nn.NewLlama(s, c) } }
	checkError(t, errors.Unwrap(nn.NewScope(nil, nil).Err()), "Scope: g is nil, it needs to be a graph")
	for _, c := range []struct {
		model func(s *nn.Scope)
		want  string
	}{
		{linear(nn.LinearConfig{Out: 3}), "Linear: in is 0, it needs to be at least 1"},
		{linear(nn.LinearConfig{In: 3, Out: -1}), "Linear: out is -1, it needs to be at least 1"},
		{func(s *nn.Scope) { s.DType(tensor.Int) }, "Scope: dtype is int, it needs to be float32 or float64"},
		{linear(nn.LinearConfig{In: 3, Out: 3, Activation: 77}),
			"Linear: activation is 77, it needs to be NoActivation, GELUTanh, GELUErf, SiLU, ReLUSquared, ReLU, QuickGELU, Sigmoid or Tanh"},
		{embedding(nn.EmbeddingConfig{Vocab: 1 << 32, Dim: 1 << 32}),
			"Embedding: parameter weight: shape [4294967296 4294967296] of float32 takes more than this machine's memory"},
		{embedding(nn.EmbeddingConfig{Vocab: 1 << 30, Dim: 1 << 30}),
			"Embedding: parameter weight: shape [1073741824 1073741824] of float32 takes more than this machine's memory"},
		{linear(nn.LinearConfig{In: 1 << 40, Out: 1 << 23}),
			"Linear: parameter weight: shape [1099511627776 8388608] of float32 takes more than this machine's memory"},
		{embedding(nn.EmbeddingConfig{Dim: 2}), "Embedding: vocab is 0, it needs to be at least 1"},
		{func(s *nn.Scope) { nn.NewPositionalEmbedding(s, nn.PositionalEmbeddingConfig{Dim: 2}) }, "PositionalEmbedding: context is 0, it needs to be at least 1"},
		{norm(nn.NormConfig{}), "LayerNorm: dim is 0, it needs to be at least 1"},
		{norm(nn.NormConfig{Dim: 2, Epsilon: -1}), "LayerNorm: epsilon is -1, it needs to be positive, or 0 for 1e-5"},
		{norm(nn.NormConfig{RMS: true}), "RMSNorm: dim is 0, it needs to be at least 1"},
		{norm(nn.NormConfig{Dim: 2, Epsilon: math.Inf(1), RMS: true}), "RMSNorm: epsilon is +Inf, it needs to be positive, or 0 for 1e-5"},
		{func(s *nn.Scope) { nn.NewDropout(s, 1) }, "Dropout: p is 1, it needs to be in [0, 1)"},
		{mlp(nn.MLPConfig{}), "MLP: dim is 0, it needs to be at least 1"},
		{mlp(nn.MLPConfig{Dim: 3, Hidden: -1, Gated: true}), "MLP: hidden is -1, it needs to be at least 1"},

		{attention(nn.MultiHeadAttentionConfig{Heads: 2}), "MultiHeadAttention: dim is 0, it needs to be at least 1"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 10, Heads: 4}), "MultiHeadAttention: dim is 10, it needs to be a multiple of heads, which is 4"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, KVHeads: 3}), "MultiHeadAttention: heads is 4, it needs to be a multiple of kvHeads, which is 3"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, KVHeads: -1}), "MultiHeadAttention: heads is 4, it needs to be a multiple of kvHeads, which is -1"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, HeadDim: -2}), "MultiHeadAttention: head dim is -2, it needs to be at least 1"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, HeadDim: 2000}), "MultiHeadAttention: head dim is 2000, it needs to be at most 1024"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, ContextDim: 2}), "MultiHeadAttention: context dim is 2, it needs to be 0 where Cross is not set"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 6, Heads: 2, RoPE: &ops.RoPEOptions{}}),
			"MultiHeadAttention: RoPE turns 3 dimensions of a head, it needs to be an even number of at most 3"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, RoPE: &ops.RoPEOptions{RotaryDim: 6}}),
			"MultiHeadAttention: RoPE turns 6 dimensions of a head, it needs to be an even number of at most 4"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Latent: &nn.Latent{Rank: 3}}), "MultiHeadAttention: latent turned is 0, it needs to be at least 1"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Latent: &nn.Latent{Rank: 3, QueryRank: -1, Turned: 2, Plain: 2, Values: 2}}),
			"MultiHeadAttention: latent query rank is -1, it needs to be positive, or 0 for none"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, QKNorm: true, Latent: &nn.Latent{Rank: 3, Turned: 2, Plain: 2, Values: 2}}),
			"MultiHeadAttention: Cross, QKNorm, QKNormAll, Turn or NoKeyBias is set, it needs to be none with Latent"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, KVHeads: 1, Latent: &nn.Latent{Rank: 3, Turned: 2, Plain: 2, Values: 2}}),
			"MultiHeadAttention: kv heads is 1, with Latent it needs to be 0 or the 2 of queries"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Latent: &nn.Latent{Rank: 3, Turned: 2, Plain: 2, Values: 2}}),
			"MultiHeadAttention: RoPE is nil or turns another part, with Latent it needs to turn 2 dimensions"},

		{block(nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Cross: true}}), "Block: Attention.Cross is set, a block attends to itself first: its own Cross adds a context"},
		{block(nn.BlockConfig{NormPlusOne: true}), "Block: NormPlusOne is set, it needs RMSNorm"},
		{block(nn.BlockConfig{Norms: nn.ParallelNorm, Cross: true}), "Block: Cross is set and norms are in parallel, a context is attended to between attention and the MLP"},
		{block(nn.BlockConfig{Residual: -1}), "Block: residual is -1, it needs to be positive, or 0 for 1"},
		{func(s *nn.Scope) {
			nn.NewPositionalEmbedding(s, nn.PositionalEmbeddingConfig{Context: 4, Dim: 2, First: 1, Kind: nn.SinusoidalPositions})
		}, "PositionalEmbedding: first is 1, it needs to be 0, or positive with LearnedPositions"},
		{func(s *nn.Scope) {
			nn.NewLanguageModel(s, nn.LanguageModelConfig{FirstPosition: 2})
		}, "LanguageModel: first position is 2, it needs to be 0, or positive with Positions"},
		{block(nn.BlockConfig{Norms: 7}),
			"Block: norms is 7, it needs to be PreNorm, PostNorm, BranchNorm, SandwichNorm, StreamNorm, ParallelNorm or ParallelNorms"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, QKNorm: true, QKNormAll: true}),
			"MultiHeadAttention: QKNorm and QKNormAll are set, it needs to be one of them"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, QKNorm: true, QKNormKind: 3}),
			"MultiHeadAttention: QKNormKind is 3, it needs to be HeadRMSNorm, HeadLayerNorm or HeadLayerNorms"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, QKNormKind: nn.HeadLayerNorm}), "MultiHeadAttention: QKNormKind is set, it needs QKNorm"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, QKNorm: true, QKNormKind: nn.HeadLayerNorm, NormPlusOne: true}),
			"MultiHeadAttention: NormPlusOne is set, QKNormKind needs to be HeadRMSNorm"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Clip: -1}), "MultiHeadAttention: clip is -1, it needs to be positive, or 0 for none"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Clip: 1, QKNorm: true}),
			"MultiHeadAttention: Clip is set, it needs to be without QKNorm, Latent and Disentangled"},
		{func(s *nn.Scope) {
			nn.NewLanguageModel(s, nn.LanguageModelConfig{Positions: true, SkipPadding: true})
		}, "LanguageModel: first position is 0, it needs to be positive with SkipPadding"},
		{func(s *nn.Scope) {
			nn.NewLanguageModel(s, nn.LanguageModelConfig{TokenDim: -2})
		}, "LanguageModel: token dim is -2, it needs to be positive, or 0 for that of the blocks"},
		{func(s *nn.Scope) {
			nn.NewExperts(s, nn.ExpertsConfig{Dim: 4, Hidden: 4, Count: 2, Activation: kernels.ReLU, Clamped: &kernels.ClampedGate{Slope: 1, Limit: 1}})
		}, "Experts: Clamped and Activation are set, it needs to be one of them"},
		{experts(nn.ExpertsConfig{Count: 2}), "Experts: router: chosen is 0, it needs to be from 1 to the 2 experts"},
		{experts(nn.ExpertsConfig{Count: 2, Router: kernels.RouterOptions{Chosen: 3}}), "Experts: router: chosen is 3, it needs to be from 1 to the 2 experts"},
		{experts(nn.ExpertsConfig{Count: 4097, Router: kernels.RouterOptions{Chosen: 1}}), "Experts: router: there are 4097 experts, it needs to be at most 4096"},
		{experts(nn.ExpertsConfig{Count: 2, Router: kernels.RouterOptions{Chosen: 1}, Clamped: &kernels.ClampedGate{Slope: 1}}),
			"Experts: limit is 0, it needs to be positive"},
		{experts(nn.ExpertsConfig{Count: 2, Router: kernels.RouterOptions{Chosen: 1}, Activation: 77}),
			"Experts: activation is 77, it needs to be NoActivation, GELUTanh, GELUErf, SiLU, ReLUSquared, ReLU, QuickGELU, Sigmoid or Tanh"},
		{func(s *nn.Scope) {
			nn.NewStack(s, nn.StackConfig{Layers: 4, Blocks: 3})
		}, "Stack: blocks is 3, it needs to be a divisor of layers, which is 4"},
		{gpt(nn.GPTConfig{}), "GPT: vocab is 0, it needs to be at least 1"},
		{gpt(nn.GPTConfig{Vocab: 5, Context: 5, Heads: 2, Dim: 8}), "GPT: layers is 0, it needs to be at least 1"},
		{gpt(nn.GPTConfig{Vocab: 5, Context: 5, Layers: 1, Heads: 3, Dim: 8}), "MultiHeadAttention: dim is 8, it needs to be a multiple of heads, which is 3"},
		{gpt(nn.GPTConfig{Vocab: 5, Context: 5, Layers: 1, Heads: 2, Dim: 8, Dropout: -0.5}), "Dropout: p is -0.5, it needs to be in [0, 1)"},
		{llama(nn.LlamaConfig{Vocab: 5, Context: -1, Layers: 1, Heads: 2, Dim: 8}), "Llama: context is -1, it needs to be positive, or 0 for no limit"},
		{llama(nn.LlamaConfig{Vocab: 5, Layers: 1, Heads: 2, KVHeads: 4, Dim: 8}), "MultiHeadAttention: heads is 2, it needs to be a multiple of kvHeads, which is 4"},
		{llama(nn.LlamaConfig{Vocab: 5, Layers: 1, Heads: 4, Dim: 12}),
			"MultiHeadAttention: RoPE turns 3 dimensions of a head, it needs to be an even number of at most 3"},
		{func(s *nn.Scope) {
			nn.NewLanguageModel(s, nn.LanguageModelConfig{Vocab: 5, Layers: 1, Distances: &nn.DistanceConfig{Buckets: 8, Farthest: 9}, Block: nn.BlockConfig{
				Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Options: ops.AttentionOptions{Score: score.SoftCap(2)}}}})
		}, "Distances: Options.Score of attention is set, it needs to be nil where there are distances"},
		{func(s *nn.Scope) {
			nn.NewEncoder(s, nn.EncoderConfig{Layers: 1, Grid: 9, Patches: &nn.PatchEmbeddingConfig{Channels: 1, Height: 4, Width: 4, Patch: 2}, Block: nn.BlockConfig{
				Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Turn: func(h nn.Tensor) nn.Tensor { return h }}}})
		}, "Encoder: Grid is set beside Turn of attention, it needs to be alone"},
		{func(s *nn.Scope) {
			block := func(dim int) nn.BlockConfig {
				return nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: 2}}
			}
			nn.NewEncoderDecoder(s, nn.EncoderDecoderConfig{Shared: true, Encoder: nn.EncoderConfig{Layers: 1, Text: &nn.TextConfig{Vocab: 5, Context: 6}, Block: block(8)},
				Decoder: nn.LanguageModelConfig{Vocab: 5, Layers: 1, Block: block(12)}})
		}, "EncoderDecoder: Shared is set and tokens of the encoder have 8 features, it needs the 12 of the decoder"},
		{func(s *nn.Scope) {
			p := nn.NewParameters(1)
			if err := p.SetLoRA(nn.LoRA{Rank: 2, Embeddings: func(string) bool { return true }}); err != nil {
				t.Fatal(err)
			}
			other := nn.NewScope(s.Graph(), p)
			nn.NewLlama(other, nn.LlamaConfig{Vocab: 5, Layers: 1, Heads: 2, Dim: 8, Hidden: 8})
			s.Fail(errors.Unwrap(other.Err()))
		}, "Embedding: Embeddings of LoRA picks it, it needs to pick tables that vectors are looked up in: this one makes logits"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Options: ops.AttentionOptions{Ranks: struct{ kernels.Ranks }{}}}),
			"MultiHeadAttention: Options.Ranks is set, it needs to be nil: Scope.ShareSequences is for the whole model"},
	} {
		checkScope(t, c.want, c.model)
	}
}

// TestNameErrors has parameters that stand in each other's way.
func TestNameErrors(t *testing.T) {
	p := nn.NewParameters(0)
	linear := func(s *nn.Scope, name string, out int) { nn.NewLinear(s.Sub(name), nn.LinearConfig{In: 2, Out: out}) }
	s := nn.NewScope(gorgonia.NewGraph(), p)
	if linear(s, "a", 3); s.Err() != nil {
		t.Fatal(s.Err())
	}
	for want, model := range map[string]func(s *nn.Scope){
		"Linear: the graph already has a parameter or input called a.weight, each layer needs a scope of its own: Sub makes one; a layer to apply more than once is a value, as NewLinear gives": func(s *nn.Scope) {
			linear(s, "a", 3)
			linear(s, "a", 3)
		},
		"Linear: the graph already has a parameter or input called b.weight, each layer needs a scope of its own: Sub makes one; a layer to apply more than once is a value, as NewLinear gives": func(s *nn.Scope) {
			gorgonia.NewMatrix(s.Graph(), tensor.Float32, gorgonia.WithShape(2, 2), gorgonia.WithName("b.weight"))
			linear(s, "b", 3)
		},
		"Linear: parameter a.weight exists as float32 of shape [2 3], it needs float32 of shape [2 4]": func(s *nn.Scope) {
			linear(s, "a", 3)
			again := nn.NewScope(gorgonia.NewGraph(), s.Values())
			linear(again, "a", 4)
			s.Fail(errors.Unwrap(again.Err()))
		},
		"Linear: parameter a.weight exists as float32 of shape [2 3], it needs float64 of shape [2 3]": func(s *nn.Scope) {
			linear(s, "a", 3)
			again := nn.NewScope(gorgonia.NewGraph(), s.Values()).DType(tensor.Float64)
			linear(again, "a", 3)
			s.Fail(errors.Unwrap(again.Err()))
		},
	} {
		checkScope(t, want, model)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{p.Set("", dense(tensor.Float32, []int{1}, func(int) float64 { return 0 })), "Parameters: name is empty, it needs to be a parameter's"},
		{p.Set("a.bias", nil), "Parameters: a.bias is nil, it needs to be a value"},
		{p.Set("a.bias", dense(tensor.Int, []int{3}, func(int) float64 { return 0 })), "Parameters: a.bias is int, it needs to be float32 or float64"},
		{p.Set("a.bias", dense(tensor.Float32, []int{2}, func(int) float64 { return 0 })),
			"Parameters: a.bias is float32 of shape [2], its layers need float32 of shape [3]"},
		{p.Set("a.bias", dense(tensor.Float64, []int{3}, func(int) float64 { return 0 })),
			"Parameters: a.bias is float64 of shape [3], its layers need float32 of shape [3]"},
	} {
		checkError(t, c.err, c.want)
	}
}

// TestForwardErrors has what is wrong with the inputs of a layer.
func TestForwardErrors(t *testing.T) {
	node := func(s *nn.Scope, dtype tensor.Dtype, shape ...int) nn.Tensor {
		return s.Tensor(gorgonia.NewTensor(s.Graph(), dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName("in")), nil)
	}
	f32 := func(s *nn.Scope, shape ...int) nn.Tensor { return node(s, tensor.Float32, shape...) }
	linear := func(x func(s *nn.Scope) nn.Tensor) func(s *nn.Scope) {
		return func(s *nn.Scope) { nn.NewLinear(s, nn.LinearConfig{In: 8, Out: 3}).Forward(x(s)) }
	}
	positions := func(shape ...int) func(s *nn.Scope) {
		return func(s *nn.Scope) {
			nn.NewPositionalEmbedding(s, nn.PositionalEmbeddingConfig{Context: 4, Dim: 8}).Forward(f32(s, shape...))
		}
	}
	attention := func(c nn.MultiHeadAttentionConfig, call func(s *nn.Scope, m *nn.MultiHeadAttention)) func(s *nn.Scope) {
		c.Dim, c.Heads = 8, 2
		return func(s *nn.Scope) { call(s, nn.NewMultiHeadAttention(s, c)) }
	}
	packed := func(call func(s *nn.Scope, m *nn.MultiHeadAttention)) func(s *nn.Scope) {
		return func(s *nn.Scope) {
			lens := gorgonia.NewVector(s.Graph(), tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("lens"))
			attention(nn.MultiHeadAttentionConfig{Options: ops.AttentionOptions{Lengths: ops.Lengths{QLens: lens, KVLens: lens}}}, call)(s)
		}
	}
	self, cross := nn.MultiHeadAttentionConfig{}, nn.MultiHeadAttentionConfig{Cross: true, ContextDim: 5}
	gpt := func(call func(s *nn.Scope, m *nn.LanguageModel)) func(s *nn.Scope) {
		return func(s *nn.Scope) {
			call(s, nn.NewGPT(s, nn.GPTConfig{Vocab: 5, Context: 6, Layers: 1, Heads: 2, Dim: 8}))
		}
	}
	type scope = nn.Scope
	type mha = nn.MultiHeadAttention
	type lm = nn.LanguageModel
	for _, c := range []struct {
		model func(s *nn.Scope)
		want  string
	}{
		{linear(func(*scope) nn.Tensor { return nn.Tensor{} }), "Linear: x is a zero Tensor, it needs to be one of the model's"},
		{linear(func(s *scope) nn.Tensor { return f32(s, 2, 7) }), "Linear: x has shape [2 7], it needs a last axis of 8"},
		{linear(func(s *scope) nn.Tensor { return node(s, tensor.Float64, 2, 8) }), "Linear: x is float64, it needs to go with the layer's parameters, which are float32"},
		{linear(func(*scope) nn.Tensor { return f32(nn.NewScope(gorgonia.NewGraph(), nil), 2, 8) }), "Linear: x belongs to another graph than the layer"},
		{func(s *scope) {
			s.Tensor(gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float32, gorgonia.WithName("m")), nil)
		}, "m belongs to another graph than the scope"},
		{func(s *scope) { nn.NewNorm(s, nn.NormConfig{Dim: 8}).Forward(f32(s, 7)) }, "LayerNorm: x has shape [7], it needs a last axis of 8"},
		{func(s *scope) { nn.NewNorm(s, nn.NormConfig{Dim: 8, RMS: true}).Forward(f32(s, 7)) }, "RMSNorm: x has shape [7], it needs a last axis of 8"},
		{func(s *scope) { nn.NewDropout(s, 0.5).Forward(nn.Tensor{}) }, "Dropout: x is a zero Tensor, it needs to be one of the model's"},
		{func(s *scope) { nn.NewDropout(s, 0).Forward(nn.Tensor{}) }, "Dropout: x is a zero Tensor, it needs to be one of the model's"},
		{func(s *scope) { nn.NewEmbedding(s, nn.EmbeddingConfig{Vocab: 3, Dim: 8}).Forward(f32(s, 2, 3)) }, "Embedding: ids is float32, it needs to be int, int32 or int64"},
		{positions(2, 5, 8), "PositionalEmbedding: x has 5 positions, it needs at most the table's 4"},
		{positions(2, 8), "PositionalEmbedding: x has shape [2 8], it needs three axes (batch, length, 8)"},
		{attention(self, func(s *scope, m *mha) { m.Forward(f32(s, 2, 8)) }), "MultiHeadAttention: x has shape [2 8], it needs three axes (batch, length, features)"},
		{packed(func(s *scope, m *mha) { m.Forward(f32(s, 2, 3, 8)) }), "MultiHeadAttention: x has shape [2 3 8], it needs two axes (total length, features)"},
		{attention(cross, func(s *scope, m *mha) { m.Forward(f32(s, 2, 3, 8)) }), "MultiHeadAttention: context is missing, cross attention needs one"},
		{attention(self, func(s *scope, m *mha) { m.ForwardWith(f32(s, 2, 3, 8), nn.AttentionInputs{Context: f32(s, 2, 3, 8)}) }),
			"MultiHeadAttention: context is given, it needs to be none where Cross is not set"},
		{attention(cross, func(s *scope, m *mha) { m.ForwardWith(f32(s, 2, 3, 8), nn.AttentionInputs{Context: f32(s, 2, 3, 6)}) }),
			"MultiHeadAttention: context has shape [2 3 6], it needs a last axis of 5"},
		{attention(cross, func(s *scope, m *mha) { m.ForwardWith(f32(s, 2, 3, 8), nn.AttentionInputs{Context: f32(s, 3, 5)}) }),
			"MultiHeadAttention: context has shape [3 5], it needs three axes (batch, length, features)"},
		{attention(cross, func(s *scope, m *mha) {
			m.ForwardWith(f32(s, 2, 3, 8), nn.AttentionInputs{Context: f32(s, 2, 4, 5), KeyMask: f32(s, 2, 3)})
		}), "MultiHeadAttention: key mask has shape [2 3], it needs one value for each key: [2 4]"},
		{attention(nn.MultiHeadAttentionConfig{Options: ops.AttentionOptions{ALiBi: []float64{1, 0.5}}}, func(s *scope, m *mha) {
			m.ForwardWith(f32(s, 2, 3, 8), nn.AttentionInputs{KeyLengths: node(s, tensor.Int, 2)})
		}), "MultiHeadAttention: key lengths are given, and there is a window or ALiBi, which would count from the last key: it needs a key mask"},
		{packed(func(s *scope, m *mha) { m.ForwardWith(f32(s, 6, 8), nn.AttentionInputs{KeyMask: f32(s, 1, 6)}) }),
			"MultiHeadAttention: key mask is given, packed sequences have no padding to hide"},
		{attention(self, func(s *scope, m *mha) {
			m.ForwardWith(f32(s, 2, 3, 8), nn.AttentionInputs{KeyMask: node(s, tensor.Byte, 2, 3)})
		}), "KeyMask: mask is uint8, it needs to be bool, float32, float64, BFloat16 or Float16, int, int32 or int64"},
		{gpt(func(s *scope, m *lm) { m.Forward(nn.Tensor{}) }), "GPT: tokens is a zero Tensor, it needs to be one of the model's"},
		{gpt(func(s *scope, m *lm) { m.Forward(f32(s, 2, 3)) }), "GPT: tokens is float32, it needs to be int, int32 or int64"},
		{gpt(func(s *scope, m *lm) { m.Forward(node(s, tensor.Int, 3)) }), "GPT: tokens has shape [3], it needs two axes (batch, length)"},
		{gpt(func(s *scope, m *lm) { m.Forward(node(s, tensor.Int, 1, 7)) }), "GPT: tokens has 7 positions, it needs at most the context's 6"},
		{gpt(func(s *scope, m *lm) { m.Loss(node(s, tensor.Int, 2, 6), nn.Tensor{}) }), "GPT: targets is a zero Tensor, it needs to be one of the model's"},
		{gpt(func(s *scope, m *lm) { m.Loss(node(s, tensor.Int, 2, 6), node(s, tensor.Int, 2, 5)) }), "GPT: targets has shape [2 5], it needs tokens's [2 6]"},
		{func(s *scope) { (&nn.Linear{}).Forward(f32(s, 2, 8)) }, "nn: the layer is a zero value, it needs to be what its New function gave"},
	} {
		checkScope(t, c.want, c.model)
	}
}

// TestIDErrors has what only a run knows.
func TestIDErrors(t *testing.T) {
	for _, c := range []struct {
		tokens, targets []int
		want            string
	}{
		{[]int{0, 5, 1}, []int{0, 1, 2}, "ids[0 1] is 5, it needs to be from 0 to 4"},
		{[]int{0, -1, 1}, []int{0, 1, 2}, "ids[0 1] is -1, it needs to be from 0 to 4"},
		{[]int{0, 1, 1}, []int{0, 1, 5}, "targets[2] is 5, it needs to be from 0 to 4"},
		{[]int{0, 1, 1}, []int{0, -1, 4}, "targets[1] is -1, it needs to be from 0 to 4"},
		{[]int{0, 1, 4}, []int{0, nn.IgnoreTarget, 4}, ""},
	} {
		g := gorgonia.NewGraph()
		m := nn.NewGPT(nn.NewScope(g, nil), nn.GPTConfig{Vocab: 5, Context: 3, Layers: 1, Heads: 2, Dim: 8})
		ids := func(name string, data []int) *gorgonia.Node {
			return gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(1, 3), gorgonia.WithName(name),
				gorgonia.WithValue(tensor.New(tensor.WithShape(1, 3), tensor.WithBacking(data))))
		}
		must(m.Loss(on(ids("tokens", c.tokens)), on(ids("targets", c.targets))))
		switch err := gorgonia.NewTapeMachine(g).RunAll(); {
		case c.want == "" && err != nil:
			t.Errorf("tokens %v, targets %v: %v", c.tokens, c.targets, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("tokens %v, targets %v:\ngot  %v\nwant %s", c.tokens, c.targets, err, c.want)
		}
	}
}
