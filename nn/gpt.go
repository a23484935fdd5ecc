package nn

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// GPTConfig describes a [GPT]. GPT-2 in its smallest size is Vocab 50257, Context 1024, Layers 12, Heads 12, Dim 768.
type GPTConfig struct {
	Name       string       // prefix of the parameters' names, empty for none
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0
	Compute    tensor.Dtype // of what the layers compute: that of the parameters (zero), ops.BFloat16 or ops.Float16

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

	// Attention are further options of attention, which is causal: a Causal of zero means CausalBottomRight. Their
	// Dropout and Seed are not looked at. With Ranks, tokens and targets are those of the rows that this rank holds of sequences of up
	// to Context ([ops.HeldRows]), and positions and all dropout follow.
	Attention ops.AttentionOptions

	// Recompute keeps nothing of a block but its input for the backward run, which computes the rest anew: see [ops.Recompute].
	Recompute bool
	// Block, if it is not nil, changes the description of block i before the block is made. It must do the same each time.
	Block func(i int, c *BlockConfig)
}

// GPT is a language model of the shape of GPT-2: learned positions, blocks that normalise first, and a head that shares
// the weights of the embedding of tokens.
//
// Its parts are called tokens, positions, blocks.0, blocks.1, ... and norm. Weights start normal with a standard
// deviation of 0.02, those that add to the residual stream with 0.02/√(2·Layers), biases at 0.
type GPT struct{ model }

// NewGPT adds the parameters of a GPT to a graph.
func NewGPT(g *gorgonia.ExprGraph, c GPTConfig) (*GPT, error) {
	s, err := newScope("GPT", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"vocab", c.Vocab}, size{"context", c.Context}, size{"layers", c.Layers}, size{"heads", c.Heads}, size{"dim", c.Dim}); err != nil {
		return nil, err
	}
	compute, err := s.computeType(c.Compute)
	if err != nil {
		return nil, err
	}
	c.Attention.Ranks = ranksOr(c.Attention.Ranks, s.g)
	m := &GPT{model{scope: s, compute: compute, context: c.Context, ranks: c.Attention.Ranks}}
	if m.tokens, err = m.embedding("tokens", c.Vocab, c.Dim); err != nil {
		return nil, err
	}
	m.head = m.tokens
	m.positions, err = NewPositionalEmbedding(s.g, PositionalEmbeddingConfig{
		Name: s.child("positions"), DType: s.dtype, Parameters: s.store, Context: c.Context, Dim: c.Dim, Ranks: c.Attention.Ranks,
	})
	if err != nil {
		return nil, err
	}
	if m.drop, err = s.dropout("drop", c.Dropout, c.Attention.Ranks); err != nil {
		return nil, err
	}
	err = m.addBlocks(c.Layers, BlockConfig{
		Attention: MultiHeadAttentionConfig{
			Dim: c.Dim, Heads: c.Heads, NoBias: c.NoBias, Options: causal(c.Attention, c.Dropout),
		},
		Hidden: c.Hidden, Activation: c.Activation, Epsilon: c.Epsilon, Dropout: c.Dropout, Recompute: c.Recompute,
		Init: Normal(gpt2Std), ProjInit: Normal(gpt2Std / math.Sqrt(2*float64(c.Layers))),
	}, c.Block)
	return made(m, err)
}

// causal completes the options of a language model's attention.
func causal(o ops.AttentionOptions, dropout float64) ops.AttentionOptions {
	if o.Causal == kernels.NotCausal {
		o.Causal = kernels.CausalBottomRight
	}
	o.Dropout, o.Seed = dropout, 0
	return o
}
