package ops

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// KVCacheConfig is the shape of a [KVCache].
type KVCacheConfig struct {
	DType    tensor.Dtype // Float32 (zero), Float64, BFloat16 or Float16
	Batch    int          // 0 means 1
	Heads    int          // of the keys and values
	HeadDim  int          // of the keys
	ValueDim int          // of the values; 0 means HeadDim
	// Within says that the values are the last ValueDim numbers of the keys, which take no memory
	// of their own. What a run adds needs to be so too.
	Within   bool
	Capacity int // how many tokens it can hold
}

// KVCache holds the keys and values of one attention layer for the tokens that a model has seen, so
// that a new token costs one row of attention. [CachedAttention] adds to it each time its graph
// runs; several graphs may share a cache, one that takes a prompt many tokens at a time and one
// that takes single tokens, as long as they run one after the other.
//
// What it holds can be read, set, cut and shared. [KVCache.Truncate] goes back to a prefix, to go
// on from there in another way; [KVCache.Fork] is for going on in several ways at once. The items
// of a batch may hold different numbers of tokens: [KVCache.Only] says which of them the next runs
// are for, [KVCache.TruncateItem] goes back in one alone, and [KVCache.CopyItem] has one go on from
// another. A graph may be of fewer items than the cache: [KVCache.From] says of which.
//
// Its memory, Batch·Capacity·Heads·(HeadDim+ValueDim) numbers, or without ValueDim where the values
// are within the keys, is allocated in the first run, where the keys live.
type KVCache struct {
	c       KVCacheConfig
	lengths []int // how many tokens each item holds
	resting []bool
	first   int             // the item that runs begin with
	place   kernels.Backend // of the rows
	set     bool            // by the program, not by a run: the next run takes them to its own place
	// rows are the keys' and the values', (Batch, Capacity, Heads, dim), so that a token's heads
	// lie side by side. Values within the keys are a view of those.
	rows [2]kernels.Tensor
	told told
}

// told is what a device has in its memory of a cache: see [kernels.CachedAttention].
type told struct {
	state kernels.Tensor
	holds []int32 // once the work that is queued is done; nil where that is not known
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
	if c.Within && c.ValueDim > c.HeadDim {
		return nil, fmt.Errorf("KVCache: value dim is %d, values within keys need at most the head dim of %d", c.ValueDim, c.HeadDim)
	}
	if c.Batch > maxBatch {
		return nil, fmt.Errorf("KVCache: batch is %d, it needs to be at most %d", c.Batch, maxBatch)
	}
	return newKVCache(c), nil
}

// maxBatch bounds what is made before a run takes the memory of the keys and values.
const maxBatch = 1 << 20

func newKVCache(c KVCacheConfig) *KVCache {
	return &KVCache{c: c, lengths: make([]int, c.Batch), resting: make([]bool, c.Batch)}
}

// Len is the number of tokens that the cache holds, the most of any item: the position of the next
// one.
func (c *KVCache) Len() int {
	longest := 0
	for _, n := range c.lengths {
		longest = max(longest, n)
	}
	return longest
}

// Lengths is the number of tokens that each item holds.
func (c *KVCache) Lengths() []int { return slices.Clone(c.lengths) }

// Capacity is the number of tokens that the cache can hold.
func (c *KVCache) Capacity() int { return c.c.Capacity }

// Reset forgets all tokens.
func (c *KVCache) Reset() {
	clear(c.lengths)
	c.told.holds = nil // a run that failed may have left the device behind
}

// Truncate forgets all tokens of each item but the first n.
func (c *KVCache) Truncate(n int) error {
	if n < 0 || n > c.Len() {
		return fmt.Errorf("KVCache: %d tokens are to stay, it needs to be from 0 to the %d that it holds", n, c.Len())
	}
	for item := range c.lengths {
		c.lengths[item] = min(c.lengths[item], n)
	}
	return nil
}

// TruncateItem forgets all tokens of one item of the batch but the first n.
func (c *KVCache) TruncateItem(item, n int) error {
	switch {
	case item < 0 || item >= len(c.lengths):
		return fmt.Errorf("KVCache: item is %d, it needs to be from 0 to %d", item, len(c.lengths)-1)
	case n < 0 || n > c.lengths[item]:
		return fmt.Errorf("KVCache: %d tokens of item %d are to stay, it needs to be from 0 to the %d that it holds", n, item, c.lengths[item])
	}
	c.lengths[item] = n
	return nil
}

// Only says which items of the batch the next runs add to, nil for all. The others keep what they
// hold, and what is computed for them means nothing.
func (c *KVCache) Only(items []bool) error {
	if items != nil && len(items) != len(c.resting) {
		return fmt.Errorf("KVCache: there are %d items, it needs one for each of the batch of %d", len(items), len(c.resting))
	}
	for item := range c.resting {
		c.resting[item] = items != nil && !items[item]
	}
	return nil
}

// From says with which item of the batch the next runs begin. A run of as many items as the cache
// has begins with the first, 0.
func (c *KVCache) From(item int) error {
	if item < 0 || item >= len(c.lengths) {
		return fmt.Errorf("KVCache: item is %d, it needs to be from 0 to %d", item, len(c.lengths)-1)
	}
	c.first = item
	return nil
}

// CopyItem makes one item of the batch hold the first n tokens of another, in place of what it
// holds. They are copied, not computed again.
func (c *KVCache) CopyItem(to, from, n int) error {
	for _, item := range []int{to, from} {
		if item < 0 || item >= len(c.lengths) {
			return fmt.Errorf("KVCache: item is %d, it needs to be from 0 to %d", item, len(c.lengths)-1)
		}
	}
	if n < 0 || n > c.lengths[from] {
		return fmt.Errorf("KVCache: %d tokens of item %d are to be copied, it needs to be from 0 to the %d that it holds", n, from, c.lengths[from])
	}
	for _, t := range c.stored() {
		if n == 0 || to == from {
			break
		}
		if err := c.place.Copy(t.Slice(0, to, to+1).Slice(1, 0, n), t.Slice(0, from, from+1).Slice(1, 0, n)); err != nil {
			return fmt.Errorf("KVCache: %w", err)
		}
	}
	c.lengths[to] = n
	return nil
}

// checkItems finds out whether a run of so many items has its place in the batch.
func (c *KVCache) checkItems(items int) error {
	if c.first+items > c.c.Batch {
		return fmt.Errorf("the run is of %d items from item %d on, the cache has %d", items, c.first, c.c.Batch)
	}
	return nil
}

// even reports whether all items of a run hold equally many tokens and take part.
func (c *KVCache) even(items int) bool {
	for item := c.first; item < c.first+items; item++ {
		if c.lengths[item] != c.lengths[c.first] || c.resting[item] {
			return false
		}
	}
	return true
}

// Read copies the keys and values of the tokens that the cache holds, at least one, to the host:
// (Batch, Heads, Len, HeadDim) and (Batch, Heads, Len, ValueDim). All items need to hold equally
// many.
func (c *KVCache) Read() (k, v *tensor.Dense, err error) {
	length := c.Len()
	if length == 0 {
		return nil, nil, errors.New("KVCache: there is nothing to read, the cache is empty")
	}
	if slices.Min(c.lengths) != length {
		return nil, nil, fmt.Errorf("KVCache: the items hold %v tokens, to be read they need to hold equally many", c.lengths)
	}
	var values [2]*tensor.Dense
	for i, t := range c.rows {
		there, err := copied(c.held(t, length), t.DType, host, c.place)
		if err == nil {
			err = c.place.Synchronize()
		}
		if err != nil {
			return nil, nil, fmt.Errorf("KVCache: %w", err)
		}
		values[i] = ValueOf(there)
	}
	return values[0], values[1], nil
}

// Set makes the cache hold keys and values, (Batch, Heads, n, HeadDim) and (Batch, Heads, n,
// ValueDim), in place of what it holds. They may lie anywhere; the next run takes them to where it
// computes.
func (c *KVCache) Set(k, v *tensor.Dense) error {
	if err := c.replace(k, v); err != nil {
		return fmt.Errorf("KVCache: %w", err)
	}
	return nil
}

func (c *KVCache) replace(k, v *tensor.Dense) error {
	if k == nil || v == nil {
		return fmt.Errorf("%s is nil, it needs to be a value", map[bool]string{true: "k", false: "v"}[k == nil])
	}
	place, err := placeOfAll([]string{"k", "v"}, []gorgonia.Value{k, v})
	if err != nil {
		return err
	}
	var rows [2]kernels.Tensor
	for i, value := range []*tensor.Dense{k, v} {
		name, dim := []string{"k", "v"}[i], []int{c.c.HeadDim, c.c.ValueDim}[i]
		if rows[i], err = TensorOf(value); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
		t := rows[i]
		if len(t.Shape) != 4 || t.Shape[0] != c.c.Batch || t.Shape[1] != c.c.Heads || t.Shape[2] > c.c.Capacity || t.Shape[2] != rows[0].Shape[2] || t.Shape[3] != dim {
			return fmt.Errorf("%s has shape %v, it needs (%d, %d, up to %d tokens, the same of k and v, %d)", name, t.Shape, c.c.Batch, c.c.Heads, c.c.Capacity, dim)
		}
		if t.DType != dtypeOf(c.c.DType) {
			return fmt.Errorf("%s is %v, the cache holds %v", name, t.DType, c.c.DType)
		}
	}
	c.Reset()
	c.place, c.set = place, true
	for i, t := range rows {
		all, err := c.memory(i, t)
		if err != nil {
			return err
		}
		if err := place.Copy(c.held(all, t.Shape[2]), t); err != nil {
			return err
		}
	}
	for item := range c.lengths {
		c.lengths[item] = rows[0].Shape[2]
	}
	runtime.KeepAlive(k)
	runtime.KeepAlive(v)
	return nil
}

// Fork is a cache of its own that begins with the tokens that c holds: of a batch of c's own, or if
// that is 1 of any, each item of which goes on from the same prefix. The tokens are copied, not
// computed again.
func (c *KVCache) Fork(batch int) (*KVCache, error) {
	if batch != c.c.Batch && c.c.Batch != 1 || batch < 1 {
		return nil, fmt.Errorf("KVCache: a batch of %d is to go on from one of %d, it needs to be the same, or from one of 1", batch, c.c.Batch)
	}
	if batch > maxBatch {
		return nil, fmt.Errorf("KVCache: a batch of %d is asked for, it needs to be at most %d", batch, maxBatch)
	}
	config := c.c
	config.Batch = batch
	fork, length := newKVCache(config), c.Len()
	if fork.place, fork.set = c.place, c.set; length == 0 {
		return fork, nil
	}
	for item := 0; item < batch; item += c.c.Batch {
		for i, from := range c.stored() {
			to, err := fork.memory(i, from.Permute(0, 2, 1, 3))
			if err == nil {
				err = c.place.Copy(to.Slice(0, item, item+c.c.Batch).Slice(1, 0, length), from.Slice(1, 0, length))
			}
			if err != nil {
				return nil, fmt.Errorf("KVCache: %w", err)
			}
		}
	}
	for item := range fork.lengths {
		fork.lengths[item] = c.lengths[item%c.c.Batch]
	}
	return fork, nil
}

// held views the first rows of keys or values as (B, H, S, D).
func (c *KVCache) held(t kernels.Tensor, rows int) kernels.Tensor {
	return t.Slice(1, 0, rows).Permute(0, 2, 1, 3)
}

// move takes the rows to another place.
func (c *KVCache) move(to kernels.Backend) error {
	copier := copierOf(c.place, to)
	for i, t := range c.stored() {
		moved, err := to.Alloc(t.DType, t.Shape...)
		if err == nil {
			err = copier.Copy(moved.Slice(1, 0, c.Len()), t.Slice(1, 0, c.Len()))
		}
		if err != nil {
			return err
		}
		c.rows[i] = moved
	}
	if c.c.Within {
		c.rows[1] = c.within()
	}
	c.place = to
	return nil
}

// check finds what is wrong with keys and values for the cache, as far as a graph knows it.
func (c *KVCache) check(p *kernels.Attention) error {
	k, rows := p.K.Shape, p.K.Shape[2]
	switch want := c.c; {
	case p.K.DType != dtypeOf(want.DType):
		return fmt.Errorf("k is %v, the cache holds %v", p.K.DType, want.DType)
	case k[0] > want.Batch:
		return fmt.Errorf("k has a batch of %d, it needs at most the cache's %d", k[0], want.Batch)
	case k[1] != want.Heads || k[3] != want.HeadDim:
		return fmt.Errorf("k has %d heads of size %d, the cache holds %d of size %d", k[1], k[3], want.Heads, want.HeadDim)
	case p.V.Shape[3] != want.ValueDim:
		return fmt.Errorf("v has a head size of %d, the cache holds %d", p.V.Shape[3], want.ValueDim)
	case rows > want.Capacity:
		return fmt.Errorf("k has %d rows, it needs at most the cache's capacity of %d", rows, want.Capacity)
	case p.Q.Shape[2] != rows:
		return fmt.Errorf("q has %d rows, k has %d: each token needs one of both", p.Q.Shape[2], rows)
	}
	return nil
}

// settle makes sure that the cache has room for so many rows more of so many items, and that it is
// where they are.
func (c *KVCache) settle(b kernels.Backend, items, rows int) error {
	if err := c.checkItems(items); err != nil {
		return err
	}
	for item := c.first; item < c.first+items; item++ {
		if n := c.lengths[item]; !c.resting[item] && n+rows > c.c.Capacity {
			return fmt.Errorf("the cache holds %d tokens of %d, %d more do not fit", n, c.c.Capacity, rows)
		}
	}
	switch {
	case c.Len() == 0 || c.place == b:
	case c.set:
		if err := c.move(b); err != nil {
			return err
		}
	default:
		return fmt.Errorf("the cache is on %s, the inputs are on %s", c.place.Name(), b.Name())
	}
	c.place, c.set = b, false
	return nil
}

// stored are the rows that have memory of their own.
func (c *KVCache) stored() []kernels.Tensor {
	if c.c.Within {
		return c.rows[:1]
	}
	return c.rows[:]
}

// within is the view of the values in the keys.
func (c *KVCache) within() kernels.Tensor {
	return c.rows[0].Slice(3, c.c.HeadDim-c.c.ValueDim, c.c.HeadDim)
}

// memory is that of the keys (0) or the values (1), for rows of (B, H, S, D).
func (c *KVCache) memory(i int, rows kernels.Tensor) (kernels.Tensor, error) {
	if i == 1 && c.c.Within {
		c.rows[1] = c.within()
		return c.rows[1], nil
	}
	err := fit(&c.rows[i], c.place, kernels.Contiguous(nil, rows.DType, c.c.Batch, c.c.Capacity, rows.Shape[1], rows.Shape[3]))
	return c.rows[i], err
}

// extend has b write the rows of keys and values, (B, H, S, D), behind those that the cache holds,
// and makes the problem's keys and values all of them, in the same order of axes. They do not count
// yet: the run may fail. Where rotation is given, queries are turned into the tensor turned.
func (c *KVCache) extend(b kernels.Backend, p *kernels.Attention, rotation *kernels.RoPE, turned kernels.Tensor, recording bool) error {
	items, rows, from := p.K.Shape[0], p.K.Shape[2], [2]kernels.Tensor{p.K, p.V}
	var to [2]kernels.Tensor
	for i, t := range from {
		all, err := c.memory(i, t)
		if err != nil {
			return err
		}
		to[i] = all.Slice(0, c.first, c.first+items).Permute(0, 2, 1, 3)
	}
	err := c.eachPlace(items, recording, func(item, next, length int) error {
		part := func(t kernels.Tensor) kernels.Tensor { return t.Slice(0, item, next) }
		behind := func(t kernels.Tensor) kernels.Tensor { return part(t).Slice(2, length, length+rows) }
		if rotation == nil {
			return errors.Join(b.Copy(behind(to[0]), part(from[0])), b.Copy(behind(to[1]), part(from[1])))
		}
		r := *rotation
		r.Offset += length
		return errors.Join(b.RoPEForward(&r, part(p.Q), part(turned)), b.RoPEForward(&r, part(from[0]), behind(to[0])),
			b.Copy(behind(to[1]), part(from[1])))
	})
	if rotation != nil {
		p.Q = turned
	}
	longest := max(1, slices.Max(c.after(items, rows)))
	p.K, p.V = to[0].Slice(2, 0, longest), to[1].Slice(2, 0, longest)
	if !c.even(items) {
		p.KVLengths = c.after(items, rows)
	}
	return err
}

// eachPlace calls a function with the items of a run that take part, [item, next) of the run's,
// which hold equally many tokens: all at once where they do. A recording calls it for each item,
// since they may differ later.
func (c *KVCache) eachPlace(items int, recording bool, do func(item, next, length int) error) error {
	lengths := c.lengths[c.first : c.first+items]
	if c.even(items) && (!recording || items == 1) {
		return do(0, items, lengths[0])
	}
	for i, length := range lengths {
		if c.resting[c.first+i] && !recording {
			continue
		}
		if err := do(i, i+1, length); err != nil {
			return err
		}
	}
	return nil
}

// tell makes sure that the device knows what the cache holds before a run of so many items adds so
// many rows, and counts them as the run will, here and there.
func (c *KVCache) tell(b kernels.Backend, items, rows int) error {
	t := &c.told
	if !t.knows(c) {
		now := t.of(c)
		t.holds = nil
		if err := b.Copy(t.state, kernels.Of(now, len(now))); err != nil {
			return err
		}
		t.holds = now
	}
	for item := c.first; item < c.first+items; item++ {
		if !c.resting[item] {
			c.lengths[item] += rows
			t.holds[1+item] += int32(rows)
		}
	}
	return nil
}

// knows reports whether the device has what the cache holds: the first item, lengths, and which
// items take part.
func (t *told) knows(c *KVCache) bool {
	if len(t.holds) != 1+2*c.c.Batch || t.holds[0] != int32(c.first) {
		return false
	}
	for item, n := range c.lengths {
		if t.holds[1+item] != int32(n) || (t.holds[1+c.c.Batch+item] == 0) != c.resting[item] {
			return false
		}
	}
	return true
}

// of is what the device is to have.
func (t *told) of(c *KVCache) []int32 {
	list := make([]int32, 1, 1+2*c.c.Batch)
	list[0] = int32(c.first)
	for _, n := range c.lengths {
		list = append(list, int32(n))
	}
	for _, rests := range c.resting {
		takes := int32(1)
		if rests {
			takes = 0
		}
		list = append(list, takes)
	}
	return list
}

// room gives memory to all that a device writes of the cache.
func (c *KVCache) room(b kernels.Backend, p *kernels.CachedAttention) error {
	keys, err := c.memory(0, p.K)
	if err != nil {
		return err
	}
	values, err := c.memory(1, p.V)
	if err != nil {
		return err
	}
	if s := &c.told.state; !s.IsSet() || b.Owner(*s) != s.Owner {
		if *s, err = b.Alloc(kernels.I32, c.stateShape()...); err != nil {
			return err
		}
		c.told.holds = nil
	}
	p.Keys, p.Values, p.State = keys.Permute(0, 2, 1, 3), values.Permute(0, 2, 1, 3), c.told.state
	return nil
}

func (c *KVCache) stateShape() []int { return []int{1 + 2*c.c.Batch} }

// after is how many tokens each item of a run holds when so many were added to those that take
// part.
func (c *KVCache) after(items, rows int) []int {
	list := slices.Clone(c.lengths[c.first : c.first+items])
	for i := range list {
		if !c.resting[c.first+i] {
			list[i] += rows
		}
	}
	return list
}

// CachedAttentionOptions are the options of [CachedAttention].
type CachedAttentionOptions struct {
	// AttentionOptions are those of [FlashAttention]. Causal is not looked at. Options that count
	// rows of a whole sequence make no sense here: Bias, Lengths and Dropout need to be left out.
	AttentionOptions
	// RoPE turns queries and keys by their place in the cache; nil leaves them as they are. Its
	// Layout is not looked at.
	RoPE *RoPEOptions
}

// CachedAttention is [FlashAttention] of tokens that follow those in a cache. Each run adds the
// rows of k and v to the cache and attends to all that it then holds; a query sees the keys up to
// its own. q, k and v are of any equal length up to the cache's capacity, in o's layout. The cache
// must have room: a run that does not fit fails and adds nothing.
//
// One run is one step forward, so a graph has one CachedAttention a cache, and there is no
// gradient.
func CachedAttention(q, k, v *gorgonia.Node, cache *KVCache, o CachedAttentionOptions) (*gorgonia.Node, error) {
	const name = "CachedAttention"
	o.Causal = kernels.CausalBottomRight
	a, err := newAttention(name, o.AttentionOptions, input{name: "q", node: q}, input{name: "k", node: k}, input{name: "v", node: v})
	return applyCached(name, a, err, cache, o)
}

// CachedAttentionQKV is [CachedAttention] over the output of one projection, as [FlashAttentionQKV]
// takes it.
func CachedAttentionQKV(qkv *gorgonia.Node, heads, kvHeads int, cache *KVCache, o CachedAttentionOptions) (*gorgonia.Node, error) {
	const name = "CachedAttentionQKV"
	o.Causal = kernels.CausalBottomRight
	a, err := newAttentionQKV(name, qkv, heads, kvHeads, o.AttentionOptions)
	return applyCached(name, a, err, cache, o)
}

func applyCached(name string, a *attention, err error, cache *KVCache, o CachedAttentionOptions) (*gorgonia.Node, error) {
	if err == nil && o.RoPE != nil && (o.RoPE.Positions != nil || o.RoPE.Ranks != nil) {
		err = fmt.Errorf("%s: RoPE has positions or ranks, it needs neither: rows are turned by their place in the cache", name)
	}
	return applyWithCache(name, a, err, cache, o.AttentionOptions, func(a *attention) kernel {
		k := cachedAttention{attention: a, cache: cache}
		if o.RoPE != nil {
			k.rotation = o.RoPE.problem()
		}
		return kernel{describe: k.describe, forward: k.forward, backward: k.backward}
	})
}

// applyWithCache checks options, and applies the kernel that with makes of a call that was
// described.
func applyWithCache(name string, a *attention, err error, cache *KVCache, o AttentionOptions, with func(*attention) kernel) (*gorgonia.Node, error) {
	switch {
	case cache == nil:
		err = fmt.Errorf("%s: cache is nil, it needs to be a KVCache", name)
	case shareOf(o.Ranks) != nil:
		err = fmt.Errorf("%s: Ranks is given, it needs to be left out: a cache is one process's", name)
	case o.Bias != nil:
		err = fmt.Errorf("%s: bias is given, it needs to be left out: the number of keys grows", name)
	case o.QLens != nil || o.KVLens != nil:
		err = fmt.Errorf("%s: qLens or kvLens is given, it does not take packed sequences", name)
	case o.KVLengths != nil:
		err = fmt.Errorf("%s: kvLengths is given, it needs to be left out: the number of keys grows", name)
	case o.Dropout.P != 0:
		err = fmt.Errorf("%s: dropout is %v, it needs to be 0: a cache is for evaluation", name, o.Dropout.P)
	}
	if err != nil {
		return nil, err
	}
	k := with(a)
	return apply(name, k, a.inputs...)
}

// cachedAttention is attention with the memory of earlier runs.
type cachedAttention struct {
	*attention
	cache    *KVCache
	rotation *kernels.RoPE // of queries and keys, nil for none
}

func (c cachedAttention) describe(in tensors) (description, error) {
	p, err := c.check(in)
	if err != nil {
		return description{}, err
	}
	if c.rotation != nil {
		if err := c.rotation.Validate(p.Q, "q"); err != nil {
			return description{}, err
		}
	}
	is := described(p.Q.DType, c.outputShape(p)...)
	is.gradients = noGradient
	return is, c.cache.check(p)
}

// forward adds to the cache and attends to it, on a device that counts the tokens itself where
// there is one.
func (c cachedAttention) forward(r *run, in, out tensors) error {
	o := c.outputView(out[0])
	if device, ok := r.Backend.(kernels.CachedAttentionKernels); ok && !c.cache.c.Within {
		p := &kernels.CachedAttention{Attention: *c.problem(r, in), RoPE: c.rotation}
		if err := c.cache.settle(r.Backend, p.K.Shape[0], p.K.Shape[2]); err != nil {
			return err
		}
		if err := c.cache.room(r.Backend, p); err != nil {
			return err
		}
		if device.TakesCachedAttention(p) {
			return c.forwardThere(r, in, device, p, o)
		}
	}
	return c.forwardHere(r, in, o)
}

// forwardThere leaves counting to the device. The host counts too, before each launch where the
// graph is recorded, and tells the device where it is wrong.
func (c cachedAttention) forwardThere(r *run, in tensors, device kernels.CachedAttentionKernels, p *kernels.CachedAttention, o kernels.Tensor) error {
	place, items, rows := r.Backend, p.K.Shape[0], p.K.Shape[2]
	err := r.vary(in, func(kernels.Backend) error {
		if err := c.cache.settle(place, items, rows); err != nil || r.c.checkRecording() != nil {
			return err
		}
		return c.cache.tell(place, items, rows)
	})
	if err != nil {
		return err
	}
	return device.CachedAttentionForward(p, o)
}

// forwardHere adds to the cache where the host's counts say. Where the graph is recorded this is
// done again before each launch, and the tokens count from then on.
func (c cachedAttention) forwardHere(r *run, in tensors, o kernels.Tensor) error {
	place, turned := r.Backend, kernels.Tensor{}
	if q := c.problem(r, in).Q; c.rotation != nil {
		var err error
		if turned, err = r.scratch(q.DType, q.Shape...); err != nil {
			return err
		}
	}
	return r.vary(in, func(b kernels.Backend) error {
		p, recording := c.problem(r, in), r.c.checkRecording() != nil
		items, rows := p.K.Shape[0], p.K.Shape[2]
		if err := c.cache.settle(place, items, rows); err != nil {
			return err
		}
		if err := c.cache.extend(b, p, c.rotation, turned, recording); err != nil {
			return err
		}
		if err := b.AttentionForward(p, kernels.AttentionOutputs{O: o}); err != nil {
			return err
		}
		if !recording {
			copy(c.cache.lengths[c.cache.first:], c.cache.after(items, rows))
		}
		return nil
	})
}

// backward tells a lispMachine, which asks no op beforehand, that there is no gradient.
func (c cachedAttention) backward(*run, tensors, tensors, tensors) error {
	return errors.New("there is no gradient")
}
