package pretrained

import (
	"fmt"

	"github.com/stheno-ml/stheno/nn"
)

// qkvBias is the field by which queries, keys and values may have no biases.
var qkvBias = map[string]string{"q": "qkv_bias", "k": "qkv_bias", "v": "qkv_bias"}

// vit is ViT, alone or with a head for classes.
func vit(c *config, _ int) *architecture {
	size := c.size("image_size", 224)
	config := nn.ViTConfig{
		Channels: c.size("num_channels", 3), Height: size, Width: size, Patch: c.size("patch_size", 16), Layers: c.layers("num_hidden_layers", 12),
		Heads: c.size("num_attention_heads", 12), Dim: c.size("hidden_size", 768), Hidden: c.size("intermediate_size", 3072),
		Activation: c.activation("hidden_act", "gelu"), Epsilon: c.positive("layer_norm_eps", 1e-12), Dropout: c.float("hidden_dropout_prob", 0),
	}
	p := &nn.PatchEmbeddingConfig{Channels: config.Channels, Height: size, Width: size, Patch: config.Patch}
	c.patches(p)
	config.Patch = p.Patch
	attention := c.float("attention_probs_dropout_prob", 0)
	plain := c.biasesOf(qkvBias)
	config.Block = func(_ int, b *nn.BlockConfig) {
		b.Attention.Separate, b.Attention.Options.Dropout.P, b.NewLinear = true, attention, unbiased(plain...)
	}
	c.read["encoder_stride"] = true // of a decoder of masked images
	kind := c.ending(bare, "ForImageClassification")
	if config.Pooler = kind == bare; config.Pooler {
		needs(c, "pooler_act", "tanh")
		needs(c, "pooler_output_size", config.Dim)
	} else {
		c.unread("pooler_act", "pooler_output_size")
		config.Classes = c.classes()
	}

	base, d, patches := "vit.", config.Dim, (size/config.Patch)*(size/config.Patch)
	if config.Pooler {
		base = ""
	}
	links := []link{
		same3(base+"embeddings.cls_token", "embeddings.class", 1, d),
		same3(base+"embeddings.position_embeddings", "embeddings.positions.weight", patches+1, d),
		convolution(base+"embeddings.patch_embeddings.projection", "embeddings.patches", p, d),
		bias(base+"embeddings.patch_embeddings.projection", "embeddings.patches", d),
	}
	for i := range config.Layers {
		theirs, ours := fmt.Sprintf("%sencoder.layer.%d.", base, i), fmt.Sprintf("blocks.%d.", i)
		for _, name := range []string{"query", "key", "value"} {
			links = append(links, linear(theirs+"attention.attention."+name, ours+"attn."+name[:1], d, d)...)
		}
		links = append(links, linear(theirs+"attention.output.dense", ours+"attn.proj", d, d)...)
		links = append(links, linear(theirs+"intermediate.dense", ours+"mlp.fc", d, config.Hidden)...)
		links = append(links, linear(theirs+"output.dense", ours+"mlp.proj", config.Hidden, d)...)
		links = append(links, layerNorm(theirs+"layernorm_before", ours+"norm1", d)...)
		links = append(links, layerNorm(theirs+"layernorm_after", ours+"norm2", d)...)
	}
	links = append(links, layerNorm(base+"layernorm", "norm", d)...)
	if config.Pooler {
		links = append(links, linear("pooler.dense", "pooler", d, d)...)
	} else {
		links = append(links, linear("classifier", "classifier", d, config.Classes)...)
	}
	return &architecture{
		links: withoutBiases(links, plain), prefix: base, heads: []string{"classifier"},
		build: func(s *nn.Scope) any { return nn.NewViT(s, config) },
	}
}
