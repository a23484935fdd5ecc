package cpu

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

var _ kernels.ListedKernels = (*Backend)(nil)

// ListedForward computes O and, where out has room for it, the logsumexp.
//
// A task is a query: its group's heads are the rows of both products, which read the keys and
// values on its list where they lie. The list is taken so many keys at a time, and the softmax goes
// on from one lot to the next.
func (b *Backend) ListedForward(a *kernels.ListedAttention, out kernels.AttentionOutputs) (err error) {
	const kernel = "listed attention forward"
	defer catch(kernel, &err)
	if err := checked(kernel, a.CheckForward(out)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	wide := *a
	wide.Q, wide.K, wide.V, out.O = h.read(a.Q), h.read(a.K), h.read(a.V), h.write(out.O)
	return inTypeOf(wide.Q, listedForward[float32], listedForward[float64])(b, &wide, out)
}

// ListedBackward computes the gradients of q, k and v.
func (b *Backend) ListedBackward(a *kernels.ListedAttention, g kernels.AttentionGradients) (err error) {
	const kernel = "listed attention backward"
	defer catch(kernel, &err)
	if err := checked(kernel, a.CheckBackward(g)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	wide := *a
	wide.Q, wide.K, wide.V, g.DO = h.read(a.Q), h.read(a.K), h.read(a.V), h.read(g.DO)
	g.DQ, g.DK, g.DV = h.write(g.DQ), h.write(g.DK), h.write(g.DV)
	return inTypeOf(wide.Q, listedBackward[float32], listedBackward[float64])(b, &wide, g)
}

// listed is a problem of listed keys.
type listed[T kernels.Float] struct {
	*kernels.ListedAttention
	indices        []int64 // of all lists
	full           bool    // no list has a −1
	group          int     // query heads of a key head
	queries, n     int     // of a sequence, and of a list
	d, dv          int
	dWide, dvWide  int // rounded up to whole vectors
	scale          T
	batch, kvHeads int
}

// lot is how many keys of a list are taken at a time.
const lot = 256

func newListed[T kernels.Float](kernel string, a *kernels.ListedAttention) (*listed[T], error) {
	q, k := a.Q.Shape, a.K.Shape
	p := &listed[T]{ListedAttention: a, queries: q[2], n: a.Lists.Shape[3], d: q[3], dv: a.V.Shape[3], batch: q[0], kvHeads: k[1],
		scale: T(a.Plain().EffectiveScale())}
	p.group = q[1] / max(1, k[1])
	p.dWide, p.dvWide = roundUp(p.d, simd.Lanes[T]()), roundUp(p.dv, simd.Lanes[T]())
	p.indices, p.full = make([]int64, a.Lists.Elements()), true
	return p, readIndices(p.indices, kernel, "lists", a.Lists, k[2], func(i int) bool {
		p.full = p.full && i != -1
		return i == -1
	})
}

// rowsOf are the keys or the values of all heads: where they lie if they are whole vectors, and
// otherwise copies whose columns behind a head's are zero.
func (p *listed[T]) rowsOf(b *Backend, w *workspace, t kernels.Tensor, d, wide int) func(batch, head int) rows[T] {
	if d == wide {
		return func(batch, head int) rows[T] { return matrix[T](t, p.keyBatch(batch), head, 0) }
	}
	length, heads := t.Shape[2], t.Shape[0]*p.kvHeads
	all := take[T](w, heads*length*wide)
	of := func(n int) []T { return all[n*length*wide:][:length*wide] }
	b.each(heads, elementFLOPs*float64(len(all)), func(n int) {
		copyRows(of(n), matrix[T](t, n/p.kvHeads, n%p.kvHeads, 0), length, d, wide)
	})
	return func(batch, head int) rows[T] { return rows[T]{of(p.keyBatch(batch)*p.kvHeads + head), wide} }
}

// keysAndValues are those of a batch item's head.
func (p *listed[T]) keysAndValues(b *Backend) (of func(batch, head int) (keys, values rows[T]), memory *workspace) {
	copied := func(t kernels.Tensor, d, wide int) int {
		if d == wide {
			return 0
		}
		return bytesFor[T](t.Elements() / d * wide)
	}
	memory = newWorkspace(copied(p.K, p.d, p.dWide) + copied(p.V, p.dv, p.dvWide))
	keys, values := p.rowsOf(b, memory, p.K, p.d, p.dWide), p.rowsOf(b, memory, p.V, p.dv, p.dvWide)
	return func(batch, head int) (rows[T], rows[T]) { return keys(batch, head), values(batch, head) }, memory
}

// list is that of a query.
func (p *listed[T]) list(batch, head, query int) []int64 {
	shape := p.Lists.Shape
	row := (min(batch, shape[0]-1)*shape[1]+min(head, shape[1]-1))*p.queries + query
	return p.indices[row*p.n:][:p.n]
}

// keyBatch is the batch item of K and V that one of Q reads.
func (p *listed[T]) keyBatch(batch int) int { return min(batch, p.K.Shape[0]-1) }

// heads is a query's row in each head of a group: a matrix.
func (p *listed[T]) heads(t kernels.Tensor, batch, head, query int) rows[T] {
	return rows[T]{kernels.Host[T](t)[t.Offset(batch, head*p.group, query):], t.Strides[1]}
}

// flops are those of one pass of both products.
func (p *listed[T]) flops() float64 {
	return 2 * float64(p.batch*p.kvHeads*p.group*p.queries) * float64(p.n*(p.d+p.dv))
}

// lotOf is some of a list's keys.
type lotOf struct{ chosen, memory []int64 }

func newLot() *lotOf { return &lotOf{memory: make([]int64, lot)} }

// choose takes keys from a list until there are enough, and returns the rest of the list.
func (l *lotOf) choose(list []int64, full bool) (rest []int64) {
	if full {
		n := min(lot, len(list))
		l.chosen = list[:n]
		return list[n:]
	}
	l.chosen = l.memory[:0]
	for len(list) > 0 && len(l.chosen) < lot {
		if list[0] >= 0 {
			l.chosen = append(l.chosen, list[0])
		}
		list = list[1:]
	}
	return list
}

// scoreStride keeps rows of scores apart in the cache's sets.
func scoreStride[T kernels.Float]() int { return lot + simd.Lanes[T]() }

func listedForward[T kernels.Float](b *Backend, a *kernels.ListedAttention, out kernels.AttentionOutputs) error {
	p, err := newListed[T]("listed attention forward", a)
	if err != nil || out.O.Elements() == 0 {
		return err
	}
	var lse []T
	if out.LSE.IsSet() {
		lse = kernels.Host[T](out.LSE)
	}
	rowsOf, memory := p.keysAndValues(b)
	defer memory.release()
	b.inRuns(p.batch*p.kvHeads*p.queries, p.flops(), func(claim func() (int, bool)) {
		l := newLot()
		g, stride := p.group, scoreStride[T]()
		w := newWorkspace(bytesFor[T](g*p.dWide) + bytesFor[T](g*stride) + bytesFor[T](g*p.dvWide) + 3*bytesFor[T](g))
		defer w.release()
		qs, scores, o := take[T](w, g*p.dWide), rows[T]{take[T](w, g*stride), stride}, rows[T]{take[T](w, g*p.dvWide), p.dvWide}
		m, sum, factor := take[T](w, g), take[T](w, g), take[T](w, g)
		for task, ok := claim(); ok; task, ok = claim() {
			batch, head, query := task/p.queries/p.kvHeads, task/p.queries%p.kvHeads, task%p.queries
			q := copyRows(qs, p.heads(p.Q, batch, head, query), g, p.d, p.dWide)
			fill(m, float64(lowest[T]()))
			clear(sum)
			clear(o.data)
			keys, values := rowsOf(batch, head)
			for list := p.list(batch, head, query); len(list) > 0; {
				if list = l.choose(list, p.full); len(l.chosen) == 0 {
					continue
				}
				n := len(l.chosen)
				simd.ListedDots(g, p.dWide, keys.at(0), keys.stride, l.chosen, q.at(0), q.stride, scores.at(0), stride)
				simd.Softmax(g, n, scores.at(0), stride, &m[0], &sum[0], o.at(0), o.stride, p.dvWide, p.scale*log2e, -g, n)
				simd.ListedCombine(g, p.dvWide, values.at(0), values.stride, l.chosen, scores.at(0), stride, o.at(0), o.stride)
			}
			for h, s := range sum {
				if factor[h] = 0; s != 0 {
					factor[h] = 1 / s
				}
				if lse != nil {
					lse[(batch*p.kvHeads*g+head*g+h)*p.queries+query] = T(math.Ln2*float64(m[h]) + math.Log(float64(s)))
				}
			}
			to := p.heads(out.O, batch, head, query)
			simd.ScaleRows(g, p.dv, to.at(0), to.stride, o.at(0), o.stride, factor)
		}
	})
	return nil
}

// listedSums are the gradients of the keys and values of a head, summed over a part of the queries.
type listedSums[T kernels.Float] struct{ dK, dV rows[T] }

func listedBackward[T kernels.Float](b *Backend, a *kernels.ListedAttention, g kernels.AttentionGradients) error {
	p, err := newListed[T]("listed attention backward", a)
	if err != nil {
		return err
	}
	// Queries of a head that share their sums are one task, whatever the number of threads, so that
	// sums are in one order.
	const tasks, leastQueries = 16, 32
	heads, length := p.batch*p.kvHeads, p.K.Shape[2]
	parts := max(1, min(tasks/max(1, heads), p.queries/leastQueries))
	memory := newWorkspace(heads * parts * (bytesFor[T](length*p.dWide) + bytesFor[T](length*p.dvWide)))
	defer memory.release()
	sums := make([]listedSums[T], heads*parts)
	for i := range sums {
		sums[i] = listedSums[T]{rows[T]{take[T](memory, length*p.dWide), p.dWide}, rows[T]{take[T](memory, length*p.dvWide), p.dvWide}}
	}
	rowsOf, copies := p.keysAndValues(b)
	defer copies.release()
	b.inRuns(len(sums), 2.5*p.flops(), func(claim func() (int, bool)) {
		w := newListedGradients(p, g)
		defer w.memory.release()
		for task, ok := claim(); ok; task, ok = claim() {
			to, part := sums[task], task%parts
			clear(to.dK.data)
			clear(to.dV.data)
			batch, head := task/parts/p.kvHeads, task/parts%p.kvHeads
			keys, values := rowsOf(batch, head)
			for query := part * p.queries / parts; query < (part+1)*p.queries/parts; query++ {
				w.add(batch, head, query, keys, values, to)
			}
		}
	})
	p.addSums(b, sums, parts, g)
	return nil
}

// addSums writes the gradients of keys and values, which are the sums over the parts of a head, and
// over the batch items that share the keys.
func (p *listed[T]) addSums(b *Backend, sums []listedSums[T], parts int, g kernels.AttentionGradients) {
	length, shared := p.K.Shape[2], p.K.Shape[0] == 1
	batches := p.K.Shape[0]
	b.each(batches*p.kvHeads*length, elementFLOPs*float64(len(sums)*length*(p.dWide+p.dvWide)), func(task int) {
		batch, head, key := task/length/p.kvHeads, task/length%p.kvHeads, task%length
		dK, dV := matrix[T](g.DK, batch, head, key).data[:p.d], matrix[T](g.DV, batch, head, key).data[:p.dv]
		clear(dK)
		clear(dV)
		last := batch + 1
		if shared {
			last = p.batch
		}
		for of := batch; of < last; of++ {
			for _, s := range sums[(of*p.kvHeads+head)*parts:][:parts] {
				simd.Add(p.d, &dK[0], &dK[0], s.dK.at(key))
				simd.Add(p.dv, &dV[0], &dV[0], s.dV.at(key))
			}
		}
		for i := range dK {
			dK[i] *= p.scale
		}
	})
}

// listedGradients is what a worker needs to add the gradients of queries.
type listedGradients[T kernels.Float] struct {
	*listed[T]
	g      kernels.AttentionGradients
	lot    *lotOf
	memory *workspace

	qs, dOs         []T // a query's rows
	s, dS, dQ       rows[T]
	lse2, own, unit []T // of a query's heads
}

func newListedGradients[T kernels.Float](p *listed[T], g kernels.AttentionGradients) *listedGradients[T] {
	w := &listedGradients[T]{listed: p, g: g, lot: newLot()}
	n, stride := p.group, scoreStride[T]()
	w.memory = newWorkspace(2*bytesFor[T](n*p.dWide) + bytesFor[T](n*p.dvWide) + 2*bytesFor[T](n*stride) + 3*bytesFor[T](n))
	matrixOf := func(rowCount, stride int) rows[T] { return rows[T]{take[T](w.memory, rowCount*stride), stride} }
	w.qs, w.dOs = take[T](w.memory, n*p.dWide), take[T](w.memory, n*p.dvWide)
	w.s, w.dS, w.dQ = matrixOf(n, stride), matrixOf(n, stride), matrixOf(n, p.dWide)
	w.lse2, w.own, w.unit = take[T](w.memory, n), take[T](w.memory, n), take[T](w.memory, n)
	return w
}

// add computes a query's dQ, and adds its part of the gradients of keys and values.
func (w *listedGradients[T]) add(batch, head, query int, keys, values rows[T], to listedSums[T]) {
	p, l, heads := w.listed, w.lot, w.group
	q := copyRows(w.qs, p.heads(p.Q, batch, head, query), heads, p.d, p.dWide)
	dO := copyRows(w.dOs, p.heads(w.g.DO, batch, head, query), heads, p.dv, p.dvWide)
	lse, delta := kernels.Host[T](w.g.LSE), kernels.Host[T](w.g.Delta)
	for h := range heads {
		row := (batch*p.kvHeads*heads+head*heads+h)*p.queries + query
		w.own[h], w.unit[h] = delta[row], p.scale
		if w.lse2[h] = lse[row] * log2e; math.IsInf(float64(w.lse2[h]), -1) {
			w.lse2[h] = -w.lse2[h] // no key has a weight
		}
	}
	clear(w.dQ.data)
	for list := p.list(batch, head, query); len(list) > 0; {
		if list = l.choose(list, p.full); len(l.chosen) == 0 {
			continue
		}
		n, s, dS := len(l.chosen), w.s.at(0), w.dS.at(0)
		simd.ListedDots(heads, p.dWide, keys.at(0), keys.stride, l.chosen, q.at(0), q.stride, s, w.s.stride)
		simd.ListedDots(heads, p.dvWide, values.at(0), values.stride, l.chosen, dO.at(0), dO.stride, dS, w.dS.stride)
		simd.SoftmaxGrad(heads, n, s, dS, w.s.stride, &w.lse2[0], &w.own[0], p.scale*log2e, -heads, n)
		simd.ListedCombine(heads, p.dWide, keys.at(0), keys.stride, l.chosen, dS, w.dS.stride, w.dQ.at(0), w.dQ.stride)
		simd.ListedAdd(heads, p.dWide, to.dK.at(0), to.dK.stride, l.chosen, dS, w.dS.stride, q.at(0), q.stride)
		simd.ListedAdd(heads, p.dvWide, to.dV.at(0), to.dV.stride, l.chosen, s, w.s.stride, dO.at(0), dO.stride)
	}
	dQ := p.heads(w.g.DQ, batch, head, query)
	simd.ScaleRows(heads, p.d, dQ.at(0), dQ.stride, w.dQ.at(0), w.dQ.stride, w.unit)
}
