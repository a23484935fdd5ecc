package pretrained

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
)

// gpt2 is GPT-2. Its matrices are (in, out), as ours are.
func gpt2(c *config, _ int) *architecture {
	for name, other := range map[string]string{
		"n_embd": "hidden_size", "n_positions": "max_position_embeddings", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
	} {
		c.also(name, other)
	}
	config := nn.GPTConfig{
		Vocab: c.size("vocab_size", 50257), Context: c.size("n_positions", 1024), Layers: c.layers("n_layer", 12),
		Heads: c.size("n_head", 12), Dim: c.size("n_embd", 768), Hidden: c.optionalSize("n_inner"),
		Activation: c.activation("activation_function", "gelu_new"), Epsilon: c.positive("layer_norm_epsilon", 1e-5),
		Dropout: c.float("embd_pdrop", 0.1),
	}
	kind := c.ending("LMHeadModel", "GPT2Model", "ForCausalLM")
	attention, residual := c.float("attn_pdrop", 0.1), c.float("resid_pdrop", 0.1)
	byLayer := c.bool("scale_attn_by_inverse_layer_idx", false)
	scaled, width := c.bool("scale_attn_weights", true), math.Sqrt(float64(config.Dim)/float64(config.Heads))
	if !scaled {
		width = 1
	}
	config.Block = func(i int, b *nn.BlockConfig) {
		b.Dropout, b.Attention.Options.Dropout.P = residual, attention
		if byLayer || !scaled {
			b.Attention.Options.Scale = 1 / width
		}
		if byLayer {
			b.Attention.Options.Scale /= float64(i + 1)
		}
	}
	c.causal()
	needs(c, "add_cross_attention", false)
	for _, name := range []string{
		"reorder_and_upcast_attn", "n_ctx", // the first matters to 16-bit attention alone, the second repeats n_positions
		"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
	} {
		c.read[name] = true
	}
	if config.Hidden == 0 {
		config.Hidden = 4 * config.Dim
	}
	d, hidden := config.Dim, config.Hidden
	links := []link{
		table("transformer.wte.weight", "tokens.weight", config.Vocab, d),
		same("transformer.wpe.weight", "positions.weight", config.Context, d),
	}
	for i := range config.Layers {
		theirs, ours := fmt.Sprintf("transformer.h.%d.", i), fmt.Sprintf("blocks.%d.", i)
		for _, p := range []struct {
			theirs, ours string
			in, out      int
		}{
			{"attn.c_attn", "attn.qkv", d, 3 * d}, {"attn.c_proj", "attn.proj", d, d},
			{"mlp.c_fc", "mlp.fc", d, hidden}, {"mlp.c_proj", "mlp.proj", hidden, d},
		} {
			links = append(links,
				conv1D(theirs+p.theirs+".weight", ours+p.ours+".weight", p.in, p.out),
				same(theirs+p.theirs+".bias", ours+p.ours+".bias", p.out))
		}
		links = append(links, layerNorm(theirs+"ln_1", ours+"norm1", d)...)
		links = append(links, layerNorm(theirs+"ln_2", ours+"norm2", d)...)
	}
	model := config.Model()
	a := &architecture{
		links: append(links, layerNorm("transformer.ln_f", "norm", d)...), prefix: "transformer.",
		unused: []string{".attn.bias", ".attn.masked_bias"},
		build:  func(s *nn.Scope) any { return nn.NewLanguageModel(s, model) },
	}
	switch model.TiedHead = c.bool("tie_word_embeddings", true); {
	case model.TiedHead:
		a.repeats = []repeat{{"lm_head.weight", "transformer.wte.weight"}}
	case kind == "GPT2Model":
		model.NoHead = true
	default:
		a.links = append(a.links, same("lm_head.weight", "head.weight", config.Vocab, d))
	}
	return a
}

// layerNorm is the two parameters of a LayerNorm.
func layerNorm(theirs, ours string, dim int) []link {
	return []link{same(theirs+".weight", ours+".weight", dim), same(theirs+".bias", ours+".bias", dim)}
}

var activations = map[string]kernels.Activation{
	"gelu": kernels.GELUErf, "gelu_new": kernels.GELUTanh, "gelu_pytorch_tanh": kernels.GELUTanh, "gelu_fast": kernels.GELUTanh,
	"gelu_python": kernels.GELUErf, "gelu_accurate": kernels.GELUTanh, "gelu_python_tanh": kernels.GELUTanh,
	"silu": kernels.SiLU, "swish": kernels.SiLU, "relu2": kernels.ReLUSquared, "relu": kernels.ReLU, "quick_gelu": kernels.QuickGELU, "tanh": kernels.Tanh,
}

// activation reads the name of an activation.
func (c *config) activation(name, otherwise string) kernels.Activation {
	word := c.string(name, otherwise)
	act, found := activations[word]
	if !found {
		c.fail("field %s is %q, it needs to be gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, silu, relu, relu2 or tanh", c.within+name, word)
	}
	return act
}
