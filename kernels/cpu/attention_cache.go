package cpu

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Attention of a few rows over many keys, as a model computes it for its next token, takes as long
// as reading the keys and values once. A task is a run of keys of all heads. A few keys at a time
// are read for all heads, nearly as they lie in memory, and kernels ask for the next ones while
// they compute. Where runs begin depends on the problem alone, and their sums are added in the
// order of the keys.

const (
	// mostCacheRows is how many rows may share keys, leastCacheKeys how many keys are worth it.
	mostCacheRows, leastCacheKeys = 16, 128
	// keysOfRun is a task's keys.
	keysOfRun = 256
	// mostOfStep and leastOfStep are the keys of a step of the softmax, bytesOfStep what they and
	// their values take unless they are the least. keysAtOnce are those that a kernel reads.
	mostOfStep, leastOfStep, bytesOfStep = 64, keysAtOnce, 256 << 10
	keysAtOnce                           = 16
)

// everyKey lists the keys that a kernel reads.
var everyKey = func() (list [keysAtOnce]int64) {
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
	c := &cached[T]{forward: f, sharing: f.group * a.Q.Shape[2], runs: ceilDiv(a.K.Shape[2], keysOfRun)}
	f.tile, f.single, f.shared = tile{rows: f.kvHeads * c.sharing, columns: mostOfStep, strip: c.sharing}, false, true
	for c.together = mostOfStep; c.together > leastOfStep && c.together*f.kvHeads*(f.d+f.dv)*a.K.DType.Size() > bytesOfStep; {
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
	memory  *workspace
	queries []T // of all heads
}

func newCachedScratch[T kernels.Float](c *cached[T]) *cachedScratch[T] {
	queries := c.kvHeads * c.sharing * c.dPadded
	w := &cachedScratch[T]{newForwardScratch(c.forward), newWorkspace(bytesFor[T](queries)), nil}
	w.queries = take[T](w.memory, queries)
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
	lo, hi := c.band(s)
	for k0 := from; k0 < to; k0 += c.together {
		st := step[T]{cached: c, forwardScratch: w.forwardScratch, s: s, run: run, k0: k0, keys: min(c.together, to-k0), lo: lo - k0, hi: hi - k0}
		st.whole = st.lo+s.Sq-1 <= 0 && st.hi >= st.keys
		st.dots(w.queries)
		for head := range c.kvHeads {
			st.soften(head)
		}
		st.combine()
	}
}

// someRows are rows of a head, of T or of 16 bits.
type someRows struct {
	dtype  kernels.DType
	data   unsafe.Pointer
	stride int // elements from row to row
	head   int // elements from head to head
}

func (r someRows) from(n int) someRows {
	r.data = unsafe.Add(r.data, n*r.stride*r.dtype.Size())
	return r
}

func (r someRows) of(head int) someRows {
	r.data = unsafe.Add(r.data, head*r.head*r.dtype.Size())
	return r
}

// ahead is how many bytes there are to what a kernel's next call reads.
func (r someRows) ahead() int { return keysAtOnce * r.stride * r.dtype.Size() }

// rowsOf are a sequence's keys or values from one on, of the first head.
func rowsOf(t kernels.Tensor, s kernels.Sequence, row int) someRows {
	return someRows{t.DType, unsafe.Add(t.Data, t.DType.Size()*t.Offset(s.KeyBatch, 0, s.K0+row)), t.Strides[2], t.Strides[1]}
}

// step is some keys of a run, whose scores with the rows of all heads are in the scratch. Row 0 of
// a head sees those from lo up to hi.
type step[T kernels.Float] struct {
	*cached[T]
	*forwardScratch[T]
	s             kernels.Sequence
	run, k0, keys int
	lo, hi        int
	whole         bool // every row sees all
}

// of is where a head's scores begin, from a row and a column on.
func (st *step[T]) of(head, row, column int) *T {
	return &st.scores.data[(head*st.sharing+row)*st.scores.stride+column]
}

// dots multiplies the keys by the rows of all heads.
func (st *step[T]) dots(queries []T) {
	all := rowsOf(st.K, st.s, st.k0)
	for from := 0; from < st.keys; from += keysAtOnce {
		n, some := min(keysAtOnce, st.keys-from), all.from(from)
		for head := range st.kvHeads {
			q, to, keys := &queries[head*st.sharing*st.dPadded], st.of(head, 0, from), some.of(head)
			if keys.dtype == kernels.F64 {
				simd.ListedDots(st.sharing, st.d, (*T)(keys.data), keys.stride, everyKey[:n], q, st.dPadded, to, st.scores.stride)
				continue
			}
			simd.CacheDots(keys.dtype, st.sharing, n, st.d, keys.data, keys.stride, asFloat32(q), st.dPadded, asFloat32(to), st.scores.stride, keys.ahead())
		}
	}
}

// soften makes weights of the scores of a key head's rows.
func (st *step[T]) soften(head int) {
	at := st.at(st.s, st.run, head)
	soften := func(first, rows, lo, hi int) {
		r := at + first
		simd.Softmax(rows, st.keys, st.of(head, first, 0), st.scores.stride, &st.cached.m[r], &st.cached.l[r], st.partials.at(r), st.partials.stride, st.dvPadded, T(st.left*log2e), lo, hi)
	}
	if st.whole && st.left == st.scale {
		soften(0, st.sharing, -st.sharing, st.keys)
		return
	}
	for h := range st.group {
		first, b := h*st.s.Sq, block[T]{s: st.s, head: head*st.group + h, k0: st.k0, columns: st.keys}
		st.cached.scores(st.forwardScratch, b, 0, st.s.Sq, 0, st.keys, st.of(head, first, 0))
		soften(first, st.s.Sq, st.lo, st.hi)
	}
}

// combine adds the values, times their weights, to the rows of all heads. What a row does not see
// may be no number.
func (st *step[T]) combine() {
	all := rowsOf(st.V, st.s, st.k0)
	for from := 0; from < st.keys; from += keysAtOnce {
		end := min(from+keysAtOnce, st.keys)
		for head := range st.kvHeads {
			if st.whole {
				st.add(all.of(head), head, 0, st.sharing, from, end)
				continue
			}
			for r := range st.sharing {
				i := r % st.s.Sq
				if from, end := max(from, st.lo+i), min(end, st.hi+i); from < end {
					st.add(all.of(head), head, r, 1, from, end)
				}
			}
		}
	}
}

// add adds some values to some rows of a head.
func (st *step[T]) add(values someRows, head, row, rows, from, end int) {
	values = values.from(from)
	weights, o := st.of(head, row, from), st.partials.at(st.at(st.s, st.run, head)+row)
	if values.dtype == kernels.F64 {
		simd.ListedCombine(rows, st.dv, (*T)(values.data), values.stride, everyKey[:end-from], weights, st.scores.stride, o, st.partials.stride)
		return
	}
	simd.CacheCombine(values.dtype, rows, end-from, st.dv, values.data, values.stride, asFloat32(weights), st.scores.stride, asFloat32(o), st.partials.stride, values.ahead())
}

// asFloat32 is a number that is of float32, since K and V are not of float64.
func asFloat32[T kernels.Float](x *T) *float32 { return (*float32)(unsafe.Pointer(x)) }

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
			sum := w.l[i] * T(math.Exp(c.left*float64(w.m[i]-most)))
			for run := from; run < to; run++ {
				at := c.at(s, run, head) + r
				factor := T(math.Exp(c.left * float64(c.m[at]-most)))
				sum += c.l[at] * factor
				simd.ListedCombine(1, c.dvPadded, c.partials.at(at), 0, everyKey[:1], &factor, 0, w.o.at(i), 0)
			}
			w.m[i], w.l[i] = most, sum
		}
		c.finish(w, s, head*c.group+h, 0, s.Sq)
	}
}
