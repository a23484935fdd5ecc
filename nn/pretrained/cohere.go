package pretrained

import "github.com/stheno-ml/stheno/nn"

// readCohere is what Cohere's Command R and Command R7B have in common.
func readCohere(c *config) *decoder {
	d := newDecoder(c, 8192, true)
	d.names = llamaNames(nil)
	b := &d.Block
	b.Hidden, b.Gated, b.Activation, b.Epsilon = c.size("intermediate_size", 0), true, c.activation("hidden_act", "silu"), c.positive("layer_norm_eps", 1e-5)
	b.Norms, b.NormBias = nn.ParallelNorm, new(bool)
	d.group(c, 0)
	if size := c.sizeOrNone("head_dim", 0); size > 0 {
		b.Attention.HeadDim = size
	}
	d.bias(c)
	b.Attention.Options.Dropout.P = c.float("attention_dropout", 0)
	d.LogitScale = c.positive("logit_scale", 0.0625)
	return d
}

func cohere(c *config, context int) *architecture {
	d := readCohere(c)
	d.normHeads(c, "use_qk_norm", false, nn.HeadLayerNorms, "self_attn.q_norm", "self_attn.k_norm")
	d.turnAs(c, &ropeProblem{theta: c.float("rope_theta", 500000), partial: 1, neighbours: true, context: context})
	return d.architecture()
}

// cohere2 has no RoPE where layers see everything.
func cohere2(c *config, context int) *architecture {
	d := readCohere(c)
	pattern := c.size("sliding_window_pattern", 4)
	for _, name := range []string{
		"_sliding_window_pattern", // is written beside layer_types, for no one to read, nor are those of the published config
		"order_of_interleaved_layers", "position_embedding_type", "rotary_pct", "use_embedding_sharing", "use_gated_activation", "use_parallel_block",
		"use_parallel_embedding",
	} {
		c.read[name] = true
	}
	d.types(c, func(i int) bool { return (i+1)%pattern != 0 })
	d.slide(c, c.sizeOrNone("sliding_window", 4096))
	d.turnAs(c, &ropeProblem{theta: c.float("rope_theta", 10000), partial: 1, neighbours: true, context: context})
	for i, kind := range d.layerTypes {
		if kind == fullAttention {
			d.rope[i] = nil
		}
	}
	return d.architecture()
}
