package nn

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// MultiHeadAttentionConfig describes a [MultiHeadAttention].
type MultiHeadAttentionConfig struct {
	Dim     int // of x and of the result
	Heads   int // of the queries
	KVHeads int // of the keys and values, a divisor of Heads; 0 means Heads
	HeadDim int // size of a head; 0 means Dim/Heads
	// Cross makes keys and values from another sequence than the queries, of ContextDim features; 0
	// means Dim.
	Cross      bool
	ContextDim int

	// Separate makes linear layers q, k and v in the place of qkv, as Cross, RoPE and QKNorm do.
	Separate bool

	NoBias     bool
	NoProjBias bool // proj has no bias, even if the others do
	NoKeyBias  bool // nor has k, which takes q, k and v apart
	// Latent makes keys and values of one small vector a token, which is all that a cache keeps;
	// nil for not. HeadDim is then Latent.Turned + Latent.Plain, whatever it says.
	Latent *Latent
	// RoPE turns queries and keys by their position, nil for not. Its Layout is not looked at.
	RoPE *ops.RoPEOptions
	// Turn, in the place of RoPE, is what turns queries and keys, (B, S, heads, HeadDim).
	Turn func(h Tensor) Tensor
	// QKNorm normalises each head of queries and keys, before RoPE; QKNormAll, in its place, all
	// heads of a query and all of a key as one row each. Epsilon is the norms', NormPlusOne makes
	// RMSNorms scale by 1 + weight.
	QKNorm, QKNormAll bool
	QKNormKind        QKNormKind // what QKNorm normalises by; QKNormAll does by an RMSNorm
	Epsilon           float64
	NormPlusOne       bool
	// Clip bounds queries, keys and values to ±Clip before RoPE; 0 means not.
	Clip float64
	// Init is of the linear layers' weights; nil means FanIn, of which queries are less where
	// Options.Scale would make scores larger than 1/√HeadDim does, as in T5.
	Init     Init
	ProjInit Init // of proj's; nil means Init

	NewLinear Maker[LinearConfig] // makes the linear layers; nil means NewLinear

	Sinks bool // adds the parameter sinks, (Heads): a score that takes probability and gives no value
	// Options are those of attention itself: causal, window, bias, dropout, and so on. Layout is
	// not looked at. A Seed of 0 means one of the layer's own, which follows from the seed of
	// Parameters and the layer's name. Ranks needs to be nil, see [Scope.ShareSequences].
	Options ops.AttentionOptions

	places    *disentangled // scores go by distances too; nil for not
	scoreAdds bool          // Options.Score adds to the score, and so shows nothing that a bias hides
}

// MultiHeadAttention is attention between projections: queries, keys and values are linear
// functions of x, or keys and values of a context, and the result is a linear function of the
// heads' outputs.
//
// Its parameters are those of the linear layers qkv, whose columns are the query heads, then the
// key heads, then the value heads, and proj. Cross attention, RoPE, Turn, QKNorm, NoKeyBias and
// Separate keep q, k and v apart: linear layers of these names take the place of qkv. QKNorm and
// QKNormAll add the norms qnorm and knorm, and Sinks adds sinks, a number a head. [Latent] has
// parameters of its own.
type MultiHeadAttention struct {
	layer
	c            MultiHeadAttentionConfig
	qkv          Layer // nil where the next three are apart
	q, k, v      Layer
	qnorm, knorm Layer // nil without QKNorm and QKNormAll
	latent       *latent
	proj         Layer
	sinks        *gorgonia.Node // nil for none
	placeDrop    *Dropout       // nil without places
	calls        int
}

// NewMultiHeadAttention makes a MultiHeadAttention in a scope.
func NewMultiHeadAttention(s *Scope, c MultiHeadAttentionConfig) *MultiHeadAttention {
	m := &MultiHeadAttention{layer: s.layer("MultiHeadAttention"), c: c}
	if m.isMade() && m.complete() {
		m.build()
	}
	return m
}

// complete checks the config and puts the meaning of zeros in their place.
func (m *MultiHeadAttention) complete() bool {
	c := &m.c
	if !m.positive(size{"dim", c.Dim}, size{"heads", c.Heads}) {
		return false
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.KVHeads < 1 || c.Heads%c.KVHeads != 0 {
		return m.refuse("heads is %d, it needs to be a multiple of kvHeads, which is %d", c.Heads, c.KVHeads)
	}
	if c.Latent != nil && !m.completeLatent() {
		return false
	}
	if c.HeadDim == 0 {
		if c.Dim%c.Heads != 0 {
			return m.refuse("dim is %d, it needs to be a multiple of heads, which is %d", c.Dim, c.Heads)
		}
		c.HeadDim = c.Dim / c.Heads
	}
	if c.ContextDim != 0 && !c.Cross {
		return m.refuse("context dim is %d, it needs to be 0 where Cross is not set", c.ContextDim)
	}
	if c.ContextDim == 0 {
		c.ContextDim = c.Dim
	}
	if !m.positive(size{"head dim", c.HeadDim}, size{"context dim", c.ContextDim}) {
		return false
	}
	if c.HeadDim > kernels.MaxHeadDim {
		return m.refuse("head dim is %d, it needs to be at most %d", c.HeadDim, kernels.MaxHeadDim)
	}
	if c.Cross && m.sharers() > 1 {
		return m.refuse("Cross is set and ranks share sequences, which attend to themselves")
	}
	if c.QKNorm && c.QKNormAll {
		return m.refuse("QKNorm and QKNormAll are set, it needs to be one of them")
	}
	if !m.completeNorms() {
		return false
	}
	if c.RoPE != nil && c.Turn != nil {
		return m.refuse("RoPE and Turn are set, it needs to be one of them")
	}
	if c.RoPE != nil {
		rotated := c.RoPE.RotaryDim
		if rotated == 0 {
			rotated = c.HeadDim
		}
		if rotated < 1 || rotated > c.HeadDim || rotated%2 != 0 {
			return m.refuse("RoPE turns %d dimensions of a head, it needs to be an even number of at most %d", rotated, c.HeadDim)
		}
		own := *c.RoPE
		own.Layout = ops.BSHD
		c.RoPE = &own
	}
	if c.places != nil && (c.KVHeads != c.Heads || c.Cross || c.Latent != nil || c.RoPE != nil || c.Turn != nil || c.QKNorm || c.QKNormAll || m.sharers() > 1) {
		return m.refuse("Disentangled is set, keys need to be made as queries are: without KVHeads, Cross, Latent, RoPE, Turn, norms and ranks that share sequences")
	}
	if c.places != nil && (c.Options.Score != nil || c.Options.Scale != 0) {
		return m.refuse("Disentangled is set beside Options.Score, Options.Scale or Distances, it needs to be alone")
	}
	if c.Options.Ranks != nil {
		return m.refuse("Options.Ranks is set, it needs to be nil: Scope.ShareSequences is for the whole model")
	}
	c.Options.Layout, c.Options.Ranks = ops.BSHD, m.s.ranks
	return true
}

// build makes the parameters.
func (m *MultiHeadAttention) build() {
	c := m.c
	queries, keys := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	add := func(part string, in, out int) Layer {
		init := c.Init
		if init == nil && part[0] == 'q' {
			init = firstTimes(FanIn, queries, m.queryFactor())
		}
		return m.linear(part, c.NewLinear, LinearConfig{In: in, Out: out, NoBias: c.NoBias || c.NoKeyBias && part == "k", Init: init})
	}
	normalise := c.QKNorm || c.QKNormAll
	values := queries
	if c.Latent != nil {
		values = c.Heads * c.Latent.Values
		m.buildLatent()
	} else if c.Cross || c.RoPE != nil || c.Turn != nil || normalise || c.Separate || c.NoKeyBias || c.places != nil {
		m.q, m.k, m.v = add("q", c.Dim, queries), add("k", c.ContextDim, keys), add("v", c.ContextDim, keys)
	} else {
		m.qkv = add("qkv", c.Dim, queries+2*keys)
	}
	if normalise {
		m.qnorm, m.knorm = m.headNorm("qnorm", c.Heads), m.headNorm("knorm", c.KVHeads)
	}
	if c.places != nil {
		m.placeDrop = m.dropout("placedrop", c.places.dropout)
	}
	if c.Sinks {
		m.sinks = m.parameter("sinks", Zero, c.Heads)
	}
	m.proj = m.linear("proj", c.NewLinear, LinearConfig{
		In: values, Out: c.Dim, NoBias: c.NoBias || c.NoProjBias, Init: initOr(c.ProjInit, c.Init),
	})
}

// clip bounds what projections give, if asked.
func (m *MultiHeadAttention) clip(h Tensor) Tensor {
	if m.c.Clip == 0 {
		return h
	}
	return h.Clip(m.c.Clip)
}

// queryFactor is what queries begin smaller by, so that scores are no larger than with a scale of
// 1/√HeadDim.
func (m *MultiHeadAttention) queryFactor() float64 {
	if m.c.Options.Scale == 0 {
		return 1
	}
	return min(1, 1/(math.Abs(m.c.Options.Scale)*math.Sqrt(float64(m.c.HeadDim))))
}

// AttentionInputs are what an attention may read besides x.
type AttentionInputs struct {
	// Context is what cross attention takes keys and values from: (B, Sk, ContextDim), or (1, Sk,
	// ContextDim) for all of x.
	Context Tensor
	// KeyMask hides keys, such as the padding of a batch: (B, Sk), where true means attend. It is
	// bool, or a float or integer of which 0 means false, and may change from run to run. A query
	// that sees no key gets the bias of proj.
	KeyMask Tensor
	// KeyLengths is how many keys each batch item has, (B), of int, int32 or int64: padding behind
	// them is not read, which costs less than a KeyMask. It may change from run to run. With
	// [kernels.CausalBottomRight] the last query sees the last of these keys; self-attention over
	// sequences that begin together needs [kernels.CausalTopLeft], and a KeyMask where there is a
	// window or ALiBi. There a Score and a Mask see as many queries as keys.
	KeyLengths Tensor
	// Bias is added to the scores, (1|B, 1|Heads, 1|S, Sk), in the place of that of the options.
	Bias Tensor
	// Ends says that x is sequences that lie end to end, (total, Dim), which see only themselves: 0
	// and then where each ends, of int, int32 or int64. It may change from run to run; a sequence
	// may be empty. See [ops.AttentionOptions].
	Ends Tensor

	cache  *ops.KVCache // of ForwardCached
	memory *ops.KVCache // what cross attention reads in the place of a context
}

// Forward is self-attention: (B, S, Dim) → (B, S, Dim), or (total, Dim) → (total, Dim) for packed
// sequences.
func (m *MultiHeadAttention) Forward(x Tensor) Tensor { return m.ForwardWith(x, AttentionInputs{}) }

// ForwardWith is attention with a context or a mask of the keys.
func (m *MultiHeadAttention) ForwardWith(x Tensor, in AttentionInputs) Tensor {
	out, _ := m.forward(x, in, false)
	return out
}

// ForwardWithWeights is [MultiHeadAttention.ForwardWith] that also gives the probabilities with
// which each query weighs each key, (B, Heads, S, Sk), to look at: they have no gradient and take
// memory that grows with the square of the length, and their computation is repeated for them. It
// does not take packed sequences.
func (m *MultiHeadAttention) ForwardWithWeights(x Tensor, in AttentionInputs) (out, weights Tensor) {
	return m.forward(x, in, true)
}

// NewCache is an empty cache for [MultiHeadAttention.ForwardCached].
func (m *MultiHeadAttention) NewCache(batch, capacity int) (*ops.KVCache, error) {
	if err := m.cacheable(); err != nil {
		return nil, err
	}
	if l := m.c.Latent; l != nil {
		return ops.NewKVCache(ops.KVCacheConfig{
			DType: m.s.compute, Batch: batch, Heads: 1, HeadDim: l.Turned + l.Rank, ValueDim: l.Rank, Within: true, Capacity: capacity,
		})
	}
	return ops.NewKVCache(ops.KVCacheConfig{
		DType: m.s.compute, Batch: batch, Heads: m.c.KVHeads, HeadDim: m.c.HeadDim, Capacity: capacity,
	})
}

// ForwardCached is [MultiHeadAttention.Forward] of tokens that follow those in a cache, to which
// each run adds them; see [ops.CachedAttention]. The layer needs to be causal. There is no gradient
// and no dropout: a cache is for evaluation.
func (m *MultiHeadAttention) ForwardCached(x Tensor, cache *ops.KVCache) Tensor {
	if cache == nil {
		return m.failf("cache is nil, it needs to be one of NewCache")
	}
	if err := m.cacheable(); err != nil {
		return m.s.Fail(err)
	}
	return m.ForwardWith(x, AttentionInputs{cache: cache})
}

// cacheable tells why a layer cannot go on from earlier tokens.
func (m *MultiHeadAttention) cacheable() error {
	switch {
	case m.s == nil:
		return errUnmade
	case m.s.err != nil:
		return m.s.err
	case m.c.Cross:
		return m.errorf("Cross is set, a cache is for self-attention")
	case m.c.Options.Causal == kernels.NotCausal:
		return m.errorf("Options.Causal is NotCausal, a cache is for attention that does not see the future")
	}
	return nil
}

func (m *MultiHeadAttention) forward(x Tensor, in AttentionInputs, withWeights bool) (out, weights Tensor) {
	o, ok := m.options(x, in)
	if !ok {
		return m.none(x), m.none(x)
	}
	if qkv := m.together(x, in.cache, o); qkv.IsZero() {
		out, weights = m.attendApart(x, in, o, withWeights)
	} else {
		out, weights = m.attendPacked(qkv, in.cache, o, withWeights)
	}
	return m.proj.Forward(out), weights
}

// options checks the inputs of a call and gives the options of its attention.
func (m *MultiHeadAttention) options(x Tensor, in AttentionInputs) (o ops.AttentionOptions, ok bool) {
	if o = m.c.Options; m.sinks != nil {
		o.Sinks = m.sinks
	}
	if !in.Ends.IsZero() {
		o.QLens, o.KVLens = in.Ends.n, in.Ends.n
	}
	if !m.takes("x", x, m.c.Dim) {
		return o, false
	}
	source := x
	switch {
	case m.c.Cross && in.memory != nil:
	case m.c.Cross && in.Context.IsZero():
		m.failf("context is missing, cross attention needs one")
	case !m.c.Cross && !in.Context.IsZero():
		m.failf("context is given, it needs to be none where Cross is not set")
	case m.c.Cross && m.takes("context", in.Context, m.c.ContextDim):
		source = in.Context
	}
	want, axes := 3, "three axes (batch, length, features)"
	if o.QLens != nil && m.c.places != nil {
		m.failf("ends is given, it needs to be none where Disentangled is set")
	}
	if o.QLens != nil {
		want, axes = 2, "two axes (total length, features)"
	}
	if in.memory != nil {
		o.Dropout.P = 0
	}
	for i, t := range []Tensor{x, source} {
		if m.isMade() && len(t.Shape()) != want {
			m.failf("%s has shape %v, it needs %s", [...]string{"x", "context"}[i], []int(t.Shape()), axes)
		}
	}
	if o.Dropout.Seed == 0 {
		o.Dropout.Seed = m.dropoutSeed(fmt.Sprint(m.calls))
	}
	m.calls++
	if in.cache != nil {
		o.Dropout.P = 0
	}
	if !in.Bias.IsZero() && m.given("bias", in.Bias) {
		o.Bias = in.Bias.n
	}
	if !in.KeyLengths.IsZero() {
		if o.KVLengths = in.KeyLengths.n; !m.c.Cross && !m.beginTogether(&o) {
			return o, false
		}
	}
	if in.KeyMask.IsZero() || !m.given("key mask", in.KeyMask) {
		return o, m.isMade()
	}
	if o.QLens != nil {
		m.failf("key mask is given, packed sequences have no padding to hide")
		return o, false
	}
	if got, want := in.KeyMask.Shape(), source.Shape()[:2]; !got.Eq(want) {
		m.failf("key mask has shape %v, it needs one value for each key: %v", []int(got), []int(want))
		return o, false
	}
	if o.Score == nil || m.c.scoreAdds {
		o.Bias = m.s.of(ops.KeyMask(in.KeyMask.n, o.Bias, m.s.dtype)).n
		return o, m.isMade()
	}
	// A score may make any number of a bias of −∞.
	hidden := m.s.of(ops.KeyMask(in.KeyMask.n, nil, m.s.dtype)).Reshape([]int(in.KeyMask.Shape())...)
	shown := o.Mask
	o.Mask = func(p ops.Pair) ops.Cond {
		c := ops.Lookup(hidden.n, p.Batch, p.Key).Equal(0)
		if shown != nil {
			c = c.And(shown(p))
		}
		return c
	}
	return o, m.isMade()
}

// beginTogether makes a score and a mask of sequences that have lengths count positions from their
// beginnings, and refuses what counts from the last key.
func (m *MultiHeadAttention) beginTogether(o *ops.AttentionOptions) bool {
	if o.Window != nil || o.ALiBi != nil {
		m.failf("key lengths are given, and there is a window or ALiBi, which would count from the last key: it needs a key mask")
		return false
	}
	if score := o.Score; score != nil {
		o.Score = func(p ops.Pair) ops.Expr {
			p.QueryLength = p.KeyLength
			return score(p)
		}
	}
	if mask := o.Mask; mask != nil {
		o.Mask = func(p ops.Pair) ops.Cond {
			p.QueryLength = p.KeyLength
			return mask(p)
		}
	}
	return true
}

// together gives queries, keys and values side by side, (B, S, (Heads+2·KVHeads)·HeadDim), as one
// layer makes them, or three plain ones that nothing but RoPE follows, which attention with a cache
// does itself. It gives none where they need to stay apart.
func (m *MultiHeadAttention) together(x Tensor, cache *ops.KVCache, o ops.AttentionOptions) Tensor {
	if m.qkv != nil {
		return m.clip(m.qkv.Forward(x))
	}
	if m.c.Cross || m.qnorm != nil || m.c.Turn != nil || m.latent != nil || m.c.places != nil {
		return Tensor{}
	}
	weights, biases, changes := plainLinears(x, []Layer{m.q, m.k, m.v})
	if weights == nil {
		return Tensor{}
	}
	qkv := m.clip(m.s.of(ops.LinearsSideBySide(x.n, weights, biases, changes...)))
	rope := m.rope(o)
	if rope == nil || cache != nil {
		return qkv
	}
	return qkv.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.RoPEQKV(n, m.c.Heads, m.c.KVHeads, *rope) })
}

// rope is how a call turns queries and keys, nil for not.
func (m *MultiHeadAttention) rope(o ops.AttentionOptions) *ops.RoPEOptions {
	if m.c.RoPE == nil {
		return nil
	}
	rope := *m.c.RoPE
	if o.Ranks != nil {
		rope.Ranks = o.Ranks
	}
	return &rope
}

// cached is the options of a call with a cache, which turns queries and keys itself.
func (m *MultiHeadAttention) cached(o ops.AttentionOptions) ops.CachedAttentionOptions {
	return ops.CachedAttentionOptions{AttentionOptions: o, RoPE: m.rope(o)}
}

// attendPacked is attention over queries, keys and values that lie side by side; the result is (B,
// S, Heads·HeadDim).
func (m *MultiHeadAttention) attendPacked(qkv Tensor, cache *ops.KVCache, o ops.AttentionOptions, withWeights bool) (out, weights Tensor) {
	attend := func(op func(*gorgonia.Node, int, int, ops.AttentionOptions) (*gorgonia.Node, error)) Tensor {
		return qkv.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return op(n, m.c.Heads, m.c.KVHeads, o) })
	}
	if cache != nil {
		return qkv.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.CachedAttentionQKV(n, m.c.Heads, m.c.KVHeads, cache, m.cached(o))
		}), weights
	}
	if withWeights {
		weights = attend(ops.AttentionWeightsQKV)
	}
	return attend(ops.FlashAttentionQKV), weights
}

// attendApart is attention with a projection each for queries, keys and values, (B, S,
// Heads·HeadDim).
func (m *MultiHeadAttention) attendApart(x Tensor, in AttentionInputs, o ops.AttentionOptions, withWeights bool) (out, weights Tensor) {
	if in.memory != nil {
		return m.recall(x, in.memory, o), weights
	}
	turn := m.turn(in.cache, o)
	var q, k, v Tensor
	switch {
	case m.latent != nil && in.cache != nil:
		return m.attendToLatents(x, in.cache, o), weights
	case m.latent != nil:
		q, k, v = m.expanded(x, turn)
	default:
		qkv := m.project(x, in.Context)
		q = m.heads(qkv[0], m.c.Heads, m.qnorm, turn)
		k = m.heads(qkv[1], m.c.KVHeads, m.knorm, turn)
		v = m.heads(qkv[2], m.c.KVHeads, nil, nil)
	}
	if !m.isMade() {
		return m.none(x), m.none(x)
	}
	if m.c.places != nil {
		m.disentangle(q, k, &o)
	}
	if withWeights {
		weights = m.s.of(ops.AttentionWeights(q.n, k.n, o))
	}
	if in.cache != nil {
		out = m.s.of(ops.CachedAttention(q.n, k.n, v.n, in.cache, m.cached(o)))
	} else {
		out = m.s.of(ops.FlashAttention(q.n, k.n, v.n, o))
	}
	return out.Reshape(withLast(x.Shape(), -1)...), weights
}

// recall is attention to keys and values that a memory holds.
func (m *MultiHeadAttention) recall(x Tensor, memory *ops.KVCache, o ops.AttentionOptions) Tensor {
	q := m.heads(m.q.Forward(x), m.c.Heads, m.qnorm, nil)
	out := q.apply(func(q *gorgonia.Node) (*gorgonia.Node, error) { return ops.MemoryAttention(q, memory, o) })
	return out.Reshape(withLast(x.Shape(), m.c.Heads*m.c.HeadDim)...)
}

// NewMemory is an empty cache for the keys and values of a context, which Memorise gives.
func (m *MultiHeadAttention) NewMemory(batch, capacity int) (*ops.KVCache, error) {
	switch {
	case m.s == nil:
		return nil, errUnmade
	case m.s.err != nil:
		return nil, m.s.err
	case !m.c.Cross:
		return nil, m.errorf("Cross is not set, a memory is of a context")
	}
	return ops.NewKVCache(ops.KVCacheConfig{
		DType: m.s.compute, Batch: batch, Heads: m.c.KVHeads, HeadDim: m.c.HeadDim, Capacity: capacity,
	})
}

// Memorise gives the keys and values of a context, (B, Sk, ContextDim) → (B, KVHeads, Sk, HeadDim)
// each, for a memory to hold.
func (m *MultiHeadAttention) Memorise(context Tensor) (k, v Tensor) {
	if !m.takes("context", context, m.c.ContextDim) {
		return m.none(context), m.none(context)
	}
	if !m.c.Cross || len(context.Shape()) != 3 {
		m.failf("context has shape %v, it needs (batch, length, features) of a layer with Cross", []int(context.Shape()))
		return m.none(context), m.none(context)
	}
	kv := forwardAll(context, m.k, m.v)
	return m.heads(kv[0], m.c.KVHeads, m.knorm, nil).Permute(0, 2, 1, 3), m.heads(kv[1], m.c.KVHeads, nil, nil).Permute(0, 2, 1, 3)
}

// project gives queries of x, and keys and values of context, none for x itself.
func (m *MultiHeadAttention) project(x, context Tensor) []Tensor {
	if context.IsZero() {
		return forwardAll(x, m.q, m.k, m.v)
	}
	return append([]Tensor{m.q.Forward(x)}, forwardAll(context, m.k, m.v)...)
}

// heads splits a projection of x into heads, (B, S, heads, its share), and normalises and turns
// them if asked.
func (m *MultiHeadAttention) heads(h Tensor, heads int, norm Layer, turn func(Tensor) Tensor) Tensor {
	if norm != nil && m.c.QKNormAll {
		h = norm.Forward(h)
	}
	h = m.clip(h)
	if shape := h.Shape(); len(shape) > 0 {
		h = h.Reshape(withLast(shape, heads, -1)...)
	}
	if norm != nil && m.c.QKNorm {
		h = norm.Forward(h)
	}
	if turn == nil {
		return h
	}
	if shape := h.Shape(); len(shape) == 3 {
		// Sequences that lie end to end are turned as one: only distances count, and those within a
		// sequence are right.
		return turn(h.Reshape(append([]int{1}, shape...)...)).Reshape(shape...)
	}
	return turn(h)
}

// turn is what a call does with queries and keys, nil for nothing. Attention with a cache turns by
// RoPE itself.
func (m *MultiHeadAttention) turn(cache *ops.KVCache, o ops.AttentionOptions) func(Tensor) Tensor {
	rope := m.rope(o)
	switch {
	case rope == nil:
		return m.c.Turn
	case cache != nil:
		return nil
	}
	return func(h Tensor) Tensor { return h.rope(*rope) }
}

// rope turns heads by their positions.
func (x Tensor) rope(o ops.RoPEOptions) Tensor {
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.RoPE(n, o) })
}

// withLast is a shape with other axes in place of its last.
func withLast(shape tensor.Shape, axes ...int) []int {
	return append(shape[:len(shape)-1:len(shape)-1], axes...)
}
