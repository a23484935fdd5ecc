package nn

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
)

// GPTConfig describes a [LanguageModel] of the shape of GPT-2, which in its smallest size is Vocab
// 50257, Context 1024, Layers 12, Heads 12, Dim 768.
type GPTConfig struct {
	Vocab   int // how many tokens there are
	Context int // the longest sequence
	Layers  int
	Heads   int
	Dim     int

	Hidden     int                // of the MLPs; 0 means 4·Dim
	Activation kernels.Activation // of the MLPs; zero means GELUTanh
	NoBias     bool
	Epsilon    float64 // of the norms; 0 means 1e-5
	Dropout    float64 // of the embeddings, the attention weights, and what each layer adds

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

// NewGPT makes a [LanguageModel] of the shape of GPT-2: learned positions, blocks that normalise
// first, and a head that shares the weights of the embedding of tokens.
//
// Weights start normal with a standard deviation of 0.02, those that add to the residual stream
// with 0.02/√(2·Layers), biases at 0.
func NewGPT(s *Scope, c GPTConfig) *LanguageModel { return newLanguageModel(s, "GPT", c.Model()) }

// Model is the description of the whole model, for models that have something else than GPT-2.
func (c GPTConfig) Model() LanguageModelConfig {
	return LanguageModelConfig{
		Vocab: c.Vocab, Context: c.Context, Layers: c.Layers, Change: c.Block, Positions: true, TiedHead: true, Dropout: c.Dropout,
		Block: BlockConfig{
			Attention: MultiHeadAttentionConfig{Dim: c.Dim, Heads: c.Heads, NoBias: c.NoBias, Options: causal(c.Attention, c.Dropout)},
			Hidden:    c.Hidden, Activation: c.Activation, Epsilon: c.Epsilon, Dropout: c.Dropout, Recompute: c.Recompute,
			Init: Normal(gpt2Std), ProjInit: Normal(gpt2Std / math.Sqrt(2*float64(c.Layers))),
		},
	}
}
