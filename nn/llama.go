package nn

import (
	"math"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// LlamaConfig describes a [Llama]. Llama 3.2 in its smallest size is Vocab 128256, Layers 16, Heads 32, KVHeads 8,
// Dim 2048, Hidden 8192, RoPE.Base 500000 and TiedHead; Qwen 3 adds HeadDim 128 and QKNorm.
type LlamaConfig struct {
	Name       string       // prefix of the parameters' names, empty for none
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0
	Compute    tensor.Dtype // of what the layers compute: that of the parameters (zero), ops.BFloat16 or ops.Float16

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

	// Attention are further options of attention, which is causal: a Causal of zero means CausalBottomRight. Their
	// Dropout and Seed are not looked at. With Ranks, tokens and targets are those of the rows that this rank holds of sequences
	// ([ops.HeldRows]), and positions and all dropout follow.
	Attention ops.AttentionOptions

	EmbeddingScale float64 // the embeddings are multiplied by it; 0 means 1
	LogitSoftCap   float64 // bounds the logits to ±LogitSoftCap by a tanh; 0 means none
	NormPlusOne    bool    // the norms scale by 1 + weight
	// Recompute keeps nothing of a block but its input for the backward run, which computes the rest anew: see [ops.Recompute].
	Recompute bool
	// Block, if it is not nil, changes the description of block i before the block is made: its window, its RoPE, where
	// its norms are. It must do the same each time.
	Block func(i int, c *BlockConfig)
}

// Llama is a language model of the shape of Llama: rotary positions, blocks that normalise first by RMSNorm, gated MLPs,
// groups of query heads that share keys and values, and no biases.
//
// Its parts are called tokens, blocks.0, blocks.1, ..., norm and head, whose weight is (Vocab, Dim) as that of tokens is.
// Weights start normal with a standard deviation of 0.02.
type Llama struct{ model }

// NewLlama adds the parameters of a Llama to a graph.
func NewLlama(g *gorgonia.ExprGraph, c LlamaConfig) (*Llama, error) {
	s, err := newScope("Llama", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"vocab", c.Vocab}, size{"layers", c.Layers}, size{"heads", c.Heads}, size{"dim", c.Dim}); err != nil {
		return nil, err
	}
	for _, o := range []struct {
		name string
		x    float64
	}{{"embedding scale", c.EmbeddingScale}, {"logit soft cap", c.LogitSoftCap}} {
		if !(o.x >= 0) || math.IsInf(o.x, 0) {
			return nil, s.errorf("%s is %v, it needs to be positive, or 0 for none", o.name, o.x)
		}
	}
	if c.Context < 0 {
		return nil, s.errorf("context is %d, it needs to be positive, or 0 for no limit", c.Context)
	}
	compute, err := s.computeType(c.Compute)
	if err != nil {
		return nil, err
	}
	c.Attention.Ranks = ranksOr(c.Attention.Ranks, s.g)
	m := &Llama{model{scope: s, compute: compute, context: c.Context, ranks: c.Attention.Ranks, scale: c.EmbeddingScale, softCap: c.LogitSoftCap}}
	if m.tokens, err = m.embedding("tokens", c.Vocab, c.Dim); err != nil {
		return nil, err
	}
	if m.drop, err = s.dropout("drop", c.Dropout, c.Attention.Ranks); err != nil {
		return nil, err
	}
	err = m.addBlocks(c.Layers, BlockConfig{
		Attention: MultiHeadAttentionConfig{
			Dim: c.Dim, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, NoBias: true,
			RoPE: &c.RoPE, QKNorm: c.QKNorm, Options: causal(c.Attention, c.Dropout),
		},
		SwiGLU: true, RMSNorm: true, NormPlusOne: c.NormPlusOne, Hidden: c.Hidden, Epsilon: c.Epsilon, Dropout: c.Dropout, Recompute: c.Recompute,
		Init: Normal(gpt2Std),
	}, c.Block)
	if err != nil {
		return nil, err
	}
	if m.head = m.tokens; !c.TiedHead {
		m.head, err = m.embedding("head", c.Vocab, c.Dim)
	}
	return made(m, err)
}
