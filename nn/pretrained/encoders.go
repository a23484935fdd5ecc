package pretrained

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
)

// distilBERT is a BERT with half of the layers, no types of tokens and no pooler, whose attention
// has no dropout behind it.
func distilBERT(c *config, _ int) *architecture {
	c.also("dim", "hidden_size")
	c.also("n_heads", "num_attention_heads")
	c.also("n_layers", "num_hidden_layers")
	f := bertFamily{
		base: "distilbert.", pooler: "pre_classifier", classifier: "classifier", poolerActivation: kernels.ReLU,
		transform: "vocab_transform", norm: "vocab_layer_norm", bias: "vocab_projector.bias", repeats: []string{"vocab_projector.weight"},
		questionsDropout: c.float("qa_dropout", 0.1),
		block: blockNames{
			"transformer.layer.%d.", "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm",
			"ffn.lin1", "ffn.lin2", "output_layer_norm",
		},
	}
	e := nn.BERTConfig{
		Vocab: c.size("vocab_size", 30522), Context: c.size("max_position_embeddings", 512), Layers: c.layers("n_layers", 6),
		Heads: c.size("n_heads", 12), Dim: c.size("dim", 768), Hidden: c.size("hidden_dim", 4*768), Activation: c.activation("activation", "gelu"),
		Norms: nn.PostNorm, EmbeddingNorm: true, Epsilon: 1e-12,
	}.Model()
	p, classified := c.float("dropout", 0.1), c.float("seq_classif_dropout", 0.2)
	e.Dropout, e.Block.Attention.Separate, e.Block.Attention.Options.Dropout.P = p, true, c.float("attention_dropout", 0.1)
	e.Block.NewMLP = func(s *nn.Scope, c nn.MLPConfig) nn.Layer {
		mlp, drop := nn.NewMLP(s, c), nn.NewDropout(s.Sub("drop"), p)
		return nn.LayerFunc(func(x nn.Tensor) nn.Tensor { return x.Through(mlp, drop) })
	}
	c.read["sinusoidal_pos_embds"] = true // of positions that are not loaded
	f.padding = c.padding(e.Text.Vocab, 0, "tokens.weight")
	a := f.architecture(c, &e)
	if e.Heads.Classes > 0 {
		e.Heads.Dropout = &classified
	}
	return a
}

// electra is a BERT whose embeddings may be narrower, with other heads.
func electra(c *config, _ int) *architecture {
	f := bertFamily{
		base: "electra.", block: bertBlock, pooler: "classifier.dense", classifier: "classifier.out_proj", poolerActivation: kernels.GELUErf,
		transform: "generator_predictions.dense", norm: "generator_predictions.LayerNorm", bias: "generator_lm_head.bias",
		repeats: []string{"generator_lm_head.weight"}, gelu: true, poolerDropout: true,
	}
	e := f.read(c, 30522, 0)
	e.Text.Dim = c.size("embedding_size", 128)
	for _, name := range []string{"summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout"} {
		c.read[name] = true // of a head for choices
	}
	f.padding = c.padding(e.Text.Vocab, 0, "tokens.weight")
	return f.architecture(c, &e)
}

// mpnet is a RoBERTa whose attention has a bias by distance, which all its layers share.
func mpnet(c *config, _ int) *architecture {
	const buckets, padding = 32, 1
	f := bertFamily{
		base: "mpnet.", pooled: true, pooler: "classifier.dense", classifier: "classifier.out_proj",
		transform: "lm_head.dense", norm: "lm_head.layer_norm", bias: "lm_head.bias",
		repeats: []string{"lm_head.decoder.weight", "lm_head.decoder.bias"}, gelu: true, poolerDropout: true,
		block: blockNames{
			"encoder.layer.%d.", "attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "attention.LayerNorm",
			"intermediate.dense", "output.dense", "output.LayerNorm",
		},
		padding: map[string]int{"tokens.weight": padding, "positions.weight": padding},
	}
	e := f.read(c, 30527, padding+1)
	e.Text.Types, e.Heads.Dropout = 0, nil
	needs(c, "relative_attention_num_buckets", buckets)
	e.Distances = &nn.DistanceConfig{Buckets: buckets, Farthest: 128}
	return f.architecture(c, &e)
}
