package cpu

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/score"
)

var _ kernels.AttentionSecondKernels = (*Backend)(nil)

// AttentionSecond differentiates attention's gradients.
//
// The first pass goes through the keys of each tile of queries and sums up, online as the forward
// kernel does, what a row needs of all its keys: the logsumexp, δ, R and H. In the second pass a
// task is a tile of keys, as in the backward kernel: the gradients of keys and values are its own,
// and it adds to those of queries and dO in the order of the keys, so that sums are the same for
// any number of threads.
func (b *Backend) AttentionSecond(a *kernels.Attention, s kernels.AttentionSecond) (err error) {
	const kernel = "second derivatives of attention"
	defer catch(kernel, &err)
	if err := checked(kernel, a.CheckSecond(s)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	wide := *h.attention(a)
	wide.Precision = kernels.PrecisionFloat32 // products are made of vectors
	for _, t := range []*kernels.Tensor{&s.DO, &s.UQ, &s.UK, &s.UV, &s.UBias, &s.USinks} {
		*t = h.read(*t)
	}
	for _, t := range []*kernels.Tensor{&s.DQ, &s.DK, &s.DV, &s.DDO, &s.DBias, &s.DSinks} {
		*t = h.write(*t)
	}
	return checked(kernel, inTypeOf(wide.Q, attentionSecond[float32], attentionSecond[float64])(b, &wide, s))
}

func attentionSecond[T kernels.Float](b *Backend, a *kernels.Attention, s kernels.AttentionSecond) (err error) {
	k := newSecond[T](a, s)
	if k.rules, err = newRules(b, k.problem, 2); err == nil {
		k.run(b)
	}
	return err
}

// second is one call of the kernel.
type second[T kernels.Float] struct {
	*problem[T]
	rules                *rules[T]
	g                    kernels.AttentionSecond
	tile                 tile
	keyTiles, queryTiles int // of the longest sequence
	queries              []secondQueries[T]
	keys                 []secondKeys[T]
	order                *ticketOrder
	groups               [][]keyHead
	memory               *workspace
	dropScale            float64
}

// secondQueries is one query head of one sequence. UQ is multiplied by the scale.
type secondQueries[T kernels.Float] struct {
	q, u, dO, dq, ddO rows[T]
	lse, delta        []T // lse in binary exponents, +∞ for a row without keys
	mean, shift       []T // R and H
	finite            bool
}

// secondKeys is one key head: rows, and the same as panels, the right operands of products with
// queries. UK is multiplied by the scale.
type secondKeys[T kernels.Float] struct {
	k, u, v, w     rows[T]
	kT, uT, vT, wT []T
	finite         bool
}

func newSecond[T kernels.Float](a *kernels.Attention, g kernels.AttentionSecond) *second[T] {
	k := &second[T]{problem: newProblem[T](a), g: g, dropScale: 1}
	if a.Dropout.P > 0 {
		k.dropScale = a.Dropout.Scale()
	}
	k.tile = k.backwardTile()
	for _, s := range k.sequences {
		k.keyTiles = max(k.keyTiles, ceilDiv(s.Sk, k.tile.columns))
		k.queryTiles = max(k.queryTiles, ceilDiv(s.Sq, k.tile.rows))
	}
	k.order = newTicketOrder(len(k.sequences) * k.heads * k.queryTiles)
	k.groups = k.groupKeyHeads(g.DBias)
	return k
}

// keysOf is the keys that a head of a sequence reads.
func (k *second[T]) keysOf(s kernels.Sequence, kvHead int) *secondKeys[T] {
	at := s.KeyBatch
	if k.QLens != nil {
		at = s.Index
	}
	return &k.keys[at*k.kvHeads+kvHead]
}

func (k *second[T]) run(b *Backend) {
	flops := 3.4 * k.BackwardFLOPs()
	if k.g.DBias.IsSet() {
		clear(kernels.Host[T](k.g.DBias))
	}
	if k.g.DDLSE.IsSet() {
		clear(kernels.Host[T](k.g.DDLSE))
	}
	k.clearUnused()
	k.prepare(b, flops)
	defer k.memory.release()
	b.inRuns(len(k.queries)*k.queryTiles, flops, func(claim func() (int, bool)) {
		w := newSecondScratch(k)
		defer w.memory.release()
		for task, ok := claim(); ok; task, ok = claim() {
			n := task / k.queryTiles
			if s, q0 := k.sequences[n/k.heads], task%k.queryTiles*k.tile.rows; q0 < s.Sq {
				k.sumRows(w, s, n%k.heads, q0)
			}
		}
	})
	k.finishRows()
	tilesOfTask := 1
	if broadcastsColumns(k.g.DBias) {
		tilesOfTask = max(1, k.keyTiles) // the tiles of a group add to the same elements
	}
	b.parallel(len(k.groups)*k.keyTiles/tilesOfTask, flops, func(claim func() (int, bool)) {
		w, ended := newSecondScratch(k), false
		defer w.memory.release()
		defer func() {
			if !ended {
				k.order.abandon()
			}
		}()
		for task, ok := claim(); ok; task, ok = claim() {
			first := task / len(k.groups) * tilesOfTask
			for tile := first; tile < first+tilesOfTask; tile++ {
				for _, keys := range k.groups[task%len(k.groups)] {
					k.do(w, keys, tile*k.tile.columns)
				}
			}
		}
		ended = true
	})
	b.each(len(k.queries), flops/64, func(i int) { k.finishQueries(&k.queries[i], k.sequences[i/k.heads], i%k.heads) })
}

// clearUnused is the gradient of the rows that belong to no sequence.
func (k *second[T]) clearUnused() {
	if from, to := k.unusedRows(); from < to {
		for h := range k.heads {
			clearRows(matrix[T](k.g.DQ, 0, h, from), to-from, k.d)
			clearRows(matrix[T](k.g.DDO, 0, h, from), to-from, k.dv)
		}
	}
	if n := k.K.Shape[2]; n > 0 && k.hasUnusedKeys() {
		for at := range k.K.Shape[0] * k.kvHeads {
			clearRows(matrix[T](k.g.DK, at/k.kvHeads, at%k.kvHeads, 0), n, k.d)
			clearRows(matrix[T](k.g.DV, at/k.kvHeads, at%k.kvHeads, 0), n, k.dv)
		}
	}
}

// prepare makes the operands of all heads.
func (k *second[T]) prepare(b *Backend, flops float64) {
	k.queries = make([]secondQueries[T], len(k.sequences)*k.heads)
	readers := map[*secondKeys[T]]kernels.Sequence{} // the one that reads most of the keys
	k.keys = make([]secondKeys[T], max(k.K.Shape[0], len(k.sequences))*k.kvHeads)
	for _, s := range k.sequences {
		for h := range k.kvHeads {
			if at := k.keysOf(s, h); s.Sk >= readers[at].Sk {
				readers[at] = s
			}
		}
	}
	bytes := 0
	for _, s := range k.sequences {
		bytes += k.heads * (2*bytesFor[T](s.Sq*k.dPadded) + bytesFor[T](s.Sq*k.dvPadded) + bytesFor[T](s.Sq*k.dPadded) + bytesFor[T](s.Sq*k.dvPadded) + 4*bytesFor[T](s.Sq))
	}
	for _, s := range readers {
		n := roundUp(s.Sk, simd.Panel[T]())
		bytes += 2 * (bytesFor[T](n*k.d) + bytesFor[T](n*k.dv) + bytesFor[T](s.Sk*k.dPadded) + bytesFor[T](s.Sk*k.dvPadded))
	}
	k.memory = newWorkspace(bytes)
	var work []func()
	for i := range k.queries {
		q, s, h := &k.queries[i], k.sequences[i/k.heads], i%k.heads
		for _, to := range []*[]T{&q.q.data, &q.u.data, &q.dq.data} {
			*to = take[T](k.memory, s.Sq*k.dPadded)
		}
		q.dO.data, q.ddO.data = take[T](k.memory, s.Sq*k.dvPadded), take[T](k.memory, s.Sq*k.dvPadded)
		for _, to := range []*[]T{&q.lse, &q.delta, &q.mean, &q.shift} {
			*to = take[T](k.memory, s.Sq)
		}
		work = append(work, func() { k.prepareQueries(q, s, h) })
	}
	for i := range k.keys {
		at := &k.keys[i]
		s, isRead := readers[at]
		if !isRead {
			continue
		}
		n := roundUp(s.Sk, simd.Panel[T]())
		at.kT, at.uT, at.vT, at.wT = take[T](k.memory, n*k.d), take[T](k.memory, n*k.d), take[T](k.memory, n*k.dv), take[T](k.memory, n*k.dv)
		at.k.data, at.u.data = take[T](k.memory, s.Sk*k.dPadded), take[T](k.memory, s.Sk*k.dPadded)
		at.v.data, at.w.data = take[T](k.memory, s.Sk*k.dvPadded), take[T](k.memory, s.Sk*k.dvPadded)
		work = append(work, func() { k.prepareKeys(at, s, i%k.kvHeads) })
	}
	b.each(len(work), flops/64, func(i int) { work[i]() })
}

func (k *second[T]) prepareQueries(to *secondQueries[T], s kernels.Sequence, h int) {
	to.finite = true
	to.q = k.load(to.q.data, k.Q, s.Batch, h, s.Q0, s.Sq, k.d, k.dPadded, 1, nil, &to.finite)
	to.u = k.load(to.u.data, k.g.UQ, s.Batch, h, s.Q0, s.Sq, k.d, k.dPadded, k.scale, nil, &to.finite)
	to.dO = k.load(to.dO.data, k.g.DO, s.Batch, h, s.Q0, s.Sq, k.dv, k.dvPadded, 1, nil, &to.finite)
	to.dq.stride, to.ddO.stride = k.dPadded, k.dvPadded
	clear(to.dq.data)
	clear(to.ddO.data)
}

func (k *second[T]) prepareKeys(to *secondKeys[T], s kernels.Sequence, h int) {
	to.finite = true
	to.k = k.load(to.k.data, k.K, s.KeyBatch, h, s.K0, s.Sk, k.d, k.dPadded, 1, to.kT, &to.finite)
	to.u = k.load(to.u.data, k.g.UK, s.KeyBatch, h, s.K0, s.Sk, k.d, k.dPadded, k.scale, to.uT, &to.finite)
	to.v = k.load(to.v.data, k.V, s.KeyBatch, h, s.K0, s.Sk, k.dv, k.dvPadded, 1, to.vT, &to.finite)
	to.w = k.load(to.w.data, k.g.UV, s.KeyBatch, h, s.K0, s.Sk, k.dv, k.dvPadded, 1, to.wT, &to.finite)
}

// load copies n rows of a head, times a factor, and packs them as panels too where there is room
// for these. Nothing comes of a tensor that is left out.
func (k *second[T]) load(to []T, t kernels.Tensor, batch, head, from, n, d, padded int, factor float64, panels []T, isFinite *bool) rows[T] {
	if !t.IsSet() || n == 0 {
		return rows[T]{nil, padded}
	}
	m := copyRows(to, matrix[T](t, batch, head, from), n, d, padded)
	if factor != 1 {
		for i := range m.data[:n*padded] {
			m.data[i] *= T(factor)
		}
	}
	*isFinite = *isFinite && (!k.masked || finite(m, n, d))
	if panels != nil {
		simd.PackTransposed(panels, m.data, n, d, padded)
	}
	return m
}

// finishRows computes what rows give by themselves: the gradients of dLSE and of sinks.
func (k *second[T]) finishRows() {
	sums := make([]float64, k.heads)
	for i := range k.queries {
		q, s, h := &k.queries[i], k.sequences[i/k.heads], i%k.heads
		if k.g.DDLSE.IsSet() {
			copy(kernels.Host[T](k.g.DDLSE)[k.row(s, h):], q.mean)
		}
		for row := range q.lse {
			u := k.sinkCotangent(h)
			if p := k.sinkWeight(h, q.lse[row]); p != 0 {
				sums[h] += p * (float64(q.delta[row])*(float64(q.mean[row])-u) - float64(q.shift[row]))
			}
			q.finite = q.finite && (!k.masked || q.mean[row]-q.mean[row] == 0 && q.shift[row]-q.shift[row] == 0 && q.delta[row]-q.delta[row] == 0 && q.lse[row] == q.lse[row])
		}
	}
	if k.g.DSinks.IsSet() {
		out := kernels.Host[T](k.g.DSinks)
		for h, sum := range sums {
			out[h] = T(sum)
		}
	}
}

// sinkWeight is the share of a row's weights that its sink takes. lse is without the factor that is
// left.
func (k *second[T]) sinkWeight(h int, lse T) float64 {
	if k.sinks == nil || math.IsInf(float64(lse), 1) {
		return 0
	}
	return math.Exp(min(0, float64(k.sinks[h])-k.left*float64(lse)))
}

func (k *second[T]) sinkCotangent(h int) float64 {
	if !k.g.USinks.IsSet() {
		return 0
	}
	return float64(kernels.Host[T](k.g.USinks)[h])
}

func (k *second[T]) finishQueries(q *secondQueries[T], s kernels.Sequence, h int) {
	for _, of := range []struct {
		to  kernels.Tensor
		sum rows[T]
		d   int
	}{{k.g.DQ, q.dq, k.d}, {k.g.DDO, q.ddO, k.dv}} {
		to := matrix[T](of.to, s.Batch, h, s.Q0)
		for i := range s.Sq {
			copy(to.data[i*to.stride:][:of.d], of.sum.data[i*of.sum.stride:])
		}
	}
}

// secondScratch is what a worker needs for itself.
type secondScratch[T kernels.Float] struct {
	memory *workspace
	secondTiles[T]
	m, l, rowSums         []T // of the online softmax
	sums                  rows[T]
	means, shifts, scales []T // a vector for each row
	dk, dv                rows[T]
	factor                []T
	points                *pointScratch[T]
	shown                 []bool // of a block, where a NaN must not spread
}

// secondTiles are the values of a block's pairs. The first become others as they are computed:
// scores → P, dP → dS, t → r → P·(r − R), y → G → M.
type secondTiles[T kernels.Float] struct {
	scores, dP, t, y rows[T]
	slope, bend      rows[T] // c and c'
	first, curve     rows[T] // f' and f''
	weights          rows[T] // P·f'
}

const secondSums = 4 // Σ of dP, of r, of dP·r + y; and one unused, for whole vectors

func newSecondScratch[T kernels.Float](k *second[T]) *secondScratch[T] {
	r, c, lanes := k.tile.rows, k.tile.columns, simd.Lanes[T]()
	stride, sums := c+lanes, roundUp(secondSums, lanes)
	bytes := 9*bytesFor[T](r*stride) + 3*bytesFor[T](r) + bytesFor[T](r*sums) + 3*bytesFor[T](r*lanes) +
		bytesFor[T](c*k.dPadded) + bytesFor[T](c*k.dvPadded) + bytesFor[T](max(r, c))
	w := &secondScratch[T]{memory: newWorkspace(bytes), shown: make([]bool, r*c)}
	for _, to := range []*rows[T]{&w.scores, &w.dP, &w.t, &w.y, &w.slope, &w.bend, &w.first, &w.curve, &w.weights} {
		*to = rows[T]{take[T](w.memory, r*stride), stride}
		clear(to.data)
	}
	for _, to := range []*[]T{&w.m, &w.l, &w.rowSums} {
		*to = take[T](w.memory, r)
	}
	w.sums = rows[T]{take[T](w.memory, r*sums), sums}
	w.means, w.shifts, w.scales = take[T](w.memory, r*lanes), take[T](w.memory, r*lanes), take[T](w.memory, r*lanes)
	w.dk, w.dv = rows[T]{take[T](w.memory, c*k.dPadded), k.dPadded}, rows[T]{take[T](w.memory, c*k.dvPadded), k.dvPadded}
	w.factor = take[T](w.memory, max(r, c))
	if k.rules != nil {
		w.points = newPointScratch[T](c, k.rules.score, k.rules.hide)
	}
	return w
}

// secondBlock is a tile of query rows against a tile of keys. Its row 0 sees the columns from lo up
// to hi.
type secondBlock[T kernels.Float] struct {
	*secondQueries[T]
	keys               *secondKeys[T]
	s                  kernels.Sequence
	head, q0, k0       int
	n, columns, lo, hi int
	exact              bool // an operand holds a NaN or an Inf, which rows that do not see it must not meet
}

// block is the block of the rows from q0 on and the keys from k0 on.
func (k *second[T]) block(s kernels.Sequence, head, q0, k0 int) secondBlock[T] {
	lo, hi := k.band(s)
	b := secondBlock[T]{secondQueries: &k.queries[s.Index*k.heads+head], keys: k.keysOf(s, head/k.group), s: s, head: head, q0: q0, k0: k0,
		n: min(k.tile.rows, s.Sq-q0), columns: min(k.tile.columns, s.Sk-k0), lo: lo + q0 - k0, hi: hi + q0 - k0}
	b.exact = k.masked && !(b.finite && b.keys.finite)
	return b
}

// isShown reports whether the mask shows anything of a block.
func (k *second[T]) isShown(b *secondBlock[T]) bool {
	if k.rules == nil || k.rules.hide == nil {
		return true
	}
	tiles := k.rules.places[b.s.Index*k.heads+b.head].tiles
	first, end := b.k0/maskColumns, ceilDiv(b.k0+b.columns, maskColumns)
	for strip := b.q0 / k.maskStrip; strip < ceilDiv(b.q0+b.n, k.maskStrip); strip++ {
		for _, r := range tiles.Keys[strip] {
			if int(r.First) < end && int(r.End) > first {
				return true
			}
		}
	}
	return false
}

// strip is how many rows of a block are computed at once: all of them where all see the same.
func (k *second[T]) strip(b *secondBlock[T]) int {
	if b.lo+b.n-1 > 0 || b.hi < b.columns {
		return k.tile.strip
	}
	return b.n
}

// tileOf says where the tiles of a part of a block lie: the rows [i, i+n) and the columns
// [from, to).
type tileOf struct{ i, n, from, to, at int }

// part is the columns that one of some rows sees, up to a whole unit; ok is false for none. Columns
// of the tiles are those of the block.
func (k *second[T]) part(w *secondScratch[T], b *secondBlock[T], i, n int) (p tileOf, ok bool) {
	p = tileOf{i: i, n: n}
	p.from, p.to = span(i, n, b.columns, b.lo, b.hi, k.columnUnit)
	if p.from >= p.to {
		return p, false
	}
	p.to = min(b.columns, roundUp(p.to, k.columnUnit))
	p.at = i*w.scores.stride + p.from
	return p, true
}

// products computes the scores of a part, the factor of which is returned, and dP, r before Score's
// derivative and y.
func (k *second[T]) products(w *secondScratch[T], b *secondBlock[T], p tileOf) {
	lanes, panel, stride, row := simd.Lanes[T](), simd.Panel[T](), w.scores.stride, b.q0+p.i
	n, columns := p.n, p.to-p.from
	vectors, column := ceilDiv(columns, lanes), b.k0+p.from
	multiply := func(to rows[T], left rows[T], right []T, d int, accumulate bool) bool {
		if left.data == nil || right == nil {
			return accumulate
		}
		simd.Gemm(n, vectors, d, left.at(row), left.stride, 1, &right[column*d], panel, d*panel, &to.data[p.at], stride, accumulate)
		return true
	}
	keys := b.keys
	multiply(w.scores, b.q, keys.kT, k.d, false)
	multiply(w.dP, b.dO, keys.vT, k.dv, false)
	has := multiply(w.t, b.u, keys.kT, k.d, false)
	if k.g.UK.IsSet() {
		has = multiply(w.t, b.q, keys.uT, k.d, has)
	}
	if !has {
		clearTile(w.t, p)
	}
	if !k.g.UV.IsSet() || !multiply(w.y, b.dO, keys.wT, k.dv, false) {
		clearTile(w.y, p)
	}
	scores := &w.scores.data[p.at]
	factor := k.scale
	if k.SoftCap != 0 {
		simd.SoftCap(n, columns, scores, &w.slope.data[p.at], stride, T(factor/k.SoftCap), T(k.SoftCap))
		for i := range n { // c' = −2·tanh·c/cap
			at := p.at + i*stride
			capped, slope, bend := w.scores.data[at:][:columns], w.slope.data[at:][:columns], w.bend.data[at:][:columns]
			for j, s := range capped {
				bend[j] = -2 * s * slope[j] / T(k.SoftCap*k.SoftCap)
			}
		}
		factor = 1
	}
	factor = k.shift(b.s, b.head, row, column, n, columns, scores, stride, factor)
	k.applyRules(w, b, p, factor)
	if k.Dropout.P > 0 {
		for _, tile := range []rows[T]{w.dP, w.y} {
			k.drop(b.s, b.head, row, column, n, columns, &tile.data[p.at], &tile.data[p.at], stride, T(k.dropScale))
		}
	}
	if b.exact {
		k.hide(w, b, p)
	}
}

func clearTile[T kernels.Float](t rows[T], p tileOf) {
	for i := range p.n {
		clear(t.data[p.at+i*t.stride:][:p.to-p.from])
	}
}

// applyRules multiplies by a factor, unless that is left to the softmax, and runs the score, with
// its derivatives, and the mask.
func (k *second[T]) applyRules(w *secondScratch[T], b *secondBlock[T], p tileOf, factor float64) {
	n, columns, stride, scores := p.n, p.to-p.from, w.scores.stride, &w.scores.data[p.at]
	if k.rules == nil {
		settle(n, columns, scores, stride, factor, k.left)
		return
	}
	at := k.rules.part(k.problem, b.s, b.head, b.q0+p.i, b.k0+p.from, n, columns, scores, stride)
	if program := k.rules.score; program != nil {
		at.derived = []*T{&w.first.data[p.at], &w.curve.data[p.at]}
		w.points.run(program, at, T(factor), k.rules.values)
		factor = 1
		for first := 0; first < n; first += scoreStrip {
			s := at
			s.i, s.n = at.i+first, min(scoreStrip, n-first)
			w.points.spread(program, s)
			for o, to := range at.derived { // those that are the same along a line are in no tile yet
				if from := program.outputs[1+o]; from.kind != inDerived {
					simd.Pointwise(score.OpMax, s.n, columns, offset(to, first*stride), stride, w.points.points(program, from, s), w.points.points(program, from, s), simd.Points[T]{})
				}
			}
		}
	}
	settle(n, columns, scores, stride, factor, k.left)
	if k.rules.hide != nil {
		at.derived = nil
		w.points.run(k.rules.hide, at.masked(), T(math.Inf(-1)), k.rules.values)
	}
}

// hide finds which pairs of a part are visible, and clears the products of all others.
func (k *second[T]) hide(w *secondScratch[T], b *secondBlock[T], p tileOf) {
	for r := range p.n {
		i := p.i + r
		shown := w.shown[i*k.tile.columns:][:k.tile.columns]
		clear(shown)
		see := func(from, to int) {
			for c := max(0, from); c < min(b.columns, to); c++ {
				shown[c] = true
			}
		}
		if k.rules == nil || k.rules.hide == nil {
			see(b.lo+i, b.hi+i)
		} else {
			at := k.rules.part(k.problem, b.s, b.head, b.q0+p.i, b.k0+p.from, p.n, p.to-p.from, &w.scores.data[p.at], w.scores.stride)
			w.points.visibleRuns(k.Mask.Rest, at, r, b.lo+i-p.from, b.hi+i-p.from, k.rules.values, func(from, to int) { see(p.from+from, p.from+to) })
		}
		for _, tile := range []rows[T]{w.dP, w.t, w.y, w.slope, w.bend} {
			row := tile.data[i*tile.stride:]
			for c := p.from; c < p.to; c++ {
				if !shown[c] {
					row[c] = 0
				}
			}
		}
	}
}

// addCotangents makes r, but for Score's derivative, of t: c·t + UBias.
func (k *second[T]) addCotangents(w *secondScratch[T], b *secondBlock[T], p tileOf, to rows[T]) {
	n, columns, stride := p.n, p.to-p.from, to.stride
	at := &to.data[p.at]
	if k.SoftCap != 0 {
		simd.MulTile(n, columns, at, &w.slope.data[p.at], stride)
	}
	if !k.g.UBias.IsSet() {
		return
	}
	bias, rowStride := k.biasAt(k.g.UBias, b.s, b.head, b.q0+p.i, b.k0+p.from)
	if !broadcastsColumns(k.g.UBias) {
		simd.AddBias(n, columns, at, stride, 1, bias, rowStride)
		return
	}
	for r := range n {
		same := *offset(bias, r*rowStride)
		row := to.data[p.at+r*stride:][:columns]
		for c := range row {
			row[c] += same
		}
	}
}

// sumRows computes what the rows of a tile need of all their keys.
func (k *second[T]) sumRows(w *secondScratch[T], s kernels.Sequence, h, q0 int) {
	lo, hi := k.band(s)
	n := min(k.tile.rows, s.Sq-q0)
	m, l := lowest[T](), T(0)
	if k.sinks != nil && !math.IsInf(float64(k.sinks[h]), -1) {
		m, l = min(max(lowest[T](), k.sinks[h]/T(k.left)), -lowest[T]()), 1
		if math.IsInf(float64(k.sinks[h]), 1) || k.sinks[h] != k.sinks[h] {
			m, l = T(math.NaN()), T(math.NaN())
		}
	}
	for i := range n {
		w.m[i], w.l[i] = m, l
	}
	clear(w.sums.data)
	first, end := max(0, q0+lo), min(s.Sk, q0+n-1+hi)
	for k0 := first / k.tile.columns * k.tile.columns; k0 < end; k0 += k.tile.columns {
		b := k.block(s, h, q0, k0)
		if !k.isShown(&b) {
			continue
		}
		strip := k.strip(&b)
		for i := 0; i < n; i += strip {
			if p, ok := k.part(w, &b, i, min(strip, n-i)); ok {
				k.sumPart(w, &b, p)
			}
		}
	}
	q := &k.queries[s.Index*k.heads+h]
	var dLSE []T
	if k.g.DLSE.IsSet() {
		dLSE = kernels.Host[T](k.g.DLSE)[k.row(s, h)+q0:]
	}
	u := k.sinkCotangent(h)
	for i := range n {
		row := q0 + i
		if w.l[i] == 0 {
			q.lse[row], q.delta[row], q.mean[row], q.shift[row] = T(math.Inf(1)), 0, 0, 0
			continue
		}
		sums, most := w.sums.data[i*w.sums.stride:], float64(w.m[i])
		q.lse[row] = T(most + math.Log(float64(w.l[i]))/k.left)
		own := 0.0
		if dLSE != nil {
			own = float64(dLSE[i])
		}
		delta := float64(sums[0]/w.l[i]) - own
		mean := float64(sums[1]/w.l[i]) + u*k.sinkWeight(h, q.lse[row])
		q.delta[row], q.mean[row], q.shift[row] = T(delta), T(mean), T(float64(sums[2]/w.l[i])-mean*(delta+own))
	}
}

// sumPart adds a part of a block to the sums of its rows.
func (k *second[T]) sumPart(w *secondScratch[T], b *secondBlock[T], p tileOf) {
	k.products(w, b, p)
	k.addCotangents(w, b, p, w.t)
	n, columns, stride := p.n, p.to-p.from, w.scores.stride
	scores, dP, t, y := &w.scores.data[p.at], &w.dP.data[p.at], &w.t.data[p.at], &w.y.data[p.at]
	sums := w.sums.data[p.i*w.sums.stride:]
	simd.Softmax(n, columns, scores, stride, &w.m[p.i], &w.l[p.i], &sums[0], w.sums.stride, roundUp(secondSums, simd.Lanes[T]()), T(k.left*log2e), b.lo+p.i-p.from, b.hi+p.i-p.from)
	add := func(to int, left, right *T) {
		simd.Dots(n, columns, left, stride, right, stride, w.rowSums[:n])
		for i, x := range w.rowSums[:n] {
			sums[i*w.sums.stride+to] += x
		}
	}
	weights := scores
	if k.rules != nil && k.rules.score != nil {
		weights = &w.weights.data[p.at]
		simd.Pointwise(simd.OpMulNonzero, n, columns, weights, stride, points(scores, stride), points(&w.first.data[p.at], stride), simd.Points[T]{})
	}
	add(0, scores, dP)
	add(1, weights, t)
	simd.MulTile(n, columns, t, weights, stride)
	add(2, t, dP)
	add(2, scores, y)
}

func points[T kernels.Float](at *T, stride int) simd.Points[T] {
	return simd.Points[T]{At: at, Stride: stride}
}

// do computes the tile of keys that starts at k0.
func (k *second[T]) do(w *secondScratch[T], head keyHead, k0 int) {
	columns := 0
	for _, s := range head.sequences {
		columns = max(columns, min(k.tile.columns, s.Sk-k0))
	}
	if columns <= 0 {
		return
	}
	clear(w.dk.data)
	clear(w.dv.data)
	for _, s := range head.sequences {
		if k0 >= s.Sk {
			continue
		}
		lo, hi := k.band(s)
		firstRow, endRow := max(0, k0-hi+1), min(s.Sq, k0+min(k.tile.columns, s.Sk-k0)-lo)
		for h := head.index * k.group; h < (head.index+1)*k.group; h++ {
			for q0 := firstRow / k.tile.rows * k.tile.rows; q0 < endRow; q0 += k.tile.rows {
				k.step(w, k.block(s, h, q0, k0))
			}
		}
	}
	at := head.sequences[0]
	dk, dv := matrix[T](k.g.DK, at.KeyBatch, head.index, at.K0+k0), matrix[T](k.g.DV, at.KeyBatch, head.index, at.K0+k0)
	simd.ScaleRows(columns, k.d, dk.at(0), dk.stride, w.dk.at(0), w.dk.stride, fill(w.factor[:columns], 1))
	simd.ScaleRows(columns, k.dv, dv.at(0), dv.stride, w.dv.at(0), w.dv.stride, fill(w.factor[:columns], 1))
}

// step adds the part of one block to all gradients.
func (k *second[T]) step(w *secondScratch[T], b secondBlock[T]) {
	from, to := span(0, b.n, b.columns, b.lo, b.hi, k.columnUnit)
	if from >= to {
		return
	}
	lo, _ := k.band(b.s)
	place := (b.s.Index*k.heads+b.head)*k.queryTiles + b.q0/k.tile.rows
	before := b.k0/k.tile.columns - max(0, b.q0+lo)/k.tile.columns
	if !k.isShown(&b) {
		k.order.wait(place, before)
		k.order.pass(place)
		return
	}
	if b.exact {
		clear(w.shown)
	}
	strip := k.strip(&b)
	for i := 0; i < b.n; i += strip {
		if p, ok := k.part(w, &b, i, min(strip, b.n-i)); ok {
			k.combine(w, &b, p)
		}
	}
	x := secondProduct[T]{k.tile.columns, &b, w.shown, to - from, from}
	hasU := b.keys.u.data != nil
	x.addToKeys(w.y, b.q, w.dk, k.dPadded)
	x.addToKeys(w.t, b.dO, w.dv, k.dvPadded)
	if b.u.data != nil {
		x.addToKeys(w.dP, b.u, w.dk, k.dPadded)
	}
	k.order.wait(place, before)
	x.addToQueries(w.y, b.keys.k, b.dq, k.dPadded)
	if hasU {
		x.addToQueries(w.dP, b.keys.u, b.dq, k.dPadded)
	}
	x.addToQueries(w.t, b.keys.v, b.ddO, k.dvPadded)
	if b.keys.w.data != nil {
		x.addToQueries(w.scores, b.keys.w, b.ddO, k.dvPadded)
	}
	k.order.pass(place)
}

// combine computes, of a part of a block, m·P into scores, c·dS into dP, m·P·(r − R) into t, and M
// times the scale into y.
func (k *second[T]) combine(w *secondScratch[T], b *secondBlock[T], p tileOf) {
	k.products(w, b, p)
	n, columns, stride, row := p.n, p.to-p.from, w.scores.stride, b.q0+p.i
	scores, dP, t, y := &w.scores.data[p.at], &w.dP.data[p.at], &w.t.data[p.at], &w.y.data[p.at]
	if k.SoftCap != 0 { // c'·t, before t is something else
		simd.MulTile(n, columns, &w.bend.data[p.at], t, stride)
	}
	k.addCotangents(w, b, p, w.t)
	lanes := simd.Lanes[T]()
	for i := range n {
		fill(w.means[i*lanes:][:lanes], float64(b.mean[row+i]))
		fill(w.shifts[i*lanes:][:lanes], float64(b.shift[row+i]))
	}
	fill(w.scales[:lanes], k.scale)
	means, shifts := simd.Points[T]{At: &w.means[0], Stride: lanes, Same: true}, simd.Points[T]{At: &w.shifts[0], Stride: lanes, Same: true}
	scales := simd.Points[T]{At: &w.scales[0], Same: true}
	simd.SoftmaxGrad(n, columns, scores, dP, stride, &b.lse[row], &b.delta[row], T(k.left*log2e), b.lo+p.i-p.from, b.hi+p.i-p.from)

	none := simd.Points[T]{}
	do := func(op score.Op, to *T, x, y, z simd.Points[T]) { simd.Pointwise(op, n, columns, to, stride, x, y, z) }
	scored := k.rules != nil && k.rules.score != nil
	weights, first, curve := points(scores, stride), points(&w.first.data[p.at], stride), points(&w.curve.data[p.at], stride)
	gradient, ts, ys := points(dP, stride), points(t, stride), points(y, stride)
	if scored {
		// f''·dS·(c·t + UBias), and f'·(c·t + UBias); what has no weight may have no derivative.
		do(simd.OpMulNonzero, &w.curve.data[p.at], gradient, curve, none)
		do(score.OpMul, &w.curve.data[p.at], curve, ts, none)
		for i := range n {
			at := p.at + i*stride
			slopes, kept := w.first.data[at:][:columns], w.scores.data[at:][:columns]
			for j, weight := range kept {
				if weight == 0 {
					slopes[j] = 0
				}
			}
		}
		do(score.OpMul, t, ts, first, none)
	}
	do(score.OpSub, t, ts, means, none)
	do(score.OpSub, y, ys, shifts, none)
	do(score.OpMul, y, ys, weights, none)
	do(simd.OpMulAdd, y, gradient, ts, ys) // G
	do(score.OpMul, t, ts, weights, none)  // X
	if scored {
		do(simd.OpMulAdd, y, ys, first, curve) // N
		do(score.OpMul, dP, gradient, first, none)
	}
	if k.g.DBias.IsSet() {
		if b.exact {
			k.clearHidden(w, p, w.y)
		}
		k.addBiasGradient(k.g.DBias, b.s, b.head, row, b.k0+p.from, n, columns, y, stride)
	}
	if k.SoftCap != 0 { // M = c·N + c'·t·f'·dS
		slope, bend := points(&w.slope.data[p.at], stride), points(&w.bend.data[p.at], stride)
		do(score.OpMul, &w.bend.data[p.at], bend, gradient, none)
		do(simd.OpMulAdd, y, ys, slope, bend)
		do(score.OpMul, dP, gradient, slope, none)
	}
	do(score.OpMul, y, ys, scales, none)
	if k.Dropout.P > 0 {
		for _, tile := range []*T{scores, t} {
			k.drop(b.s, b.head, row, b.k0+p.from, n, columns, tile, tile, stride, T(k.dropScale))
		}
	}
}

// clearHidden clears what is hidden of a part.
func (k *second[T]) clearHidden(w *secondScratch[T], p tileOf, tile rows[T]) {
	for i := p.i; i < p.i+p.n; i++ {
		for c := p.from; c < p.to; c++ {
			if !w.shown[i*k.tile.columns+c] {
				tile.data[i*tile.stride+c] = 0
			}
		}
	}
}

// secondProduct adds products of a block's tile, whose columns begin at from, with rows of keys or
// of queries.
type secondProduct[T kernels.Float] struct {
	most          int // columns of a tile
	b             *secondBlock[T]
	shown         []bool
	columns, from int
}

// addToQueries does out += tile·keys for the block's rows.
func (x *secondProduct[T]) addToQueries(tile, keys, out rows[T], padded int) {
	b := x.b
	p := product[T]{left: &tile.data[x.from], rowStep: tile.stride, columnStep: 1, right: keys.from(b.k0 + x.from), out: out.from(b.q0)}
	vectors := padded / simd.Lanes[T]()
	if !b.exact {
		addProduct(vectors, p, b.n, x.columns, b.lo-x.from, b.hi-x.from, blockRows, false)
		return
	}
	for r := range b.n {
		runsOf(x.columns, func(c int) bool { return x.shown[r*x.most+x.from+c] }, func(first, end int) { p.add(vectors, r, 1, first, end) })
	}
}

// addToKeys does out += tileᵀ·queries for the block's keys.
func (x *secondProduct[T]) addToKeys(tile, queries, out rows[T], padded int) {
	b := x.b
	lo, hi := b.lo-x.from, b.hi-x.from
	p := product[T]{left: &tile.data[x.from], rowStep: 1, columnStep: tile.stride, right: queries.from(b.q0), out: out.from(x.from)}
	vectors := padded / simd.Lanes[T]()
	if !b.exact {
		addProduct(vectors, p, x.columns, b.n, 1-hi, 1-lo, kernels.DropoutColumns, false)
		return
	}
	for c := range x.columns {
		runsOf(b.n, func(r int) bool { return x.shown[r*x.most+x.from+c] }, func(first, end int) { p.add(vectors, c, 1, first, end) })
	}
}
