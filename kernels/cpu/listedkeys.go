package cpu

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

var _ kernels.ListedKernels = (*Backend)(nil)

// ListedForward computes O and, where out has room for it, the logsumexp.
//
// A task is a block of queries, whose heads are the rows of both products. These read the keys and
// values on a query's list where they lie. The queries of a block go through their lists together,
// a stretch of keys at a time: what one query has read is in the cache for the next.
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
	memory        *workspace
	indices       []int64 // of all lists
	group         int     // query heads of a key head
	queries, n    int     // of a sequence, and of a list
	d, dv         int
	dWide, dvWide int // rounded up to whole vectors
	scaling[T]
	batch, kvHeads int
	together       int // queries of a block
	stretch        int // log 2 of its keys
}

const (
	// lot is how many keys of a list a call takes at most: where heads are many, each four of them
	// read these once more.
	lot = 256
	// rowsOfBlock is how many heads of queries a block has at most, tasksOfHead how many blocks a
	// head has at least, if it has the queries.
	rowsOfBlock, tasksOfHead = 512, 16
	// stretchBytes is what the rows of a stretch take that one query reads and writes: they stay in
	// the second-level cache.
	stretchBytes = 512 << 10
	// leastListed is how many keys of a list lie in a stretch, for it to pay.
	leastListed = 32
)

// newListed describes a problem whose pass goes through so many tensors of the size of K, and of V.
func newListed[T kernels.Float](kernel string, a *kernels.ListedAttention, tensors int) (*listed[T], error) {
	q, k := a.Q.Shape, a.K.Shape
	p := &listed[T]{ListedAttention: a, queries: q[2], n: a.Lists.Shape[3], d: q[3], dv: a.V.Shape[3], batch: q[0], kvHeads: k[1]}
	p.scale = T(a.Plain().EffectiveScale())
	p.left = T(leftOf(float64(p.scale)))
	p.group = q[1] / max(1, k[1])
	p.dWide, p.dvWide = roundUp(p.d, simd.Lanes[T]()), roundUp(p.dv, simd.Lanes[T]())
	p.together = max(1, min(rowsOfBlock/max(1, p.group), ceilDiv(p.queries, tasksOfHead)))
	row := tensors * (p.dWide + p.dvWide) * kernels.DTypeOf[T]().Size()
	for 1<<p.stretch < k[2] && (p.together == 1 || row<<p.stretch < stretchBytes || p.n<<p.stretch < leastListed*k[2]) {
		p.stretch++
	}
	n := a.Lists.Elements()
	p.memory = newWorkspace(bytesFor[float64](n))
	p.indices = unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(take[float64](p.memory, n)))), n)
	if err := readIndices(p.indices, kernel, "lists", a.Lists, indexRange{k[2], &noIndex, "no key"}); err != nil {
		p.memory.release()
		return nil, err
	}
	return p, nil
}

// stretches is how many there are.
func (p *listed[T]) stretches() int { return ceilDiv(p.K.Shape[2], 1<<p.stretch) }

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

// listedBlock is some queries of a head, and the room that their heads need.
type listedBlock[T kernels.Float] struct {
	*listed[T]
	batch, head, first, count int // its queries

	memory *workspace
	lists  []int64 // of each query, by stretches
	starts []int   // of each query's stretches, and where the last ends
	q      rows[T] // of each query's heads
	s      rows[T] // of a query's heads with a lot of its keys
}

func newListedBlock[T kernels.Float](p *listed[T]) *listedBlock[T] {
	w := &listedBlock[T]{listed: p, lists: make([]int64, p.together*p.n), starts: make([]int, p.together*(p.stretches()+1))}
	all := p.together * p.group
	w.memory = newWorkspace(bytesFor[T](all*p.dWide) + bytesFor[T](p.group*scoreStride[T]()))
	w.q, w.s = rows[T]{take[T](w.memory, all*p.dWide), p.dWide}, rows[T]{take[T](w.memory, p.group*scoreStride[T]()), scoreStride[T]()}
	return w
}

// scoreStride keeps rows of scores apart in the cache's sets.
func scoreStride[T kernels.Float]() int { return lot + simd.Lanes[T]() }

// start makes it a block of other queries.
func (w *listedBlock[T]) start(batch, head, first, count int) {
	w.batch, w.head, w.first, w.count = batch, head, first, count
	for i := range count {
		copyRows(w.q.data[i*w.group*w.dWide:], w.heads(w.Q, batch, head, first+i), w.group, w.d, w.dWide)
		w.sort(i, w.list(batch, head, first+i))
	}
}

// sort brings the keys of a query's list into the order of their stretches. It counts and moves
// four parts of the list side by side: a count that is increased twice in a row would wait for
// itself. What is no key goes behind all others.
func (w *listedBlock[T]) sort(query int, list []int64) {
	const parts, most = 4, 64
	starts, to, stretches := w.startsOf(query), w.lists[query*w.n:][:w.n], w.stretches()
	var few [parts * (most + 1)]int
	next := few[:]
	if stretches > most {
		next = make([]int, parts*(stretches+1))
	}
	next = next[:parts*(stretches+1)]
	at := func(key int64, part int) *int { return &next[parts*(int(key>>w.stretch)+1)+part] }
	n := len(list) / parts
	list0, list1, list2, list3, rest := list[:n], list[n:2*n], list[2*n:3*n], list[3*n:4*n], list[4*n:]
	for i := range n {
		*at(list0[i], 0)++
		*at(list1[i], 1)++
		*at(list2[i], 2)++
		*at(list3[i], 3)++
	}
	for _, key := range rest {
		*at(key, 3)++
	}
	sum := 0
	take := func(counts []int) {
		for i, n := range counts {
			counts[i], sum = sum, sum+n
		}
	}
	for s := range stretches {
		starts[s] = sum
		take(next[parts*(s+1):][:parts])
	}
	starts[stretches] = sum
	take(next[:parts])
	move := func(key int64, part int) {
		place := at(key, part)
		to[*place] = key
		*place++
	}
	for i := range n {
		move(list0[i], 0)
		move(list1[i], 1)
		move(list2[i], 2)
		move(list3[i], 3)
	}
	for _, key := range rest {
		move(key, 3)
	}
}

func (w *listedBlock[T]) startsOf(query int) []int {
	n := w.stretches() + 1
	return w.starts[query*n:][:n]
}

// each goes through the lists, stretch by stretch, with at most a lot of a query's keys at a time.
func (w *listedBlock[T]) each(do func(query int, keys []int64)) {
	for stretch := range w.stretches() {
		for i := range w.count {
			starts := w.startsOf(i)
			for from := starts[stretch]; from < starts[stretch+1]; from += lot {
				do(i, w.lists[i*w.n+from:i*w.n+min(from+lot, starts[stretch+1])])
			}
		}
	}
}

// dots computes the products of a query's rows with listed rows.
func (w *listedBlock[T]) dots(d int, of rows[T], keys []int64, left, to rows[T], query int) {
	simd.ListedDots(w.group, d, of.at(0), of.stride, keys, left.at(query*w.group), left.stride, to.at(0), to.stride)
}

// combine adds to a query's rows the listed rows, weighted.
func (w *listedBlock[T]) combine(d int, weights, of rows[T], keys []int64, to rows[T], query int) {
	simd.ListedCombine(w.group, d, of.at(0), of.stride, keys, weights.at(0), weights.stride, to.at(query*w.group), to.stride)
}

// add adds to listed rows a query's rows, weighted.
func (w *listedBlock[T]) add(d int, weights, of rows[T], keys []int64, to rows[T], query int) {
	simd.ListedAdd(w.group, d, to.at(0), to.stride, keys, weights.at(0), weights.stride, of.at(query*w.group), of.stride)
}

func listedForward[T kernels.Float](b *Backend, a *kernels.ListedAttention, out kernels.AttentionOutputs) error {
	p, err := newListed[T]("listed attention forward", a, 1)
	if err != nil {
		return err
	}
	defer p.memory.release()
	if out.O.Elements() == 0 {
		return nil
	}
	var lse []T
	if out.LSE.IsSet() {
		lse = kernels.Host[T](out.LSE)
	}
	rowsOf, copies := p.keysAndValues(b)
	defer copies.release()
	blocks := ceilDiv(p.queries, p.together)
	b.inRuns(p.batch*p.kvHeads*blocks, p.flops(), func(claim func() (int, bool)) {
		w := newListedBlock(p)
		defer w.memory.release()
		g, all := p.group, p.together*p.group
		memory := newWorkspace(bytesFor[T](all*p.dvWide) + 2*bytesFor[T](all) + bytesFor[T](g))
		defer memory.release()
		o, m, sum, factor := rows[T]{take[T](memory, all*p.dvWide), p.dvWide}, take[T](memory, all), take[T](memory, all), take[T](memory, g)
		for task, ok := claim(); ok; task, ok = claim() {
			batch, head, first := task/blocks/p.kvHeads, task/blocks%p.kvHeads, task%blocks*p.together
			w.start(batch, head, first, min(p.together, p.queries-first))
			keys, values := rowsOf(batch, head)
			fill(m, float64(lowest[T]()))
			clear(sum)
			clear(o.data)
			w.each(func(i int, list []int64) {
				w.dots(p.dWide, keys, list, w.q, w.s, i)
				settle(g, len(list), w.s.at(0), w.s.stride, float64(p.scale), float64(p.left))
				simd.Softmax(g, len(list), w.s.at(0), w.s.stride, &m[i*g], &sum[i*g], o.at(i*g), o.stride, p.dvWide, p.left*log2e, -g, len(list))
				w.combine(p.dvWide, w.s, values, list, o, i)
			})
			for i := range w.count {
				for h, s := range sum[i*g:][:g] {
					if factor[h] = 0; s != 0 {
						factor[h] = 1 / s
					}
					if lse != nil {
						lse[(batch*p.kvHeads*g+head*g+h)*p.queries+first+i] = T(float64(p.left)*float64(m[i*g+h]) + math.Log(float64(s)))
					}
				}
				to := p.heads(out.O, batch, head, first+i)
				simd.ScaleRows(g, p.dv, to.at(0), to.stride, o.at(i*g), o.stride, factor)
			}
		}
	})
	return nil
}

// listedSums are the gradients of the keys and values of a head, summed over a part of the queries.
type listedSums[T kernels.Float] struct{ dK, dV rows[T] }

func listedBackward[T kernels.Float](b *Backend, a *kernels.ListedAttention, g kernels.AttentionGradients) error {
	p, err := newListed[T]("listed attention backward", a, 2)
	if err != nil {
		return err
	}
	defer p.memory.release()
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
		defer w.room.release()
		for task, ok := claim(); ok; task, ok = claim() {
			to, part := sums[task], task%parts
			clear(to.dK.data)
			clear(to.dV.data)
			batch, head := task/parts/p.kvHeads, task/parts%p.kvHeads
			w.keys, w.values = rowsOf(batch, head)
			end := (part + 1) * p.queries / parts
			for first := part * p.queries / parts; first < end; first += p.together {
				w.start(batch, head, first, min(p.together, end-first))
				w.addGradients(to)
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

// listedGradients is what a worker needs to add the gradients of a block.
type listedGradients[T kernels.Float] struct {
	*listedBlock[T]
	g            kernels.AttentionGradients
	keys, values rows[T]

	room     *workspace
	dO, dQ   rows[T] // of each query's heads
	dS       rows[T] // as s
	lse, own []T     // of each query's heads, lse without the factor that is left
	unit     []T     // of a query's heads
}

func newListedGradients[T kernels.Float](p *listed[T], g kernels.AttentionGradients) *listedGradients[T] {
	w := &listedGradients[T]{listedBlock: newListedBlock(p), g: g}
	all, scores := p.together*p.group, p.group*scoreStride[T]()
	w.room = newWorkspace(bytesFor[T](all*p.dvWide) + bytesFor[T](all*p.dWide) + bytesFor[T](scores) + 2*bytesFor[T](all) + bytesFor[T](p.group))
	w.dO, w.dQ = rows[T]{take[T](w.room, all*p.dvWide), p.dvWide}, rows[T]{take[T](w.room, all*p.dWide), p.dWide}
	w.dS = rows[T]{take[T](w.room, scores), scoreStride[T]()}
	w.lse, w.own, w.unit = take[T](w.room, all), take[T](w.room, all), take[T](w.room, p.group)
	fill(w.unit, float64(p.scale))
	return w
}

// addGradients computes the dQ of a block, and adds its part of the gradients of keys and values.
func (w *listedGradients[T]) addGradients(to listedSums[T]) {
	p, heads := w.listed, w.group
	for i := range w.count {
		copyRows(w.dO.data[i*heads*p.dvWide:], p.heads(w.g.DO, w.batch, w.head, w.first+i), heads, p.dv, p.dvWide)
	}
	clear(w.dQ.data)
	lse, delta := kernels.Host[T](w.g.LSE), kernels.Host[T](w.g.Delta)
	for i := range w.count {
		for h := range heads {
			row, at := (w.batch*p.kvHeads*heads+w.head*heads+h)*p.queries+w.first+i, i*heads+h
			w.own[at] = delta[row]
			if w.lse[at] = lse[row] / p.left; math.IsInf(float64(lse[row]), -1) {
				w.lse[at] = -lse[row] // no key has a weight
			}
		}
	}
	w.each(func(i int, list []int64) {
		w.dots(p.dWide, w.keys, list, w.q, w.s, i)
		w.dots(p.dvWide, w.values, list, w.dO, w.dS, i)
		settle(heads, len(list), w.s.at(0), w.s.stride, float64(p.scale), float64(p.left))
		simd.SoftmaxGrad(heads, len(list), w.s.at(0), w.dS.at(0), w.s.stride, &w.lse[i*heads], &w.own[i*heads], p.left*log2e, -heads, len(list))
		w.combine(p.dWide, w.dS, w.keys, list, w.dQ, i)
		w.add(p.dWide, w.dS, w.q, list, to.dK, i)
		w.add(p.dvWide, w.s, w.dO, list, to.dV, i)
	})
	for i := range w.count {
		dQ := p.heads(w.g.DQ, w.batch, w.head, w.first+i)
		simd.ScaleRows(heads, p.d, dQ.at(0), dQ.stride, w.dQ.at(i*heads), w.dQ.stride, w.unit)
	}
}
