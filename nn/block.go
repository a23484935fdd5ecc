package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// BlockConfig describes a [Block].
type BlockConfig struct {
	// Attention describes the block's attention, and its Dim and NoBias count for the whole block.
	// Its own Epsilon, NormPlusOne, Init, ProjInit and NewLinear are not looked at: they are the
	// block's.
	Attention MultiHeadAttentionConfig
	// Cross adds a second attention, from x to a context of ContextDim features, 0 for Dim: it
	// makes of the block one of a decoder that reads what an encoder has written. It has the heads
	// and the dropout of the first.
	Cross      bool
	ContextDim int

	Hidden      int                // of the MLP; 0 means what MLP takes for it
	Activation  kernels.Activation // of the MLP; zero means GELUTanh, or SiLU with Gated
	Gated       bool               // the MLP is gated
	MLPBias     *bool              // whether the MLP has biases; nil means as attention
	RMSNorm     bool               // RMSNorms in place of LayerNorms
	NormBias    *bool              // whether LayerNorms have biases; nil means as attention
	NormPlusOne bool               // the RMSNorms scale by 1 + weight
	Norms       NormPlace          // where the norms are; zero means PreNorm
	Epsilon     float64            // of the norms; 0 means 1e-5
	Dropout     float64            // of what attention and MLP add to x
	MLPDropout  float64            // of what the MLP's last layer reads
	Residual    float64            // what attention and MLP add to x is multiplied by it; 0 means 1
	Scales      bool               // and by a parameter for each feature, which starts at 1
	Init        Init               // of the weights of linear layers; nil means FanIn
	ProjInit    Init               // of the weights of what adds to x; nil means Init, but in a [Stack]
	Recompute   bool               // gradients are computed from x anew, which takes time and keeps nothing but x; see [ops.Recompute]

	// What makes the parts of the block in place of the usual: all linear layers, all norms, the
	// attention, and the MLP.
	NewLinear    Maker[LinearConfig]
	NewNorm      Maker[NormConfig]
	NewAttention func(s *Scope, c MultiHeadAttentionConfig) Attention
	NewMLP       Maker[MLPConfig]
}

// norm is what the norms of the block have in common.
func (c *BlockConfig) norm() NormConfig {
	n := NormConfig{Dim: c.Attention.Dim, Epsilon: c.Epsilon, RMS: c.RMSNorm, NoBias: c.Attention.NoBias, PlusOne: c.NormPlusOne}
	if c.NormBias != nil {
		n.NoBias = !*c.NormBias
	}
	return n
}

// Attention is what a [Block] needs of its attention. [MultiHeadAttention] is one; a block runs
// with a cache if its attention has that one's NewCache and ForwardCached too.
type Attention interface {
	Layer
	ForwardWith(x Tensor, in AttentionInputs) Tensor
}

// cachedAttention is an attention that can go on from earlier tokens.
type cachedAttention interface {
	NewCache(batch, capacity int) (*ops.KVCache, error)
	ForwardCached(x Tensor, cache *ops.KVCache) Tensor
}

// NormPlace is where a block normalises. With f for attention or the MLP, x becomes:
type NormPlace int

const (
	PreNorm      NormPlace = iota // x + dropout(f(norm(x))), as GPT-2 and Llama do
	PostNorm                      // norm(x + dropout(f(x))), as BERT and the first transformer do
	BranchNorm                    // x + dropout(norm(f(x))), as OLMo 2 does
	SandwichNorm                  // x + dropout(outnorm(f(norm(x)))), as Gemma 2 and 3 do
	StreamNorm                    // norm(x) + dropout(f(norm(x))), as some BLOOMs do

	// In parallel attention and MLP read the same x, and both are added to it.

	ParallelNorm  // x + dropout(attn(norm1(x))) + dropout(mlp(norm1(x))), as GPT-J and Phi do
	ParallelNorms // x + dropout(attn(norm1(x))) + dropout(mlp(norm2(x))), as GPT-NeoX does

	normPlaces
)

// isParallel reports whether attention and MLP read the same x.
func (p NormPlace) isParallel() bool { return p == ParallelNorm || p == ParallelNorms }

// Block is a layer of a transformer, (B, S, Dim) → (B, S, Dim):
//
//	x ← x + dropout(attn(norm1(x)))      x ← x + dropout(mlp(norm2(x)))
//
// or with its norms in another [NormPlace], and between the two, with Cross,
//
//	x ← x + dropout(cross(norm3(x), context))
//
// Its parts are called norm1, attn, norm2, mlp, norm3 and cross, and with SandwichNorm also
// outnorm1, outnorm2 and outnorm3. ParallelNorm has no norm2. The parameters scale1, scale2 and
// scale3 are there with Scales.
type Block struct {
	layer
	norms            NormPlace
	scale            float64 // of what is added to x
	recompute        bool
	repeated         bool      // it stands for several layers of a stack
	attn, cross      Attention // cross is nil for none
	attend, over, do branch    // to itself, to a context, and the MLP
}

// branch is what a part of a block adds to x, but for the part itself.
type branch struct {
	norm, outnorm Layer // outnorm is nil without SandwichNorm, and so is norm where the parts share one
	part          Layer
	scale         Tensor // (Dim), none without Scales
	drop          *Dropout
}

// NewBlock makes a Block in a scope.
func NewBlock(s *Scope, c BlockConfig) *Block {
	b := &Block{layer: s.layer("Block"), norms: c.Norms, scale: c.Residual, recompute: c.Recompute}
	switch {
	case c.Attention.Cross:
		b.failf("Attention.Cross is set, a block attends to itself first: its own Cross adds a context")
	case c.Cross && b.sharers() > 1:
		b.failf("Cross is set and ranks share sequences, which attend to themselves")
	case c.ContextDim != 0 && !c.Cross:
		b.failf("context dim is %d, it needs to be 0 where Cross is not set", c.ContextDim)
	case c.NormPlusOne && !c.RMSNorm:
		b.failf("NormPlusOne is set, it needs RMSNorm")
	case c.Norms < PreNorm || c.Norms >= normPlaces:
		b.failf("norms is %d, it needs to be PreNorm, PostNorm, BranchNorm, SandwichNorm, StreamNorm, ParallelNorm or ParallelNorms", c.Norms)
	case c.Norms.isParallel() && c.Cross:
		b.failf("Cross is set and norms are in parallel, a context is attended to between attention and the MLP")
	}
	if b.nonNegative("residual", c.Residual, "1") {
		b.build(c)
	}
	return b
}

// build makes the parts, in the order in which they are used.
func (b *Block) build(c BlockConfig) {
	a := c.Attention
	a.Epsilon, a.NormPlusOne, a.Init, a.ProjInit, a.NewLinear = c.Epsilon, c.NormPlusOne, c.Init, c.ProjInit, c.NewLinear
	b.attend = b.branch("1", c, func() Layer {
		b.attn = b.attention("attn", a, c)
		return b.attn
	})
	if c.Cross {
		a.Cross, a.ContextDim, a.RoPE, a.Turn = true, c.ContextDim, nil, nil
		a.Options = ops.AttentionOptions{
			Scale: a.Options.Scale, Dropout: a.Options.Dropout,
			Precision: a.Options.Precision, Guarantees: a.Options.Guarantees,
		}
		b.over = b.branch("3", c, func() Layer {
			b.cross = b.attention("cross", a, c)
			return b.cross
		})
	}
	mlp := MLPConfig{
		Dim: c.Attention.Dim, Hidden: c.Hidden, Gated: c.Gated, Activation: c.Activation, NoBias: c.Attention.NoBias, Dropout: c.MLPDropout,
		Init: c.Init, ProjInit: c.ProjInit, NewLinear: c.NewLinear,
	}
	if c.MLPBias != nil {
		mlp.NoBias = !*c.MLPBias
	}
	b.do = b.branch("2", c, func() Layer {
		if c.NewMLP != nil {
			return makeBy(b.layer, "mlp", c.NewMLP, mlp)
		}
		return NewMLP(b.s.Sub("mlp"), mlp)
	})
}

// attention makes one of the block's attentions.
func (b *Block) attention(part string, a MultiHeadAttentionConfig, c BlockConfig) Attention {
	if c.NewAttention == nil || !b.isMade() {
		return NewMultiHeadAttention(b.s.Sub(part), a)
	}
	attention := c.NewAttention(b.s.Sub(part), a)
	if attention == nil {
		b.failf("the maker of %s gave nil, it needs to give an attention", b.s.child(part))
		return &MultiHeadAttention{}
	}
	return attention
}

// branch makes a part and what is around it.
func (b *Block) branch(number string, c BlockConfig, part func() Layer) (r branch) {
	norm := func(name string) Layer { return b.norm(name+number, c.NewNorm, c.norm()) }
	switch b.norms {
	case PreNorm, SandwichNorm, StreamNorm, ParallelNorms:
		r.norm = norm("norm")
	case ParallelNorm:
		if number == "1" {
			r.norm = norm("norm")
		}
	}
	r.part = part()
	switch b.norms {
	case PostNorm, BranchNorm:
		r.norm = norm("norm")
	case SandwichNorm:
		r.outnorm = norm("outnorm")
	}
	if c.Scales {
		r.scale = b.s.Parameter("scale"+number, Constant(1), c.Attention.Dim)
	}
	r.drop = b.dropout("drop"+number, c.Dropout)
	return r
}

// BlockInputs are what a block may read besides x.
type BlockInputs struct {
	// KeyMask and KeyLengths hide keys of x itself, such as padding; see [AttentionInputs].
	KeyMask, KeyLengths Tensor
	Bias                Tensor // of attention to x itself; see [AttentionInputs]
	// Ends says that x is sequences that lie end to end, (total, Dim); see [AttentionInputs].
	Ends Tensor
	// Context is what a block with Cross attends to, (B, Sk, ContextDim); ContextMask and
	// ContextLengths hide its keys.
	Context, ContextMask, ContextLengths Tensor

	memories []*ops.KVCache // of a stack's blocks, in the place of a context
	memory   *ops.KVCache   // of this block
}

// Forward applies the block to x.
func (b *Block) Forward(x Tensor) Tensor { return b.ForwardWith(x, BlockInputs{}) }

// ForwardWith is [Block.Forward] with a context, or with keys that are hidden.
func (b *Block) ForwardWith(x Tensor, in BlockInputs) Tensor {
	if !b.given("x", x) {
		return b.none(x)
	}
	return b.pass(stream{x: x}, in).joined()
}

// pass is ForwardWith of a stream.
func (b *Block) pass(s stream, in BlockInputs) stream {
	forward := func(s stream) stream {
		return b.forward(s, in, func(x Tensor) Tensor {
			return b.attn.ForwardWith(x, AttentionInputs{KeyMask: in.KeyMask, KeyLengths: in.KeyLengths, Bias: in.Bias, Ends: in.Ends})
		})
	}
	others := []Tensor{in.KeyMask, in.KeyLengths, in.Bias, in.Ends, in.Context, in.ContextMask, in.ContextLengths}
	if b.recompute || b.computesAgain("") {
		x := s.joined()
		return stream{x: b.again("", forward(stream{x: x}).joined(), append(others, x))}
	}
	y := forward(s)
	b.offer("", []Tensor{y.x, y.more}, append(others, s.x, s.more))
	return y
}

// computesAgain reports whether a budget of memory has a part of the block computed again.
func (b *Block) computesAgain(part string) bool {
	return b.isMade() && !b.repeated && ops.RecomputesRegion(b.s.g, b.s.child(part))
}

// offer tells those who look for memory that what lies between some tensors can be computed again.
func (b *Block) offer(part string, out, from []Tensor) {
	if !b.isMade() || b.recompute || b.repeated || !ops.OffersRegions(b.s.g) { // regions have one name each
		return
	}
	if err := ops.OfferRegion(b.s.child(part), nodesOf(out), nodesOf(from)); err != nil {
		b.s.Fail(err)
	}
}

// again is y, a part's result, computed again from some tensors for its gradients.
func (b *Block) again(part string, y Tensor, from []Tensor) Tensor {
	return y.apply(func(y *gorgonia.Node) (*gorgonia.Node, error) {
		if b.recompute {
			return ops.Recompute(y, nodesOf(from)...)
		}
		return ops.RecomputeRegion(b.s.child(part), y, nodesOf(from)...)
	})
}

// nodesOf are the nodes of the tensors that are there.
func nodesOf(tensors []Tensor) (list gorgonia.Nodes) {
	for _, t := range tensors {
		if t.n != nil {
			list = append(list, t.n)
		}
	}
	return list
}

// stream is what runs through blocks, the sum of x and, unless it is none, of what the part before
// has made of it: the norm that reads the sum computes it too.
type stream struct{ x, more Tensor }

// joined is the sum.
func (s stream) joined() Tensor {
	if s.more.IsZero() {
		return s.x
	}
	return s.x.Add(s.more)
}

// normed is the sum, and the norm of it.
func (s stream) normed(norm Layer) (x, y Tensor) {
	if n, ok := norm.(*Norm); ok && !s.more.IsZero() {
		return n.forwardSum(s.x, s.more)
	}
	x = s.joined()
	return x, norm.Forward(x)
}

// end is what the last norm makes of the sum, if there is one.
func (s stream) end(norm Layer) Tensor {
	if n, ok := norm.(*Norm); ok && !s.more.IsZero() {
		return n.forwardOfSum(s.x, s.more)
	}
	if norm == nil {
		return s.joined()
	}
	return norm.Forward(s.joined())
}

// remembering is a cross-attention whose keys and values may be kept.
type remembering interface {
	NewMemory(batch, capacity int) (*ops.KVCache, error)
	Memorise(context Tensor) (k, v Tensor)
}

// cross is the block's attention to a context, whose keys and values may be kept.
func (b *Block) remembers() (remembering, error) {
	if b.cross == nil {
		return nil, b.errorf("there is no cross-attention, the config needs Cross")
	}
	cross, ok := b.cross.(remembering)
	if !ok {
		return nil, b.errorf("the cross-attention is a %T, for a memory it needs the methods NewMemory and Memorise", b.cross)
	}
	return cross, nil
}

// NewCache is an empty cache for [Block.ForwardCached].
func (b *Block) NewCache(batch, capacity int) (*ops.KVCache, error) {
	cached, ok := b.attn.(cachedAttention)
	if !ok {
		return nil, b.errorf("the attention is a %T, for a cache it needs the methods NewCache and ForwardCached", b.attn)
	}
	return cached.NewCache(batch, capacity)
}

// ForwardCached is [Block.ForwardWith] of tokens that follow those in a cache; see
// [MultiHeadAttention.ForwardCached]. It takes no KeyMask and no KeyLengths. Keys and values of a
// context are computed in each run.
func (b *Block) ForwardCached(x Tensor, cache *ops.KVCache, in BlockInputs) Tensor {
	cached, ok := b.attn.(cachedAttention)
	switch {
	case !b.given("x", x):
		return b.none(x)
	case !ok:
		return b.failf("the attention is a %T, for a cache it needs the methods NewCache and ForwardCached", b.attn)
	case !in.KeyMask.IsZero() || !in.KeyLengths.IsZero() || !in.Bias.IsZero():
		return b.failf("key mask, key lengths or bias is given, it needs to be none with a cache: all tokens that it holds are seen")
	}
	return b.forward(stream{x: x}, in, func(x Tensor) Tensor { return cached.ForwardCached(x, cache) }).joined()
}

func (b *Block) forward(s stream, in BlockInputs, attend func(Tensor) Tensor) stream {
	if !b.isMade() {
		return stream{x: b.none(s.x)}
	}
	if b.cross == nil && !(in.Context.IsZero() && in.ContextMask.IsZero() && in.ContextLengths.IsZero()) {
		return stream{x: b.failf("a context is given, the config needs Cross for that")}
	}
	if b.norms.isParallel() {
		return b.parallel(s, attend)
	}
	s = b.residual(s, b.attend, "attn", []Tensor{in.KeyMask, in.KeyLengths, in.Bias, in.Ends}, attend)
	if b.cross != nil {
		s = b.residual(s, b.over, "cross", []Tensor{in.Context, in.ContextMask, in.ContextLengths}, func(x Tensor) Tensor {
			return b.cross.ForwardWith(x, AttentionInputs{Context: in.Context, KeyMask: in.ContextMask, KeyLengths: in.ContextLengths, memory: in.memory})
		})
	}
	return b.residual(s, b.do, "mlp", nil, b.do.part.Forward)
}

// residual adds to the stream what a part of the block makes of it and of others.
func (b *Block) residual(s stream, r branch, name string, others []Tensor, part func(Tensor) Tensor) stream {
	again := b.computesAgain(name)
	if again {
		s = stream{x: s.joined()}
	}
	x, h := b.branchOf(s, r, part)
	if from := append(others, s.x, s.more); again {
		h = b.again(name, h, from)
	} else {
		b.offer(name, []Tensor{x, h}, from)
	}
	if b.norms == PostNorm {
		return stream{x: r.norm.Forward(x.Add(h))}
	}
	return stream{x, h}
}

// branchOf is the stream's sum, and what a part of the block adds to it.
func (b *Block) branchOf(s stream, r branch, part func(Tensor) Tensor) (x, h Tensor) {
	switch b.norms {
	case PostNorm:
		x = s.joined()
		return x, b.added(r, part(x))
	case BranchNorm:
		x = s.joined()
		return x, b.added(r, r.norm.Forward(part(x)))
	case StreamNorm:
		x = s.end(r.norm)
		return x, b.added(r, part(x))
	}
	x, h = s.normed(r.norm)
	h = part(h)
	if r.outnorm != nil {
		h = r.outnorm.Forward(h)
	}
	return x, b.added(r, h)
}

// added is what a part adds to x.
func (b *Block) added(r branch, h Tensor) Tensor {
	if !r.scale.IsZero() {
		h = h.Mul(r.scale.Cast(h.DType()))
	}
	h = r.drop.Forward(h)
	if b.scale == 0 {
		return h
	}
	return h.Mul(b.scale)
}

// parallel adds to the stream what attention and MLP make of it.
func (b *Block) parallel(s stream, attend func(Tensor) Tensor) stream {
	x, h := s.normed(b.attend.norm)
	other := h
	if b.do.norm != nil {
		other = b.do.norm.Forward(x)
	}
	return stream{x, b.added(b.attend, attend(h)).Add(b.added(b.do, b.do.part.Forward(other)))}
}
