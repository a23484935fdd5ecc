package pretrained

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
)

// pairBlock are the names of CLIP's and SigLIP's blocks.
var pairBlock = blockNames{
	"encoder.layers.%d.", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj",
	"layer_norm1", "mlp.fc1", "mlp.fc2", "layer_norm2",
}

// clip is CLIP, whose texts end by the vector of their last token.
func clip(c *config, _ int) *architecture {
	c.class("CLIPModel")
	for _, name := range []string{"initializer_factor", "logit_scale_init_value"} {
		c.read[name] = true // of weights that are not loaded
	}
	text, image, links := c.towers(usualTowers{"quick_gelu", 1e-5, 49408, 77, 32, 512, 8})
	width := c.size("projection_dim", 512)
	text.c.Encoder.Block.Attention.Options.Causal = kernels.CausalBottomRight
	text.c.Dim, image.c.Dim = width, width
	if text.end == 2 {
		text.end = -1 // older configs say 2, and mean the highest id
	}
	text.c.End = &text.end
	p := image.c.Encoder.Patches
	p.ClassToken, p.NoBias, image.c.Encoder.EmbeddingNorm = true, true, true
	links = append(links, layerNorm("vision_model.pre_layrnorm", "image.embnorm", image.dim)...)
	links = append(links,
		link{theirs: "vision_model.embeddings.class_embedding", shape: []int{image.dim}, parts: []part{{ours: "image.embeddings.class", shape: []int{1, image.dim}, n: image.dim}}},
		weight("text_projection.weight", "text.projection.weight", text.dim, width),
		weight("visual_projection.weight", "image.projection.weight", image.dim, width),
		link{theirs: "logit_scale", shape: []int{}, parts: []part{{ours: "logitscale", shape: []int{1}, n: 1}}})
	return pair(links, text, image, false)
}

// siglip is SigLIP, whose images end by attention of a learned query.
func siglip(c *config, _ int) *architecture {
	c.class("SiglipModel")
	c.read["initializer_factor"] = true
	text, image, links := c.towers(usualTowers{"gelu_pytorch_tanh", 1e-6, 32000, 64, 16, 768, 12})
	text.c.Pool, text.c.Dim, text.c.Bias, image.c.Probe = nn.LastPool, text.projection, true, true
	d := image.dim
	links = append(links, linear("text_model.head", "text.projection", text.dim, text.projection)...)
	links = append(links, bias("vision_model.embeddings.patch_embedding", "image.embeddings.patches", d),
		link{theirs: "vision_model.head.probe", shape: []int{1, 1, d}, parts: []part{{ours: "image.probe.weight", shape: []int{1, d}, n: 1}}})
	q, k, v := output{ours: "image.attn.q", n: d}, output{ours: "image.attn.k", n: d}, output{ours: "image.attn.v", n: d}
	in := linears("", d, true, q, k, v)
	in[0].theirs, in[1].theirs = "vision_model.head.attention.in_proj_weight", "vision_model.head.attention.in_proj_bias"
	links = append(links, in...)
	links = append(links, linear("vision_model.head.attention.out_proj", "image.attn.proj", d, d)...)
	links = append(links, layerNorm("vision_model.head.layernorm", "image.probenorm", d)...)
	links = append(links, linear("vision_model.head.mlp.fc1", "image.mlp.fc", d, image.c.Encoder.Block.Hidden)...)
	links = append(links, linear("vision_model.head.mlp.fc2", "image.mlp.proj", image.c.Encoder.Block.Hidden, d)...)
	links = append(links, same("logit_scale", "logitscale", 1), same("logit_bias", "logitbias", 1))
	return pair(links, text, image, true)
}

// pair is the architecture of two towers.
func pair(links []link, text, image *towerOf, sigmoid bool) *architecture {
	config := nn.ContrastiveConfig{Text: text.c, Image: image.c, Sigmoid: sigmoid}
	return &architecture{
		links: links, unused: []string{"embeddings.position_ids"},
		build: func(s *nn.Scope) any { return nn.NewContrastive(s, config) },
	}
}

// towerOf is one side, and what else its config says.
type towerOf struct {
	c               nn.TowerConfig
	dim             int
	end, projection int // of texts
}

// usualTowers are values of fields that a config leaves out; width and heads are of texts.
type usualTowers struct {
	activation                          string
	epsilon                             float64
	vocab, context, patch, width, heads int
}

// towers reads what CLIP and SigLIP have in common: the configs of both sides, and the links of
// their encoders.
func (c *config) towers(u usualTowers) (text, image *towerOf, links []link) {
	t, i := c.side("text_config"), c.side("vision_config")
	text, image = t.tower(u, u.width, u.heads), i.tower(u, 768, 12)
	e := &text.c.Encoder
	e.Text = &nn.TextConfig{Vocab: t.size("vocab_size", u.vocab), Context: t.size("max_position_embeddings", u.context)}
	text.end = field(t, "eos_token_id", "an integer", 49407)
	if n := e.Text.Vocab * e.Text.Context; text.end == 2 && n > 1<<24 {
		t.fail("field eos_token_id is 2, the highest id is looked for in a vocabulary and a context whose product, %d, is at most %d", n, 1<<24)
	}
	if text.end < 0 {
		t.fail("field eos_token_id is %d, it cannot be negative", text.end)
	}
	text.projection = t.size("projection_size", text.dim)
	size := i.size("image_size", 224)
	p := &nn.PatchEmbeddingConfig{Channels: i.size("num_channels", 3), Height: size, Width: size, Patch: i.size("patch_size", u.patch)}
	i.patches(p)
	needs(i, "vision_use_head", true)
	image.c.Encoder.Patches = p
	for _, side := range []*config{t, i} {
		for _, inert := range []string{"initializer_factor", "projection_dim", "dropout", "tie_word_embeddings"} {
			side.read[inert] = true // of other models, or of weights that are not loaded
		}
		c.join(side)
	}

	d, count := image.dim, size/p.Patch*(size/p.Patch)
	if c.string("model_type", "") == "clip" {
		count++
	}
	links = append(links, table("text_model.embeddings.token_embedding.weight", "text.tokens.weight", e.Text.Vocab, text.dim),
		same("text_model.embeddings.position_embedding.weight", "text.positions.weight", e.Text.Context, text.dim),
		same("vision_model.embeddings.position_embedding.weight", "image.embeddings.positions.weight", count, d),
		convolution("vision_model.embeddings.patch_embedding", "image.embeddings.patches", p, d))
	links = append(links, layerNorm("text_model.final_layer_norm", "text.norm", text.dim)...)
	links = append(links, layerNorm("vision_model.post_layernorm", "image.norm", d)...)
	for _, side := range []struct {
		theirs, ours string
		*towerOf
	}{{"text_model.", "text.", text}, {"vision_model.", "image.", image}} {
		for i := range side.c.Encoder.Layers {
			for _, l := range pairBlock.links(side.theirs, i, side.dim, side.c.Encoder.Block.Hidden) {
				for p := range l.parts {
					l.parts[p].ours = side.ours + l.parts[p].ours
				}
				links = append(links, l)
			}
		}
	}
	return text, image, links
}

// side is the config of a tower. Older files say it twice, and what they say beside counts.
func (c *config) side(name string) *config {
	c.read[name], c.read[name+"_dict"] = true, true
	for _, name := range []string{name + "_dict", name} {
		if side := c.object(name); side != nil {
			return side
		}
	}
	return &config{file: c.file, read: map[string]bool{}, within: c.within + name + "."}
}

// tower reads an encoder's blocks.
func (c *config) tower(u usualTowers, width, heads int) *towerOf {
	dim := c.size("hidden_size", width)
	b := nn.BlockConfig{
		Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: c.size("num_attention_heads", heads), Separate: true},
		Hidden:    c.size("intermediate_size", 4*width), Activation: c.activation("hidden_act", u.activation), Epsilon: c.positive("layer_norm_eps", u.epsilon),
	}
	b.Attention.Options.Dropout.P = c.float("attention_dropout", 0)
	return &towerOf{dim: dim, c: nn.TowerConfig{Encoder: nn.EncoderConfig{Layers: c.layers("num_hidden_layers", 12), Block: b}}}
}

// patches makes sure that an image is whole patches, and not too many.
func (c *config) patches(p *nn.PatchEmbeddingConfig) {
	if p.Height%p.Patch != 0 || p.Height/p.Patch > 1<<11 {
		c.fail("field %spatch_size is %d, it needs to divide image_size, which is %d, into at most 2048", c.within, p.Patch, p.Height)
		p.Patch = p.Height
	}
}

// convolution is the weight of what patches go through.
func convolution(theirs, ours string, p *nn.PatchEmbeddingConfig, dim int) link {
	l := weight(theirs+".weight", ours+".weight", p.Channels*p.Patch*p.Patch, dim)
	l.shape, l.linear = []int{dim, p.Channels, p.Patch, p.Patch}, false
	return l
}

// bias is that of a linear layer.
func bias(theirs, ours string, out int) link { return same(theirs+".bias", ours+".bias", out) }

// class makes sure that the model is of the one class that there is.
func (c *config) class(name string) {
	if given := c.strings("architectures"); len(given) > 0 && given[0] != name {
		c.fail("field architectures is %q, only %s is supported", given[0], name)
	}
}
