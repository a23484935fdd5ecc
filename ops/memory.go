package ops

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file lends ops the memory for their results. There are two ways.
//
// By itself, an op writes where it wrote in its last run, since fresh memory has to be cleared
// first, which takes longer than many an op. A result gets fresh memory where someone may hold the
// last one on purpose:
//
//   - a root of the graph, such as the logits of a model that only predicts, or a node that [Keep]
//     was told of or that [gorgonia.Read] reads;
//   - if an input of the graph has it as its value now, such as a state that is carried from run to
//     run.
//
// After [ReuseMemory], all ops of a graph share one pool, to which a result gives its memory back
// when the last op that reads it has run. Those named above keep theirs.

// ReuseMemory makes the ops of a graph share memory: that of a result whose last reader has run
// becomes that of another. A training step then needs what is alive at once, and not the sum of all
// results. The price is that the value of a node in the middle of the graph is good only until its
// last reader has run: [Keep] what is to be looked at. It is for graphs that a tapeMachine runs,
// one at a time.
func ReuseMemory(g *gorgonia.ExprGraph) {
	p := &stateOf(g).pool
	p.Lock()
	defer p.Unlock()
	p.shared = true
}

func (p *pool) isShared() bool {
	p.Lock()
	defer p.Unlock()
	return p.shared
}

// Keep lets the values of nodes be looked at after a run of their graph, wherever they live,
// although it may reuse memory. It needs to be called before the graph runs. A node that is nil is
// passed over.
func Keep(nodes ...*gorgonia.Node) {
	for _, n := range nodes {
		if n != nil {
			stateOf(n.Graph()).keep(weak.Make(n))
		}
	}
}

// pool is the memory of a graph whose ops share it.
type pool struct {
	sync.Mutex
	shared    bool
	recording atomic.Bool // a run of the graph is being recorded
	free      map[block][]kernels.Tensor
}

// block is what may take each other's place.
type block struct {
	place kernels.Backend
	bytes int
}

// sizeClass rounds a size up, to at most an eighth more, so that sizes that differ little share
// blocks.
func sizeClass(bytes int) int {
	const smallest = 256
	if bytes <= smallest {
		return smallest
	}
	step := max(smallest, 1<<(bits.Len(uint(bytes-1))-4))
	return (bytes + step - 1) / step * step
}

func blockOf(b kernels.Backend, dtype kernels.DType, elements int) block {
	return block{b, sizeClass(elements * dtype.Size())}
}

// take returns a tensor with undefined contents.
func (p *pool) take(b kernels.Backend, dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	t := kernels.Contiguous(nil, dtype, shape...)
	key := blockOf(b, dtype, t.Elements())
	p.Lock()
	list := p.free[key]
	if last := len(list) - 1; last >= 0 {
		t.Data, t.Owner = list[last].Data, list[last].Owner
		list[last] = kernels.Tensor{}
		p.free[key] = list[:last]
		p.Unlock()
		return t, nil
	}
	p.Unlock()
	all, err := b.Alloc(kernels.F32, key.bytes/kernels.F32.Size())
	t.Data, t.Owner = all.Data, all.Owner
	return t, err
}

// put takes back what take returned.
func (p *pool) put(b kernels.Backend, t kernels.Tensor) {
	if !t.IsSet() {
		return
	}
	p.Lock()
	defer p.Unlock()
	if p.free == nil {
		p.free = map[block][]kernels.Tensor{}
	}
	key := blockOf(b, t.DType, t.Elements())
	p.free[key] = append(p.free[key], t)
}

// result is the memory of one result of an op: an output, or the gradient of an input.
type result struct {
	kernels.Tensor
	gradient bool            // which is looked at before the next run, so that it keeps its memory from run to run
	place    kernels.Backend // whose pool the memory is from, nil for memory of the result's own
}

// lend gives a result memory for a run.
func (m *member) lend(r *result, b kernels.Backend, like kernels.Tensor) (t kernels.Tensor, err error) {
	m.release(r)
	held := m.plan.held[r]
	if m.state.pool.shared && !held {
		if r.Tensor, err = m.state.pool.take(b, like.DType, like.Shape...); err == nil {
			r.place = b
		}
		return r.Tensor, err
	}
	if r.IsSet() && (held && !r.gradient || m.plan.isAnInput(r.Tensor)) {
		r.Tensor = kernels.Tensor{}
	}
	err = fit(&r.Tensor, b, like)
	return r.Tensor, err
}

// take takes the result's memory out of its run, if that is what a tensor is.
func (r *result) take(t kernels.Tensor) bool {
	if r.place == nil || r.Data != t.Data || r.DType != t.DType || r.Elements() != t.Elements() {
		return false
	}
	r.Tensor, r.place = kernels.Tensor{}, nil
	return true
}

// release gives memory of the pool back, unless someone made it the value of an input.
func (m *member) release(r *result) {
	if r.place == nil {
		return
	}
	if !m.plan.isAnInput(r.Tensor) {
		m.state.pool.put(r.place, r.Tensor)
	}
	r.Tensor, r.place = kernels.Tensor{}, nil
}

// fit makes *t a tensor at a place, of a dtype and shape: itself if it is one already.
func fit(t *kernels.Tensor, b kernels.Backend, like kernels.Tensor) (err error) {
	if t.IsSet() && t.DType == like.DType && slices.Equal(t.Shape, like.Shape) && b.Owner(*t) == t.Owner {
		return nil
	}
	*t, err = b.Alloc(like.DType, like.Shape...)
	return err
}

// isAnInput reports whether the value of an input of the graph shares memory with a tensor.
func (p *plan) isAnInput(t kernels.Tensor) bool {
	from := uintptr(t.Data)
	to := from + uintptr(t.Elements()*t.DType.Size())
	return slices.ContainsFunc(p.inputs, func(n *gorgonia.Node) bool {
		v, ok := n.Value().(*tensor.Dense)
		return ok && !isEmpty(v) && v.Uintptr() < to && from < v.Uintptr()+v.MemSize()
	})
}
