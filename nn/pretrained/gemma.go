package pretrained

import (
	"encoding/json"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
)

// readGemma is what the Gemmas have in common.
func readGemma(c *config, context, kvHeads int) *decoder {
	d := readDecoder(c, usual{context: context, kvHeads: kvHeads, headDim: 256, tied: true})
	d.bias(c)
	d.Block.NormPlusOne = true
	d.EmbeddingScale = math.Sqrt(float64(d.Block.Attention.Dim))
	if c.string("model_type", "") != "gemma3_text" {
		needs(c, "use_bidirectional_attention", false)
	}
	if d.Classes != nil && !c.given("pad_token_id") {
		d.Classes.Padding = new(0)
	}
	return d
}

// gemma is the first Gemma, whose gelu was always the approximation by a tanh.
func gemma(c *config, context int) *architecture {
	d := readGemma(c, 8192, 16)
	if d.Block.Activation == kernels.GELUErf || !c.has("hidden_act") {
		d.Block.Activation = kernels.GELUTanh
	}
	c.read["hidden_activation"] = true // is in the published configs, for no one to read
	d.turn(c, 10000, context)
	return d.architecture()
}

// sandwiched is what Gemma 2 and Gemma 3 have in common.
func (d *decoder) sandwiched(c *config) {
	d.names = llamaNames(map[string]string{"outnorm1": "post_attention_layernorm", "norm2": "pre_feedforward_layernorm", "outnorm2": "post_feedforward_layernorm"})
	d.Block.Activation = c.activation("hidden_activation", "gelu_pytorch_tanh") // hidden_act is given too, and not used
	d.Block.Norms = nn.SandwichNorm
	d.Block.Attention.Options.Scale = 1 / math.Sqrt(c.positive("query_pre_attn_scalar", 256))
	d.LogitSoftCap = c.positiveOrNone("final_logit_softcapping")
}

func gemma2(c *config, context int) *architecture {
	d := readGemma(c, 8192, 4)
	d.sandwiched(c)
	if !c.given("final_logit_softcapping") {
		d.LogitSoftCap = 30
	}
	softCap := &d.Block.Attention.Options.SoftCap
	if *softCap = c.positiveOrNone("attn_logit_softcapping"); !c.given("attn_logit_softcapping") {
		*softCap = 50
	}
	d.types(c, func(i int) bool { return i%2 == 0 })
	d.slide(c, c.sizeOrNone("sliding_window", 4096))
	d.turn(c, 10000, context)
	return d.architecture()
}

func gemma3(c *config, context int) *architecture {
	d := readGemma(c, 131072, 4)
	d.sandwiched(c)
	d.Block.Attention.QKNorm = true
	if c.has("attn_logit_softcapping") {
		c.fail("field attn_logit_softcapping is %s, Gemma 3 has none", c.fields["attn_logit_softcapping"])
	}
	c.read["_sliding_window_pattern"] = true // is written beside layer_types, for no one to read
	pattern := c.size("sliding_window_pattern", 6)
	d.types(c, func(i int) bool { return (i+1)%pattern != 0 })
	window := c.sizeOrNone("sliding_window", 4096)
	both := c.bool("use_bidirectional_attention", false)
	d.slide(c, window)
	full := d.ropeOf(c, fullAttention, &ropeProblem{theta: c.float("rope_theta", 1e6), partial: 1, context: context})
	// In configs from before transformers 5, rope_scaling and rope_theta are of the layers that see
	// everything alone.
	theta := c.float("rope_local_base_freq", 10000)
	local := ops.RoPEOptions{Base: theta}
	if c.has("rope_parameters") {
		local = d.ropeOf(c, slidingAttention, &ropeProblem{theta: theta, partial: 1, context: context})
	}
	d.turnByType(full, local)
	a := d.architecture()
	if both {
		d.encodeGemma(c, a)
	}
	return a
}

// multimodalGemma3 is the text part of a Gemma 3 that sees images: it is saved as one alone.
func multimodalGemma3(c *config, context int) *architecture {
	c.class("Gemma3ForConditionalGeneration")
	text := c.object("text_config")
	if text == nil {
		c.fail("field text_config is missing")
		text = &config{file: c.file, read: map[string]bool{}, fields: map[string]json.RawMessage{}, within: "text_config."}
	}
	for name, usual := range map[string]string{
		"architectures": `["Gemma3ForCausalLM"]`, "model_type": `"gemma3_text"`, "vocab_size": "262208", "hidden_size": "2304",
		"intermediate_size": "9216", "num_hidden_layers": "26", "num_attention_heads": "8",
	} {
		if !text.given(name) {
			text.fields[name] = json.RawMessage(usual)
		}
	}
	needs(text, "model_type", "gemma3_text")
	if tied, given := c.fields["tie_word_embeddings"]; given {
		text.fields["tie_word_embeddings"] = tied
	}
	for _, name := range []string{
		"boi_token_index", "boi_token_id", "eoi_token_index", "eoi_token_id", "image_token_index", "image_token_id",
		"mm_tokens_per_image", "tie_word_embeddings", "vision_config",
	} {
		c.read[name] = true // of images, or is taken over
	}
	needs(text, "use_bidirectional_attention", false)
	if text.has("final_logit_softcapping") { // transformers caps those of a text model alone
		text.fail("field text_config.final_logit_softcapping is %.40s, only null is supported", text.fields["final_logit_softcapping"])
	}
	a := gemma3(text, context)
	a.renamed = multimodal
	c.join(text)
	var err error
	if a.config, err = json.Marshal(text.fields); err != nil {
		c.fail("field text_config: %w", err)
	}
	return a
}

// multimodal are the names of tensors of a multimodal Gemma 3, older and newer.
var multimodal = []renaming{
	{"language_model.lm_head.", "lm_head."}, {"language_model.model.", "model."}, {"model.language_model.", "model."},
	{"vision_tower.", ""}, {"multi_modal_projector.", ""}, {"model.vision_tower.", ""}, {"model.multi_modal_projector.", ""},
}

// turnByType gives layers that see everything one RoPE and those that slide another.
func (d *decoder) turnByType(full, local ops.RoPEOptions) {
	for i, kind := range d.layerTypes {
		d.rope[i] = &full
		if kind == slidingAttention {
			d.rope[i] = &local
		}
	}
}
