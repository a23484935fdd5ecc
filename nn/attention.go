package nn

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// MultiHeadAttentionConfig describes a [MultiHeadAttention].
type MultiHeadAttentionConfig struct {
	Name       string       // prefix of the parameters' names
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0
	Compute    tensor.Dtype // of the input, which caches have too: that of the parameters (zero), ops.BFloat16 or ops.Float16

	Dim     int // of x and of the result
	Heads   int // of the queries
	KVHeads int // of the keys and values, a divisor of Heads; 0 means Heads
	HeadDim int // size of a head; 0 means Dim/Heads
	// Cross makes keys and values from another sequence than the queries, of ContextDim features; 0 means Dim.
	Cross      bool
	ContextDim int

	// Separate makes linear layers q, k and v in the place of qkv, as Cross, RoPE and QKNorm do.
	Separate bool

	NoBias     bool
	NoProjBias bool // proj has no bias, even if the others do
	// RoPE turns queries and keys by their position, nil for not. Its Layout is not looked at.
	RoPE *ops.RoPEOptions
	// QKNorm normalises each head of queries and keys by an RMSNorm, before RoPE; QKNormAll, in its place, all heads of a
	// query and all of a key as one row each. Epsilon is the norms', NormPlusOne makes them scale by 1 + weight.
	QKNorm, QKNormAll bool
	Epsilon           float64
	NormPlusOne       bool
	Init              Init // of the linear layers' weights; nil means FanIn
	ProjInit          Init // of proj's; nil means Init

	NewLinear Maker[LinearConfig] // makes the linear layers; nil means NewLinear

	// Options are those of attention itself: causal, window, bias, dropout, and so on. Layout is not looked at. A Seed
	// of 0 means one of the layer's own, which follows from the seed of Parameters and the layer's name. With Ranks, x is the rows that
	// this rank holds of a sequence, and RoPE turns them by their positions in the whole.
	Options ops.AttentionOptions
}

// MultiHeadAttention is attention between projections: queries, keys and values are linear functions of x, or keys and
// values of a context, and the result is a linear function of the heads' outputs.
//
// Its parameters are those of the linear layers qkv, whose columns are the query heads, then the key heads, then the
// value heads, and proj. Cross attention, RoPE, QKNorm and Separate keep q, k and v apart: linear layers of these names take
// the place of qkv. QKNorm and QKNormAll add the norms qnorm and knorm.
type MultiHeadAttention struct {
	*scope
	c            MultiHeadAttentionConfig
	compute      tensor.Dtype
	qkv          Layer // nil where the next three are apart
	q, k, v      Layer
	qnorm, knorm Layer // nil without QKNorm and QKNormAll
	proj         Layer
	parts        []Layer
	calls        int
}

// NewMultiHeadAttention adds the parameters of a MultiHeadAttention to a graph.
func NewMultiHeadAttention(g *gorgonia.ExprGraph, c MultiHeadAttentionConfig) (*MultiHeadAttention, error) {
	s, err := newScope("MultiHeadAttention", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	c.Options.Ranks = ranksOr(c.Options.Ranks, s.g)
	m := &MultiHeadAttention{scope: s, c: c}
	if m.compute, err = s.computeType(c.Compute); err != nil {
		return nil, err
	}
	if err := m.complete(); err != nil {
		return nil, err
	}
	return made(m, m.build())
}

// complete checks the config and puts the meaning of zeros in their place.
func (m *MultiHeadAttention) complete() error {
	c := &m.c
	if err := m.positive(size{"dim", c.Dim}, size{"heads", c.Heads}); err != nil {
		return err
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.KVHeads < 1 || c.Heads%c.KVHeads != 0 {
		return m.errorf("heads is %d, it needs to be a multiple of kvHeads, which is %d", c.Heads, c.KVHeads)
	}
	if c.HeadDim == 0 {
		if c.Dim%c.Heads != 0 {
			return m.errorf("dim is %d, it needs to be a multiple of heads, which is %d", c.Dim, c.Heads)
		}
		c.HeadDim = c.Dim / c.Heads
	}
	if c.ContextDim != 0 && !c.Cross {
		return m.errorf("context dim is %d, it needs to be 0 where Cross is not set", c.ContextDim)
	}
	if c.ContextDim == 0 {
		c.ContextDim = c.Dim
	}
	if err := m.positive(size{"head dim", c.HeadDim}, size{"context dim", c.ContextDim}); err != nil {
		return err
	}
	if c.HeadDim > kernels.MaxHeadDim {
		return m.errorf("head dim is %d, it needs to be at most %d", c.HeadDim, kernels.MaxHeadDim)
	}
	if c.Cross && sizeOf(c.Options.Ranks) > 1 {
		return m.errorf("Cross is set and so is Ranks, a sequence that ranks share attends to itself")
	}
	if c.QKNorm && c.QKNormAll {
		return m.errorf("QKNorm and QKNormAll are set, it needs to be one of them")
	}
	if c.RoPE != nil {
		rotated := c.RoPE.RotaryDim
		if rotated == 0 {
			rotated = c.HeadDim
		}
		if rotated < 1 || rotated > c.HeadDim || rotated%2 != 0 {
			return m.errorf("RoPE turns %d dimensions of a head, it needs to be an even number of at most %d", rotated, c.HeadDim)
		}
		own := *c.RoPE
		own.Layout = ops.BSHD
		c.RoPE = &own
	}
	c.Options.Layout = ops.BSHD
	return nil
}

// build adds the parameters.
func (m *MultiHeadAttention) build() (err error) {
	c := m.c
	queries, keys := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	add := func(part string, in, out int, noBias bool, init Init) (l Layer) {
		if err == nil {
			l, err = m.linear(part, c.NewLinear, LinearConfig{In: in, Out: out, NoBias: noBias, Init: init})
			m.parts = append(m.parts, l)
		}
		return l
	}
	normalise := c.QKNorm || c.QKNormAll
	if c.Cross || c.RoPE != nil || normalise || c.Separate {
		m.q = add("q", c.Dim, queries, c.NoBias, c.Init)
		m.k = add("k", c.ContextDim, keys, c.NoBias, c.Init)
		m.v = add("v", c.ContextDim, keys, c.NoBias, c.Init)
	} else {
		m.qkv = add("qkv", c.Dim, queries+2*keys, c.NoBias, c.Init)
	}
	if normalise && err == nil {
		if c.QKNorm {
			queries, keys = c.HeadDim, c.HeadDim
		}
		kind := normKind{epsilon: c.Epsilon, rms: true, plusOne: c.NormPlusOne}
		if m.qnorm, err = m.norm("qnorm", queries, kind); err != nil {
			return err
		}
		if m.knorm, err = m.norm("knorm", keys, kind); err != nil {
			return err
		}
		m.parts = append(m.parts, m.qnorm, m.knorm)
	}
	m.proj = add("proj", c.Heads*c.HeadDim, c.Dim, c.NoBias || c.NoProjBias, initOr(c.ProjInit, c.Init))
	return err
}

// Parameters lists the weights, and the biases and scales if there are.
func (m *MultiHeadAttention) Parameters() gorgonia.Nodes { return parametersOf(m.parts...) }

// AttentionInputs are what an attention may read besides x.
type AttentionInputs struct {
	// Context is what cross attention takes keys and values from: (B, Sk, ContextDim), or (1, Sk, ContextDim) for all of x.
	Context *gorgonia.Node
	// KeyMask hides keys, such as the padding of a batch: (B, Sk), where true means attend. It is bool, or a float or
	// integer of which 0 means false, and may change from run to run. A query that sees no key gets the bias of proj.
	KeyMask *gorgonia.Node
	// KeyLengths is how many keys each batch item has, (B), of int, int32 or int64: padding behind them is not read, which
	// costs less than a KeyMask. It may change from run to run. With [kernels.CausalBottomRight] the last query sees the last
	// of these keys; self-attention over sequences that begin together needs [kernels.CausalTopLeft].
	KeyLengths *gorgonia.Node
	// Ends says that x is sequences that lie end to end, (total, Dim), which see only themselves: 0 and then where each ends, of
	// int, int32 or int64. It may change from run to run; a sequence may be empty. See [ops.AttentionOptions].
	Ends *gorgonia.Node

	cache *ops.KVCache // of ForwardCached
}

// Forward is self-attention: (B, S, Dim) → (B, S, Dim), or (total, Dim) → (total, Dim) for packed sequences.
func (m *MultiHeadAttention) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	return m.ForwardWith(x, AttentionInputs{})
}

// ForwardWith is attention with a context or a mask of the keys.
func (m *MultiHeadAttention) ForwardWith(x *gorgonia.Node, in AttentionInputs) (*gorgonia.Node, error) {
	out, _, err := m.forward(x, in, false)
	return out, err
}

// ForwardWithWeights is [MultiHeadAttention.ForwardWith] that also gives the probabilities with which each query weighs
// each key, (B, Heads, S, Sk), to look at: they have no gradient and take memory that grows with the square of the
// length, and their computation is repeated for them. It does not take packed sequences.
func (m *MultiHeadAttention) ForwardWithWeights(x *gorgonia.Node, in AttentionInputs) (out, weights *gorgonia.Node, err error) {
	return m.forward(x, in, true)
}

// NewCache is an empty cache for [MultiHeadAttention.ForwardCached].
func (m *MultiHeadAttention) NewCache(batch, capacity int) (*ops.KVCache, error) {
	if err := m.cacheable(); err != nil {
		return nil, err
	}
	return ops.NewKVCache(ops.KVCacheConfig{
		DType: m.compute, Batch: batch, Heads: m.c.KVHeads, HeadDim: m.c.HeadDim, Capacity: capacity,
	})
}

// ForwardCached is [MultiHeadAttention.Forward] of tokens that follow those in a cache, to which each run adds them; see
// [ops.CachedAttention]. The layer needs to be causal. There is no gradient and no dropout: a cache is for evaluation.
func (m *MultiHeadAttention) ForwardCached(x *gorgonia.Node, cache *ops.KVCache) (*gorgonia.Node, error) {
	if cache == nil {
		return nil, m.errorf("cache is nil, it needs to be one of NewCache")
	}
	if err := m.cacheable(); err != nil {
		return nil, err
	}
	return m.ForwardWith(x, AttentionInputs{cache: cache})
}

// cacheable tells why a layer cannot go on from earlier tokens.
func (m *MultiHeadAttention) cacheable() error {
	if m.c.Cross {
		return m.errorf("Cross is set, a cache is for self-attention")
	}
	if m.c.Options.Causal == kernels.NotCausal {
		return m.errorf("Options.Causal is NotCausal, a cache is for attention that does not see the future")
	}
	return nil
}

func (m *MultiHeadAttention) forward(x *gorgonia.Node, in AttentionInputs, withWeights bool) (out, weights *gorgonia.Node, err error) {
	o, err := m.options(x, in)
	if err != nil {
		return nil, nil, err
	}
	qkv, err := m.together(x, in.cache, o)
	switch {
	case err != nil:
	case qkv == nil:
		out, weights, err = m.attendApart(x, in, o, withWeights)
	default:
		out, weights, err = m.attendPacked(qkv, in.cache, o, withWeights)
	}
	if err != nil {
		return nil, nil, err
	}
	out, err = m.proj.Forward(out)
	return out, weights, err
}

// options checks the inputs of a call and gives the options of its attention.
func (m *MultiHeadAttention) options(x *gorgonia.Node, in AttentionInputs) (o ops.AttentionOptions, err error) {
	o = m.c.Options
	if in.Ends != nil {
		o.QLens, o.KVLens = in.Ends, in.Ends
	}
	if err := m.input("x", x, m.c.Dim); err != nil {
		return o, err
	}
	source := x
	switch {
	case m.c.Cross && in.Context == nil:
		return o, m.errorf("context is nil, cross attention needs one")
	case !m.c.Cross && in.Context != nil:
		return o, m.errorf("context is given, it needs to be nil where Cross is not set")
	case m.c.Cross:
		if err := m.input("context", in.Context, m.c.ContextDim); err != nil {
			return o, err
		}
		source = in.Context
	}
	axes := "three axes (batch, length, features)"
	if o.QLens != nil {
		axes = "two axes (total length, features)"
	}
	for i, n := range []*gorgonia.Node{x, source} {
		if dims := n.Dims(); dims != 3 && o.QLens == nil || dims != 2 && o.QLens != nil {
			return o, m.errorf("%s has shape %v, it needs %s", [...]string{"x", "context"}[i], []int(n.Shape()), axes)
		}
	}
	if o.Seed == 0 {
		o.Seed = m.dropoutSeed(fmt.Sprint(m.calls))
	}
	m.calls++
	if in.cache != nil {
		o.Dropout = 0
	}
	if in.KeyLengths != nil {
		o.KVLengths = in.KeyLengths
	}
	if in.KeyMask == nil {
		return o, nil
	}
	if o.QLens != nil {
		return o, m.errorf("key mask is given, packed sequences have no padding to hide")
	}
	want := source.Shape()[:2]
	if got := in.KeyMask.Shape(); !got.Eq(want) {
		return o, m.errorf("key mask has shape %v, it needs one value for each key: %v", []int(got), []int(want))
	}
	o.Bias, err = ops.KeyMask(in.KeyMask, o.Bias, m.dtype)
	return o, err
}

// together gives queries, keys and values side by side, (B, S, (Heads+2·KVHeads)·HeadDim), as one layer makes them, or three plain ones that
// nothing but RoPE follows. It gives nil where they need to stay apart.
func (m *MultiHeadAttention) together(x *gorgonia.Node, cache *ops.KVCache, o ops.AttentionOptions) (*gorgonia.Node, error) {
	if m.qkv != nil {
		return m.qkv.Forward(x)
	}
	if m.c.Cross || m.qnorm != nil {
		return nil, nil
	}
	weights, biases, err := plainLinears(x, []Layer{m.q, m.k, m.v})
	if weights == nil {
		return nil, err
	}
	qkv, err := ops.LinearsSideBySide(x, weights, biases)
	if rope := m.rope(cache, o); err == nil && rope != nil {
		qkv, err = ops.RoPEQKV(qkv, m.c.Heads, m.c.KVHeads, *rope)
	}
	return qkv, err
}

// rope is how a call turns queries and keys, nil for not.
func (m *MultiHeadAttention) rope(cache *ops.KVCache, o ops.AttentionOptions) *ops.RoPEOptions {
	if m.c.RoPE == nil {
		return nil
	}
	rope := *m.c.RoPE
	rope.Cache = cache
	if o.Ranks != nil {
		rope.Ranks = o.Ranks
	}
	return &rope
}

// attendPacked is attention over queries, keys and values that lie side by side; the result is (B, S, Heads·HeadDim).
func (m *MultiHeadAttention) attendPacked(qkv *gorgonia.Node, cache *ops.KVCache, o ops.AttentionOptions, withWeights bool) (out, weights *gorgonia.Node, err error) {
	if cache != nil {
		out, err = ops.CachedAttentionQKV(qkv, m.c.Heads, m.c.KVHeads, cache, o)
		return out, nil, err
	}
	if withWeights {
		if weights, err = ops.AttentionWeightsQKV(qkv, m.c.Heads, m.c.KVHeads, o); err != nil {
			return nil, nil, err
		}
	}
	out, err = ops.FlashAttentionQKV(qkv, m.c.Heads, m.c.KVHeads, o)
	return out, weights, err
}

// attendApart is attention with a projection each for queries, keys and values, (B, S, Heads·HeadDim).
func (m *MultiHeadAttention) attendApart(x *gorgonia.Node, in AttentionInputs, o ops.AttentionOptions, withWeights bool) (out, weights *gorgonia.Node, err error) {
	qkv, err := m.project(x, in.Context)
	if err != nil {
		return nil, nil, err
	}
	rope := m.rope(in.cache, o)
	q, err := m.heads(qkv[0], m.c.Heads, m.qnorm, rope)
	if err != nil {
		return nil, nil, err
	}
	k, err := m.heads(qkv[1], m.c.KVHeads, m.knorm, rope)
	if err != nil {
		return nil, nil, err
	}
	v, err := m.heads(qkv[2], m.c.KVHeads, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	if withWeights {
		if weights, err = ops.AttentionWeights(q, k, o); err != nil {
			return nil, nil, err
		}
	}
	if in.cache != nil {
		out, err = ops.CachedAttention(q, k, v, in.cache, o)
	} else {
		out, err = ops.FlashAttention(q, k, v, o)
	}
	if err != nil {
		return nil, nil, err
	}
	out, err = gorgonia.Reshape(out, withLast(x.Shape(), m.c.Heads*m.c.HeadDim))
	return out, weights, err
}

// project gives queries of x, and keys and values of context, which is nil for x itself.
func (m *MultiHeadAttention) project(x, context *gorgonia.Node) (gorgonia.Nodes, error) {
	if context == nil {
		return forwardAll(x, m.q, m.k, m.v)
	}
	q, err := m.q.Forward(x)
	if err != nil {
		return nil, err
	}
	kv, err := forwardAll(context, m.k, m.v)
	return append(gorgonia.Nodes{q}, kv...), err
}

// heads splits a projection of x into heads, (B, S, heads, HeadDim), and normalises and turns them if asked.
func (m *MultiHeadAttention) heads(h *gorgonia.Node, heads int, norm Layer, rope *ops.RoPEOptions) (_ *gorgonia.Node, err error) {
	shape := h.Shape()
	if norm != nil && m.c.QKNormAll {
		if h, err = norm.Forward(h); err != nil {
			return nil, err
		}
	}
	if h, err = gorgonia.Reshape(h, withLast(shape, heads, m.c.HeadDim)); err != nil {
		return nil, m.errorf("%w", err)
	}
	if norm != nil && m.c.QKNorm {
		if h, err = norm.Forward(h); err != nil {
			return nil, err
		}
	}
	if rope == nil {
		return h, nil
	}
	if h.Dims() == 4 {
		return ops.RoPE(h, *rope)
	}
	// Sequences that lie end to end are turned as one: only distances count, and those within a sequence are right.
	packed := h.Shape().Clone()
	if h, err = gorgonia.Reshape(h, append(tensor.Shape{1}, packed...)); err != nil {
		return nil, m.errorf("%w", err)
	}
	if h, err = ops.RoPE(h, *rope); err != nil {
		return nil, err
	}
	return gorgonia.Reshape(h, packed)
}

// withLast is a shape with other axes in place of its last.
func withLast(shape tensor.Shape, axes ...int) tensor.Shape {
	return append(shape[:len(shape)-1:len(shape)-1], axes...)
}
