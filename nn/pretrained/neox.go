package pretrained

import (
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
)

// gptNeoX is GPT-NeoX and Pythia.
func gptNeoX(c *config, context int) *architecture {
	d := newDecoder(c, 2048, false)
	d.names = names{body: "gpt_neox.", head: "embed_out", tokens: "embed_in", norm: "final_layer_norm", layers: "layers.", groups: true, parts: map[string]string{
		"norm1": "input_layernorm", "norm2": "post_attention_layernorm", "attn.qkv": "attention.query_key_value", "attn.proj": "attention.dense",
		"mlp.fc": "mlp.dense_h_to_4h", "mlp.proj": "mlp.dense_4h_to_h",
	}}
	b, yes := &d.Block, true
	b.Hidden, b.Activation, b.Epsilon = c.size("intermediate_size", 0), c.activation("hidden_act", "gelu"), c.positive("layer_norm_eps", 1e-5)
	d.biases(c.bool("attention_bias", true), true)
	b.NormBias = &yes
	if c.bool("use_parallel_residual", true) {
		b.Norms = nn.ParallelNorms
	}
	b.Attention.Options.Dropout.P, b.Dropout = c.float("attention_dropout", 0), c.float("hidden_dropout", 0)
	d.Dropout = b.Dropout
	for _, name := range []string{"classifier_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob"} {
		c.read[name] = true // of a head that is not read, or for no one to read
	}
	d.turnAs(c, &ropeProblem{theta: c.float("rotary_emb_base", 10000), partial: c.float("rotary_pct", 0.25), bands: true, context: context})
	return d.architecture()
}

// gptJ is GPT-J.
func gptJ(c *config, _ int) *architecture {
	c.also("hidden_size", "n_embd")
	c.also("max_position_embeddings", "n_positions")
	c.also("num_attention_heads", "n_head")
	c.also("num_hidden_layers", "n_layer")
	d := newDecoder(c, 2048, false)
	d.names = names{body: "transformer.", head: "lm_head", tokens: "wte", norm: "ln_f", layers: "h.", parts: map[string]string{
		"norm1": "ln_1", "attn.q": "attn.q_proj", "attn.k": "attn.k_proj", "attn.v": "attn.v_proj", "attn.proj": "attn.out_proj",
		"mlp.fc": "mlp.fc_in", "mlp.proj": "mlp.fc_out",
	}}
	b, yes := &d.Block, true
	if b.Hidden = c.optionalSize("n_inner"); b.Hidden == 0 {
		b.Hidden = 4 * b.Attention.Dim
	}
	b.Activation, b.Epsilon = c.activation("activation_function", "gelu_new"), c.positive("layer_norm_epsilon", 1e-5)
	d.biases(false, true)
	b.NormBias, b.Norms, d.HeadBias = &yes, nn.ParallelNorm, true
	b.Attention.Options.Dropout.P, b.Dropout, d.Dropout = c.float("attn_pdrop", 0), c.float("resid_pdrop", 0), c.float("embd_pdrop", 0)
	turned := c.sizeOrNone("rotary_dim", 64)
	for i := range d.rope {
		d.rope[i] = &ops.RoPEOptions{RotaryDim: turned, Interleaved: true}
	}
	for _, name := range []string{
		"n_ctx", "rotary", "scale_attn_weights", // in the published configs, for no one to read
		"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
	} {
		c.read[name] = true
	}
	return d.architecture()
}

// phi is Phi-1, Phi-1.5 and Phi-2.
func phi(c *config, context int) *architecture {
	d := newDecoder(c, 2048, false)
	d.names = llamaNames(map[string]string{"attn.proj": "self_attn.dense", "mlp.fc": "mlp.fc1", "mlp.proj": "mlp.fc2"})
	d.names.norm = "final_layernorm"
	b := &d.Block
	b.Hidden, b.Activation, b.Epsilon = c.size("intermediate_size", 0), c.activation("hidden_act", "gelu_new"), c.positive("layer_norm_eps", 1e-5)
	b.Norms, d.HeadBias = nn.ParallelNorm, true
	d.group(c, 0)
	b.Attention.Options.Dropout.P, b.Dropout, d.Dropout = c.float("attention_dropout", 0), c.float("resid_pdrop", 0), c.float("embd_pdrop", 0)
	d.normHeads(c, "qk_layernorm", false, nn.HeadLayerNorm, "self_attn.q_layernorm", "self_attn.k_layernorm")
	d.turnAs(c, &ropeProblem{theta: c.float("rope_theta", 10000), partial: 0.5, bands: true, context: context})
	return d.architecture()
}

func stableLM(c *config, context int) *architecture {
	d := newDecoder(c, 4096, false)
	d.names = llamaNames(nil)
	b, yes := &d.Block, true
	b.Hidden, b.Gated, b.Activation, b.Epsilon = c.size("intermediate_size", 0), true, c.activation("hidden_act", "silu"), c.positive("layer_norm_eps", 1e-5)
	d.group(c, 32)
	d.biases(c.bool("use_qkv_bias", false), false)
	b.Attention.NoProjBias, b.NormBias = true, &yes
	if c.bool("use_parallel_residual", false) {
		b.Norms = nn.ParallelNorm
	}
	b.Attention.Options.Dropout.P = c.float("attention_dropout", 0)
	needs(c, "hidden_dropout", 0.0)
	d.normHeads(c, "qk_layernorm", false, nn.HeadLayerNorms, "self_attn.q_layernorm.norms.%d", "self_attn.k_layernorm.norms.%d")
	d.turnAs(c, &ropeProblem{theta: c.float("rope_theta", 10000), partial: 0.25, bands: true, context: context})
	d.names.norm = "norm"
	return d.architecture()
}

// persimmon is Persimmon-8B.
func persimmon(c *config, context int) *architecture {
	d := newDecoder(c, 16384, false)
	d.names = llamaNames(map[string]string{
		"attn.qkv": "self_attn.query_key_value", "attn.proj": "self_attn.dense", "mlp.fc": "mlp.dense_h_to_4h", "mlp.proj": "mlp.dense_4h_to_h",
	})
	d.names.norm, d.names.groups = "final_layernorm", true
	b := &d.Block
	b.Hidden, b.Activation, b.Epsilon = c.size("intermediate_size", 0), c.activation("hidden_act", "relu2"), c.positive("layer_norm_eps", 1e-5)
	b.Attention.Options.Dropout.P = c.float("attention_dropout", 0)
	needs(c, "hidden_dropout", 0.0)
	d.normHeads(c, "qk_layernorm", true, nn.HeadLayerNorm, "self_attn.q_layernorm", "self_attn.k_layernorm")
	d.turnAs(c, &ropeProblem{theta: c.float("rope_theta", 10000), partial: 0.5, bands: true, context: context})
	return d.architecture()
}

func starcoder2(c *config, context int) *architecture {
	d := newDecoder(c, 4096, true)
	d.names = llamaNames(map[string]string{"mlp.fc": "mlp.c_fc", "mlp.proj": "mlp.c_proj"})
	b, yes := &d.Block, true
	b.Hidden, b.Activation, b.Epsilon = c.size("intermediate_size", 0), c.activation("hidden_act", "gelu_pytorch_tanh"), c.positive("norm_epsilon", 1e-5)
	d.group(c, 2)
	biased := c.bool("use_bias", true)
	d.biases(biased, biased)
	b.NormBias = &yes
	b.Attention.Options.Dropout.P, b.Dropout, d.Dropout = c.float("attention_dropout", 0), c.float("residual_dropout", 0), c.float("embedding_dropout", 0)
	d.turn(c, 10000, context)
	d.slideAll(c.optionalSize("sliding_window"))
	for _, name := range []string{"mlp_type", "norm_type", "attention_bias"} { // in the published configs, for no one to read
		c.read[name] = true
	}
	return d.architecture()
}
