package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// BlockConfig describes a [Block].
type BlockConfig struct {
	Name       string       // prefix of the parameters' names
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0
	Compute    tensor.Dtype // of the input: that of the parameters (zero), ops.BFloat16 or ops.Float16

	// Attention describes the block's attention, and its Dim and NoBias count for the whole block. Its own Name, DType,
	// Parameters, Epsilon and ProjStd are not looked at: they are the block's.
	Attention MultiHeadAttentionConfig

	Hidden      int                // of the MLP; 0 means what MLP or SwiGLUMLP takes for it
	Activation  kernels.Activation // of the MLP; zero means GELUTanh, or SiLU with SwiGLU
	SwiGLU      bool               // a SwiGLUMLP in place of the MLP
	MLPBias     *bool              // whether the MLP has biases; nil means as attention
	RMSNorm     bool               // RMSNorms in place of LayerNorms
	NormPlusOne bool               // the RMSNorms scale by 1 + weight
	Norms       NormPlace          // where the norms are; zero means PreNorm
	Epsilon     float64            // of the norms; 0 means 1e-5
	Dropout     float64            // of what attention and MLP add to x
	ProjStd     float64            // standard deviation of the first values of what adds to x; 0 means 0.02
}

// NormPlace is where a block normalises. With f for attention or the MLP, x becomes:
type NormPlace int

const (
	PreNorm      NormPlace = iota // x + dropout(f(norm(x))), as GPT-2 and Llama do
	PostNorm                      // norm(x + dropout(f(x))), as BERT and the first transformer do
	BranchNorm                    // x + dropout(norm(f(x))), as OLMo 2 does
	SandwichNorm                  // x + dropout(outnorm(f(norm(x)))), as Gemma 2 and 3 do
)

// Block is a layer of a transformer, (B, S, Dim) → (B, S, Dim):
//
//	x ← x + dropout(attn(norm1(x)))      x ← x + dropout(mlp(norm2(x)))
//
// or with its norms in another [NormPlace]. Its parts are called norm1, attn, norm2 and mlp, and with SandwichNorm also
// outnorm1 and outnorm2.
type Block struct {
	*scope
	norms              NormPlace
	norm1, norm2       Layer
	outnorm1, outnorm2 Layer // nil without SandwichNorm
	attn               *MultiHeadAttention
	mlp                Layer
	drop1, drop2       *Dropout
}

// NewBlock adds the parameters of a Block to a graph.
func NewBlock(g *gorgonia.ExprGraph, c BlockConfig) (*Block, error) {
	s, err := newScope("Block", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if c.Attention.Cross {
		return nil, s.errorf("Attention.Cross is set, a block attends to itself")
	}
	if c.Norms < PreNorm || c.Norms > SandwichNorm {
		return nil, s.errorf("norms is %d, it needs to be PreNorm, PostNorm, BranchNorm or SandwichNorm", c.Norms)
	}
	b := &Block{scope: s, norms: c.Norms}
	a := c.Attention
	a.Name, a.DType, a.Parameters, a.Compute, a.ProjStd = s.child("attn"), s.dtype, s.store, c.Compute, c.ProjStd
	a.Epsilon, a.NormPlusOne = c.Epsilon, c.NormPlusOne
	kind := normKind{c.Epsilon, c.RMSNorm, a.NoBias, c.NormPlusOne}
	bias := !a.NoBias
	if c.MLPBias != nil {
		bias = *c.MLPBias
	}
	if b.norm1, err = s.norm("norm1", a.Dim, kind); err != nil {
		return nil, err
	}
	if b.attn, err = NewMultiHeadAttention(s.g, a); err != nil {
		return nil, err
	}
	if b.norm2, err = s.norm("norm2", a.Dim, kind); err != nil {
		return nil, err
	}
	if c.Norms == SandwichNorm {
		if b.outnorm1, err = s.norm("outnorm1", a.Dim, kind); err != nil {
			return nil, err
		}
		if b.outnorm2, err = s.norm("outnorm2", a.Dim, kind); err != nil {
			return nil, err
		}
	}
	if c.SwiGLU {
		b.mlp, err = NewSwiGLUMLP(s.g, SwiGLUMLPConfig{
			Name: s.child("mlp"), DType: s.dtype, Parameters: s.store,
			Dim: a.Dim, Hidden: c.Hidden, Activation: c.Activation, Bias: bias, DownStd: c.ProjStd,
		})
	} else {
		b.mlp, err = NewMLP(s.g, MLPConfig{
			Name: s.child("mlp"), DType: s.dtype, Parameters: s.store,
			Dim: a.Dim, Hidden: c.Hidden, Activation: c.Activation, NoBias: !bias, ProjStd: c.ProjStd,
		})
	}
	if err != nil {
		return nil, err
	}
	if b.drop1, err = s.dropout("drop1", c.Dropout); err != nil {
		return nil, err
	}
	b.drop2, err = s.dropout("drop2", c.Dropout)
	return made(b, err)
}

// Forward applies the block to x.
func (b *Block) Forward(x *gorgonia.Node) (*gorgonia.Node, error) { return b.ForwardWith(x, nil) }

// ForwardWith is [Block.Forward] with a mask of the keys, (B, S), where true means attend; see [AttentionInputs]. A nil
// mask hides nothing.
func (b *Block) ForwardWith(x, keyMask *gorgonia.Node) (*gorgonia.Node, error) {
	return b.forward(x, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return b.attn.ForwardWith(x, AttentionInputs{KeyMask: keyMask})
	})
}

// ForwardPacked is [Block.Forward] of sequences that lie end to end, (total, Dim); see Ends of [AttentionInputs].
func (b *Block) ForwardPacked(x, ends *gorgonia.Node) (*gorgonia.Node, error) {
	return b.forward(x, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return b.attn.ForwardWith(x, AttentionInputs{Ends: ends})
	})
}

// NewCache is an empty cache for [Block.ForwardCached].
func (b *Block) NewCache(batch, capacity int) (*ops.KVCache, error) {
	return b.attn.NewCache(batch, capacity)
}

// ForwardCached is [Block.Forward] of tokens that follow those in a cache; see [MultiHeadAttention.ForwardCached].
func (b *Block) ForwardCached(x *gorgonia.Node, cache *ops.KVCache) (*gorgonia.Node, error) {
	return b.forward(x, func(x *gorgonia.Node) (*gorgonia.Node, error) { return b.attn.ForwardCached(x, cache) })
}

func (b *Block) forward(x *gorgonia.Node, attend func(*gorgonia.Node) (*gorgonia.Node, error)) (*gorgonia.Node, error) {
	x, err := b.residual(x, b.norm1, attend, b.outnorm1, b.drop1)
	if err != nil {
		return nil, err
	}
	return b.residual(x, b.norm2, b.mlp.Forward, b.outnorm2, b.drop2)
}

// residual adds to x what a part of the block makes of it.
func (b *Block) residual(x *gorgonia.Node, norm Layer, part func(*gorgonia.Node) (*gorgonia.Node, error), outnorm Layer, drop *Dropout) (*gorgonia.Node, error) {
	add := func(h *gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(x, h) }
	var steps []func(*gorgonia.Node) (*gorgonia.Node, error)
	switch b.norms {
	case PreNorm:
		steps = append(steps, norm.Forward, part, drop.Forward, add)
	case PostNorm:
		steps = append(steps, part, drop.Forward, add, norm.Forward)
	case BranchNorm:
		steps = append(steps, part, norm.Forward, drop.Forward, add)
	case SandwichNorm:
		steps = append(steps, norm.Forward, part, outnorm.Forward, drop.Forward, add)
	}
	h, err := x, error(nil)
	for _, step := range steps {
		if h, err = step(h); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Parameters lists the parameters of the parts, in the order of their use.
func (b *Block) Parameters() gorgonia.Nodes {
	switch b.norms {
	case PreNorm:
		return parametersOf(b.norm1, b.attn, b.norm2, b.mlp)
	case SandwichNorm:
		return parametersOf(b.norm1, b.attn, b.outnorm1, b.norm2, b.mlp, b.outnorm2)
	}
	return parametersOf(b.attn, b.norm1, b.mlp, b.norm2)
}
