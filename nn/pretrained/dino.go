package pretrained

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
)

// backbone passes over the fields that say which layers a detector would read, and one of training.
func (c *config) backbone() {
	c.unread("_out_features", "_out_indices", "apply_layernorm", "layerscale_value", "out_features", "out_indices", "reshape_hidden_states", "stage_names")
	c.training("drop_path_rate")
}

// dinov2 is DINOv2, with registers or without, alone or with a head for classes.
func dinov2(c *config, _ int) *architecture {
	registers := c.string("model_type", "") == "dinov2_with_registers"
	patch, dim := 14, c.size("hidden_size", 768)
	if registers {
		patch = 16
	}
	size, hidden := c.size("image_size", 224), c.size("mlp_ratio", 4)*dim
	p := &nn.PatchEmbeddingConfig{
		Channels: c.size("num_channels", 3), Height: size, Width: size, Patch: c.size("patch_size", patch), ClassToken: true, Sizes: nn.AnySize, MaskToken: true,
	}
	c.patches(p)
	if registers {
		p.Registers, p.Sizes = c.size("num_register_tokens", 4), nn.AnySizeWide
	} else {
		p.MaskToken = c.bool("use_mask_token", true)
	}
	e := nn.EncoderConfig{
		Layers: c.layers("num_hidden_layers", 12), Patches: p,
		Block: nn.BlockConfig{
			Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: c.size("num_attention_heads", 12), Separate: true},
			Hidden:    hidden, Activation: c.activation("hidden_act", "gelu"), Epsilon: c.positive("layer_norm_eps", 1e-6), Scales: true,
		},
	}
	e.Block.Attention.Options.Dropout.P = c.float("attention_probs_dropout_prob", 0)
	needs(c, "hidden_dropout_prob", 0.0)
	plain := c.biasesOf(qkvBias)
	e.Block.NewLinear = unbiased(plain...)
	c.backbone()
	gated := c.bool("use_swiglu_ffn", false)
	if gated {
		hidden = (2*hidden/3 + 7) / 8 * 8
		e.Block.Gated, e.Block.Hidden, e.Block.Activation = true, hidden, kernels.SiLU
	}
	base := ""
	if c.ending(bare, "ForImageClassification") != bare {
		base = "dinov2."
		if registers {
			base = "dinov2_with_registers."
		}
		e.Heads = nn.EncoderHeads{Classes: c.classes(), PatchMean: true}
	}

	count := size/p.Patch*(size/p.Patch) + 1
	links := []link{
		same3(base+"embeddings.cls_token", "embeddings.class", 1, dim),
		same3(base+"embeddings.position_embeddings", "embeddings.positions.weight", count, dim),
		convolution(base+"embeddings.patch_embeddings.projection", "embeddings.patches", p, dim),
		bias(base+"embeddings.patch_embeddings.projection", "embeddings.patches", dim),
	}
	if p.MaskToken {
		links = append(links, same(base+"embeddings.mask_token", "embeddings.mask", 1, dim))
	}
	if registers {
		links = append(links, same3(base+"embeddings.register_tokens", "embeddings.registers", p.Registers, dim))
	}
	names := dinoBlock
	for i := range e.Layers {
		theirs, ours := fmt.Sprintf(base+names.block, i), fmt.Sprintf("blocks.%d.", i)
		if !gated {
			links = append(links, names.links(base, i, dim, hidden)...)
		} else {
			links = append(links, names.attention(base, i, dim)...)
			links = append(links, linears(theirs+"mlp.weights_in", dim, true, output{ours: ours + "mlp.gate", n: hidden}, output{ours: ours + "mlp.up", n: hidden})...)
			links = append(links, linear(theirs+"mlp.weights_out", ours+"mlp.down", hidden, dim)...)
		}
		links = append(links, same(theirs+"layer_scale1.lambda1", ours+"scale1", dim), same(theirs+"layer_scale2.lambda1", ours+"scale2", dim))
	}
	links = append(links, layerNorm(base+"layernorm", "norm", dim)...)
	if e.Heads.Classes > 0 {
		links = append(links, linear("classifier", "classifier", 2*dim, e.Heads.Classes)...)
	}
	return &architecture{
		links: withoutBiases(links, plain), prefix: base, heads: []string{"classifier"},
		build: func(s *nn.Scope) any { return nn.NewEncoder(s, e) },
	}
}

var dinoBlock = blockNames{
	"encoder.layer.%d.", "attention.attention.query", "attention.attention.key", "attention.attention.value", "attention.output.dense",
	"norm1", "mlp.fc1", "mlp.fc2", "norm2",
}

// same3 is a table that has an axis of one before its own in the file.
func same3(theirs, ours string, n, dim int) link {
	return link{theirs: theirs, shape: []int{1, n, dim}, parts: []part{{ours: ours, shape: []int{n, dim}, n: 1}}}
}

// dinov3 is DINOv3's transformer, which turns queries and keys by where their patches are. While
// transformers trains it, it moves those places at random.
func dinov3(c *config, _ int) *architecture {
	c.class("DINOv3ViTModel")
	size, dim, hidden := c.size("image_size", 224), c.size("hidden_size", 384), c.size("intermediate_size", 1536)
	p := &nn.PatchEmbeddingConfig{
		Channels: c.size("num_channels", 3), Height: size, Width: size, Patch: c.size("patch_size", 16), ClassToken: true, NoPositions: true,
		Sizes: nn.AnySize, MaskToken: true, Registers: c.size("num_register_tokens", 0),
	}
	c.patches(p)
	a := nn.MultiHeadAttentionConfig{
		Dim: dim, Heads: c.size("num_attention_heads", 6), Separate: true, NoKeyBias: !c.bool("key_bias", false), NoProjBias: !c.bool("proj_bias", true),
	}
	plain := c.biasesOf(map[string]string{"q": "query_bias", "v": "value_bias"})
	if dim%(4*a.Heads) != 0 {
		c.fail("field num_attention_heads is %d, a head needs a multiple of 4 of hidden_size, which is %d", a.Heads, dim)
	}
	a.Options.Dropout.P = c.float("attention_dropout", 0)
	mlpBias, gated := c.bool("mlp_bias", true), c.bool("use_gated_mlp", false)
	e := nn.EncoderConfig{
		Layers: c.layers("num_hidden_layers", 12), Patches: p, Grid: c.positive("rope_theta", 100),
		Block: nn.BlockConfig{
			Attention: a, Hidden: hidden, Gated: gated, MLPBias: &mlpBias, Activation: c.activation("hidden_act", "gelu"),
			Epsilon: c.positive("layer_norm_eps", 1e-5), Scales: true, NewLinear: unbiased(plain...),
		},
	}
	c.backbone()
	for _, name := range []string{"pos_embed_jitter", "pos_embed_rescale", "pos_embed_shift"} {
		c.read[name] = true
	}
	links := []link{
		same3("embeddings.cls_token", "embeddings.class", 1, dim), same3("embeddings.mask_token", "embeddings.mask", 1, dim),
		same3("embeddings.register_tokens", "embeddings.registers", p.Registers, dim),
		convolution("embeddings.patch_embeddings", "embeddings.patches", p, dim), bias("embeddings.patch_embeddings", "embeddings.patches", dim),
	}
	for i := range e.Layers {
		theirs, ours := fmt.Sprintf("layer.%d.", i), fmt.Sprintf("blocks.%d.", i)
		add := func(name, part string, in, out int, biased bool) {
			links = append(links, linears(theirs+name, in, biased, output{ours: ours + part, n: out})...)
		}
		add("attention.q_proj", "attn.q", dim, dim, true)
		add("attention.k_proj", "attn.k", dim, dim, !a.NoKeyBias)
		add("attention.v_proj", "attn.v", dim, dim, true)
		add("attention.o_proj", "attn.proj", dim, dim, !a.NoProjBias)
		up, down := "mlp.fc", "mlp.proj"
		if gated {
			add("mlp.gate_proj", "mlp.gate", dim, hidden, mlpBias)
			up, down = "mlp.up", "mlp.down"
		}
		add("mlp.up_proj", up, dim, hidden, mlpBias)
		add("mlp.down_proj", down, hidden, dim, mlpBias)
		links = append(links, same(theirs+"layer_scale1.lambda1", ours+"scale1", dim), same(theirs+"layer_scale2.lambda1", ours+"scale2", dim))
		links = append(links, layerNorm(theirs+"norm1", ours+"norm1", dim)...)
		links = append(links, layerNorm(theirs+"norm2", ours+"norm2", dim)...)
	}
	links = append(links, layerNorm("norm", "norm", dim)...)
	return &architecture{links: withoutBiases(links, plain), build: func(s *nn.Scope) any { return nn.NewEncoder(s, e) }}
}
