package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
)

// BERTConfig describes an [Encoder] of texts. BERT in its smaller size is Vocab 30522, Context 512,
// Types 2, Layers 12, Heads 12, Dim 768, Hidden 3072, Norms PostNorm, EmbeddingNorm, Epsilon 1e-12
// and Pooler.
type BERTConfig struct {
	Vocab   int // how many tokens there are
	Context int // the longest sequence
	Types   int // how many types of tokens there are, such as first and second sentence; 0 for none
	Layers  int
	Heads   int
	Dim     int

	FirstPosition int                // the row of the table of positions that the first token has; the table has so many rows more
	Hidden        int                // of the MLPs; 0 means 4·Dim
	Activation    kernels.Activation // of the MLPs and of the masked head; zero means GELUErf
	Norms         NormPlace          // zero means PreNorm. A norm follows the last block, but with PostNorm
	EmbeddingNorm bool               // a norm follows the embeddings
	Epsilon       float64            // of the norms; 0 means 1e-5
	Dropout       float64            // of the embeddings, the attention weights, what each layer adds, and what is classified

	Pooler  bool // adds what Pooled needs
	Classes int  // adds what Classify needs, the pooler too; 0 for none
	Masked  bool // adds what Predict needs

	// Block, if it is not nil, changes the description of block i before the block is made. It must
	// do the same each time.
	Block func(i int, c *BlockConfig)
}

// NewBERT makes an [Encoder] of texts. Its parts are called tokens, positions, types, embnorm,
// blocks.0, blocks.1, ..., norm, pooler, classifier, and for masked tokens transform, prednorm and
// predbias.
func NewBERT(s *Scope, c BERTConfig) *Encoder {
	e := &Encoder{layer: s.layer("BERT")}
	if !e.positive(size{"vocab", c.Vocab}, size{"context", c.Context}, size{"layers", c.Layers}, size{"heads", c.Heads}, size{"dim", c.Dim}) {
		return e
	}
	if c.Types < 0 || c.Classes < 0 || c.FirstPosition < 0 {
		e.failf("types, classes and first position are %d, %d and %d, none can be negative", c.Types, c.Classes, c.FirstPosition)
		return e
	}
	if c.Activation == kernels.NoActivation {
		c.Activation = kernels.GELUErf
	}
	norm, init := NormConfig{Dim: c.Dim, Epsilon: c.Epsilon}, Normal(gpt2Std)
	b := &bertEmbedding{layer: e.layer, c: c}
	b.tokens = NewEmbedding(s.Sub("tokens"), EmbeddingConfig{Vocab: c.Vocab, Dim: c.Dim})
	b.positions = NewPositionalEmbedding(s.Sub("positions"), PositionalEmbeddingConfig{Context: c.Context + c.FirstPosition, Dim: c.Dim})
	if c.Types > 0 {
		b.types = NewEmbedding(s.Sub("types"), EmbeddingConfig{Vocab: c.Types, Dim: c.Dim})
	}
	if c.EmbeddingNorm {
		b.norm = NewNorm(s.Sub("embnorm"), norm)
	}
	e.embed = b.forward
	e.body(StackConfig{Layers: c.Layers, Change: c.Block, Block: BlockConfig{
		Attention: MultiHeadAttentionConfig{Dim: c.Dim, Heads: c.Heads, Options: ops.AttentionOptions{Dropout: c.Dropout}},
		Hidden:    c.Hidden, Activation: c.Activation, Norms: c.Norms, Epsilon: c.Epsilon, Dropout: c.Dropout, Init: init,
	}})
	if c.Pooler || c.Classes > 0 {
		e.pooler = e.head("pooler", c.Dim, init, kernels.NoActivation)
	}
	if c.Classes > 0 {
		e.classifier = e.head("classifier", c.Classes, init, kernels.NoActivation)
	}
	if c.Masked {
		e.masked = &maskedHead{transform: e.head("transform", c.Dim, init, c.Activation), norm: NewNorm(s.Sub("prednorm"), norm), tokens: b.tokens}
		e.masked.bias = s.Parameter("predbias", Zero, 1, c.Vocab)
	}
	return e
}

// bertEmbedding adds up the vectors of tokens, positions and types.
type bertEmbedding struct {
	layer
	c             BERTConfig
	tokens, types *Embedding // types is nil for none
	positions     *PositionalEmbedding
	norm          Layer // nil for none
}

func (b *bertEmbedding) forward(tokens Tensor, in EncoderInputs) Tensor {
	switch shape := tokens.Shape(); {
	case len(shape) != 2 || shape[1] > b.c.Context:
		return b.failf("tokens has shape %v, it needs two axes (batch, length), the second of at most %d", []int(shape), b.c.Context)
	case !in.Types.IsZero() && b.types == nil:
		return b.failf("types is given, it needs to be none where Types is 0")
	}
	batch, length := tokens.Dim(0), tokens.Dim(1)
	h := b.positions.ForwardAt(b.tokens.Forward(tokens),
		b.ids("positions.ids", batch, length, func(_, at int) int { return b.c.FirstPosition + at }))
	if b.types != nil {
		if in.Types.IsZero() {
			in.Types = b.ids("types.ids", batch, length, func(int, int) int { return 0 })
		}
		h = h.Add(b.types.Forward(in.Types))
	}
	if b.norm != nil {
		h = b.norm.Forward(h)
	}
	return h
}
