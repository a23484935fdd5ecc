package nn

import "github.com/stheno-ml/stheno/ops"

// LlamaConfig describes a [LanguageModel] of the shape of Llama. Llama 3.2 in its smallest size is
// Vocab 128256, Layers 16, Heads 32, KVHeads 8, Dim 2048, Hidden 8192, RoPE.Base 500000 and
// TiedHead; Qwen 3 adds HeadDim 128 and QKNorm.
type LlamaConfig struct {
	Vocab   int // how many tokens there are
	Context int // the longest sequence; 0 means no limit
	Layers  int
	Heads   int
	KVHeads int // a divisor of Heads; 0 means Heads
	Dim     int
	HeadDim int // 0 means Dim/Heads

	Hidden   int             // of the MLPs; 0 means 8/3·Dim, rounded up to a multiple of 256
	RoPE     ops.RoPEOptions // Layout is not looked at
	QKNorm   bool            // normalise queries and keys
	TiedHead bool            // the head shares the weights of the embedding
	Epsilon  float64         // of the norms; 0 means 1e-5
	Dropout  float64         // of the embeddings, the attention weights, and what each layer adds

	// Attention are further options of attention, which is causal: a Causal of zero means
	// CausalBottomRight. Their Dropout and Seed are not looked at.
	Attention ops.AttentionOptions

	// Recompute keeps nothing of a block but its input for the backward run, which computes the
	// rest anew: see [ops.Recompute].
	Recompute bool
	// Block, if it is not nil, changes the description of block i before the block is made. It must
	// do the same each time.
	Block func(i int, c *BlockConfig)
}

// NewLlama makes a [LanguageModel] of the shape of Llama: rotary positions, blocks that normalise
// first by RMSNorm, gated MLPs, groups of query heads that share keys and values, and no biases.
//
// Weights start normal with a standard deviation of 0.02.
func NewLlama(s *Scope, c LlamaConfig) *LanguageModel { return newLanguageModel(s, "Llama", c.Model()) }

// Model is the description of the whole model, for models that have something else than Llama.
func (c LlamaConfig) Model() LanguageModelConfig {
	return LanguageModelConfig{
		Vocab: c.Vocab, Context: c.Context, Layers: c.Layers, Change: c.Block, TiedHead: c.TiedHead, Dropout: c.Dropout,
		Block: BlockConfig{
			Attention: MultiHeadAttentionConfig{
				Dim: c.Dim, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, NoBias: true,
				RoPE: &c.RoPE, QKNorm: c.QKNorm, Options: causal(c.Attention, c.Dropout),
			},
			Gated: true, RMSNorm: true, Hidden: c.Hidden, Epsilon: c.Epsilon, Dropout: c.Dropout, Recompute: c.Recompute,
			Init: Normal(gpt2Std),
		},
	}
}
