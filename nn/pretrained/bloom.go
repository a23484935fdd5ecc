package pretrained

import (
	"math"

	"github.com/stheno-ml/stheno/nn"
)

// bloomParts are what BLOOM and Falcon call the parts of a block.
func bloomParts() map[string]string {
	return map[string]string{
		"norm1": "input_layernorm", "norm2": "post_attention_layernorm", "attn.qkv": "self_attention.query_key_value",
		"attn.proj": "self_attention.dense", "mlp.fc": "mlp.dense_h_to_4h", "mlp.proj": "mlp.dense_4h_to_h",
	}
}

func bloom(c *config, _ int) *architecture {
	c.also("hidden_size", "n_embed")
	c.also("num_attention_heads", "n_head")
	c.also("num_hidden_layers", "n_layer")
	d := newDecoder(c, 0, true)
	d.names = names{body: "transformer.", head: "lm_head", tokens: "word_embeddings", embnorm: "word_embeddings_layernorm", norm: "ln_f", layers: "h.", groups: true, parts: bloomParts()}
	b := &d.Block
	b.Hidden, b.Activation, b.Epsilon, d.EmbeddingNorm = 4*b.Attention.Dim, activations["gelu_new"], c.positive("layer_norm_epsilon", 1e-5), true
	b.Attention.Options.ALiBi = slopes(b.Attention.Heads)
	b.Attention.Options.Dropout.P, b.Dropout = c.float("attention_dropout", 0), c.float("hidden_dropout", 0)
	if c.bool("apply_residual_connection_post_layernorm", false) {
		b.Norms = nn.StreamNorm
	}
	if parts := c.size("pretraining_tp", 1); c.bool("slow_but_exact", false) && parts > 1 {
		c.fail("field slow_but_exact is true and field pretraining_tp is %d: transformers then adds no biases of two of the linear layers, "+
			"the first needs to be false", parts)
	}
	for _, name := range []string{
		"attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "n_inner", "offset_alibi", "seq_length", "skip_bias_add",
		"skip_bias_add_qkv", "unk_token_id", // in the published configs, for no one to read
	} {
		c.read[name] = true
	}
	return d.architecture()
}

// slopes are those of ALiBi. If the number of heads is no power of two, those of the next smaller
// one come first, and of the next larger one those between them.
func slopes(heads int) []float64 {
	list := make([]float64, heads)
	power := 1 << int(math.Log2(float64(heads)))
	for i := range list {
		if list[i] = math.Exp2(-8 * float64(i+1) / float64(power)); i >= power {
			list[i] = math.Exp2(-4 * float64(2*(i-power)+1) / float64(power))
		}
	}
	return list
}

func falcon(c *config, context int) *architecture {
	c.also("hidden_size", "n_embed")
	c.also("num_attention_heads", "n_head")
	c.also("num_hidden_layers", "n_layer")
	c.also("num_kv_heads", "n_head_kv")
	c.unread("apply_residual_connection_post_layernorm") // is in the published configs
	d := newDecoder(c, 2048, true)
	d.names = names{body: "transformer.", head: "lm_head", tokens: "word_embeddings", norm: "ln_f", layers: "h.", groups: true, parts: bloomParts()}
	b, a, yes := &d.Block, &d.Block.Attention, true
	if b.Hidden = c.optionalSize("ffn_hidden_size"); b.Hidden == 0 {
		b.Hidden = 4 * a.Dim
	}
	b.Activation, b.Epsilon = c.activation("activation", "gelu"), c.positive("layer_norm_epsilon", 1e-5)
	biased, grouped, single, parallel := c.bool("bias", false), c.bool("new_decoder_architecture", false), c.bool("multi_query", true), c.bool("parallel_attn", true)
	d.biases(biased, biased)
	b.NormBias = &yes
	kvHeads, norms := c.sizeOrNone("num_kv_heads", 0), c.optionalSize("num_ln_in_parallel_attn")
	if norms > 2 {
		c.fail("field num_ln_in_parallel_attn is %d, it needs to be 1 or 2", norms)
	}
	switch {
	case (grouped || !single) && kvHeads > 0:
		a.KVHeads = kvHeads
	case !grouped && single:
		a.KVHeads = 1
	}
	if !grouped && !single && a.KVHeads != a.Heads {
		c.fail("field %s is %d, without multi_query it needs to be the %d heads", c.called("num_kv_heads"), kvHeads, a.Heads)
	}
	switch {
	case grouped && !parallel || !grouped && norms == 2:
		c.fail("field num_ln_in_parallel_attn or parallel_attn does not go with new_decoder_architecture, which is %v", grouped)
	case grouped && norms != 1:
		b.Norms = nn.ParallelNorms
		d.names.parts["norm1"], d.names.parts["norm2"] = "ln_attn", "ln_mlp"
	case parallel:
		b.Norms = nn.ParallelNorm
	}
	a.Options.Dropout.P, b.Dropout = c.float("attention_dropout", 0), c.float("hidden_dropout", 0)
	if c.bool("alibi", false) {
		for _, name := range []string{"rope_parameters", "rope_scaling", "rope_theta"} {
			c.read[name] = true // are written, for no one to read
		}
		a.Options.ALiBi = slopes(a.Heads)
		for i := range a.Options.ALiBi {
			a.Options.ALiBi[i] /= math.Sqrt(float64(a.HeadDim))
		}
	} else {
		d.turn(c, 10000, context)
	}
	return d.architecture()
}

// mpt is MPT, whose linear layers and norms have no biases.
func mpt(c *config, _ int) *architecture {
	c.also("hidden_size", "d_model")
	c.also("num_attention_heads", "n_heads")
	c.also("num_hidden_layers", "n_layers")
	c.also("max_position_embeddings", "max_seq_len")
	d := newDecoder(c, 2048, true)
	d.names = names{body: "transformer.", head: "lm_head", tokens: "wte", norm: "norm_f", layers: "blocks.", parts: map[string]string{
		"norm1": "norm_1", "norm2": "norm_2", "attn.qkv": "attn.Wqkv", "attn.proj": "attn.out_proj", "mlp.fc": "ffn.up_proj", "mlp.proj": "ffn.down_proj",
	}}
	b, a := &d.Block, &d.Block.Attention
	b.Hidden, b.Activation, b.Epsilon, a.NoBias = 4*a.Dim, activations["gelu"], c.positive("layer_norm_epsilon", 1e-5), true
	for name, value := range map[string]float64{"embedding_fraction": 1, "expansion_ratio": 4} {
		needs(c, name, value)
	}
	needs(c, "no_bias", true)
	if c.has("logit_scale") {
		c.fail("field logit_scale is %s, only null is supported", c.fields["logit_scale"])
	}
	c.unread("emb_pdrop", "ffn_config", "init_config", "init_device", "learned_pos_emb", "norm_type", "resid_pdrop", "tokenizer_name", "verbose")
	steepest := 8.0
	if o := c.object("attn_config"); o != nil {
		steepest = o.positive("alibi_bias_max", steepest) // the models' own code reads it, transformers does not
		a.Options.Scale = o.float("softmax_scale", 0)
		a.Options.Dropout.P = o.float("attn_pdrop", 0)
		b.Dropout = a.Options.Dropout.P
		needs(o, "attn_type", "multihead_attention")
		needs(o, "alibi", true)
		needs(o, "prefix_lm", false)
		needs(o, "qk_ln", false)
		if o.float("clip_qkv", 0) > 0 {
			d.clip(o, "clip_qkv")
		}
		needs(o, "attn_uses_sequence_id", false)
		o.read["attn_impl"], o.read["model_type"] = true, true
		c.join(o)
	}
	power := 1 << int(math.Ceil(math.Log2(float64(a.Heads))))
	for i := range a.Heads {
		number := i + 1
		if power != a.Heads { // every second one, and then those between them
			if number = 2 * (i + 1); number > power {
				number = 2*(i-power/2) + 1
			}
		}
		a.Options.ALiBi = append(a.Options.ALiBi, math.Exp2(-steepest*float64(number)/float64(power)))
	}
	return d.architecture()
}
