package pretrained

import (
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
)

// modernBERT is an encoder of the shape of today's decoders: rotary positions, gated MLPs, no
// biases, and windows in most of the layers.
func modernBERT(c *config, _ int) *architecture {
	vocab, dim, hidden := c.size("vocab_size", 50368), c.size("hidden_size", 768), c.size("intermediate_size", 1152)
	e := nn.EncoderConfig{
		Layers: c.layers("num_hidden_layers", 22), EmbeddingNorm: true, Dropout: c.float("embedding_dropout", 0),
		Text: &nn.TextConfig{Vocab: vocab, Context: c.size("max_position_embeddings", 8192), NoPositions: true},
		Block: nn.BlockConfig{
			Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: c.size("num_attention_heads", 12), NoBias: true, Separate: true},
			Hidden:    hidden, Gated: true, Activation: c.activation("hidden_activation", "gelu"), Epsilon: c.positive("norm_eps", 1e-5),
		},
	}
	slides := c.modernTypes(e.Layers)
	full, local := c.modernRoPE(fullAttention, "global_rope_theta", 160000), c.modernRoPE(slidingAttention, "local_rope_theta", 10000)
	window := c.size("local_attention", 128) / 2
	e.Change = func(i int, b *nn.BlockConfig) {
		if b.Attention.RoPE = &full; slides[i] {
			b.Attention.RoPE, b.Attention.Options.Window = &local, &kernels.Window{Left: window, Right: window}
		}
		if i == 0 { // the norm of the embeddings is in front of the first attention
			b.NewNorm = func(s *nn.Scope, c nn.NormConfig) nn.Layer {
				if strings.HasSuffix(s.Name(), ".norm1") {
					return nn.LayerFunc(func(x nn.Tensor) nn.Tensor { return x })
				}
				return nn.NewNorm(s, c)
			}
		}
	}
	for _, name := range []string{"attention_bias", "mlp_bias", "norm_bias", "classifier_bias"} {
		needs(c, name, false)
	}
	needs(c, "attention_dropout", 0.0)
	needs(c, "mlp_dropout", 0.0)
	for _, name := range []string{
		"classifier_dropout", "classifier_pooling", "deterministic_flash_attn", "initializer_cutoff_factor", "layer_norm_eps",
		"position_embedding_type", "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction",
	} {
		c.read[name] = true // of other heads, of how it is trained, or for no one to read
	}
	c.read["classifier_activation"], c.read["decoder_bias"] = true, true // of heads
	kind := c.ending(bare, masked)
	tied, base := c.bool("tie_word_embeddings", true), ""
	if kind == masked {
		act := c.activation("classifier_activation", "gelu")
		base, e.Heads = "model.", nn.EncoderHeads{Masked: true, MaskedActivation: act, MaskedNoBias: true, MaskedUntied: !tied}
		e.Heads.MaskedUnbiased = !c.bool("decoder_bias", true)
	}

	norm := func(theirs, ours string) link { return same(theirs+".weight", ours+".weight", dim) }
	links := []link{table(base+"embeddings.tok_embeddings.weight", "tokens.weight", vocab, dim), norm(base+"embeddings.norm", "embnorm")}
	for i := range e.Layers {
		theirs, ours := fmt.Sprintf("%slayers.%d.", base, i), fmt.Sprintf("blocks.%d.", i)
		if i > 0 {
			links = append(links, norm(theirs+"attn_norm", ours+"norm1"))
		}
		links = append(links,
			joined(theirs+"attn.Wqkv.weight", dim, output{ours: ours + "attn.q.weight", n: dim}, output{ours: ours + "attn.k.weight", n: dim}, output{ours: ours + "attn.v.weight", n: dim}),
			weight(theirs+"attn.Wo.weight", ours+"attn.proj.weight", dim, dim), norm(theirs+"mlp_norm", ours+"norm2"),
			joined(theirs+"mlp.Wi.weight", dim, output{ours: ours + "mlp.gate.weight", n: hidden}, output{ours: ours + "mlp.up.weight", n: hidden}),
			weight(theirs+"mlp.Wo.weight", ours+"mlp.down.weight", hidden, dim))
	}
	links = append(links, norm(base+"final_norm", "norm"))
	a := &architecture{prefix: "model.", padding: c.padding(vocab, 50283, "tokens.weight")}
	if kind == masked {
		links = append(links, weight("head.dense.weight", "transform.weight", dim, dim), norm("head.norm", "prednorm"))
		if !e.Heads.MaskedUnbiased {
			bias := same("decoder.bias", "predbias", vocab)
			bias.parts[0].shape = []int{1, vocab}
			links = append(links, bias)
		}
		if tied {
			a.repeats = []repeat{{"decoder.weight", base + "embeddings.tok_embeddings.weight"}}
		} else {
			links = append(links, same("decoder.weight", "predtokens.weight", vocab, dim))
		}
	}
	a.links, a.build = links, func(s *nn.Scope) any { return nn.NewEncoder(s, e) }
	return a
}

// modernTypes says which layers have a window.
func (c *config) modernTypes(layers int) []bool {
	types, every := c.strings("layer_types"), c.size("global_attn_every_n_layers", 3)
	if types != nil && len(types) != layers {
		c.fail("field layer_types has %d elements, it needs one for each of the %d layers", len(types), layers)
		types = nil
	}
	slides := make([]bool, layers)
	for i := range slides {
		slides[i] = i%every != 0
		if types == nil {
			continue
		}
		if slides[i] = types[i] == slidingAttention; !slides[i] && types[i] != fullAttention {
			c.fail("field layer_types has %q, it needs to be %s or %s", types[i], fullAttention, slidingAttention)
		}
	}
	return slides
}

// modernRoPE is how the layers of a type turn queries and keys.
func (c *config) modernRoPE(layerType, older string, theta float64) ops.RoPEOptions {
	theta = c.float(older, theta)
	if types := c.object("rope_parameters"); types != nil {
		for _, t := range []string{fullAttention, slidingAttention} {
			if o := types.object(t); o != nil {
				needs(o, "rope_type", "default")
				if given := o.float("rope_theta", theta); t == layerType {
					theta = given
				}
				c.join(o)
			}
		}
		c.join(types)
	}
	c.checkBase(theta)
	return ops.RoPEOptions{Base: theta}
}
