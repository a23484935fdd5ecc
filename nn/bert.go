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

	FirstPosition int                // see [TextConfig]
	Hidden        int                // of the MLPs; 0 means 4·Dim
	Activation    kernels.Activation // of the MLPs and of the masked head; zero means GELUErf
	Norms         NormPlace          // zero means PreNorm. A norm follows the last block, but with PostNorm
	EmbeddingNorm bool               // a norm follows the embeddings
	Epsilon       float64            // of the norms; 0 means 1e-5
	Dropout       float64            // of the embeddings, the attention weights, what each layer adds, and what is classified

	Pooler       bool // adds what Pooled needs
	Classes      int  // adds what Classify needs, the pooler too; 0 for none
	TokenClasses int  // adds what ClassifyTokens needs; 0 for none
	Masked       bool // adds what Predict needs

	// Block, if it is not nil, changes the description of block i before the block is made. It must
	// do the same each time.
	Block func(i int, c *BlockConfig)
}

// NewBERT makes an [Encoder] of texts. Weights start normal with a standard deviation of 0.02.
func NewBERT(s *Scope, c BERTConfig) *Encoder { return newEncoder(s, "BERT", c.Model()) }

// Model is the description of the whole model, for models that have something else than BERT.
func (c BERTConfig) Model() EncoderConfig {
	if c.Activation == kernels.NoActivation {
		c.Activation = kernels.GELUErf
	}
	return EncoderConfig{
		Layers: c.Layers, Change: c.Block, EmbeddingNorm: c.EmbeddingNorm, Dropout: c.Dropout,
		Text: &TextConfig{Vocab: c.Vocab, Context: c.Context, Types: c.Types, FirstPosition: c.FirstPosition},
		Block: BlockConfig{
			Attention: MultiHeadAttentionConfig{Dim: c.Dim, Heads: c.Heads, Options: ops.AttentionOptions{Dropout: ops.Drop{P: c.Dropout}}},
			Hidden:    c.Hidden, Activation: c.Activation, Norms: c.Norms, Epsilon: c.Epsilon, Dropout: c.Dropout, Init: Normal(gpt2Std),
		},
		Heads: EncoderHeads{Pooler: c.Pooler || c.Classes > 0, Classes: c.Classes, TokenClasses: c.TokenClasses, Masked: c.Masked},
	}
}
