package cpu

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

var _ kernels.ListedKernels = (*Backend)(nil)

// ListedForward computes O and, where out has room for it, the logsumexp.
//
// A task is a query: its group's heads are the rows of both products. The keys and values on its
// list are brought together, so many at a time, and the softmax goes on from one lot to the next.
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
	group          int     // query heads of a key head
	queries, n     int     // of a sequence, and of a list
	d, dv          int
	dWide, dvWide  int // rounded up to whole vectors
	scale          T
	batch, kvHeads int
}

// lot is how many keys are brought together at a time.
const lot = 256

func newListed[T kernels.Float](kernel string, a *kernels.ListedAttention) (*listed[T], error) {
	q, k := a.Q.Shape, a.K.Shape
	p := &listed[T]{ListedAttention: a, queries: q[2], n: a.Lists.Shape[3], d: q[3], dv: a.V.Shape[3], batch: q[0], kvHeads: k[1],
		scale: T(a.Plain().EffectiveScale())}
	p.group = q[1] / max(1, k[1])
	p.dWide, p.dvWide = roundUp(p.d, simd.Lanes[T]()), roundUp(p.dv, simd.Lanes[T]())
	p.indices = make([]int64, a.Lists.Elements())
	return p, readIndices(p.indices, kernel, "lists", a.Lists, k[2], func(i int) bool { return i == -1 })
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

// lotOf is some of a query's keys, brought together.
type lotOf[T kernels.Float] struct {
	memory       *workspace
	chosen       []int
	keys, values rows[T] // columns behind the head's are zero
	kT, vT       []T     // panels of these
}

func newLot[T kernels.Float](p *listed[T]) *lotOf[T] {
	l := &lotOf[T]{chosen: make([]int, 0, lot)}
	l.memory = newWorkspace(bytesFor[T](lot*p.dWide) + bytesFor[T](lot*p.dvWide) + bytesFor[T](lot*p.d) + bytesFor[T](lot*p.dv))
	l.keys, l.values = rows[T]{take[T](l.memory, lot*p.dWide), p.dWide}, rows[T]{take[T](l.memory, lot*p.dvWide), p.dvWide}
	l.kT, l.vT = take[T](l.memory, lot*p.d), take[T](l.memory, lot*p.dv)
	clear(l.keys.data)
	clear(l.values.data)
	return l
}

// bring takes keys from a list until there are enough, and returns the rest of the list.
func (l *lotOf[T]) bring(p *listed[T], list []int64, keys, values rows[T]) (rest []int64) {
	l.chosen = l.chosen[:0]
	for len(list) > 0 && len(l.chosen) < lot {
		if i := int(list[0]); i >= 0 {
			at := len(l.chosen)
			copy(l.keys.data[at*p.dWide:][:p.d], keys.data[i*keys.stride:])
			copy(l.values.data[at*p.dvWide:][:p.dv], values.data[i*values.stride:])
			l.chosen = append(l.chosen, i)
		}
		list = list[1:]
	}
	return list
}

// few is how many rows a product has at most for which rows that are transposed first cost more.
const few = 3

// dots computes the products of a query's heads with the lot's rows.
func (l *lotOf[T]) dots(heads, d int, of rows[T], panels []T, left rows[T], to rows[T]) {
	n := len(l.chosen)
	if heads <= few {
		for i := range heads {
			simd.Dots(n, d, of.at(0), of.stride, left.at(i), 0, to.data[i*to.stride:][:n])
		}
		return
	}
	panel, lanes := simd.Panel[T](), simd.Lanes[T]()
	simd.PackTransposed(panels, of.data, n, d, of.stride)
	simd.Gemm(heads, ceilDiv(n, lanes), d, left.at(0), left.stride, 1, &panels[0], panel, d*panel, to.at(0), to.stride, false)
}

// combine adds to a query's heads the rows of the lot, weighted.
func (l *lotOf[T]) combine(heads int, weights, of, to rows[T]) {
	simd.Gemm(heads, of.stride/simd.Lanes[T](), len(l.chosen), weights.at(0), weights.stride, 1, of.at(0), of.stride, simd.Panel[T](), to.at(0), to.stride, true)
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
	b.inRuns(p.batch*p.kvHeads*p.queries, p.flops(), func(claim func() (int, bool)) {
		l := newLot(p)
		defer l.memory.release()
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
			keys, values := matrix[T](p.K, p.keyBatch(batch), head, 0), matrix[T](p.V, p.keyBatch(batch), head, 0)
			for list := p.list(batch, head, query); len(list) > 0; {
				if list = l.bring(p, list, keys, values); len(l.chosen) == 0 {
					continue
				}
				n := len(l.chosen)
				l.dots(g, p.d, l.keys, l.kT, q, scores)
				simd.Softmax(g, n, scores.at(0), stride, &m[0], &sum[0], o.at(0), o.stride, p.dvWide, p.scale*log2e, -g, n)
				l.combine(g, scores, l.values, o)
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
	b.inRuns(len(sums), 2.5*p.flops(), func(claim func() (int, bool)) {
		w := newListedGradients(p, g)
		defer w.memory.release()
		defer w.lot.memory.release()
		for task, ok := claim(); ok; task, ok = claim() {
			to, part := sums[task], task%parts
			clear(to.dK.data)
			clear(to.dV.data)
			for query := part * p.queries / parts; query < (part+1)*p.queries/parts; query++ {
				w.add(task/parts/p.kvHeads, task/parts%p.kvHeads, query, to)
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
	lot    *lotOf[T]
	memory *workspace

	qs, dOs         []T // a query's rows
	s, dS           rows[T]
	dQ, dK, dV      rows[T] // of a query, and of a lot
	lse2, own, unit []T     // of a query's heads
}

func newListedGradients[T kernels.Float](p *listed[T], g kernels.AttentionGradients) *listedGradients[T] {
	w := &listedGradients[T]{listed: p, g: g, lot: newLot(p)}
	n, stride := p.group, scoreStride[T]()
	w.memory = newWorkspace(2*bytesFor[T](n*p.dWide) + bytesFor[T](n*p.dvWide) + 2*bytesFor[T](n*stride) + bytesFor[T](lot*p.dWide) +
		bytesFor[T](lot*p.dvWide) + 3*bytesFor[T](n))
	matrixOf := func(rowCount, stride int) rows[T] { return rows[T]{take[T](w.memory, rowCount*stride), stride} }
	w.qs, w.dOs = take[T](w.memory, n*p.dWide), take[T](w.memory, n*p.dvWide)
	w.s, w.dS, w.dQ = matrixOf(n, stride), matrixOf(n, stride), matrixOf(n, p.dWide)
	w.dK, w.dV = matrixOf(lot, p.dWide), matrixOf(lot, p.dvWide)
	w.lse2, w.own, w.unit = take[T](w.memory, n), take[T](w.memory, n), take[T](w.memory, n)
	return w
}

// add computes a query's dQ, and adds its part of the gradients of keys and values.
func (w *listedGradients[T]) add(batch, head, query int, to listedSums[T]) {
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
	keys, values := matrix[T](p.K, p.keyBatch(batch), head, 0), matrix[T](p.V, p.keyBatch(batch), head, 0)
	for list := p.list(batch, head, query); len(list) > 0; {
		if list = l.bring(p, list, keys, values); len(l.chosen) == 0 {
			continue
		}
		n, panel, lanes := len(l.chosen), simd.Panel[T](), simd.Lanes[T]()
		l.dots(heads, p.d, l.keys, l.kT, q, w.s)
		l.dots(heads, p.dv, l.values, l.vT, dO, w.dS)
		simd.SoftmaxGrad(heads, n, w.s.at(0), w.dS.at(0), w.s.stride, &w.lse2[0], &w.own[0], p.scale*log2e, -heads, n)
		l.combine(heads, w.dS, l.keys, w.dQ)
		simd.Gemm(n, p.dWide/lanes, heads, w.dS.at(0), 1, w.dS.stride, q.at(0), q.stride, panel, w.dK.at(0), w.dK.stride, false)
		simd.Gemm(n, p.dvWide/lanes, heads, w.s.at(0), 1, w.s.stride, dO.at(0), dO.stride, panel, w.dV.at(0), w.dV.stride, false)
		for at, key := range l.chosen {
			simd.Add(p.dWide, to.dK.at(key), to.dK.at(key), w.dK.at(at))
			simd.Add(p.dvWide, to.dV.at(key), to.dV.at(key), w.dV.at(at))
		}
	}
	dQ := p.heads(w.g.DQ, batch, head, query)
	simd.ScaleRows(heads, p.d, dQ.at(0), dQ.stride, w.dQ.at(0), w.dQ.stride, w.unit)
}
