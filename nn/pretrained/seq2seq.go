package pretrained

import (
	"fmt"
	"math"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
)

// The families of this file read a source by an encoder and write a text by a decoder.

// sides are an encoder and a decoder, and the links of both.
type sides struct {
	nn.EncoderDecoderConfig
	links []link
}

// architecture is the model of both.
func (s *sides) architecture() *architecture {
	return &architecture{
		links: s.links, reads: true, unused: []string{"embed_positions.weight", "embed_tokens.weight"},
		build: func(scope *nn.Scope) any { return nn.NewEncoderDecoder(scope, s.EncoderDecoderConfig) },
	}
}

// add appends the links of linear layers.
func (s *sides) add(theirs, ours string, in, out int, biased bool) {
	s.links = append(s.links, linears(theirs, in, biased, output{ours: ours, n: out})...)
}

// writes reads what all configs of the kind say of themselves.
func (c *config) writes(class string) {
	c.class(class)
	needs(c, "is_encoder_decoder", true)
	needs(c, "is_decoder", false)
	c.read["classifier_dropout"] = true // of a head for classes
}

// usualT5 are a family's values of fields that a config leaves out.
type usualT5 struct {
	vocab, hidden, layers, heads int
	proj                         string
	scaled                       bool // what the head reads is divided by √Dim, if the head is the embedding's
}

// t5 is T5, version 1.1 of it and Flan.
func t5(c *config, context int) *architecture {
	c.writes("T5ForConditionalGeneration")
	return readT5(c, context, usualT5{vocab: 32128, hidden: 2048, layers: 6, heads: 8, proj: "relu", scaled: true})
}

// mt5 is mT5, whose head's input is never scaled.
func mt5(c *config, context int) *architecture {
	c.writes("MT5ForConditionalGeneration")
	return readT5(c, context, usualT5{vocab: 250112, hidden: 1024, layers: 8, heads: 6, proj: "gated-gelu"})
}

// readT5 is what both have in common. Dropout behind the last norms is left out.
func readT5(c *config, context int, usual usualT5) *architecture {
	for name, other := range map[string]string{
		"d_model": "hidden_size", "num_heads": "num_attention_heads", "num_layers": "num_hidden_layers", "d_kv": "head_dim",
	} {
		c.also(name, other)
	}
	dim, vocab, heads, size := c.size("d_model", 512), c.size("vocab_size", usual.vocab), c.size("num_heads", usual.heads), c.size("d_kv", 64)
	hidden, dropout := c.size("d_ff", usual.hidden), c.float("dropout_rate", 0.1)
	block := nn.BlockConfig{
		Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: heads, HeadDim: size, NoBias: true, Separate: true},
		Hidden:    hidden, RMSNorm: true, Epsilon: c.positive("layer_norm_epsilon", 1e-6), Dropout: dropout, MLPDropout: dropout,
	}
	block.Attention.Options.Scale, block.Attention.Options.Dropout.P = 1, dropout
	proj := c.string("feed_forward_proj", usual.proj)
	activation, gated := strings.CutPrefix(proj, "gated-")
	if proj == "gated-gelu" {
		activation = "gelu_new"
	}
	if _, known := activations[activation]; !known {
		c.fail("field feed_forward_proj is %q, it needs to be an activation, with or without gated- before it", proj)
	}
	// What is said beside it is stronger.
	block.Gated, block.Activation = c.bool("is_gated_act", gated), c.activation("dense_act_fn", activation)
	c.read["initializer_factor"] = true // of weights that are not loaded
	layers := c.layers("num_layers", usual.layers)
	distances := &nn.DistanceConfig{Buckets: c.size("relative_attention_num_buckets", 32), Farthest: c.size("relative_attention_max_distance", 128)}
	s := &sides{EncoderDecoderConfig: nn.EncoderDecoderConfig{
		Shared: true,
		Encoder: nn.EncoderConfig{
			Layers: layers, Block: block, Distances: distances, Dropout: dropout,
			Text: &nn.TextConfig{Vocab: vocab, Context: max(context, c.size("n_positions", 512)), NoPositions: true},
		},
		Decoder: nn.LanguageModelConfig{
			Vocab: vocab, Layers: c.layers("num_decoder_layers", layers), Block: block, Distances: distances, Dropout: dropout, TiedHead: true,
		},
	}}
	s.Decoder.Block.Attention.Options.Causal = kernels.CausalBottomRight
	// Version 1.1 says by this that the head's input is not scaled; whether the head is the
	// embedding's, its files say.
	tied := c.bool("tie_word_embeddings", true)
	if scaled := c.bool("scale_decoder_outputs", tied); scaled && usual.scaled {
		s.Decoder.LogitScale = 1 / math.Sqrt(float64(dim))
	}
	s.links = []link{table("shared.weight", "tokens.weight", vocab, dim)}
	for _, side := range []struct {
		name   string
		layers int
	}{{"encoder", layers}, {"decoder", s.Decoder.Layers}} {
		s.links = append(s.links, same(side.name+".block.0.layer.0.SelfAttention.relative_attention_bias.weight", side.name+".distances.weight", distances.Buckets, heads),
			same(side.name+".final_layer_norm.weight", side.name+".norm.weight", dim))
		for i := range side.layers {
			s.t5Block(fmt.Sprintf("%s.block.%d.layer.", side.name, i), fmt.Sprintf("%s.blocks.%d.", side.name, i), side.name == "decoder", heads*size)
		}
	}
	a := s.architecture()
	a.headOrNot = func(has bool) {
		if has {
			s.Decoder.TiedHead = false
			a.links = append(a.links, same("lm_head.weight", "decoder.head.weight", vocab, dim))
		}
	}
	return a
}

// t5Block is the links of a block; width is that of its heads together.
func (s *sides) t5Block(theirs, ours string, crosses bool, width int) {
	b := s.Encoder.Block
	dim := b.Attention.Dim
	attention := func(name, part string) {
		for _, one := range []string{"q", "k", "v"} {
			s.add(theirs+name+"."+one, ours+part+"."+one, dim, width, false)
		}
		s.add(theirs+name+".o", ours+part+".proj", width, dim, false)
	}
	norm := func(layer int, part string) {
		s.links = append(s.links, same(fmt.Sprintf("%s%d.layer_norm.weight", theirs, layer), ours+part+".weight", dim))
	}
	attention("0.SelfAttention", "attn")
	norm(0, "norm1")
	last := 1
	if crosses {
		attention("1.EncDecAttention", "cross")
		norm(1, "norm3")
		last = 2
	}
	norm(last, "norm2")
	mlp := fmt.Sprintf("%s%d.DenseReluDense.", theirs, last)
	if b.Gated {
		s.add(mlp+"wi_0", ours+"mlp.gate", dim, b.Hidden, false)
		s.add(mlp+"wi_1", ours+"mlp.up", dim, b.Hidden, false)
		s.add(mlp+"wo", ours+"mlp.down", b.Hidden, dim, false)
		return
	}
	s.add(mlp+"wi", ours+"mlp.fc", dim, b.Hidden, false)
	s.add(mlp+"wo", ours+"mlp.proj", b.Hidden, dim, false)
}

// fairseq reads what BART, Marian and Whisper have in common.
func (c *config) fairseq(class string, layers, heads, hidden, dim int) *sides {
	c.writes(class)
	c.also("d_model", "hidden_size")
	c.also("encoder_attention_heads", "num_attention_heads")
	dim = c.size("d_model", dim)
	dropout, inner := c.float("dropout", 0.1), c.float("activation_dropout", 0)
	block := func(side string) nn.BlockConfig {
		b := nn.BlockConfig{
			Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: c.size(side+"_attention_heads", heads), Separate: true},
			Hidden:    c.size(side+"_ffn_dim", hidden), Activation: c.activation("activation_function", "gelu"), Norms: nn.PostNorm, Dropout: dropout, MLPDropout: inner,
		}
		b.Attention.Options.Dropout.P = c.float("attention_dropout", 0)
		c.training(side + "_layerdrop")
		return b
	}
	scale := 0.0
	if c.bool("scale_embedding", false) {
		scale = math.Sqrt(float64(dim))
	}
	for _, name := range []string{"init_std", "extra_pos_embeddings", "save_step", "classif_dropout", "force_bos_token_to_be_generated"} {
		c.read[name] = true // of weights that are not loaded, of writing, or for no one to read
	}
	c.also("encoder_layers", "num_hidden_layers")
	needs(c, "tie_word_embeddings", true)
	needs(c, "normalize_before", false)
	needs(c, "add_final_layer_norm", false)
	needs(c, "add_bias_logits", false)
	s := &sides{EncoderDecoderConfig: nn.EncoderDecoderConfig{
		Encoder: nn.EncoderConfig{Layers: c.layers("encoder_layers", layers), Block: block("encoder"), Dropout: dropout},
		Decoder: nn.LanguageModelConfig{
			Layers: c.layers("decoder_layers", layers), Block: block("decoder"), Dropout: dropout, TiedHead: true, EmbeddingScale: scale,
		},
	}}
	s.Decoder.Block.Attention.Options.Causal = kernels.CausalBottomRight
	return s
}

// fairseqLinks are those of the blocks.
func (s *sides) fairseqLinks() {
	for _, side := range []struct {
		name   string
		layers int
		nn.BlockConfig
	}{{"encoder", s.Encoder.Layers, s.Encoder.Block}, {"decoder", s.Decoder.Layers, s.Decoder.Block}} {
		dim, biased := side.Attention.Dim, !side.Attention.NoKeyBias
		for i := range side.layers {
			theirs, ours := fmt.Sprintf("model.%s.layers.%d.", side.name, i), fmt.Sprintf("%s.blocks.%d.", side.name, i)
			attention := func(name, part, norm string) {
				s.add(theirs+name+".q_proj", ours+part+".q", dim, dim, true)
				s.add(theirs+name+".k_proj", ours+part+".k", dim, dim, biased)
				s.add(theirs+name+".v_proj", ours+part+".v", dim, dim, true)
				s.add(theirs+name+".out_proj", ours+part+".proj", dim, dim, true)
				s.links = append(s.links, layerNorm(theirs+name+"_layer_norm", ours+norm, dim)...)
			}
			attention("self_attn", "attn", "norm1")
			if side.name == "decoder" {
				attention("encoder_attn", "cross", "norm3")
			}
			s.add(theirs+"fc1", ours+"mlp.fc", dim, side.Hidden, true)
			s.add(theirs+"fc2", ours+"mlp.proj", side.Hidden, dim, true)
			s.links = append(s.links, layerNorm(theirs+"final_layer_norm", ours+"norm2", dim)...)
		}
	}
}

// texts makes both sides read tokens of one table, and the decoder add a bias to its logits.
func (s *sides) texts(c *config, vocab, context int) {
	vocab, context = c.size("vocab_size", vocab), c.size("max_position_embeddings", context)
	s.Shared, s.Decoder.Vocab, s.Decoder.Context, s.Decoder.HeadBias = true, vocab, context, true
	s.Decoder.Positions = true
	s.Encoder.Text = &nn.TextConfig{Vocab: vocab, Context: context, Scale: s.Decoder.EmbeddingScale}
	dim := s.Encoder.Block.Attention.Dim
	s.links = append(s.links, table("model.shared.weight", "tokens.weight", vocab, dim),
		link{theirs: "final_logits_bias", shape: []int{1, vocab}, parts: []part{{ours: "decoder.headbias", shape: []int{1, vocab}, n: 1}}})
	s.fairseqLinks()
}

// ofTexts is the model of both, whose bias of logits transformers does not train. Where the config
// does not say it, padding is the id of that.
func (s *sides) ofTexts(c *config, padding int) *architecture {
	a := s.architecture()
	a.frozen, a.repeats = []string{"decoder.headbias"}, []repeat{{"lm_head.weight", "model.shared.weight"}}
	a.padding = c.padding(s.Decoder.Vocab, padding, "tokens.weight")
	return a
}

func bart(c *config, _ int) *architecture {
	const padding = 2 // rows of positions that are of none
	s := c.fairseq("BartForConditionalGeneration", 12, 16, 4096, 1024)
	needs(c, "static_position_embeddings", false)
	needs(c, "normalize_embedding", true)
	s.Encoder.EmbeddingNorm, s.Decoder.EmbeddingNorm = true, true
	s.texts(c, 50265, 1024)
	s.Encoder.Text.FirstPosition, s.Encoder.Text.CountPadding, s.Decoder.FirstPosition = padding, true, padding
	dim := s.Encoder.Block.Attention.Dim
	for _, side := range []string{"encoder", "decoder"} {
		s.links = append(s.links, same("model."+side+".embed_positions.weight", side+".positions.weight", s.Decoder.Context+padding, dim))
		s.links = append(s.links, layerNorm("model."+side+".layernorm_embedding", side+".embnorm", dim)...)
	}
	a := s.ofTexts(c, 1)
	a.unused = []string{"embed_tokens.weight"}
	return a
}

func marian(c *config, _ int) *architecture {
	s := c.fairseq("MarianMTModel", 12, 16, 4096, 1024)
	needs(c, "static_position_embeddings", true)
	needs(c, "normalize_embedding", false)
	needs(c, "share_encoder_decoder_embeddings", true)
	s.texts(c, 58101, 1024)
	needs(c, "decoder_vocab_size", s.Decoder.Vocab)
	s.Encoder.Text.Positions, s.Decoder.PositionKind = nn.SinusoidalHalves, nn.SinusoidalHalves
	return s.ofTexts(c, 58100)
}

// whisper reads sounds. transformers does not train the positions of its encoder.
func whisper(c *config, _ int) *architecture {
	s := c.fairseq("WhisperForConditionalGeneration", 4, 6, 1536, 384)
	for _, name := range []string{
		"apply_spec_augment", "classifier_proj_size", "forced_decoder_ids", "mask_feature_length", "mask_feature_min_masks", "mask_feature_prob", "mask_time_length",
		"mask_time_min_masks", "mask_time_prob", "median_filter_width", "use_weighted_layer_sum",
	} {
		c.read[name] = true // of spectra that are masked while it trains, of classes, or of writing
	}
	vocab, bins, context := c.size("vocab_size", 51865), c.size("num_mel_bins", 80), c.size("max_source_positions", 1500)
	d := &s.Decoder
	d.EmbeddingScale = 0 // transformers reads scale_embedding, and scales nothing
	d.Vocab, d.Context, d.Positions = vocab, c.size("max_target_positions", 448), true
	s.Encoder.Sound = &nn.SoundConfig{Bins: bins, Context: context}
	for _, b := range []*nn.BlockConfig{&s.Encoder.Block, &d.Block} {
		b.Norms, b.Attention.NoKeyBias = nn.PreNorm, true
	}
	dim := d.Block.Attention.Dim
	conv := func(name string, in int) []link {
		l := linear("model.encoder."+name, "encoder."+name, 3*in, dim)
		l[0].shape, l[0].linear = []int{dim, in, 3}, false
		return l
	}
	s.links = append(conv("conv1", bins), conv("conv2", dim)...)
	s.links = append(s.links, same("model.encoder.embed_positions.weight", "encoder.positions.weight", context, dim),
		table("model.decoder.embed_tokens.weight", "decoder.tokens.weight", vocab, dim),
		same("model.decoder.embed_positions.weight", "decoder.positions.weight", d.Context, dim))
	for _, side := range []string{"encoder", "decoder"} {
		s.links = append(s.links, layerNorm("model."+side+".layer_norm", side+".norm", dim)...)
	}
	s.fairseqLinks()
	a := s.architecture()
	a.padding = c.padding(vocab, 50256, "decoder.tokens.weight")
	a.frozen, a.repeats, a.unused = []string{"encoder.positions.weight"}, []repeat{{"proj_out.weight", "model.decoder.embed_tokens.weight"}}, nil
	return a
}
