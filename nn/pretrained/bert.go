package pretrained

import (
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/nn"
)

// bertNames are where BERT and RoBERTa differ: in names.
type bertNames struct {
	base                    string // of the encoder
	pooler, classifier      string // of a classifier
	transform, norm, biases string // of the head for masked tokens
	repeats                 []string
}

func bert(c *config, _ int) *architecture {
	return encoder(c, 0, bertNames{
		base: "bert", pooler: "bert.pooler.dense", classifier: "classifier", transform: "cls.predictions.transform.dense",
		norm: "cls.predictions.transform.LayerNorm", biases: "cls.predictions.bias",
		repeats: []string{"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
	})
}

func roberta(c *config, _ int) *architecture {
	// Positions are counted from behind that of padding.
	first := field(c, "pad_token_id", "an integer", 1) + 1
	if first < 0 || first >= maxSize {
		c.fail("field pad_token_id is %d, it needs to be from 0 to %d", first-1, maxSize)
		first = 0
	}
	return encoder(c, first, bertNames{
		base: "roberta", pooler: "classifier.dense", classifier: "classifier.out_proj", transform: "lm_head.dense",
		norm: "lm_head.layer_norm", biases: "lm_head.bias",
		repeats: []string{"lm_head.decoder.weight", "lm_head.decoder.bias"},
	})
}

func encoder(c *config, first int, names bertNames) *architecture {
	config := nn.BERTConfig{
		Vocab: c.size("vocab_size", 30522), Context: c.size("max_position_embeddings", 512) - first, Types: c.sizeOrNone("type_vocab_size", 2),
		Layers: c.layers("num_hidden_layers", 12), Heads: c.size("num_attention_heads", 12), Dim: c.size("hidden_size", 768),
		Hidden: c.size("intermediate_size", 3072), FirstPosition: first, Activation: c.activation("hidden_act", "gelu"),
		Norms: nn.PostNorm, EmbeddingNorm: true, Epsilon: c.float("layer_norm_eps", 1e-12), Dropout: c.float("hidden_dropout_prob", 0.1),
	}
	if config.Context < 1 {
		c.fail("field max_position_embeddings is %d, it needs to be more than the %d of padding", config.Context+first, first)
	}
	attention := c.float("attention_probs_dropout_prob", 0.1)
	config.Block = func(_ int, b *nn.BlockConfig) {
		b.Attention.Separate, b.Attention.Options.Dropout = true, attention
	}
	if c.has("classifier_dropout") && c.float("classifier_dropout", 0) != config.Dropout {
		c.fail("field classifier_dropout is %s, it needs to be hidden_dropout_prob, which is %v", c.fields["classifier_dropout"], config.Dropout)
	}
	needs(c, "position_embedding_type", "absolute")
	needs(c, "is_decoder", false)
	needs(c, "add_cross_attention", false)
	needs(c, "tie_word_embeddings", true)

	kind := names.heads(c, &config)
	base := names.base + "."
	links := []link{
		table(base+"embeddings.word_embeddings.weight", "tokens.weight", config.Vocab, config.Dim),
		same(base+"embeddings.position_embeddings.weight", "positions.weight", config.Context+first, config.Dim),
	}
	if config.Types > 0 {
		links = append(links, table(base+"embeddings.token_type_embeddings.weight", "types.weight", config.Types, config.Dim))
	}
	links = append(links, layerNorm(base+"embeddings.LayerNorm", "embnorm", config.Dim)...)
	for i := range config.Layers {
		links = append(links, bertLayer(fmt.Sprintf("%sencoder.layer.%d.", base, i), fmt.Sprintf("blocks.%d.", i), config.Dim, config.Hidden)...)
	}
	if config.Pooler {
		links = append(links, linear(base+"pooler.dense", "pooler", config.Dim, config.Dim)...)
	}
	if config.Classes > 0 {
		links = append(links, linear(names.pooler, "pooler", config.Dim, config.Dim)...)
		links = append(links, linear(names.classifier, "classifier", config.Dim, config.Classes)...)
	}
	if config.Masked {
		links = append(links, linear(names.transform, "transform", config.Dim, config.Dim)...)
		links = append(links, layerNorm(names.norm, "prednorm", config.Dim)...)
		bias := same(names.biases, "predbias", config.Vocab)
		bias.parts[0].shape = []int{1, config.Vocab}
		links = append(links, bias)
	}
	a := &architecture{links: links, prefix: base, unused: []string{"embeddings.position_ids"}, heads: []string{names.classifier}}
	if kind != masked {
		a.unused = append(a.unused, names.repeats...)
	} else {
		a.repeats = []repeat{{names.repeats[0], base + "embeddings.word_embeddings.weight"}, {names.repeats[1], names.biases}}
		// Files written with the head of the first training have parts that transformers does not
		// read into this model either.
		a.unused = append(a.unused, "pooler.dense.weight", "pooler.dense.bias", "cls.seq_relationship.weight", "cls.seq_relationship.bias")
	}
	if kind == bare {
		// transformers keeps the names without a prefix where there is no head.
		for i := range a.links {
			a.links[i].theirs = strings.TrimPrefix(a.links[i].theirs, base)
		}
	}
	a.build = func(s *nn.Scope) any { return nn.NewBERT(s, config) }
	return a
}

// The kinds of models around an encoder, by what the names of their architectures end with.
const (
	bare       = "Model"
	masked     = "ForMaskedLM"
	classifier = "ForSequenceClassification"
)

// heads reads which heads the model has.
func (n *bertNames) heads(c *config, e *nn.BERTConfig) string {
	kind := c.ending(bare, masked, classifier)
	switch kind {
	case bare:
		e.Pooler = true
	case masked:
		e.Masked = true
	case classifier:
		e.Classes = c.classes()
	}
	return kind
}

// classes is how many there are.
func (c *config) classes() int {
	n := 2
	if labels := c.object("id2label"); labels != nil {
		n = len(labels.fields)
	}
	if c.has("num_labels") {
		n = c.size("num_labels", 2)
	}
	if n < 1 {
		c.fail("field id2label is empty, it needs a name for each class")
		return 1
	}
	return n
}

// linear is the weight and the bias of a linear layer.
func linear(theirs, ours string, in, out int) []link {
	return []link{weight(theirs+".weight", ours+".weight", in, out), same(theirs+".bias", ours+".bias", out)}
}

func bertLayer(theirs, ours string, dim, hidden int) []link {
	var links []link
	for _, name := range []string{"query", "key", "value"} {
		links = append(links, linear(theirs+"attention.self."+name, ours+"attn."+name[:1], dim, dim)...)
	}
	links = append(links, linear(theirs+"attention.output.dense", ours+"attn.proj", dim, dim)...)
	links = append(links, layerNorm(theirs+"attention.output.LayerNorm", ours+"norm1", dim)...)
	links = append(links, linear(theirs+"intermediate.dense", ours+"mlp.fc", dim, hidden)...)
	links = append(links, linear(theirs+"output.dense", ours+"mlp.proj", hidden, dim)...)
	return append(links, layerNorm(theirs+"output.LayerNorm", ours+"norm2", dim)...)
}
