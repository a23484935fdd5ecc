package pretrained

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
)

// bertFamily is where families of BERT's shape differ: in names, mostly.
type bertFamily struct {
	base    string // of the encoder, with a dot behind it
	embnorm string // that of the embeddings; empty for embeddings.LayerNorm
	project string // from the embeddings to the blocks; empty for embeddings_project
	pool    string // the pooler of a model without a head; empty for pooler.dense
	block   blockNames
	links   func(base string, i int, b *nn.BlockConfig) []link // of block i; nil for what block says
	pooled  bool                                               // the model without a head has a pooler
	padding map[string]int                                     // see architecture

	pooler, classifier    string // of a classifier
	transform, norm, bias string // of the head for masked tokens
	repeats               []string
	gelu                  bool               // the head for masked tokens has GELU whatever hidden_act is
	poolerDropout         bool               // the classifier's pooler reads what dropout left
	poolerActivation      kernels.Activation // zero means a tanh
	questionsDropout      float64            // of what finds answers
}

// blockNames are what the parts of a block are called.
type blockNames struct {
	block                string // with a %d
	q, k, v, proj, norm1 string
	fc, down, norm2      string
}

var bertBlock = blockNames{
	"encoder.layer.%d.", "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
	"attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm",
}

func bert(c *config, _ int) *architecture {
	f := bertFamily{
		base: "bert.", block: bertBlock, pooled: true, pooler: "bert.pooler.dense", classifier: "classifier",
		transform: "cls.predictions.transform.dense", norm: "cls.predictions.transform.LayerNorm", bias: "cls.predictions.bias",
		repeats: []string{"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
	}
	e := f.read(c, 30522, 0)
	f.padding = c.padding(e.Text.Vocab, 0, "tokens.weight")
	return f.architecture(c, &e)
}

// roberta is RoBERTa, and XLM-R and CamemBERT, which are RoBERTas of other languages.
func roberta(c *config, _ int) *architecture {
	f := bertFamily{
		base: "roberta.", block: bertBlock, pooled: true, pooler: "classifier.dense", classifier: "classifier.out_proj",
		transform: "lm_head.dense", norm: "lm_head.layer_norm", bias: "lm_head.bias",
		repeats: []string{"lm_head.decoder.weight", "lm_head.decoder.bias"}, gelu: true, poolerDropout: true,
	}
	// Positions are counted from behind that of padding.
	first := field(c, "pad_token_id", "an integer", 1) + 1
	if first < 0 || first >= maxSize {
		c.fail("field pad_token_id is %d, it needs to be from 0 to %d", first-1, maxSize)
		first = 0
	}
	vocab := 30522
	if c.string("model_type", "") == "roberta" {
		vocab = 50265
	}
	e := f.read(c, vocab, first)
	f.padding = c.padding(e.Text.Vocab, 1, "tokens.weight", "positions.weight")
	return f.architecture(c, &e)
}

// noPadding says that a config without pad_token_id has no row of padding.
const noPadding = -1

// padding is the row of padding in tables.
func (c *config) padding(vocab, otherwise int, tables ...string) map[string]int {
	row := field(c, "pad_token_id", "an integer", otherwise)
	if !c.has("pad_token_id") && (c.given("pad_token_id") || otherwise == noPadding) {
		return nil
	}
	if row < 0 {
		row += vocab // as PyTorch counts
	}
	if row < 0 || row >= vocab {
		c.fail("field pad_token_id is %d, it needs to be below vocab_size, which is %d", row, vocab)
	}
	rows := map[string]int{}
	for _, name := range tables {
		rows[name] = row
	}
	return rows
}

// read reads what BERT has.
func (f *bertFamily) read(c *config, vocab, first int) nn.EncoderConfig {
	b := nn.BERTConfig{
		Vocab: c.size("vocab_size", vocab), Context: c.size("max_position_embeddings", 512) - first, Types: c.sizeOrNone("type_vocab_size", 2),
		Layers: c.layers("num_hidden_layers", 12), Heads: c.size("num_attention_heads", 12), Dim: c.size("hidden_size", 768),
		Hidden: c.size("intermediate_size", 3072), FirstPosition: first, Activation: c.activation("hidden_act", "gelu"),
		Norms: nn.PostNorm, EmbeddingNorm: true, Epsilon: c.positive("layer_norm_eps", 1e-12), Dropout: c.float("hidden_dropout_prob", 0.1),
	}
	if b.Context < 1 {
		c.fail("field max_position_embeddings is %d, it needs to be more than the %d of padding", b.Context+first, first)
	}
	e := b.Model()
	e.Block.Attention.Separate, e.Block.Attention.Options.Dropout.P = true, c.float("attention_probs_dropout_prob", 0.1)
	if c.has("classifier_dropout") {
		p := c.float("classifier_dropout", 0)
		e.Heads.Dropout = &p
	}
	needs(c, "position_embedding_type", "absolute")
	needs(c, "is_decoder", false)
	needs(c, "add_cross_attention", false)
	return e
}

// architecture is the model with the head that the config names.
func (f *bertFamily) architecture(c *config, e *nn.EncoderConfig) *architecture {
	kind := f.head(c, e)
	e.Heads.MaskedUntied = !c.bool("tie_word_embeddings", true) && kind == masked && len(f.repeats) > 0
	text, dim := e.Text, e.Block.Attention.Dim
	width := text.Dim
	if width == 0 {
		width = dim
	}
	links := []link{table(f.base+"embeddings.word_embeddings.weight", "tokens.weight", text.Vocab, width)}
	if !text.NoPositions {
		links = append(links, same(f.base+"embeddings.position_embeddings.weight", "positions.weight", text.Context+text.FirstPosition, width))
	}
	if text.Types > 0 {
		links = append(links, table(f.base+"embeddings.token_type_embeddings.weight", "types.weight", text.Types, width))
	}
	links = append(links, layerNorm(f.base+cmp.Or(f.embnorm, "embeddings.LayerNorm"), "embnorm", width)...)
	if width != dim {
		links = append(links, linear(f.base+cmp.Or(f.project, "embeddings_project"), "project", width, dim)...)
	}
	if d := e.Distances; d != nil {
		links = append(links, same(f.base+"encoder.relative_attention_bias.weight", "distances.weight", d.Buckets, e.Block.Attention.Heads))
	}
	if d := e.Disentangled; d != nil {
		links = append(links, table(f.base+"encoder.rel_embeddings.weight", "places.weight", 2*d.Buckets, dim))
		if d.Norm {
			links = append(links, layerNorm(f.base+"encoder.LayerNorm", "places.norm", dim)...)
		}
	}
	for i := range cmp.Or(e.Blocks, e.Layers) {
		if f.links != nil {
			links = append(links, f.links(f.base, i, &e.Block)...)
		} else {
			links = append(links, f.block.links(f.base, i, dim, e.Block.Hidden)...)
		}
	}
	a := &architecture{prefix: f.base, padding: f.padding, unused: []string{"embeddings.position_ids"}, heads: []string{f.classifier, "classifier", "qa_outputs"}}
	switch kind {
	case bare:
		if f.pooled {
			links = append(links, linear(f.base+cmp.Or(f.pool, "pooler.dense"), "pooler", dim, dim)...)
		}
	case classes:
		links = append(links, linear(f.pooler, "pooler", dim, dim)...)
		links = append(links, linear(f.classifier, "classifier", dim, e.Heads.Classes)...)
	case tokenClasses:
		links = append(links, linear("classifier", "tokenclasses", dim, e.Heads.TokenClasses)...)
	case questions:
		links = append(links, linear("qa_outputs", "tokenclasses", dim, 2)...)
	case masked:
		links = append(links, f.masked(e, width)...)
		for i, of := range []string{f.base + "embeddings.word_embeddings.weight", f.bias}[:len(f.repeats)] {
			a.repeats = append(a.repeats, repeat{f.repeats[i], of})
		}
		// Files written with the head of the first training have parts that transformers does not
		// read into this model either.
		a.unused = append(a.unused, "pooler.dense.weight", "pooler.dense.bias", "cls.seq_relationship.weight", "cls.seq_relationship.bias")
	}
	if kind != masked {
		a.unused = append(a.unused, f.repeats...)
	}
	if a.links = links; kind == bare {
		// transformers keeps the names without a prefix where there is no head.
		for i := range a.links {
			a.links[i].theirs = strings.TrimPrefix(a.links[i].theirs, f.base)
		}
	}
	a.build = func(s *nn.Scope) any { return nn.NewEncoder(s, *e) }
	return a
}

// masked is the tensors of a head for masked tokens.
func (f *bertFamily) masked(e *nn.EncoderConfig, width int) []link {
	vocab := e.Text.Vocab
	links := append(linear(f.transform, "transform", e.Block.Attention.Dim, width), layerNorm(f.norm, "prednorm", width)...)
	bias := same(f.bias, "predbias", vocab)
	bias.parts[0].shape = []int{1, vocab}
	if e.Heads.MaskedUntied {
		links = append(links, same(f.repeats[0], "predtokens.weight", vocab, width))
		if len(f.repeats) > 1 { // the other bias is left over then
			bias.copied = true
			links = append(links, bias)
			bias.copied, bias.theirs = false, f.repeats[1]
		}
		f.repeats = nil
	}
	return append(links, bias)
}

// The kinds of models around an encoder, by what the names of their architectures end with.
const (
	bare         = "Model"
	masked       = "ForMaskedLM"
	classes      = "ForSequenceClassification"
	tokenClasses = "ForTokenClassification"
	questions    = "ForQuestionAnswering"
)

// head reads which head the model has.
func (f *bertFamily) head(c *config, e *nn.EncoderConfig) string {
	kind, h := c.ending(bare, masked, classes, tokenClasses, questions), &e.Heads
	switch kind {
	case bare:
		h.Pooler = f.pooled
	case masked:
		if h.Masked = true; f.gelu {
			h.MaskedActivation = kernels.GELUErf
		}
	case classes:
		h.Classes, h.Pooler, h.PoolerDropout, h.PoolerActivation = c.classes(), true, f.poolerDropout, f.poolerActivation
	case tokenClasses:
		h.TokenClasses = c.classes()
	case questions:
		h.TokenClasses, h.Dropout = c.classes(), &f.questionsDropout
		if h.TokenClasses != 2 {
			c.fail("field id2label has %d names, a model that finds the start and the end of an answer needs 2", h.TokenClasses)
		}
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

// links are the tensors of block i.
func (n *blockNames) links(base string, i, dim, hidden int) []link {
	theirs, ours := base+fmt.Sprintf(n.block, i), fmt.Sprintf("blocks.%d.", i)
	links := n.attention(base, i, dim)
	links = append(links, linear(theirs+n.fc, ours+"mlp.fc", dim, hidden)...)
	return append(links, linear(theirs+n.down, ours+"mlp.proj", hidden, dim)...)
}

// attention is those of attention and of the norms.
func (n *blockNames) attention(base string, i, dim int) []link {
	theirs, ours := base+fmt.Sprintf(n.block, i), fmt.Sprintf("blocks.%d.", i)
	var links []link
	for _, l := range []struct {
		theirs, ours string
		in, out      int
	}{
		{n.q, "attn.q", dim, dim}, {n.k, "attn.k", dim, dim}, {n.v, "attn.v", dim, dim}, {n.proj, "attn.proj", dim, dim},
		{n.norm1, "norm1", 0, dim}, {n.norm2, "norm2", 0, dim},
	} {
		if l.in == 0 {
			links = append(links, layerNorm(theirs+l.theirs, ours+l.ours, dim)...)
		} else {
			links = append(links, linear(theirs+l.theirs, ours+l.ours, l.in, l.out)...)
		}
	}
	return links
}
