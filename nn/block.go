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
	// Parameters, Epsilon, Init, ProjInit and NewLinear are not looked at: they are the block's.
	Attention MultiHeadAttentionConfig
	// Cross adds a second attention, from x to a context of ContextDim features, 0 for Dim: it makes of the block one of a decoder
	// that reads what an encoder has written. It has the heads and the dropout of the first.
	Cross      bool
	ContextDim int

	Hidden      int                // of the MLP; 0 means what MLP or SwiGLUMLP takes for it
	Activation  kernels.Activation // of the MLP; zero means GELUTanh, or SiLU with SwiGLU
	SwiGLU      bool               // a SwiGLUMLP in place of the MLP
	MLPBias     *bool              // whether the MLP has biases; nil means as attention
	RMSNorm     bool               // RMSNorms in place of LayerNorms
	NormPlusOne bool               // the RMSNorms scale by 1 + weight
	Norms       NormPlace          // where the norms are; zero means PreNorm
	Epsilon     float64            // of the norms; 0 means 1e-5
	Dropout     float64            // of what attention and MLP add to x
	Init        Init               // of the weights of linear layers; nil means FanIn
	ProjInit    Init               // of the weights of what adds to x; nil means Init
	Recompute   bool               // gradients are computed from x anew, which takes time and keeps nothing but x; see [ops.Recompute]

	// What makes the parts of the block in place of the usual: all linear layers, all norms, the attention, and the MLP.
	NewLinear    Maker[LinearConfig]
	NewNorm      Maker[NormConfig]
	NewAttention func(g *gorgonia.ExprGraph, c MultiHeadAttentionConfig) (Attention, error)
	NewMLP       Maker[MLPConfig]
}

// Attention is what a [Block] needs of its attention. [MultiHeadAttention] is one; a block runs with a cache if its attention has
// that one's NewCache and ForwardCached too.
type Attention interface {
	Layer
	ForwardWith(x *gorgonia.Node, in AttentionInputs) (*gorgonia.Node, error)
}

// cachedAttention is an attention that can go on from earlier tokens.
type cachedAttention interface {
	NewCache(batch, capacity int) (*ops.KVCache, error)
	ForwardCached(x *gorgonia.Node, cache *ops.KVCache) (*gorgonia.Node, error)
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
// or with its norms in another [NormPlace], and between the two, with Cross,
//
//	x ← x + dropout(cross(norm3(x), context))
//
// Its parts are called norm1, attn, norm2, mlp, norm3 and cross, and with SandwichNorm also outnorm1, outnorm2 and outnorm3.
type Block struct {
	*scope
	norms            NormPlace
	recompute        bool
	attn, cross      Attention // cross is nil for none
	attend, over, do branch    // to itself, to a context, and the MLP
}

// branch is what a part of a block adds to x, but for the part itself.
type branch struct {
	norm, outnorm Layer // outnorm is nil without SandwichNorm
	part          Layer
	drop          *Dropout
}

// NewBlock adds the parameters of a Block to a graph.
func NewBlock(g *gorgonia.ExprGraph, c BlockConfig) (*Block, error) {
	s, err := newScope("Block", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	c.Attention.Options.Ranks = ranksOr(c.Attention.Options.Ranks, s.g)
	switch {
	case c.Attention.Cross:
		return nil, s.errorf("Attention.Cross is set, a block attends to itself first: its own Cross adds a context")
	case c.Cross && sizeOf(c.Attention.Options.Ranks) > 1:
		return nil, s.errorf("Cross is set and so is Ranks, a block whose sequence ranks share has no context")
	case c.ContextDim != 0 && !c.Cross:
		return nil, s.errorf("context dim is %d, it needs to be 0 where Cross is not set", c.ContextDim)
	case c.Norms < PreNorm || c.Norms > SandwichNorm:
		return nil, s.errorf("norms is %d, it needs to be PreNorm, PostNorm, BranchNorm or SandwichNorm", c.Norms)
	}
	b := &Block{scope: s, norms: c.Norms, recompute: c.Recompute}
	return made(b, b.build(c))
}

func (b *Block) build(c BlockConfig) (err error) {
	a := c.Attention
	a.Name, a.DType, a.Parameters, a.Compute = b.child("attn"), b.dtype, b.store, c.Compute
	a.Epsilon, a.NormPlusOne, a.Init, a.ProjInit, a.NewLinear = c.Epsilon, c.NormPlusOne, c.Init, c.ProjInit, c.NewLinear
	if b.attn, err = b.attention(a, c); err != nil {
		return err
	}
	if b.attend, err = b.branch("1", b.attn, c); err != nil {
		return err
	}
	if c.Cross {
		a.Name, a.Cross, a.ContextDim, a.RoPE = b.child("cross"), true, c.ContextDim, nil
		a.Options = ops.AttentionOptions{
			Scale: a.Options.Scale, Dropout: a.Options.Dropout, Seed: a.Options.Seed, Precision: a.Options.Precision, Deterministic: a.Options.Deterministic,
		}
		if b.cross, err = b.attention(a, c); err != nil {
			return err
		}
		if b.over, err = b.branch("3", b.cross, c); err != nil {
			return err
		}
	}
	mlp, err := b.mlp(c)
	if err != nil {
		return err
	}
	b.do, err = b.branch("2", mlp, c)
	return err
}

// attention makes one of the block's attentions.
func (b *Block) attention(a MultiHeadAttentionConfig, c BlockConfig) (Attention, error) {
	if c.NewAttention == nil {
		return NewMultiHeadAttention(b.g, a)
	}
	attention, err := c.NewAttention(b.g, a)
	if err == nil && attention == nil {
		err = b.errorf("the maker of %s gave nil, it needs to give an attention", a.Name)
	}
	return attention, err
}

func (b *Block) mlp(c BlockConfig) (Layer, error) {
	bias := !c.Attention.NoBias
	if c.MLPBias != nil {
		bias = *c.MLPBias
	}
	plain := MLPConfig{
		Name: b.child("mlp"), DType: b.dtype, Parameters: b.store, Dim: c.Attention.Dim, Hidden: c.Hidden, Activation: c.Activation,
		NoBias: !bias, Init: c.Init, ProjInit: c.ProjInit, NewLinear: c.NewLinear,
	}
	switch {
	case c.NewMLP != nil:
		return makeBy(b.scope, plain.Name, c.NewMLP, plain)
	case c.SwiGLU:
		return NewSwiGLUMLP(b.g, SwiGLUMLPConfig{
			Name: plain.Name, DType: plain.DType, Parameters: plain.Parameters, Dim: plain.Dim, Hidden: c.Hidden, Activation: c.Activation,
			Bias: bias, Init: c.Init, DownInit: c.ProjInit, NewLinear: c.NewLinear,
		})
	}
	return NewMLP(b.g, plain)
}

// branch makes what is around a part.
func (b *Block) branch(number string, part Layer, c BlockConfig) (r branch, err error) {
	kind := normKind{c.Epsilon, c.RMSNorm, c.Attention.NoBias, c.NormPlusOne, c.NewNorm}
	r.part = part
	if r.norm, err = b.norm("norm"+number, c.Attention.Dim, kind); err != nil {
		return r, err
	}
	if c.Norms == SandwichNorm {
		if r.outnorm, err = b.norm("outnorm"+number, c.Attention.Dim, kind); err != nil {
			return r, err
		}
	}
	r.drop, err = b.dropout("drop"+number, c.Dropout, c.Attention.Options.Ranks)
	return r, err
}

// BlockInputs are what a block may read besides x.
type BlockInputs struct {
	// KeyMask and KeyLengths hide keys of x itself, such as padding; see [AttentionInputs].
	KeyMask, KeyLengths *gorgonia.Node
	// Ends says that x is sequences that lie end to end, (total, Dim); see [AttentionInputs].
	Ends *gorgonia.Node
	// Context is what a block with Cross attends to, (B, Sk, ContextDim); ContextMask and ContextLengths hide its keys.
	Context, ContextMask, ContextLengths *gorgonia.Node
}

// Forward applies the block to x.
func (b *Block) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	return b.ForwardWith(x, BlockInputs{})
}

// ForwardWith is [Block.Forward] with a context, or with keys that are hidden.
func (b *Block) ForwardWith(x *gorgonia.Node, in BlockInputs) (*gorgonia.Node, error) {
	if err := b.isMade(); err != nil {
		return nil, err
	}
	s, err := b.pass(stream{x: x}, in)
	if err != nil {
		return nil, err
	}
	return s.joined()
}

// pass is ForwardWith of a stream.
func (b *Block) pass(s stream, in BlockInputs) (stream, error) {
	forward := func(s stream) (stream, error) {
		return b.forward(s, in, func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return b.attn.ForwardWith(x, AttentionInputs{KeyMask: in.KeyMask, KeyLengths: in.KeyLengths, Ends: in.Ends})
		})
	}
	if !b.recompute {
		return forward(s)
	}
	x, err := s.joined()
	if err != nil {
		return s, err
	}
	if s, err = forward(stream{x: x}); err != nil {
		return s, err
	}
	y, err := s.joined()
	if err != nil {
		return s, err
	}
	from := gorgonia.Nodes{x}
	for _, n := range []*gorgonia.Node{in.KeyMask, in.KeyLengths, in.Ends, in.Context, in.ContextMask, in.ContextLengths} {
		if n != nil {
			from = append(from, n)
		}
	}
	y, err = ops.Recompute(y, from...)
	return stream{x: y}, err
}

// stream is what runs through blocks, the sum of x and, unless it is nil, of what the part before has made of it: the norm that reads
// the sum computes it too.
type stream struct{ x, more *gorgonia.Node }

// joined is the sum.
func (s stream) joined() (*gorgonia.Node, error) {
	if s.more == nil {
		return s.x, nil
	}
	return ops.Add(s.x, s.more)
}

// sumNorm is a norm that can compute the sum that it normalises.
type sumNorm interface {
	forwardSum(x, other *gorgonia.Node) (sum, y *gorgonia.Node, err error)
	forwardOfSum(x, other *gorgonia.Node) (y *gorgonia.Node, err error)
}

// normed is the sum, and the norm of it.
func (s stream) normed(norm Layer) (x, y *gorgonia.Node, err error) {
	if n, ok := norm.(sumNorm); ok && s.more != nil {
		return n.forwardSum(s.x, s.more)
	}
	if x, err = s.joined(); err != nil {
		return nil, nil, err
	}
	y, err = norm.Forward(x)
	return x, y, err
}

// end is what the last norm makes of the sum, if there is one.
func (s stream) end(norm Layer) (*gorgonia.Node, error) {
	if n, ok := norm.(sumNorm); ok && s.more != nil {
		return n.forwardOfSum(s.x, s.more)
	}
	x, err := s.joined()
	if err != nil || norm == nil {
		return x, err
	}
	return norm.Forward(x)
}

// NewCache is an empty cache for [Block.ForwardCached].
func (b *Block) NewCache(batch, capacity int) (*ops.KVCache, error) {
	cached, ok := b.attn.(cachedAttention)
	if !ok {
		return nil, b.errorf("the attention is a %T, for a cache it needs the methods NewCache and ForwardCached", b.attn)
	}
	return cached.NewCache(batch, capacity)
}

// ForwardCached is [Block.ForwardWith] of tokens that follow those in a cache; see [MultiHeadAttention.ForwardCached]. It takes no
// KeyMask and no KeyLengths. Keys and values of a context are computed in each run.
func (b *Block) ForwardCached(x *gorgonia.Node, cache *ops.KVCache, in BlockInputs) (*gorgonia.Node, error) {
	cached, ok := b.attn.(cachedAttention)
	switch {
	case !ok:
		return nil, b.errorf("the attention is a %T, for a cache it needs the methods NewCache and ForwardCached", b.attn)
	case in.KeyMask != nil || in.KeyLengths != nil:
		return nil, b.errorf("key mask or key lengths is given, it needs to be nil with a cache: all tokens that it holds are seen")
	}
	s, err := b.forward(stream{x: x}, in, func(x *gorgonia.Node) (*gorgonia.Node, error) { return cached.ForwardCached(x, cache) })
	if err != nil {
		return nil, err
	}
	return s.joined()
}

func (b *Block) forward(s stream, in BlockInputs, attend func(*gorgonia.Node) (*gorgonia.Node, error)) (stream, error) {
	if b.cross == nil && (in.Context != nil || in.ContextMask != nil || in.ContextLengths != nil) {
		return s, b.errorf("a context is given, the config needs Cross for that")
	}
	s, err := b.residual(s, b.attend, attend)
	if err != nil {
		return s, err
	}
	if b.cross != nil {
		s, err = b.residual(s, b.over, func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return b.cross.ForwardWith(x, AttentionInputs{Context: in.Context, KeyMask: in.ContextMask, KeyLengths: in.ContextLengths})
		})
		if err != nil {
			return s, err
		}
	}
	return b.residual(s, b.do, b.do.part.Forward)
}

// residual adds to the stream what a part of the block makes of it.
func (b *Block) residual(s stream, r branch, part func(*gorgonia.Node) (*gorgonia.Node, error)) (stream, error) {
	var x, h *gorgonia.Node
	var err error
	if b.norms == PreNorm || b.norms == SandwichNorm {
		x, h, err = s.normed(r.norm)
	} else {
		x, err = s.joined()
		h = x
	}
	if err != nil {
		return s, err
	}
	var steps []func(*gorgonia.Node) (*gorgonia.Node, error)
	switch b.norms {
	case PreNorm:
		steps = append(steps, part, r.drop.Forward)
	case PostNorm:
		add := func(h *gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(x, h) }
		steps = append(steps, part, r.drop.Forward, add, r.norm.Forward)
	case BranchNorm:
		steps = append(steps, part, r.norm.Forward, r.drop.Forward)
	case SandwichNorm:
		steps = append(steps, part, r.outnorm.Forward, r.drop.Forward)
	}
	for _, step := range steps {
		if h, err = step(h); err != nil {
			return s, err
		}
	}
	if b.norms == PostNorm {
		return stream{x: h}, nil
	}
	return stream{x, h}, nil
}

// Parameters lists the parameters of the parts, in the order of their use.
func (b *Block) Parameters() gorgonia.Nodes {
	var all gorgonia.Nodes
	for _, r := range []branch{b.attend, b.over, b.do} {
		switch {
		case r.part == nil:
		case b.norms == PreNorm:
			all = append(all, parametersOf(r.norm, r.part)...)
		case b.norms == SandwichNorm:
			all = append(all, parametersOf(r.norm, r.part, r.outnorm)...)
		default:
			all = append(all, parametersOf(r.part, r.norm)...)
		}
	}
	return all
}
