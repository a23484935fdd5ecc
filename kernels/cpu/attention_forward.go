package cpu

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// AttentionForward computes O and, where out has room for it, the logsumexp.
//
// A task is a tile of query rows of one head. It walks over the keys that the tile sees, a tile of
// them at a time:
//
//	S = Q·Kᵀ     m' = max(m, rowmax S)     P = exp(S − m')     l = l·exp(m − m') + rowsum P     O = O·exp(m − m') + P·V
//
// and ends with O / l and LSE = m + log l. The keys of a head are transposed into panels once, for
// all of its tiles; a single query, as of a token that is decoded, reads them where they lie.
func (b *Backend) AttentionForward(a *kernels.Attention, out kernels.AttentionOutputs) (err error) {
	defer catch("attention forward", &err)
	if err := checked("attention forward", a.CheckForward(out)); err != nil {
		return err
	}
	if suitsCache(a) {
		return b.attentionOverCache(a, out)
	}
	h := halves{b: b}
	defer h.round()
	a, out.O = h.attention(a), h.write(out.O)
	return checked("attention forward", inTypeOf(a.Q, attentionForward[float32], attentionForward[float64])(b, a, out))
}

func attentionForward[T kernels.Float](b *Backend, a *kernels.Attention, out kernels.AttentionOutputs) (err error) {
	f := newForward[T](a, out)
	if f.rules, err = newRules(b, f.problem, 0); err == nil {
		f.run(b)
	}
	return err
}

// forward is one call of the forward kernel.
type forward[T kernels.Float] struct {
	*problem[T]
	rules  *rules[T]
	out    kernels.AttentionOutputs
	lse    []T
	tile   tile
	tiles  int  // query tiles of the longest sequence
	single bool // there is one query, which reads the keys where they lie: transposing them costs more than its product
	shared bool // keys are packed once for all the tiles that read them, not by each task for itself
	copyQ  bool
	copyV  bool
	keys   []packedKeys[T] // a sequence and key head each
	memory *workspace
}

// packedKeys are the keys and values of one head as operands of the two products.
type packedKeys[T kernels.Float] struct {
	transposed []T // panels of K's rows: K as the right operand of Q·Kᵀ
	values     rows[T]
	finite     bool // no NaN or Inf among the values

	keyTiles, valueTiles tiles // instead of these, where tiled is set
	tiled                bool
}

func newForward[T kernels.Float](a *kernels.Attention, out kernels.AttentionOutputs) *forward[T] {
	f := &forward[T]{problem: newProblem[T](a), out: out}
	f.tile = f.forwardTile()
	if out.LSE.IsSet() {
		f.lse = kernels.Host[T](out.LSE)
	}
	for _, s := range f.sequences {
		f.tiles = max(f.tiles, ceilDiv(s.Sq, f.tile.rows))
	}
	f.single = a.Q.Shape[2] == 1 && a.Mask == nil
	f.shared = f.tiles*f.group > 1 && !f.single
	f.copyQ, f.copyV = !reaches[T](a.Q, f.dPadded), !reaches[T](a.V, f.dvPadded)
	if f.single {
		f.copyV = f.dv != f.dvPadded
	}
	if f.tiled = f.tiled && f.shared; f.tiled {
		f.tile.strip = simd.TileLines
	}
	return f
}

// forwardTile keeps a tile of scores, the keys and the values it meets in the second-level cache,
// and one call of a vector kernel, which cannot be preempted, under a tenth of a millisecond.
func (p *problem[T]) forwardTile() tile {
	d, t := max(p.d, p.dv), tile{rows: p.taskRows, columns: mostColumns, strip: 24}
	if kernels.DTypeOf[T]() == kernels.F64 {
		d *= 2
	}
	for ; d > 128; d /= 2 {
		t.columns = max(64, t.columns/2)
	}
	return t
}

func (f *forward[T]) run(b *Backend) {
	flops := f.ForwardFLOPs()
	f.clearUnused()
	if f.shared {
		f.pack(b, flops)
		defer f.memory.release()
	}
	if f.single { // most of the work is reading keys and values
		flops += flopsPerElement * float64(len(f.sequences)*f.kvHeads*f.K.Shape[2]*(f.d+f.dv))
	}
	b.inRuns(len(f.sequences)*f.heads*f.tiles, flops, func(claim func() (int, bool)) {
		scratch := newForwardScratch(f)
		defer scratch.memory.release()
		for task, ok := claim(); ok; task, ok = claim() {
			// A head's tiles follow each other, so that its keys stay in the cache; under a causal
			// mask the last, the one with the most to do, comes first.
			n, h, q0 := task/f.tiles/f.heads, task/f.tiles%f.heads, (f.tiles-1-task%f.tiles)*f.tile.rows
			if s := f.sequences[n]; q0 < s.Sq {
				f.do(scratch, s, h, q0)
			}
		}
	})
}

// clearUnused is the result of the rows behind packed sequences.
func (f *forward[T]) clearUnused() {
	from, to := f.unusedRows()
	if from == to {
		return
	}
	for h := range f.heads {
		clearRows(matrix[T](f.out.O, 0, h, from), to-from, f.dv)
		if f.lse != nil {
			fill(f.lse[h*f.Q.Shape[2]:][from:to], math.Inf(-1))
		}
	}
}

// pack prepares the keys and values of all heads.
func (f *forward[T]) pack(b *Backend, flops float64) {
	f.keys = make([]packedKeys[T], len(f.sequences)*f.kvHeads)
	bytes := 0
	for _, s := range f.sequences {
		bytes += f.kvHeads * f.packedBytes(s.Sk)
	}
	f.memory = newWorkspace(bytes)
	for i := range f.keys {
		f.keys[i] = f.takePacked(f.memory, f.sequences[i/f.kvHeads].Sk)
	}
	if f.isSparse() || f.tiled {
		b.each(len(f.keys), flops, func(i int) {
			s, head := f.sequences[i/f.kvHeads], i%f.kvHeads
			if f.isSparse() {
				f.packShown(&f.keys[i], s, head)
				return
			}
			f.packRange(&f.keys[i], s, head, 0, s.Sk)
		})
		return
	}
	f.packParts(b, flops)
}

// packParts packs parts of heads, so that a few heads with many keys are packed by all threads.
func (f *forward[T]) packParts(b *Backend, flops float64) {
	const keys = mostColumns // of a part
	longest := 0
	for _, s := range f.sequences {
		longest = max(longest, s.Sk)
	}
	parts := max(1, ceilDiv(longest, keys))
	packed := make([]packedKeys[T], len(f.keys)*parts)
	b.each(len(packed), flops, func(n int) {
		i, from := n/parts, n%parts*keys
		s, to := f.sequences[i/f.kvHeads], &packed[n]
		to.finite = true
		if from > 0 && from >= s.Sk {
			return
		}
		to.transposed = f.keys[i].transposed[from*f.d:]
		if f.copyV {
			to.values.data = f.keys[i].values.data[from*f.dvPadded:]
		}
		f.packRange(to, s, i%f.kvHeads, from, min(from+keys, s.Sk))
	})
	for i := range f.keys {
		k := &f.keys[i]
		k.values, k.finite = packed[i*parts].values, true
		for _, part := range packed[i*parts:][:parts] {
			k.finite = k.finite && part.finite
		}
	}
}

func (f *forward[T]) packedBytes(keys int) int {
	bytes := bytesFor[T](roundUp(keys, simd.Panel[T]()) * f.d)
	if f.copyV {
		bytes += bytesFor[T](keys * f.dvPadded)
	}
	if f.tiled {
		bytes += tileBytes(keys, f.d) + tileBytes(f.dv, keys)
	}
	return bytes
}

func (f *forward[T]) takePacked(w *workspace, keys int) packedKeys[T] {
	k := packedKeys[T]{transposed: take[T](w, roundUp(keys, simd.Panel[T]())*f.d)}
	if f.copyV {
		k.values.data = take[T](w, keys*f.dvPadded)
	}
	if f.tiled {
		k.keyTiles, k.valueTiles = takeTiles(w, keys, f.d), takeTiles(w, f.dv, keys)
	}
	return k
}

// packRange packs the keys [from, to) of a head.
func (f *forward[T]) packRange(k *packedKeys[T], s kernels.Sequence, head, from, to int) {
	keys, values := matrix[T](f.K, s.KeyBatch, head, s.K0+from), matrix[T](f.V, s.KeyBatch, head, s.K0+from)
	k.finite = !f.masked || finite(values, to-from, f.dv)
	if k.tiled = f.tiled && k.finite && to > from; k.tiled {
		k.keyTiles = packRows(k.keyTiles, keys, to-from, f.d, true)
		k.valueTiles = packColumns(k.valueTiles, values, f.dv, to-from, true)
		return
	}
	simd.PackTransposed(k.transposed, keys.data, to-from, f.d, keys.stride)
	if f.copyV {
		k.values = copyRows(k.values.data, values, to-from, f.dv, f.dvPadded)
	} else {
		k.values = values
	}
}

// forwardScratch is what a worker needs for itself.
type forwardScratch[T kernels.Float] struct {
	memory       *workspace
	q            []T
	scores       rows[T]
	o            rows[T]
	m, l, factor []T
	own          packedKeys[T] // one tile of keys, where they are not shared
	points       *pointScratch[T]
	parts        []segment
	states       []stripStates // of the tiles of keys

	queryTiles, weightTiles tiles
}

func newForwardScratch[T kernels.Float](f *forward[T]) *forwardScratch[T] {
	r, c := f.tile.rows, f.tile.columns
	scoreStride := c + simd.Lanes[T]() // rows apart from each other in the cache's sets
	bytes := bytesFor[T](r*f.dPadded) + bytesFor[T](r*scoreStride) + bytesFor[T](r*f.dvPadded) + 3*bytesFor[T](r) + f.packedBytes(c)
	if f.tiled {
		bytes += tileBytes(r, f.d) + tileBytes(r, c)
	}
	s := &forwardScratch[T]{memory: newWorkspace(bytes)}
	s.q = take[T](s.memory, r*f.dPadded)
	s.scores = rows[T]{take[T](s.memory, r*scoreStride), scoreStride}
	s.o = rows[T]{take[T](s.memory, r*f.dvPadded), f.dvPadded}
	s.m, s.l, s.factor = take[T](s.memory, r), take[T](s.memory, r), take[T](s.memory, r)
	if !f.shared {
		s.own = f.takePacked(s.memory, c)
	}
	if f.tiled {
		s.queryTiles, s.weightTiles = takeTiles(s.memory, r, f.d), takeTiles(s.memory, r, c)
	}
	if f.rules != nil {
		s.points = newPointScratch[T](c, f.rules.score, f.rules.hide)
	}
	if f.isSparse() {
		longest := 0
		for _, sequence := range f.sequences {
			longest = max(longest, sequence.Sk)
		}
		s.states = make([]stripStates, ceilDiv(longest, maskColumns))
	}
	return s
}

// do computes the tile of query rows that starts at q0.
func (f *forward[T]) do(w *forwardScratch[T], s kernels.Sequence, h, q0 int) {
	n := min(f.tile.rows, s.Sq-q0)
	q := matrix[T](f.Q, s.Batch, h, s.Q0+q0)
	if f.copyQ {
		q = copyRows(w.q, q, n, f.d, f.dPadded)
	}
	f.start(w, h, n)
	lo, hi := f.band(s)
	first, end := max(0, q0+lo), min(s.Sk, q0+n-1+hi)
	if f.isSparse() {
		f.doSparse(w, block[T]{s: s, head: h, q0: q0, q: q, lo: lo + q0, hi: hi + q0}, n)
		f.finish(w, s, h, q0, n)
		return
	}
	if f.tiled {
		w.queryTiles = packRows(w.queryTiles, q, n, f.d, false)
	}
	for k0 := first / f.columnUnit * f.columnUnit; k0 < end; k0 += f.tile.columns {
		columns := min(f.tile.columns, end-k0)
		if f.single {
			f.step(w, f.singleBlock(w, s, h, k0, columns, q), 0, 1)
			continue
		}
		keys, at := &w.own, 0
		if f.shared {
			keys, at = &f.keys[s.Index*f.kvHeads+h/f.group], k0
		} else {
			f.packRange(keys, s, h/f.group, k0, k0+columns)
		}
		part := block[T]{
			s: s, head: h, q0: q0, k0: k0, columns: columns, lo: lo + q0 - k0, hi: hi + q0 - k0,
			q: q, finite: keys.finite,
		}
		if keys.tiled {
			part.tiles = keys
		} else {
			part.keys, part.values = keys.transposed[at*f.d:], keys.values.from(at)
		}
		if part.lo+n-1 <= 0 && part.hi >= columns {
			f.step(w, part, 0, n)
			continue
		}
		for i := 0; i < n; i += f.tile.strip {
			f.step(w, part, i, min(f.tile.strip, n-i))
		}
	}
	f.finish(w, s, h, q0, n)
}

// singleBlock is a tile of keys for the one query that there is.
func (f *forward[T]) singleBlock(w *forwardScratch[T], s kernels.Sequence, h, k0, columns int, q rows[T]) block[T] {
	lo, hi := f.band(s)
	b := block[T]{
		s: s, head: h, k0: k0, columns: columns, lo: lo - k0, hi: hi - k0, q: q,
		inPlace: matrix[T](f.K, s.KeyBatch, h/f.group, s.K0+k0), values: matrix[T](f.V, s.KeyBatch, h/f.group, s.K0+k0),
	}
	if f.copyV {
		b.values = copyRows(w.own.values.data, b.values, columns, f.dv, f.dvPadded)
	}
	b.finite = b.lo <= 0 && b.hi >= columns || finite(b.values, columns, f.dv) // where nothing is hidden, NaN reaches the output as it should
	return b
}

// start clears the running maximum, sum and output. A sink is a key that came before all others and
// had no value.
func (f *forward[T]) start(w *forwardScratch[T], h, n int) {
	m, l := lowest[T](), T(0)
	if f.hasSink(h) {
		m = f.sink(h)
		l = m - m + 1 // NaN if m is
	}
	for i := range n {
		w.m[i], w.l[i] = m, l
	}
	clear(w.o.data[:n*f.dvPadded])
}

// hasSink reports whether a head has a sink that takes anything.
func (f *forward[T]) hasSink(h int) bool {
	return f.sinks != nil && !math.IsInf(float64(f.sinks[h]), -1)
}

// sink is the sink of a head as scores are, without the factor that is left. One of +∞ leaves no
// row a number: it is ∞ − ∞, as among scores.
func (f *forward[T]) sink(h int) T {
	if math.IsInf(float64(f.sinks[h]), 1) {
		return T(math.NaN())
	}
	return min(max(lowest[T](), f.sinks[h]/T(f.left)), -lowest[T]())
}

// lowest is where a running maximum starts: the most negative finite number, so that a score of −∞
// has no weight.
func lowest[T kernels.Float]() T {
	if kernels.DTypeOf[T]() == kernels.F32 {
		return -math.MaxFloat32
	}
	lowest := -math.MaxFloat64
	return T(lowest)
}

// block is a tile of query rows against a tile of keys. Its row 0 sees the columns from lo up to
// hi.
type block[T kernels.Float] struct {
	s               kernels.Sequence
	head, q0, k0    int
	columns, lo, hi int
	q               rows[T]
	keys            []T     // transposed
	inPlace         rows[T] // the keys of a single query, in the place of keys
	values          rows[T]
	finite          bool
	partly          bool           // a mask hides more than the band
	tiles           *packedKeys[T] // of all keys, in the place of keys and values; nil for none
}

// step takes the rows [i, i+n) of a block through one step of the online softmax.
func (f *forward[T]) step(w *forwardScratch[T], b block[T], i, n int) {
	from, to := span(i, n, b.columns, b.lo, b.hi, f.columnUnit)
	if from >= to {
		return
	}
	lanes, panel := simd.Lanes[T](), simd.Panel[T]()
	scores := &w.scores.data[i*w.scores.stride+from]
	switch {
	case f.single:
		simd.Dots(to-from, f.d, b.inPlace.at(from), b.inPlace.stride, b.q.at(0), 0, unsafe.Slice(scores, to-from))
	case b.tiles != nil:
		w.queryTiles.multiply(i, n, 0, b.tiles.keyTiles, b.k0+from, to-from, 0, unsafe.Pointer(scores), w.scores.stride, false)
	default:
		simd.Gemm(n, ceilDiv(to-from, lanes), f.d, b.q.at(i), b.q.stride, 1, &b.keys[from*f.d], panel, f.d*panel, scores, w.scores.stride, false)
	}
	f.scores(w, b, i, n, from, to, scores)
	lo, hi := b.lo+i-from, b.hi+i-from
	simd.Softmax(n, to-from, scores, w.scores.stride, &w.m[i], &w.l[i], w.o.at(i), w.o.stride, f.dvPadded, T(f.left*log2e), lo, hi)
	if f.Dropout.P > 0 {
		f.drop(b.s, b.head, b.q0+i, b.k0+from, n, to-from, scores, scores, w.scores.stride, 1)
	}
	if b.tiles == nil {
		f.addValues(w, b, i, n, from, to, scores)
		return
	}
	weights := packRows(w.weightTiles, rows[T]{w.scores.data[i*w.scores.stride+from:], w.scores.stride}, n, to-from, false)
	weights.multiply(0, n, 0, b.tiles.valueTiles, 0, f.dv, b.k0+from, unsafe.Pointer(w.o.at(i)), w.o.stride, true)
}

// scores turns raw products of the rows [i, i+n) and the columns [from, to) of a block into scores,
// but for the factor that is left.
func (f *forward[T]) scores(w *forwardScratch[T], b block[T], i, n, from, to int, scores *T) {
	factor := f.scale
	if f.transformed {
		factor = f.transform(b.s, b.head, b.q0+i, b.k0+from, n, to-from, scores, nil, w.scores.stride)
	}
	if f.rules != nil && f.rules.score != nil {
		at := f.rules.part(f.problem, b.s, b.head, b.q0+i, b.k0+from, n, to-from, scores, w.scores.stride)
		w.points.run(f.rules.score, at, T(factor), f.rules.values)
		factor = 1
	}
	settle(n, to-from, scores, w.scores.stride, factor, f.left)
	if b.partly {
		at := f.rules.part(f.problem, b.s, b.head, b.q0+i, b.k0+from, n, to-from, scores, w.scores.stride)
		w.points.run(f.rules.hide, at.masked(), T(math.Inf(-1)), f.rules.values)
	}
}

// finish divides by the sums and stores the tile.
func (f *forward[T]) finish(w *forwardScratch[T], s kernels.Sequence, h, q0, n int) {
	kept := T(1)
	if f.Dropout.P > 0 {
		kept = T(f.Dropout.Scale())
	}
	for i, l := range w.l[:n] {
		if w.factor[i] = 0; l != 0 {
			w.factor[i] = kept / l
		}
	}
	out := matrix[T](f.out.O, s.Batch, h, s.Q0+q0)
	simd.ScaleRows(n, f.dv, out.at(0), out.stride, w.o.at(0), w.o.stride, w.factor[:n])
	if f.lse == nil {
		return
	}
	lse := f.lse[f.row(s, h)+q0:][:n]
	for i := range lse {
		most := f.left * float64(w.m[i])
		if f.hasSink(h) && w.m[i] == f.sink(h) {
			most = float64(f.sinks[h]) // not rounded twice, so that a sink of any size has the weight of 1 beside small scores
		}
		lse[i] = T(most + math.Log(float64(w.l[i])))
	}
}
