package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// MemoryAttention is attention of q to all that a cache holds, to which it adds nothing: what a
// decoder's cross-attention reads of a source, whose keys and values [KVCache.SetItem] has set.
// Every query sees all of its item's tokens; several heads of queries may share one of keys. There
// is no gradient. Options are those of [CachedAttention], without a window.
func MemoryAttention(q *gorgonia.Node, memory *KVCache, o AttentionOptions) (*gorgonia.Node, error) {
	const name = "MemoryAttention"
	o.Causal = kernels.NotCausal
	if o.Window != nil {
		return nil, fmt.Errorf("%s: window is given, it needs to be none", name)
	}
	in := input{name: "q", node: q}
	a, err := newAttention(name, o, in, in, in) // whose keys and values are replaced
	return applyWithCache(name, a, err, memory, o, func(a *attention) kernel {
		m := memoryAttention{a, memory}
		return kernel{describe: m.describe, forward: m.forward, backward: m.backward}
	})
}

type memoryAttention struct {
	*attention
	memory *KVCache
}

func (m memoryAttention) describe(in tensors) (description, error) {
	p, err := m.check(in)
	if err != nil {
		return description{}, err
	}
	q, c := p.Q.Shape, m.memory.c
	switch {
	case p.Q.DType != dtypeOf(c.DType):
		return description{}, fmt.Errorf("q is %v, the memory holds %v", p.Q.DType, c.DType)
	case q[0] > c.Batch:
		return description{}, fmt.Errorf("q has a batch of %d, it needs at most the memory's %d", q[0], c.Batch)
	case q[1]%c.Heads != 0 || q[3] != c.HeadDim || c.ValueDim != c.HeadDim:
		return description{}, fmt.Errorf("q has %d heads of size %d, the memory holds %d of size %d and values of %d: "+
			"it needs a multiple of as many heads, all of one size", q[1], q[3], c.Heads, c.HeadDim, c.ValueDim)
	}
	is := described(p.Q.DType, m.outputShape(p)...)
	is.gradients = noGradient
	return is, nil
}

func (m memoryAttention) forward(r *run, in, out tensors) error {
	o := m.outputView(out[0])
	return r.vary(in, func(b kernels.Backend) error {
		p, c := m.problem(r, in), m.memory
		items := p.Q.Shape[0]
		if err := c.settle(r.Backend, items, 0); err != nil {
			return err
		}
		lengths := c.lengths[c.first : c.first+items]
		longest := slices.Max(lengths)
		if longest == 0 {
			return errors.New("the memory is empty, it needs keys and values that SetItem has set")
		}
		for i, t := range []*kernels.Tensor{&p.K, &p.V} {
			*t = c.held(c.rows[i].Slice(0, c.first, c.first+items), longest)
		}
		if slices.Min(lengths) < longest {
			p.KVLengths = slices.Clone(lengths)
		}
		return b.AttentionForward(p, kernels.AttentionOutputs{O: o})
	})
}

func (m memoryAttention) backward(*run, tensors, tensors, tensors) error {
	return errors.New("there is no gradient")
}

// SetItem makes one item of the batch hold keys and values, (1, Heads, n, HeadDim) and (1, Heads,
// n, ValueDim), in place of what it holds. They lie where the next run computes.
func (c *KVCache) SetItem(item int, k, v *tensor.Dense) error {
	if item < 0 || item >= len(c.lengths) {
		return fmt.Errorf("KVCache: item is %d, it needs to be from 0 to %d", item, len(c.lengths)-1)
	}
	one := &KVCache{c: c.c, lengths: make([]int, 1), resting: make([]bool, 1)}
	one.c.Batch = 1
	if err := one.replace(k, v); err != nil {
		return fmt.Errorf("KVCache: %w", err)
	}
	n := one.lengths[0]
	c.lengths[item] = 0
	if slices.Max(c.lengths) > 0 && c.place != one.place {
		return fmt.Errorf("KVCache: the cache is on %s, k and v are on %s", c.place.Name(), one.place.Name())
	}
	c.place, c.set = one.place, false
	for i := range c.rows {
		rows := one.held(one.rows[i], n)
		memory, err := c.memory(i, rows)
		if err == nil {
			err = c.place.Copy(memory.Slice(0, item, item+1).Slice(1, 0, n), rows.Permute(0, 2, 1, 3))
		}
		if err != nil {
			return fmt.Errorf("KVCache: %w", err)
		}
	}
	c.lengths[item] = n
	return nil
}
