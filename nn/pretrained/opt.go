package pretrained

import "github.com/stheno-ml/stheno/nn"

func opt(c *config, _ int) *architecture {
	d := newDecoder(c, 2048, true)
	d.names = names{
		body: "model.decoder.", head: "lm_head", tokens: "embed_tokens", positions: "embed_positions", norm: "final_layer_norm", layers: "layers.",
		parts: map[string]string{
			"norm1": "self_attn_layer_norm", "norm2": "final_layer_norm", "attn.q": "self_attn.q_proj", "attn.k": "self_attn.k_proj",
			"attn.v": "self_attn.v_proj", "attn.proj": "self_attn.out_proj", "mlp.fc": "fc1", "mlp.proj": "fc2",
		},
	}
	b, yes := &d.Block, true
	d.Positions, d.FirstPosition, d.SkipPadding = true, 2, true
	b.Hidden, b.Activation = c.size("ffn_dim", 3072), c.activation("activation_function", "relu")
	biased := c.bool("enable_bias", true)
	d.biases(biased, biased)
	b.NormBias = &yes
	if !c.bool("do_layer_norm_before", true) {
		b.Norms = nn.PostNorm
	}
	b.Dropout, b.Attention.Options.Dropout.P = c.float("dropout", 0.1), c.float("attention_dropout", 0)
	d.Dropout = b.Dropout
	d.TokenDim, d.names.project, d.names.narrow = c.sizeOrNone("word_embed_proj_dim", b.Attention.Dim), "project_in", "project_out"
	d.NoLastNorm = c.bool("_remove_final_layer_norm", false)
	if !c.bool("layer_norm_elementwise_affine", true) {
		b.NewNorm = func(*nn.Scope, nn.NormConfig) nn.Layer { return nn.LayerFunc(nn.Tensor.LayerNorm) }
	}
	c.training("layerdrop")
	c.unread("activation_dropout", "init_std") // for no one to read, and of weights that are not loaded
	a := d.architecture()
	a.prefix = "model."
	return a
}
