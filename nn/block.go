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

	// Attention describes the block's attention, and its Dim and NoBias count for the whole block. Its own Name, DType,
	// Parameters, Epsilon and ProjStd are not looked at: they are the block's.
	Attention MultiHeadAttentionConfig

	Hidden     int                // of the MLP; 0 means what MLP or SwiGLUMLP takes for it
	Activation kernels.Activation // of the MLP; zero means GELUTanh
	SwiGLU     bool               // a SwiGLUMLP in place of the MLP
	RMSNorm    bool               // RMSNorms in place of LayerNorms
	PostNorm   bool               // normalise after each residual connection, instead of before attention and MLP
	Epsilon    float64            // of the norms; 0 means 1e-5
	Dropout    float64            // of what attention and MLP add to x
	ProjStd    float64            // standard deviation of the first values of what adds to x; 0 means 0.02
}

// Block is a layer of a transformer, (B, S, Dim) → (B, S, Dim):
//
//	x ← x + dropout(attn(norm1(x)))      x ← x + dropout(mlp(norm2(x)))
//
// or, with PostNorm,
//
//	x ← norm1(x + dropout(attn(x)))      x ← norm2(x + dropout(mlp(x)))
//
// Its parts are called norm1, attn, norm2 and mlp.
type Block struct {
	*scope
	post         bool
	norm1, norm2 Layer
	attn         *MultiHeadAttention
	mlp          Layer
	drop1, drop2 *Dropout
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
	if c.SwiGLU && c.Activation != kernels.NoActivation {
		return nil, s.errorf("activation is %v and SwiGLU is set, which has an activation of its own", c.Activation)
	}
	b := &Block{scope: s, post: c.PostNorm}
	a := c.Attention
	a.Name, a.DType, a.Parameters, a.Epsilon, a.ProjStd = s.child("attn"), s.dtype, s.store, c.Epsilon, c.ProjStd
	if b.norm1, err = s.norm("norm1", a.Dim, c.Epsilon, c.RMSNorm, a.NoBias); err != nil {
		return nil, err
	}
	if b.attn, err = NewMultiHeadAttention(s.g, a); err != nil {
		return nil, err
	}
	if b.norm2, err = s.norm("norm2", a.Dim, c.Epsilon, c.RMSNorm, a.NoBias); err != nil {
		return nil, err
	}
	if c.SwiGLU {
		b.mlp, err = NewSwiGLUMLP(s.g, SwiGLUMLPConfig{
			Name: s.child("mlp"), DType: s.dtype, Parameters: s.store,
			Dim: a.Dim, Hidden: c.Hidden, Bias: !a.NoBias, DownStd: c.ProjStd,
		})
	} else {
		b.mlp, err = NewMLP(s.g, MLPConfig{
			Name: s.child("mlp"), DType: s.dtype, Parameters: s.store,
			Dim: a.Dim, Hidden: c.Hidden, Activation: c.Activation, NoBias: a.NoBias, ProjStd: c.ProjStd,
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

// NewCache is an empty cache for [Block.ForwardCached].
func (b *Block) NewCache(batch, capacity int) (*ops.KVCache, error) {
	return b.attn.NewCache(batch, capacity)
}

// ForwardCached is [Block.Forward] of tokens that follow those in a cache; see [MultiHeadAttention.ForwardCached].
func (b *Block) ForwardCached(x *gorgonia.Node, cache *ops.KVCache) (*gorgonia.Node, error) {
	return b.forward(x, func(x *gorgonia.Node) (*gorgonia.Node, error) { return b.attn.ForwardCached(x, cache) })
}

func (b *Block) forward(x *gorgonia.Node, attend func(*gorgonia.Node) (*gorgonia.Node, error)) (*gorgonia.Node, error) {
	x, err := b.residual(x, b.norm1, attend, b.drop1)
	if err != nil {
		return nil, err
	}
	return b.residual(x, b.norm2, b.mlp.Forward, b.drop2)
}

// residual adds to x what a part of the block makes of it.
func (b *Block) residual(x *gorgonia.Node, norm Layer, part func(*gorgonia.Node) (*gorgonia.Node, error), drop *Dropout) (*gorgonia.Node, error) {
	h, err := x, error(nil)
	if !b.post {
		if h, err = norm.Forward(x); err != nil {
			return nil, err
		}
	}
	if h, err = part(h); err != nil {
		return nil, err
	}
	if h, err = drop.Forward(h); err != nil {
		return nil, err
	}
	if h, err = ops.Add(x, h); err != nil || !b.post {
		return h, err
	}
	return norm.Forward(h)
}

// Parameters lists the parameters of the parts, in the order of their use.
func (b *Block) Parameters() gorgonia.Nodes {
	if b.post {
		return parametersOf(b.attn, b.norm1, b.mlp, b.norm2)
	}
	return parametersOf(b.norm1, b.attn, b.norm2, b.mlp)
}
