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

// albert is a BERT whose layers share blocks and whose embeddings are narrower.
func albert(c *config, _ int) *architecture {
	f := bertFamily{
		base: "albert.", project: "encoder.embedding_hidden_mapping_in", pool: "pooler", pooled: true, pooler: "albert.pooler", classifier: "classifier",
		transform: "predictions.dense", norm: "predictions.LayerNorm", bias: "predictions.bias",
		repeats: []string{"predictions.decoder.weight", "predictions.decoder.bias"},
		block: blockNames{
			"encoder.albert_layer_groups.%d.albert_layers.0.", "attention.query", "attention.key", "attention.value", "attention.dense",
			"attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm",
		},
	}
	e := nn.BERTConfig{
		Vocab: c.size("vocab_size", 30000), Context: c.size("max_position_embeddings", 512), Types: c.sizeOrNone("type_vocab_size", 2),
		Layers: c.layers("num_hidden_layers", 12), Heads: c.size("num_attention_heads", 64), Dim: c.size("hidden_size", 4096),
		Hidden: c.size("intermediate_size", 16384), Activation: c.activation("hidden_act", "gelu_new"),
		Norms: nn.PostNorm, EmbeddingNorm: true, Epsilon: c.positive("layer_norm_eps", 1e-12), Dropout: c.float("hidden_dropout_prob", 0),
	}.Model()
	p := c.float("classifier_dropout_prob", 0.1)
	e.Block.Attention.Separate, e.Block.Attention.Options.Dropout.P, e.Heads.Dropout = true, c.float("attention_probs_dropout_prob", 0), &p
	if e.Text.Dim = c.size("embedding_size", 128); e.Text.Dim == e.Block.Attention.Dim {
		c.fail("field embedding_size is %d, it needs to be another than hidden_size", e.Text.Dim)
	}
	if e.Blocks = c.size("num_hidden_groups", 1); e.Layers%e.Blocks != 0 {
		c.fail("field num_hidden_groups is %d, it needs to be a divisor of num_hidden_layers, which is %d", e.Blocks, e.Layers)
		e.Blocks = 1
	}
	needs(c, "inner_group_num", 1)
	needs(c, "position_embedding_type", "absolute")
	c.unread("down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks", "type") // in the published configs, for no one to read
	f.padding = c.padding(e.Text.Vocab, 0, "tokens.weight")
	a := f.architecture(c, &e)
	a.unused = append(a.unused, "sop_classifier.classifier.weight", "sop_classifier.classifier.bias") // of the first training
	return a
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
