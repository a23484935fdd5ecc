package cpu

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Attention of a few rows over many keys, as a model computes it for its next token, takes as long
// as reading the keys and values once. A task is a run of keys of all heads, a few keys at a time:
// these are read as they lie in memory, from one end to the other, and are in the second-level
// cache when the heads come to them, one by one. Where runs begin depends on the problem alone, and
// their sums are added in the order of the keys.

const (
	// mostCacheRows is how many rows may share keys, leastCacheKeys how many keys are worth it.
	mostCacheRows, leastCacheKeys = 16, 128
	// keysOfRun is a task's keys.
	keysOfRun = 256
	// mostOfStep and leastOfStep are the keys that are read at once, bytesOfStep what they take in
	// float32 unless they are the least.
	mostOfStep, leastOfStep, bytesOfStep = 32, 8, 512 << 10
)

// everyKey lists the keys of a step.
var everyKey = func() (list [mostOfStep]int64) {
	for i := range list {
		list[i] = int64(i)
	}
	return list
}()

// suitsCache reports whether a problem is one of few rows over many keys.
func suitsCache(a *kernels.Attention) bool {
	const vector = 16 // a multiple of all vectors' lanes
	q, k := a.Q.Shape, a.K.Shape
	return a.Score == nil && a.Mask == nil && a.Dropout.P == 0 && a.QLens == nil && k[1] > 0 && q[2] > 0 && q[2]*(q[1]/k[1]) <= mostCacheRows &&
		k[2] >= leastCacheKeys && q[3]%vector == 0 && a.V.Shape[3]%vector == 0
}

// attentionOverCache is AttentionForward of such a problem.
func (b *Backend) attentionOverCache(a *kernels.Attention, out kernels.AttentionOutputs) error {
	h := halves{b: b}
	defer h.round()
	wide := *a
	wide.Q, wide.Bias, wide.Sinks, out.O = h.read(a.Q), h.read(a.Bias), h.read(a.Sinks), h.write(out.O)
	wide.Precision = kernels.PrecisionFloat32
	return inTypeOf(wide.Q, overCache[float32], overCache[float64])(b, &wide, out)
}

// cached is such a call. forward knows the shapes alone of K and V, which may be of 16 bits.
type cached[T kernels.Float] struct {
	*forward[T]
	sharing  int // rows that share keys: those of the first head, then those of the next
	runs     int // of the longest sequence
	together int // keys of a step
	partials rows[T]
	m, l     []T // of each row of each run
}

func overCache[T kernels.Float](b *Backend, a *kernels.Attention, out kernels.AttentionOutputs) error {
	f := newForward[T](a, out)
	f.tile, f.single, f.shared = tile{rows: mostCacheRows, columns: mostOfStep, strip: mostCacheRows}, false, true
	c := &cached[T]{forward: f, sharing: f.group * a.Q.Shape[2], runs: ceilDiv(a.K.Shape[2], keysOfRun)}
	for c.together = mostOfStep; c.together > leastOfStep && c.together*f.kvHeads*(f.d+f.dv)*kernels.F32.Size() > bytesOfStep; {
		c.together /= 2
	}
	n := len(f.sequences) * c.runs * f.kvHeads * c.sharing
	memory := newWorkspace(bytesFor[T](n*f.dvPadded) + 2*bytesFor[T](n))
	defer memory.release()
	c.partials = rows[T]{take[T](memory, n*f.dvPadded), f.dvPadded}
	c.m, c.l = take[T](memory, n), take[T](memory, n)
	flops := f.ForwardFLOPs() + flopsPerElement*float64(len(f.sequences)*f.kvHeads*a.K.Shape[2]*(f.d+f.dv)) // most of the work is reading
	b.inRuns(len(f.sequences)*c.runs, flops, func(claim func() (int, bool)) {
		w := newCachedScratch(c)
		defer w.release()
		for task, ok := claim(); ok; task, ok = claim() {
			c.do(w, f.sequences[task/c.runs], task%c.runs)
		}
	})
	b.each(len(f.sequences)*f.kvHeads, float64(n*f.dvPadded), func(task int) {
		w := newForwardScratch(f)
		defer w.memory.release()
		c.merge(w, f.sequences[task/f.kvHeads], task%f.kvHeads)
	})
	return nil
}

// cachedScratch is what a worker needs for itself.
type cachedScratch[T kernels.Float] struct {
	*forwardScratch[T]
	memory       *workspace
	queries      []T       // of all heads
	keys, values []float32 // a step's, where they are widened
}

func newCachedScratch[T kernels.Float](c *cached[T]) *cachedScratch[T] {
	keys, values := c.together*c.kvHeads*c.d, c.together*c.kvHeads*c.dv
	if c.K.DType != kernels.BF16 {
		keys, values = 0, 0
	}
	queries := c.kvHeads * c.sharing * c.dPadded
	w := &cachedScratch[T]{newForwardScratch(c.forward), newWorkspace(bytesFor[T](queries) + bytesFor[float32](keys) + bytesFor[float32](values)), nil, nil, nil}
	w.queries, w.keys, w.values = take[T](w.memory, queries), take[float32](w.memory, keys), take[float32](w.memory, values)
	return w
}

func (w *cachedScratch[T]) release() {
	w.memory.release()
	w.forwardScratch.memory.release()
}

// span is what of a sequence's keys some row sees.
func (c *cached[T]) span(s kernels.Sequence) (first, end int) {
	lo, hi := c.band(s)
	return max(0, lo), min(s.Sk, s.Sq-1+hi)
}

// at is the number of a key head's first row in a run.
func (c *cached[T]) at(s kernels.Sequence, run, head int) int {
	return ((s.Index*c.runs+run)*c.kvHeads + head) * c.sharing
}

// do computes what a run of keys adds to all rows.
func (c *cached[T]) do(w *cachedScratch[T], s kernels.Sequence, run int) {
	first, end := c.span(s)
	from, to := max(first, run*keysOfRun), min(end, (run+1)*keysOfRun)
	if from >= to {
		return
	}
	for h := range c.heads {
		copyRows(w.queries[h*s.Sq*c.dPadded:], matrix[T](c.Q, s.Batch, h, s.Q0), s.Sq, c.d, c.dPadded)
	}
	at, n := c.at(s, run, 0), c.kvHeads*c.sharing
	fill(c.m[at:at+n], float64(lowest[T]()))
	clear(c.l[at : at+n])
	clear(c.partials.data[at*c.dvPadded : (at+n)*c.dvPadded])
	for k0 := from; k0 < to; k0 += c.together {
		n := min(c.together, to-k0)
		keys, values := c.read(w.keys, c.K, s, k0, n), c.read(w.values, c.V, s, k0, n)
		for head := range c.kvHeads {
			at := c.at(s, run, head)
			w.m, w.l, w.o = c.m[at:at+c.sharing], c.l[at:at+c.sharing], c.partials.from(at)
			w.q = w.queries[head*c.sharing*c.dPadded:]
			c.step(w.forwardScratch, s, head, k0, n, keys.of(head), values.of(head))
		}
	}
}

// someRows are rows of a head, of T or of 16 bits.
type someRows struct {
	dtype  kernels.DType
	data   unsafe.Pointer
	stride int // elements from row to row
	head   int // elements from head to head
}

func (r someRows) at(n int) unsafe.Pointer { return unsafe.Add(r.data, n*r.stride*r.dtype.Size()) }
func (r someRows) from(n int) someRows     { r.data = r.at(n); return r }
func (r someRows) of(head int) someRows {
	r.data = unsafe.Add(r.data, head*r.head*r.dtype.Size())
	return r
}

// read brings n rows of all heads into the cache, widened into memory if they are of bfloat16.
func (c *cached[T]) read(wide []float32, t kernels.Tensor, s kernels.Sequence, row, n int) someRows {
	d, size := t.Shape[3], t.DType.Size()
	in := someRows{t.DType, unsafe.Add(t.Data, size*t.Offset(s.KeyBatch, 0, s.K0+row)), t.Strides[2], t.Strides[1]}
	together := in.head == d && in.stride == c.kvHeads*d // all heads of a key lie side by side
	if t.DType != kernels.BF16 {
		if together {
			const float = 4
			simd.Greatest(n*in.stride*size/float, (*float32)(in.data)) // it reads; what it finds is of no use
		}
		return in
	}
	out := someRows{kernels.F32, unsafe.Pointer(unsafe.SliceData(wide)), d, n * d}
	widen := func(elements int, to, from unsafe.Pointer) {
		simd.WidenRow(elements, (*float32)(to), (*kernels.BFloat16)(from))
	}
	if together {
		out.stride, out.head = in.stride, in.head
		widen(n*in.stride, out.data, in.data)
		return out
	}
	for head := range c.kvHeads {
		if from, to := in.of(head), out.of(head); in.stride == d {
			widen(n*d, to.data, from.data)
		} else {
			for i := range n {
				widen(d, to.at(i), from.at(i))
			}
		}
	}
	return out
}

// step adds n keys to the rows of a key head.
func (c *cached[T]) step(w *forwardScratch[T], s kernels.Sequence, head, k0, n int, keys, values someRows) {
	c.dots(w, n, keys)
	lo, hi := c.band(s)
	lo, hi = lo-k0, hi-k0
	for h := range c.group {
		first := h * s.Sq
		b := block[T]{s: s, head: head*c.group + h, k0: k0, columns: n}
		scores := &w.scores.data[first*w.scores.stride]
		factor := c.scores(w, b, 0, s.Sq, 0, n, scores)
		simd.Softmax(s.Sq, n, scores, w.scores.stride, &w.m[first], &w.l[first], w.o.at(first), w.o.stride, c.dvPadded, T(factor*log2e), lo, hi)
	}
	if lo+s.Sq-1 <= 0 && hi >= n {
		c.combine(w, n, values, 0, c.sharing, 0)
		return
	}
	for r := range c.sharing { // what a row does not see may be no number
		i := r % s.Sq
		if from, to := max(0, lo+i), min(n, hi+i); from < to {
			c.combine(w, to-from, values.from(from), r, 1, from)
		}
	}
}

// dots multiplies n keys by all rows.
func (c *cached[T]) dots(w *forwardScratch[T], n int, keys someRows) {
	if !isHalf(keys.dtype) {
		simd.ListedDots(c.sharing, c.d, (*T)(keys.data), keys.stride, everyKey[:n], &w.q[0], c.dPadded, &w.scores.data[0], w.scores.stride)
		return
	}
	q, scores := asFloat32(w.q), asFloat32(w.scores.data)
	for r := range c.sharing {
		simd.HalfDots(keys.dtype, n, c.d, (*uint16)(keys.data), keys.stride, &q[r*c.dPadded], scores[r*w.scores.stride:][:n])
	}
}

// combine adds n values to some rows, each times its weight in the scores, from a column on.
func (c *cached[T]) combine(w *forwardScratch[T], n int, values someRows, row, rows, column int) {
	at := row*w.scores.stride + column
	if !isHalf(values.dtype) {
		simd.ListedCombine(rows, c.dv, (*T)(values.data), values.stride, everyKey[:n], &w.scores.data[at], w.scores.stride, w.o.at(row), w.o.stride)
		return
	}
	weights, o := asFloat32(w.scores.data), asFloat32(w.o.data)
	for r := range rows {
		simd.HalfCombine(values.dtype, n, c.dv, (*uint16)(values.data), values.stride, &weights[at+r*w.scores.stride], 1, &o[(row+r)*w.o.stride], true)
	}
}

// asFloat32 is numbers that are of float32, since K and V are of 16 bits.
func asFloat32[T kernels.Float](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// merge adds up the runs of a key head and stores its rows.
func (c *cached[T]) merge(w *forwardScratch[T], s kernels.Sequence, head int) {
	first, end := c.span(s)
	from, to := first/keysOfRun, ceilDiv(end, keysOfRun)
	if first >= end {
		from, to = 0, 0
	}
	for h := range c.group {
		c.start(w, head*c.group+h, s.Sq)
		for i := range s.Sq {
			r := h*s.Sq + i
			most := w.m[i]
			for run := from; run < to; run++ {
				most = max(most, c.m[c.at(s, run, head)+r])
			}
			sum := w.l[i] * T(math.Exp2(float64(w.m[i]-most)))
			for run := from; run < to; run++ {
				at := c.at(s, run, head) + r
				factor := T(math.Exp2(float64(c.m[at] - most)))
				sum += c.l[at] * factor
				simd.ListedCombine(1, c.dvPadded, c.partials.at(at), 0, everyKey[:1], &factor, 0, w.o.at(i), 0)
			}
			w.m[i], w.l[i] = most, sum
		}
		c.finish(w, s, head*c.group+h, 0, s.Sq)
	}
}
