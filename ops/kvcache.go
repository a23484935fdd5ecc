package ops

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// KVCacheConfig is the shape of a [KVCache].
type KVCacheConfig struct {
	DType    tensor.Dtype // Float32 (zero) or Float64
	Batch    int          // 0 means 1
	Heads    int          // of the keys and values
	HeadDim  int          // of the keys
	ValueDim int          // of the values; 0 means HeadDim
	Capacity int          // how many tokens it can hold
}

// KVCache holds the keys and values of one attention layer for the tokens that a model has seen, so that a new token
// costs one row of attention. [CachedAttention] adds to it each time its graph runs; several graphs may share a cache,
// one that takes a prompt many tokens at a time and one that takes single tokens, as long as they run one after the other.
//
// Its memory, Batch·Capacity·Heads·(HeadDim+ValueDim) numbers, is allocated in the first run, where the keys live.
type KVCache struct {
	c      KVCacheConfig
	length int
	k, v   buffer // (Batch, Capacity, Heads, dim), so that a token's heads lie side by side
}

// NewKVCache is an empty cache.
func NewKVCache(c KVCacheConfig) (*KVCache, error) {
	if c.DType == (tensor.Dtype{}) {
		c.DType = tensor.Float32
	}
	if dtypeOf(c.DType) == kernels.NoDType {
		return nil, fmt.Errorf("KVCache: dtype is %v, it needs to be float32 or float64", c.DType)
	}
	if c.Batch == 0 {
		c.Batch = 1
	}
	if c.ValueDim == 0 {
		c.ValueDim = c.HeadDim
	}
	for _, size := range []struct {
		name string
		n    int
	}{{"batch", c.Batch}, {"heads", c.Heads}, {"head dim", c.HeadDim}, {"value dim", c.ValueDim}, {"capacity", c.Capacity}} {
		if size.n < 1 {
			return nil, fmt.Errorf("KVCache: %s is %d, it needs to be at least 1", size.name, size.n)
		}
	}
	return &KVCache{c: c}, nil
}

// Len is the number of tokens that the cache holds: the position of the next one.
func (c *KVCache) Len() int { return c.length }

// Capacity is the number of tokens that the cache can hold.
func (c *KVCache) Capacity() int { return c.c.Capacity }

// Reset forgets all tokens.
func (c *KVCache) Reset() { c.length = 0 }

// check finds what is wrong with keys and values for the cache, as far as a graph knows it.
func (c *KVCache) check(p *kernels.Attention) error {
	k, rows := p.K.Shape, p.K.Shape[2]
	switch want := c.c; {
	case p.K.DType != dtypeOf(want.DType):
		return fmt.Errorf("k is %v, the cache holds %v", p.K.DType, want.DType)
	case k[0] != want.Batch:
		return fmt.Errorf("k has a batch of %d, the cache of %d: they need to be equal", k[0], want.Batch)
	case k[1] != want.Heads || k[3] != want.HeadDim:
		return fmt.Errorf("k has %d heads of size %d, the cache holds %d of size %d", k[1], k[3], want.Heads, want.HeadDim)
	case p.V.Shape[3] != want.ValueDim:
		return fmt.Errorf("v has a head size of %d, the cache holds %d", p.V.Shape[3], want.ValueDim)
	case rows > want.Capacity:
		return fmt.Errorf("k has %d rows, the capacity of the cache is %d", rows, want.Capacity)
	case p.Q.Shape[2] != rows:
		return fmt.Errorf("q has %d rows, k has %d: each token needs one of both", p.Q.Shape[2], rows)
	}
	return nil
}

// extend writes the rows of keys and values, (B, H, S, D), behind those that the cache holds, and views all of them in
// the same order of axes. They do not count yet: the run may fail.
func (c *KVCache) extend(h *home, k, v kernels.Tensor) (allK, allV kernels.Tensor, err error) {
	if rows := k.Shape[2]; c.length+rows > c.c.Capacity {
		return k, v, fmt.Errorf("the cache holds %d tokens of %d, %d more do not fit", c.length, c.c.Capacity, rows)
	}
	if c.length > 0 && c.k.home != h {
		return k, v, fmt.Errorf("the cache is on %s, the inputs are on %s", c.k.home.Name(), h.Name())
	}
	if allK, err = c.write(&c.k, h, k); err != nil {
		return k, v, err
	}
	allV, err = c.write(&c.v, h, v)
	return allK, allV, err
}

func (c *KVCache) write(b *buffer, h *home, rows kernels.Tensor) (kernels.Tensor, error) {
	heads, n, dim := rows.Shape[1], rows.Shape[2], rows.Shape[3]
	memory, err := b.get(h, rows.DType, c.c.Batch, c.c.Capacity, heads, dim)
	if err != nil {
		return memory, err
	}
	rows = rows.Permute(0, 2, 1, 3)
	for item := range c.c.Batch {
		to := memory.Slice(0, item, item+1).Slice(1, c.length, c.length+n)
		if err := h.copy(to.Reshape(to.Shape...), rows.Slice(0, item, item+1)); err != nil {
			return memory, err
		}
	}
	return memory.Slice(1, 0, c.length+n).Permute(0, 2, 1, 3), nil
}

// CachedAttention is [FlashAttention] of tokens that follow those in a cache. Each run adds the rows of k and v to the
// cache and attends to all that it then holds; a query sees the keys up to its own. q, k and v are of any equal length up
// to the cache's capacity, in o's layout. The cache must have room: a run that does not fit fails and adds nothing.
//
// One run is one step forward, so a graph has one CachedAttention a cache, and there is no gradient. Causal is not looked
// at. Options that count rows of a whole sequence make no sense here: Bias, QLens, KVLens and Dropout need to be left out.
func CachedAttention(q, k, v *gorgonia.Node, cache *KVCache, o AttentionOptions) (*gorgonia.Node, error) {
	a := &attention{name: "CachedAttention", layout: o.Layout}
	if o.Layout != BHSD && o.Layout != BSHD {
		return nil, fmt.Errorf("%s: layout is %d, it needs to be BHSD or BSHD", a.name, o.Layout)
	}
	return a.cached([]namedNode{{"q", q}, {"k", k}, {"v", v}}, cache, o)
}

// CachedAttentionQKV is [CachedAttention] over the output of one projection, as [FlashAttentionQKV] takes it.
func CachedAttentionQKV(qkv *gorgonia.Node, heads, kvHeads int, cache *KVCache, o AttentionOptions) (*gorgonia.Node, error) {
	a := &attention{name: "CachedAttentionQKV", layout: BSHD, heads: heads, kvHeads: kvHeads}
	if heads < 1 || kvHeads < 1 {
		return nil, fmt.Errorf("%s: heads is %d and kvHeads is %d, each needs to be at least 1", a.name, heads, kvHeads)
	}
	return a.cached([]namedNode{{"qkv", qkv}}, cache, o)
}

func (a *attention) cached(main []namedNode, cache *KVCache, o AttentionOptions) (*gorgonia.Node, error) {
	o.Causal = kernels.CausalBottomRight
	nodes, err := a.describeCached(main, cache, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	s := newSignature(a.name, nodes, nil, a.dtype, a.oShape...)
	a.memory.output, err = gorgonia.ApplyOp(&cachedAttention{s, a, cache}, nodes...)
	return a.memory.output, err
}

func (a *attention) describeCached(main []namedNode, cache *KVCache, o AttentionOptions) (gorgonia.Nodes, error) {
	switch {
	case cache == nil:
		return nil, errors.New("cache is nil, it needs to be a KVCache")
	case o.Bias != nil:
		return nil, errors.New("bias is given, it needs to be left out: the number of keys grows")
	case o.QLens != nil || o.KVLens != nil:
		return nil, errors.New("qLens or kvLens is given, it does not take packed sequences")
	case o.Dropout != 0:
		return nil, fmt.Errorf("dropout is %v, it needs to be 0: a cache is for evaluation", o.Dropout)
	}
	nodes, err := a.describe(main, o)
	if err != nil {
		return nil, err
	}
	p := a.problem(describeInputs(a.inputs, dtypeOf(a.dtype)), nil)
	return nodes, cache.check(&p)
}

// cachedAttention is an op with the memory of earlier runs.
type cachedAttention struct {
	signature
	a     *attention
	cache *KVCache
}

func (c *cachedAttention) Do(values ...gorgonia.Value) (gorgonia.Value, error) {
	out, err := c.attend(values)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return out, nil
}

func (c *cachedAttention) attend(values []gorgonia.Value) (gorgonia.Value, error) {
	p, h, err := c.a.bind(values)
	if err != nil {
		return nil, err
	}
	rows := p.K.Shape[2]
	if p.K, p.V, err = c.cache.extend(h, p.K, p.V); err != nil {
		return nil, err
	}
	out, err := c.a.memory.forOutput(&c.a.result, h, p.Q.DType, c.a.oShape...)
	if err != nil {
		return nil, err
	}
	if err := h.AttentionForward(&p, kernels.AttentionOutputs{O: c.a.outputView(out)}); err != nil {
		return nil, err
	}
	c.cache.length += rows
	return h.value(out), nil
}

// DoDiff tells a lispMachine, which asks no op beforehand, that there is no gradient.
func (c *cachedAttention) DoDiff(gorgonia.ExecutionContext, gorgonia.Nodes, *gorgonia.Node) error {
	return fmt.Errorf("%s has no gradient", c.name)
}
