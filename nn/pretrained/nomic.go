package pretrained

import (
	"fmt"

	"github.com/stheno-ml/stheno/nn"
)

// nomicBERT is a BERT with rotary positions and gated MLPs, without biases but for those of norms
// and heads. Its published configs have GPT-2's names of fields.
func nomicBERT(c *config, context int) *architecture {
	for name, other := range map[string]string{
		"hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "intermediate_size": "n_inner",
		"layer_norm_eps": "layer_norm_epsilon", "rope_theta": "rotary_emb_base",
		"hidden_dropout_prob": "resid_pdrop", "attention_probs_dropout_prob": "attn_pdrop",
	} {
		c.also(name, other)
	}
	if !c.has("max_position_embeddings") {
		c.also("max_position_embeddings", "n_positions")
	}
	c.read["n_positions"] = true // nomic-embed-text-v1.5 has the longer of the two here, and transformers does not look
	dropout, yes := c.float("hidden_dropout_prob", 0), true
	e := nn.BERTConfig{
		Vocab: c.size("vocab_size", 30528), Context: c.size("max_position_embeddings", 2048), Types: c.sizeOrNone("type_vocab_size", 2),
		Layers: c.layers("num_hidden_layers", 12), Heads: c.size("num_attention_heads", 12), Dim: c.size("hidden_size", 768),
		Hidden: c.size("intermediate_size", 3072), Activation: c.activation("hidden_act", "silu"),
		Norms: nn.PostNorm, EmbeddingNorm: true, Epsilon: c.positive("layer_norm_eps", 1e-12), Dropout: dropout,
	}.Model()
	e.Text.NoPositions, e.Block.Gated, e.Block.NormBias = true, true, &yes
	a := &e.Block.Attention
	if a.HeadDim = c.optionalSize("head_dim"); a.HeadDim == 0 {
		a.HeadDim = max(1, a.Dim/a.Heads)
	}
	a.NoBias, a.Separate, a.Options.Dropout.P = true, true, c.float("attention_probs_dropout_prob", 0)
	p := &ropeProblem{headDim: a.HeadDim, theta: c.float("rope_theta", 1000), partial: 1, trained: e.Text.Context, context: context}
	rope := c.rope("", p)
	if a.RoPE = &rope; p.holds > 0 {
		e.Text.Context = min(e.Text.Context, p.holds)
	}
	if c.has("classifier_dropout") {
		of := c.float("classifier_dropout", 0)
		e.Heads.Dropout = &of
	}
	c.nomicNeeds(dropout)
	f := bertFamily{
		base: "nomic_bert.", embnorm: "emb_ln", pooler: "nomic_bert.pooler.dense", classifier: "classifier",
		transform: "cls.predictions.transform.dense", norm: "cls.predictions.transform.layer_norm", bias: "cls.predictions.bias",
		repeats: []string{"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
		padding: c.padding(e.Text.Vocab, 0, "tokens.weight"), links: nomicLinks,
	}
	return f.architecture(c, &e)
}

// nomicNeeds makes sure of the fields of published configs that have but one value.
func (c *config) nomicNeeds(dropout float64) {
	for _, name := range []string{
		"causal", "mlp_fc1_bias", "mlp_fc2_bias", "parallel_block", "parallel_block_tied_norm", "prenorm", "qkv_proj_bias",
		"rotary_emb_interleaved", "scale_attn_by_inverse_layer_idx", "use_rms_norm",
	} {
		needs(c, name, false)
	}
	needs(c, "activation_function", "swiglu")
	needs(c, "embd_pdrop", dropout)
	needs(c, "rotary_emb_fraction", 1.0)
	needs(c, "scale_attn_weights", true)
	for _, name := range []string{
		"dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "max_trained_positions", "pad_vocab_size_multiple",
		"reorder_and_upcast_attn", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
		"use_flash_attn", "use_xentropy", // of how it is computed, or of heads that are not loaded
	} {
		c.read[name] = true
	}
}

// nomicLinks are the tensors of block i.
func nomicLinks(base string, i int, b *nn.BlockConfig) []link {
	theirs, ours, a := fmt.Sprintf("%sencoder.layers.%d.", base, i), fmt.Sprintf("blocks.%d.", i), b.Attention
	dim, heads := a.Dim, a.Heads*a.HeadDim
	of := func(part string, n int) output { return output{ours: ours + part + ".weight", n: n} }
	links := []link{
		joined(theirs+"attn.Wqkv.weight", dim, of("attn.q", heads), of("attn.k", heads), of("attn.v", heads)),
		joined(theirs+"attn.out_proj.weight", heads, of("attn.proj", dim)),
		joined(theirs+"mlp.fc11.weight", dim, of("mlp.up", b.Hidden)), joined(theirs+"mlp.fc12.weight", dim, of("mlp.gate", b.Hidden)),
		joined(theirs+"mlp.fc2.weight", b.Hidden, of("mlp.down", dim)),
	}
	links = append(links, layerNorm(theirs+"norm1", ours+"norm1", dim)...)
	return append(links, layerNorm(theirs+"norm2", ours+"norm2", dim)...)
}
