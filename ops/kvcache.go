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
	place  kernels.Backend // of k and v
	k, v   kernels.Tensor  // (Batch, Capacity, Heads, dim), so that a token's heads lie side by side
}

// NewKVCache is an empty cache.
func NewKVCache(c KVCacheConfig) (*KVCache, error) {
	if c.DType == (tensor.Dtype{}) {
		c.DType = tensor.Float32
	}
	if dtypeOf(c.DType) == kernels.NoDType {
		return nil, fmt.Errorf("KVCache: dtype is %v, it needs to be %s", c.DType, floatTypes)
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
func (c *KVCache) extend(b kernels.Backend, k, v kernels.Tensor) (allK, allV kernels.Tensor, err error) {
	if rows := k.Shape[2]; c.length+rows > c.c.Capacity {
		return k, v, fmt.Errorf("the cache holds %d tokens of %d, %d more do not fit", c.length, c.c.Capacity, rows)
	}
	if c.length > 0 && c.place != b {
		return k, v, fmt.Errorf("the cache is on %s, the inputs are on %s", c.place.Name(), b.Name())
	}
	c.place = b
	if allK, err = c.write(&c.k, k); err != nil {
		return k, v, err
	}
	allV, err = c.write(&c.v, v)
	return allK, allV, err
}

func (c *KVCache) write(memory *kernels.Tensor, rows kernels.Tensor) (kernels.Tensor, error) {
	heads, n, dim := rows.Shape[1], rows.Shape[2], rows.Shape[3]
	if err := fit(memory, c.place, kernels.Contiguous(nil, rows.DType, c.c.Batch, c.c.Capacity, heads, dim)); err != nil {
		return rows, err
	}
	to := memory.Slice(1, c.length, c.length+n)
	return memory.Slice(1, 0, c.length+n).Permute(0, 2, 1, 3), c.place.Copy(to, rows.Permute(0, 2, 1, 3))
}

// CachedAttention is [FlashAttention] of tokens that follow those in a cache. Each run adds the rows of k and v to the
// cache and attends to all that it then holds; a query sees the keys up to its own. q, k and v are of any equal length up
// to the cache's capacity, in o's layout. The cache must have room: a run that does not fit fails and adds nothing.
//
// One run is one step forward, so a graph has one CachedAttention a cache, and there is no gradient. Causal is not looked
// at. Options that count rows of a whole sequence make no sense here: Bias, QLens, KVLens, KVLengths and Dropout
// need to be left out.
func CachedAttention(q, k, v *gorgonia.Node, cache *KVCache, o AttentionOptions) (*gorgonia.Node, error) {
	const name = "CachedAttention"
	o.Causal = kernels.CausalBottomRight
	a, err := newAttention(name, o, input{name: "q", node: q}, input{name: "k", node: k}, input{name: "v", node: v})
	return applyCached(name, a, err, cache, o)
}

// CachedAttentionQKV is [CachedAttention] over the output of one projection, as [FlashAttentionQKV] takes it.
func CachedAttentionQKV(qkv *gorgonia.Node, heads, kvHeads int, cache *KVCache, o AttentionOptions) (*gorgonia.Node, error) {
	const name = "CachedAttentionQKV"
	o.Causal = kernels.CausalBottomRight
	a, err := newAttentionQKV(name, qkv, heads, kvHeads, o)
	return applyCached(name, a, err, cache, o)
}

func applyCached(name string, a *attention, err error, cache *KVCache, o AttentionOptions) (*gorgonia.Node, error) {
	switch {
	case cache == nil:
		err = fmt.Errorf("%s: cache is nil, it needs to be a KVCache", name)
	case o.Bias != nil:
		err = fmt.Errorf("%s: bias is given, it needs to be left out: the number of keys grows", name)
	case o.QLens != nil || o.KVLens != nil:
		err = fmt.Errorf("%s: qLens or kvLens is given, it does not take packed sequences", name)
	case o.KVLengths != nil:
		err = fmt.Errorf("%s: kvLengths is given, it needs to be left out: the number of keys grows", name)
	case o.Dropout != 0:
		err = fmt.Errorf("%s: dropout is %v, it needs to be 0: a cache is for evaluation", name, o.Dropout)
	}
	if err != nil {
		return nil, err
	}
	return apply(name, &cachedAttention{attention: a, cache: cache}, a.inputs...)
}

// cachedAttention is attention with the memory of earlier runs.
type cachedAttention struct {
	*attention
	cache *KVCache
}

func (c *cachedAttention) source() source { return noGradient }

func (c *cachedAttention) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	p, err := c.check(in)
	if err != nil {
		return nil, err
	}
	return described(p.Q.DType, c.outputShape(p)...), c.cache.check(p)
}

func (c *cachedAttention) forward(r *run, in, out []kernels.Tensor) error {
	p, err := c.problem(in)
	if err != nil {
		return err
	}
	if err := r.c.checkRecording(); err != nil {
		return err
	}
	rows := p.K.Shape[2]
	if p.K, p.V, err = c.cache.extend(r.Backend, p.K, p.V); err != nil {
		return err
	}
	if err := r.AttentionForward(p, kernels.AttentionOutputs{O: c.outputView(out[0])}); err != nil {
		return err
	}
	c.cache.length += rows
	return nil
}

// backward tells a lispMachine, which asks no op beforehand, that there is no gradient.
func (c *cachedAttention) backward(*run, []kernels.Tensor, []kernels.Tensor, []kernels.Tensor) error {
	return errors.New("there is no gradient")
}
