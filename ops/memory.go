package ops

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file lends ops the memory for their results. There are two ways.
//
// By itself, an op writes where it wrote in its last run, since fresh memory has to be cleared first, which takes longer than
// many an op. A result gets fresh memory where someone may hold the last one on purpose:
//
//   - a root of the graph, such as the logits of a model that only predicts, or a node that [Keep] was told of or that
//     [gorgonia.Read] reads;
//   - if an input of the graph has it as its value now, such as a state that is carried from run to run.
//
// After [ReuseMemory], all ops of a graph share one pool, to which a result gives its memory back when the last op that reads
// it has run. Those named above keep theirs.

// ReuseMemory makes the ops of a graph share memory: that of a result whose last reader has run becomes that of another. A
// training step then needs what is alive at once, and not the sum of all results. The price is that the value of a node
// in the middle of the graph is good only until its last reader has run: [Keep] what is to be looked at. It is for
// graphs that a tapeMachine runs, one at a time.
func ReuseMemory(g *gorgonia.ExprGraph) {
	p := &stateOf(g).pool
	p.Lock()
	defer p.Unlock()
	p.shared = true
}

// Keep lets the values of nodes be looked at after a run of their graph, wherever they live, although it may reuse memory. It needs
// to be called before the graph runs. A node that is nil is passed over.
func Keep(nodes ...*gorgonia.Node) {
	for _, n := range nodes {
		if n == nil {
			continue
		}
		p := &stateOf(n.Graph()).pool
		p.Lock()
		if p.kept == nil {
			p.kept = map[*gorgonia.Node]bool{}
		}
		p.kept[n], p.nodes = true, 0
		p.Unlock()
	}
}

// pool is the memory of a graph whose ops share it.
type pool struct {
	sync.Mutex
	shared    bool
	recording atomic.Bool // a run of the graph is being recorded
	nodes     int         // of the graph when the readers were counted
	free      map[block][]kernels.Tensor
	kept      map[*gorgonia.Node]bool // whose values are looked at after a run
}

// block is what may take each other's place.
type block struct {
	place kernels.Backend
	bytes int
}

// sizeClass rounds a size up, to at most an eighth more, so that sizes that differ little share blocks.
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
	readers  int             // ops of this package that read it in a run of the graph
	held     bool            // someone else may look at it after that
	pending  int             // readers that have not run yet
}

// lend gives a result memory for a run.
func (r *result) lend(m *memory, b kernels.Backend, like kernels.Tensor) (t kernels.Tensor, err error) {
	m.look()
	if r.place != nil {
		r.release(m)
	}
	if m.pool.shared && !r.held {
		if r.Tensor, err = m.pool.take(b, like.DType, like.Shape...); err == nil {
			r.place, r.pending = b, r.readers
		}
		return r.Tensor, err
	}
	if r.IsSet() && (r.held && !r.gradient || m.isAnInput(r.Tensor)) {
		r.Tensor = kernels.Tensor{}
	}
	err = fit(&r.Tensor, b, like)
	return r.Tensor, err
}

// adopt makes memory of the pool, which holds the result already, that of a run.
func (r *result) adopt(m *memory, b kernels.Backend, t kernels.Tensor) kernels.Tensor {
	m.look()
	if r.place != nil {
		r.release(m)
	}
	r.Tensor, r.place, r.pending = t, b, r.readers
	return t
}

// take takes the result's memory out of its run, if that is what a tensor is.
func (r *result) take(t kernels.Tensor) bool {
	if r == nil || r.place == nil || r.Data != t.Data || r.DType != t.DType || r.Elements() != t.Elements() {
		return false
	}
	r.Tensor, r.place, r.pending = kernels.Tensor{}, nil, 0
	return true
}

// read is told that a reader has run.
func (r *result) read(m *memory) {
	if r.pending--; r.pending == 0 && r.place != nil {
		r.release(m)
	}
}

// release gives memory of the pool back, unless someone made it the value of an input.
func (r *result) release(m *memory) {
	if !m.isAnInput(r.Tensor) {
		m.pool.put(r.place, r.Tensor)
	}
	r.Tensor, r.place, r.pending = kernels.Tensor{}, nil, 0
}

// fit makes *t a tensor at a place, of a dtype and shape: itself if it is one already.
func fit(t *kernels.Tensor, b kernels.Backend, like kernels.Tensor) (err error) {
	if t.IsSet() && t.DType == like.DType && slices.Equal(t.Shape, like.Shape) && b.Owner(*t) == t.Owner {
		return nil
	}
	*t, err = b.Alloc(like.DType, like.Shape...)
	return err
}

// memory is what an op knows about the results around it.
type memory struct {
	pool   *pool
	graph  *gorgonia.ExprGraph
	nodes  int            // of the graph when the rest was found out
	inputs gorgonia.Nodes // of the graph
	reads  []*result      // what the op reads, and has to be told of
}

// look finds out about the graph, again if it grew.
func (m *memory) look() {
	if now := len(m.graph.AllNodes()); now != m.nodes {
		m.nodes, m.inputs = now, m.graph.Inputs()
		count(m.graph, m.pool, now)
	}
}

// done tells what the op has read that it has run.
func (m *memory) done() {
	if m.pool.shared {
		for _, r := range m.reads {
			r.read(m)
		}
	}
}

// isAnInput reports whether the value of an input of the graph shares memory with a tensor.
func (m *memory) isAnInput(t kernels.Tensor) bool {
	from := uintptr(t.Data)
	to := from + uintptr(t.Elements()*t.DType.Size())
	for _, n := range m.inputs {
		if v, ok := n.Value().(*tensor.Dense); ok && v.Uintptr() < to && from < v.Uintptr()+v.MemSize() {
			return true
		}
	}
	return false
}

// writer is an op whose value is a result.
type writer interface{ written() *result }

// reader is an op that reads results.
type reader interface {
	// readNodes are the children whose values it reads.
	readNodes() gorgonia.Nodes
	memoryOf() *memory
}

// count finds, for each op, the results that it reads, and for each result, how many ops read it. An op of Gorgonia's between
// them may hand on the memory of what it reads, as Reshape does and an addition in place, so who reads its result reads
// that too.
func count(g *gorgonia.ExprGraph, p *pool, nodes int) {
	p.Lock()
	defer p.Unlock()
	if p.nodes == nodes {
		return
	}
	p.nodes = nodes
	all := g.AllNodes()
	for _, n := range all {
		if w, ok := n.Op().(writer); ok && w.written() != nil {
			w.written().readers = 0
		}
	}
	behind := map[*gorgonia.Node][]*result{} // the results whose memory a node's value may share
	var resultsBehind func(n *gorgonia.Node) []*result
	resultsBehind = func(n *gorgonia.Node) []*result {
		if w, ok := n.Op().(writer); ok {
			if r := w.written(); r != nil {
				return []*result{r}
			}
			return nil
		}
		if list, ok := behind[n]; ok || n.Op() == nil {
			return list
		}
		var list []*result
		for children := g.From(n.ID()); children != nil && children.Next(); {
			for _, r := range resultsBehind(children.Node().(*gorgonia.Node)) {
				if !slices.Contains(list, r) {
					list = append(list, r)
				}
			}
		}
		behind[n] = list
		return list
	}
	for _, n := range all {
		op, ok := n.Op().(reader)
		if !ok {
			continue
		}
		m := op.memoryOf()
		m.reads = nil
		for _, child := range op.readNodes() {
			for _, r := range resultsBehind(child) {
				if !slices.Contains(m.reads, r) {
					m.reads = append(m.reads, r)
					r.readers++
				}
			}
		}
	}
	seen := map[*gorgonia.Node]bool{} // by someone who may look at the value after the run
	var isSeen func(n *gorgonia.Node) bool
	isSeen = func(n *gorgonia.Node) bool {
		if is, ok := seen[n]; ok || p.kept[n] {
			return is || p.kept[n]
		}
		parents := g.To(n.ID())
		is := parents == nil || parents.Len() == 0
		for !is && parents.Next() {
			switch parent := parents.Node().(*gorgonia.Node); parent.Op().(type) {
			case reader, writer:
			default: // a statement, which Gorgonia gives an arity of 0, or an op that may hand the memory on
				is = parent.Op().Arity() == 0 || isSeen(parent)
			}
		}
		seen[n] = is
		return is
	}
	for _, n := range all {
		if w, ok := n.Op().(writer); ok && w.written() != nil {
			r := w.written()
			r.held = r.readers == 0 || isSeen(n)
		}
	}
}
