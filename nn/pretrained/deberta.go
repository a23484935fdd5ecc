package pretrained

import (
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/nn"
)

// deberta is DeBERTa-v2 and v3: a BERT whose attention goes by distances between tokens.
func deberta(c *config, _ int) *architecture {
	f := bertFamily{
		base: "deberta.", pooler: "pooler.dense", classifier: "classifier",
		transform: "cls.predictions.transform.dense", norm: "cls.predictions.transform.LayerNorm", bias: "cls.predictions.bias",
		repeats: []string{"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
		block: blockNames{
			"encoder.layer.%d.", "attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", "attention.output.dense",
			"attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm",
		},
	}
	if !c.bool("legacy", true) {
		f.transform, f.norm = "lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm"
		f.bias, f.repeats = "lm_predictions.lm_head.bias", nil
	}
	types := field(c, "type_vocab_size", "an integer", 0)
	if types != 0 {
		types = c.size("type_vocab_size", 0)
	}
	e := nn.BERTConfig{
		Vocab: c.size("vocab_size", 128100), Context: c.size("max_position_embeddings", 512), Types: types,
		Layers: c.layers("num_hidden_layers", 24), Heads: c.size("num_attention_heads", 24), Dim: c.size("hidden_size", 1536),
		Hidden: c.size("intermediate_size", 6144), Activation: c.activation("hidden_act", "gelu"),
		Norms: nn.PostNorm, EmbeddingNorm: true, Epsilon: c.positive("layer_norm_eps", 1e-7), Dropout: c.float("hidden_dropout_prob", 0.1),
	}.Model()
	e.Block.Attention.Options.Dropout.P = c.float("attention_probs_dropout_prob", 0.1)
	e.Text.NoPositions = !c.bool("position_biased_input", true)
	if c.has("cls_dropout") {
		p := c.float("cls_dropout", 0)
		e.Heads.Dropout = &p
	}
	f.poolerActivation = c.activation("pooler_hidden_act", "gelu")
	e.Disentangled = c.disentangled(e.Text.Context)
	needs(c, "attention_head_size", e.Block.Attention.Dim/e.Block.Attention.Heads)
	needs(c, "embedding_size", e.Block.Attention.Dim)
	if dim := e.Block.Attention.Dim; field(c, "pooler_hidden_size", "an integer", dim) != dim {
		c.fail("field pooler_hidden_size is %.20s and field hidden_size is %d, they need to be equal", c.fields["pooler_hidden_size"], dim)
	}
	needs(c, "pooler_dropout", 0.0)
	needs(c, "conv_kernel_size", 0)
	c.read["conv_act"], c.read["conv_groups"] = true, true
	f.padding = c.padding(e.Text.Vocab, 0, "tokens.weight")
	a := f.architecture(c, &e)
	// Parts of the first training, which transformers does not read into these models either.
	a.unused = append(a.unused, "lm_predictions.lm_head.dense.weight", "lm_predictions.lm_head.dense.bias",
		"lm_predictions.lm_head.LayerNorm.weight", "lm_predictions.lm_head.LayerNorm.bias", "lm_predictions.lm_head.bias",
		"mask_predictions.LayerNorm.weight", "mask_predictions.LayerNorm.bias", "mask_predictions.classifier.weight",
		"mask_predictions.classifier.bias", "mask_predictions.dense.weight", "mask_predictions.dense.bias")
	return a
}

// disentangled reads how scores go by distances.
func (c *config) disentangled(context int) *nn.DisentangledConfig {
	if !c.bool("relative_attention", false) {
		c.fail("field relative_attention is false or missing, only true is supported")
	}
	if !c.bool("share_att_key", false) {
		c.fail("field share_att_key is false or missing, only true is supported")
	}
	var kinds []string
	if strings.HasPrefix(string(c.fields["pos_att_type"]), "[") {
		kinds = c.strings("pos_att_type")
	} else {
		for kind := range strings.SplitSeq(strings.ToLower(c.string("pos_att_type", "")), "|") {
			kinds = append(kinds, strings.TrimSpace(kind))
		}
	}
	slices.Sort(kinds)
	if kinds = slices.Compact(kinds); !slices.Equal(kinds, []string{"c2p", "p2c"}) {
		c.fail("field pos_att_type is %.40s, only c2p and p2c together are supported", c.fields["pos_att_type"])
	}
	d := &nn.DisentangledConfig{Buckets: context}
	if most := field(c, "max_relative_positions", "an integer", -1); most > maxSize {
		c.fail("field max_relative_positions is %d, it needs to be at most %d", most, maxSize)
	} else if most > 0 {
		d.Buckets = most
	}
	if buckets := field(c, "position_buckets", "an integer", -1); buckets > 0 {
		if buckets%2 != 0 || buckets < 4 || d.Buckets <= buckets/2+1 {
			c.fail("field position_buckets is %d and field max_relative_positions, or else field max_position_embeddings, gives %d: "+
				"the first needs to be even and at least 4, and its half below the other less one", buckets, d.Buckets)
		}
		d.Buckets, d.Farthest = buckets, d.Buckets
	}
	switch norm := strings.ToLower(c.string("norm_rel_ebd", "none")); norm {
	case "none":
	case "layer_norm":
		d.Norm = true
	default:
		c.fail("field norm_rel_ebd is %.40s, only none and layer_norm are supported", norm)
	}
	return d
}
