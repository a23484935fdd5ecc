package nn_test

import (
	"math"
	"strings"
	"testing"

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

// TestConfigErrors has what is wrong with a layer before it is used.
func TestConfigErrors(t *testing.T) {
	graph := gorgonia.NewGraph
	linear := func(c nn.LinearConfig) error { return failure(nn.NewLinear(graph(), c)) }
	attention := func(c nn.MultiHeadAttentionConfig) error { return failure(nn.NewMultiHeadAttention(graph(), c)) }
	block := func(c nn.BlockConfig) error { return failure(nn.NewBlock(graph(), c)) }
	gpt := func(c nn.GPTConfig) error { return failure(nn.NewGPT(graph(), c)) }
	llama := func(c nn.LlamaConfig) error { return failure(nn.NewLlama(graph(), c)) }
	for _, c := range []struct {
		err  error
		want string
	}{
		{failure(nn.NewLinear(nil, nn.LinearConfig{In: 1, Out: 1})), "Linear: g is nil, it needs to be a graph"},
		{linear(nn.LinearConfig{Out: 3}), "Linear: in is 0, it needs to be at least 1"},
		{linear(nn.LinearConfig{In: 3, Out: -1}), "Linear: out is -1, it needs to be at least 1"},
		{linear(nn.LinearConfig{In: 3, Out: 3, DType: tensor.Int}), "Linear: dtype is int, it needs to be float32 or float64"},
		{linear(nn.LinearConfig{In: 3, Out: 3, Activation: 77}),
			"Linear: activation is 77, it needs to be NoActivation, GELUTanh, GELUErf, SiLU or ReLUSquared"},
		{failure(nn.NewEmbedding(graph(), nn.EmbeddingConfig{Vocab: 1 << 32, Dim: 1 << 32})),
			"Embedding: parameter weight: shape [4294967296 4294967296] of float32 takes more than this machine's memory"},
		{failure(nn.NewEmbedding(graph(), nn.EmbeddingConfig{Vocab: 1 << 30, Dim: 1 << 30})),
			"Embedding: parameter weight: shape [1073741824 1073741824] of float32 takes more than this machine's memory"},
		{failure(nn.NewLinear(graph(), nn.LinearConfig{In: 1 << 40, Out: 1 << 23})),
			"Linear: parameter weight: shape [1099511627776 8388608] of float32 takes more than this machine's memory"},
		{failure(nn.NewEmbedding(graph(), nn.EmbeddingConfig{Dim: 2})), "Embedding: vocab is 0, it needs to be at least 1"},
		{failure(nn.NewPositionalEmbedding(graph(), nn.PositionalEmbeddingConfig{Dim: 2})), "PositionalEmbedding: context is 0, it needs to be at least 1"},
		{failure(nn.NewLayerNorm(graph(), nn.LayerNormConfig{})), "LayerNorm: dim is 0, it needs to be at least 1"},
		{failure(nn.NewLayerNorm(graph(), nn.LayerNormConfig{Dim: 2, Epsilon: -1})), "LayerNorm: epsilon is -1, it needs to be positive, or 0 for 1e-5"},
		{failure(nn.NewRMSNorm(graph(), nn.RMSNormConfig{})), "RMSNorm: dim is 0, it needs to be at least 1"},
		{failure(nn.NewRMSNorm(graph(), nn.RMSNormConfig{Dim: 2, Epsilon: math.Inf(1)})), "RMSNorm: epsilon is +Inf, it needs to be positive, or 0 for 1e-5"},
		{failure(nn.NewDropout(graph(), nn.DropoutConfig{P: 1})), "Dropout: p is 1, it needs to be in [0, 1)"},
		{failure(nn.NewMLP(graph(), nn.MLPConfig{})), "MLP: dim is 0, it needs to be at least 1"},
		{failure(nn.NewSwiGLUMLP(graph(), nn.SwiGLUMLPConfig{Dim: 3, Hidden: -1})), "SwiGLUMLP: hidden is -1, it needs to be at least 1"},

		{attention(nn.MultiHeadAttentionConfig{Heads: 2}), "MultiHeadAttention: dim is 0, it needs to be at least 1"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 10, Heads: 4}), "MultiHeadAttention: dim is 10, it needs to be a multiple of heads, which is 4"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, KVHeads: 3}), "MultiHeadAttention: heads is 4, it needs to be a multiple of kvHeads, which is 3"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, KVHeads: -1}), "MultiHeadAttention: heads is 4, it needs to be a multiple of kvHeads, which is -1"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, HeadDim: -2}), "MultiHeadAttention: head dim is -2, it needs to be at least 1"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, HeadDim: 1000}), "MultiHeadAttention: head dim is 1000, it needs to be at most 512"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, ContextDim: 2}), "MultiHeadAttention: context dim is 2, it needs to be 0 where Cross is not set"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 6, Heads: 2, RoPE: &ops.RoPEOptions{}}),
			"MultiHeadAttention: RoPE turns 3 dimensions of a head, it needs to be an even number of at most 3"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, RoPE: &ops.RoPEOptions{RotaryDim: 6}}),
			"MultiHeadAttention: RoPE turns 6 dimensions of a head, it needs to be an even number of at most 4"},

		{block(nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Cross: true}}), "Block: Attention.Cross is set, a block attends to itself first: its own Cross adds a context"},
		{block(nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2}, NormPlusOne: true}), "Block: NormPlusOne is set, it needs RMSNorm"},
		{block(nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2}, Norms: 4}),
			"Block: norms is 4, it needs to be PreNorm, PostNorm, BranchNorm or SandwichNorm"},
		{attention(nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, QKNorm: true, QKNormAll: true}),
			"MultiHeadAttention: QKNorm and QKNormAll are set, it needs to be one of them"},
		{gpt(nn.GPTConfig{}), "GPT: vocab is 0, it needs to be at least 1"},
		{gpt(nn.GPTConfig{Vocab: 5, Context: 5, Heads: 2, Dim: 8}), "GPT: layers is 0, it needs to be at least 1"},
		{gpt(nn.GPTConfig{Vocab: 5, Context: 5, Layers: 1, Heads: 3, Dim: 8}), "MultiHeadAttention: dim is 8, it needs to be a multiple of heads, which is 3"},
		{gpt(nn.GPTConfig{Vocab: 5, Context: 5, Layers: 1, Heads: 2, Dim: 8, Dropout: -0.5}), "Dropout: p is -0.5, it needs to be in [0, 1)"},
		{llama(nn.LlamaConfig{Vocab: 5, Context: -1, Layers: 1, Heads: 2, Dim: 8}), "Llama: context is -1, it needs to be positive, or 0 for no limit"},
		{llama(nn.LlamaConfig{Vocab: 5, Layers: 1, Heads: 2, KVHeads: 4, Dim: 8}), "MultiHeadAttention: heads is 2, it needs to be a multiple of kvHeads, which is 4"},
		{llama(nn.LlamaConfig{Vocab: 5, Layers: 1, Heads: 4, Dim: 12}),
			"MultiHeadAttention: RoPE turns 3 dimensions of a head, it needs to be an even number of at most 3"},
	} {
		checkError(t, c.err, c.want)
	}
}

// TestNameErrors has parameters that stand in each other's way.
func TestNameErrors(t *testing.T) {
	g, p := gorgonia.NewGraph(), nn.NewParameters(0)
	linear := func(g *gorgonia.ExprGraph, c nn.LinearConfig) error {
		c.Parameters = p
		return failure(nn.NewLinear(g, c))
	}
	if err := linear(g, nn.LinearConfig{Name: "a", In: 2, Out: 3}); err != nil {
		t.Fatal(err)
	}
	gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 2), gorgonia.WithName("b.weight"))
	for _, c := range []struct {
		err  error
		want string
	}{
		{linear(g, nn.LinearConfig{Name: "a", In: 2, Out: 3}), "Linear: the graph already has a parameter or input called a.weight, each layer needs a Name of its own"},
		{linear(g, nn.LinearConfig{Name: "b", In: 2, Out: 3}), "Linear: the graph already has a parameter or input called b.weight, each layer needs a Name of its own"},
		{linear(gorgonia.NewGraph(), nn.LinearConfig{Name: "a", In: 2, Out: 4}),
			"Linear: parameter a.weight exists as float32 of shape [2 3], it needs float32 of shape [2 4]"},
		{linear(gorgonia.NewGraph(), nn.LinearConfig{Name: "a", In: 2, Out: 3, DType: tensor.Float64}),
			"Linear: parameter a.weight exists as float32 of shape [2 3], it needs float64 of shape [2 3]"},
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
	g := gorgonia.NewGraph()
	node := func(dtype tensor.Dtype, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName("in"))
	}
	f32 := func(shape ...int) *gorgonia.Node { return node(tensor.Float32, shape...) }
	elsewhere := gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float32, gorgonia.WithShape(2, 8), gorgonia.WithName("in"))
	must := func(l nn.Layer, err error) nn.Layer {
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	forward := func(l nn.Layer, x *gorgonia.Node) error { return failure(l.Forward(x)) }
	attention := func(c nn.MultiHeadAttentionConfig) *nn.MultiHeadAttention {
		c.Dim, c.Heads = 8, 2
		m, err := nn.NewMultiHeadAttention(g, c)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	lens := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("lens"))
	linear := must(nn.NewLinear(g, nn.LinearConfig{Name: "linear", In: 8, Out: 3}))
	self, cross := attention(nn.MultiHeadAttentionConfig{Name: "self"}), attention(nn.MultiHeadAttentionConfig{Name: "cross", Cross: true, ContextDim: 5})
	packed := attention(nn.MultiHeadAttentionConfig{Name: "packed", Options: ops.AttentionOptions{QLens: lens, KVLens: lens}})
	with := func(m *nn.MultiHeadAttention, x *gorgonia.Node, in nn.AttentionInputs) error {
		return failure(m.ForwardWith(x, in))
	}
	gpt, err := nn.NewGPT(g, nn.GPTConfig{Name: "gpt", Vocab: 5, Context: 6, Layers: 1, Heads: 2, Dim: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{forward(linear, nil), "Linear: x is nil, it needs to be a node"},
		{forward(linear, f32(2, 7)), "Linear: x has shape [2 7], it needs a last axis of 8"},
		{forward(linear, node(tensor.Float64, 2, 8)), "Linear: x is float64, it needs to go with the layer's parameters, which are float32"},
		{forward(linear, elsewhere), "Linear: x belongs to another graph than the layer"},
		{forward(must(nn.NewLayerNorm(g, nn.LayerNormConfig{Name: "ln", Dim: 8})), f32(7)), "LayerNorm: x has shape [7], it needs a last axis of 8"},
		{forward(must(nn.NewRMSNorm(g, nn.RMSNormConfig{Name: "rms", Dim: 8})), f32(7)), "RMSNorm: x has shape [7], it needs a last axis of 8"},
		{forward(must(nn.NewDropout(g, nn.DropoutConfig{P: 0.5})), nil), "Dropout: x is nil, it needs to be a node"},
		{forward(must(nn.NewDropout(g, nn.DropoutConfig{})), nil), "Dropout: x is nil, it needs to be a node"},
		{forward(must(nn.NewEmbedding(g, nn.EmbeddingConfig{Name: "e", Vocab: 3, Dim: 8})), f32(2, 3)), "Embedding: ids is float32, it needs to be int, int32 or int64"},
		{forward(must(nn.NewPositionalEmbedding(g, nn.PositionalEmbeddingConfig{Name: "p", Context: 4, Dim: 8})), f32(2, 5, 8)),
			"PositionalEmbedding: x has 5 positions, it needs at most the table's 4"},
		{forward(must(nn.NewPositionalEmbedding(g, nn.PositionalEmbeddingConfig{Name: "p2", Context: 4, Dim: 8})), f32(2, 8)),
			"PositionalEmbedding: x has shape [2 8], it needs three axes (batch, length, 8)"},
		{forward(self, f32(2, 8)), "MultiHeadAttention: x has shape [2 8], it needs three axes (batch, length, features)"},
		{forward(packed, f32(2, 3, 8)), "MultiHeadAttention: x has shape [2 3 8], it needs two axes (total length, features)"},
		{forward(cross, f32(2, 3, 8)), "MultiHeadAttention: context is nil, cross attention needs one"},
		{with(self, f32(2, 3, 8), nn.AttentionInputs{Context: f32(2, 3, 8)}), "MultiHeadAttention: context is given, it needs to be nil where Cross is not set"},
		{with(cross, f32(2, 3, 8), nn.AttentionInputs{Context: f32(2, 3, 6)}), "MultiHeadAttention: context has shape [2 3 6], it needs a last axis of 5"},
		{with(cross, f32(2, 3, 8), nn.AttentionInputs{Context: f32(3, 5)}), "MultiHeadAttention: context has shape [3 5], it needs three axes (batch, length, features)"},
		{with(cross, f32(2, 3, 8), nn.AttentionInputs{Context: f32(2, 4, 5), KeyMask: f32(2, 3)}),
			"MultiHeadAttention: key mask has shape [2 3], it needs one value for each key: [2 4]"},
		{with(packed, f32(6, 8), nn.AttentionInputs{KeyMask: f32(1, 6)}), "MultiHeadAttention: key mask is given, packed sequences have no padding to hide"},
		{with(self, f32(2, 3, 8), nn.AttentionInputs{KeyMask: node(tensor.Byte, 2, 3)}),
			"KeyMask: mask is uint8, it needs to be bool, float32, float64, BFloat16 or Float16, int, int32 or int64"},
		{forward(gpt, nil), "GPT: tokens is nil, it needs to be a node"},
		{forward(gpt, f32(2, 3)), "GPT: tokens is float32, it needs to be int, int32 or int64"},
		{forward(gpt, node(tensor.Int, 3)), "GPT: tokens has shape [3], it needs two axes (batch, length)"},
		{forward(gpt, node(tensor.Int, 1, 7)), "GPT: tokens has 7 positions, it needs at most the context's 6"},
		{forward(gpt, node(tensor.Int, 0, 6)), "Embedding: ids has shape [0 6], no axis can be empty"},
		{failure(gpt.Loss(node(tensor.Int, 2, 6), nil)), "GPT: targets is nil, it needs to be a node"},
		{failure(gpt.Loss(node(tensor.Int, 2, 6), node(tensor.Int, 2, 5))), "GPT: targets has shape [2 5], it needs tokens's [2 6]"},
	} {
		checkError(t, c.err, c.want)
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
		m, err := nn.NewGPT(g, nn.GPTConfig{Vocab: 5, Context: 3, Layers: 1, Heads: 2, Dim: 8})
		if err != nil {
			t.Fatal(err)
		}
		ids := func(name string, data []int) *gorgonia.Node {
			return gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(1, 3), gorgonia.WithName(name),
				gorgonia.WithValue(tensor.New(tensor.WithShape(1, 3), tensor.WithBacking(data))))
		}
		gorgonia.Must(m.Loss(ids("tokens", c.tokens), ids("targets", c.targets)))
		switch err = gorgonia.NewTapeMachine(g).RunAll(); {
		case c.want == "" && err != nil:
			t.Errorf("tokens %v, targets %v: %v", c.tokens, c.targets, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("tokens %v, targets %v:\ngot  %v\nwant %s", c.tokens, c.targets, err, c.want)
		}
	}
}
