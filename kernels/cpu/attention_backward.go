package cpu

import (
	"math"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// AttentionBackward computes the gradients of q, k, v, bias and sinks from the saved logsumexp and
// δ.
//
// A task is a tile of keys of one key head. It walks over the query rows that see the tile, of all
// query heads that read it:
//
//	P = exp(Q·Kᵀ − LSE)   dP = dO·Vᵀ   dS = P∘(dP − δ)   dV += Pᵀ·dO   dK += dSᵀ·Q   dQ += dS·K
//
// dK and dV are the task's own. dQ belongs to all key tiles: each adds its part to a query tile in
// the order of the keys, waiting for the one before, so that sums are the same for any number of
// threads.
func (b *Backend) AttentionBackward(a *kernels.Attention, g kernels.AttentionGradients) (err error) {
	defer catch("attention backward", &err)
	if err := checked("attention backward", a.CheckBackward(g)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	a, g.DO = h.attention(a), h.read(g.DO)
	g.DQ, g.DK, g.DV = h.write(g.DQ), h.write(g.DK), h.write(g.DV)
	g.DBias, g.DSinks = h.write(g.DBias), h.write(g.DSinks)
	g.DTables = slices.Clone(g.DTables)
	for n, d := range g.DTables {
		g.DTables[n] = h.write(d)
	}
	return checked("attention backward", inTypeOf(a.Q, attentionBackward[float32], attentionBackward[float64])(b, a, g))
}

func attentionBackward[T kernels.Float](b *Backend, a *kernels.Attention, g kernels.AttentionGradients) (err error) {
	k := newBackward[T](a, g)
	if k.rules, err = newRules(b, k.problem, 1); err == nil {
		k.listBlocks()
		k.tables = newTableSums(k)
		k.run(b)
	}
	return err
}

// backward is one call of the backward kernel.
type backward[T kernels.Float] struct {
	*problem[T]
	rules                *rules[T]
	tables               *tableSums // nil where no gradient of a table is wanted
	g                    kernels.AttentionGradients
	tile                 tile
	wanted               bool // dq, dk and dv, rather than dBias or dSinks alone
	keyTiles, queryTiles int  // of the longest sequence
	copying
	queries   []queries[T] // a sequence and query head each
	order     *ticketOrder // how many key tiles have added to dq; a sequence, query head and query tile each
	groups    [][]keyHead  // the key heads that a task works on one after the other
	memory    *workspace
	dropScale float64
}

// copying says which tensors are no operands of products where they lie. Their rows are copied to
// the workspace, and dq is summed there.
type copying struct{ copyQ, copyDO, copyK, sumDQ bool }

// queries is one query head of one sequence: the operands of the products, and the values of its
// rows.
type queries[T kernels.Float] struct {
	q, dO, dq  rows[T]
	lse, delta []T  // lse without the factor that is left to scores, +∞ for a row without keys, which makes its P zero
	finite     bool // no NaN or Inf in q and dO

	// Rows of q and dO, and their columns, all as blocks of A; empty where products are not tiled.
	qRows, dORows, qColumns, dOColumns tiles
}

// keyHead is one head of keys and the sequences that read it: one, or every batch item where these
// share their keys.
type keyHead struct {
	index     int
	sequences []kernels.Sequence
}

func newBackward[T kernels.Float](a *kernels.Attention, g kernels.AttentionGradients) *backward[T] {
	k := &backward[T]{problem: newProblem[T](a), g: g, wanted: g.DQ.IsSet(), dropScale: 1}
	if a.Dropout.P > 0 {
		k.dropScale = a.Dropout.Scale()
	}
	k.tile = k.backwardTile()
	for _, s := range k.sequences {
		k.keyTiles = max(k.keyTiles, ceilDiv(s.Sk, k.tile.columns))
		k.queryTiles = max(k.queryTiles, ceilDiv(s.Sq, k.tile.rows))
	}
	k.copyQ, k.copyDO, k.copyK = !reaches[T](a.Q, k.dPadded), !reaches[T](g.DO, k.dvPadded), !reaches[T](a.K, k.dPadded)
	k.sumDQ = k.wanted && (k.tiled || !multipliable[T](g.DQ))
	if k.tiled {
		k.tile.strip = simd.TileLines
	}
	k.order = newTicketOrder(len(k.sequences) * k.heads * k.queryTiles)
	k.groups = k.groupKeyHeads(g.DBias)
	return k
}

// mostKeys is the greatest number of a tile's columns.
const mostKeys = 128

// backwardTile keeps what a task touches again and again in the second-level cache, and one call of
// a vector kernel under a tenth of a millisecond.
func (p *problem[T]) backwardTile() tile {
	d, t := max(p.d, p.dv), tile{rows: p.taskRows, columns: mostKeys, strip: 24}
	if d > 256 {
		t.columns /= 2
	}
	return t
}

// groupKeyHeads decides which key heads share a task: those whose scores add to the same elements
// of dBias, so that these are summed in one fixed order.
func (p *problem[T]) groupKeyHeads(dBias kernels.Tensor) (groups [][]keyHead) {
	overBatch := dBias.IsSet() && dBias.Shape[0] == 1
	overHeads := dBias.IsSet() && dBias.Shape[1] == 1
	readers := [][]kernels.Sequence{p.sequences}
	if !p.SharesKeys() {
		readers = readers[:0]
		for n := range p.sequences {
			readers = append(readers, p.sequences[n:n+1])
		}
	}
	type shared struct{ reader, head int }
	index := map[shared]int{}
	for n, sequences := range readers {
		for h := range p.kvHeads {
			shares := shared{n, h}
			if overBatch {
				shares.reader = 0
			}
			if overHeads {
				shares.head = 0
			}
			at, known := index[shares]
			if !known {
				at = len(groups)
				index[shares] = at
				groups = append(groups, nil)
			}
			groups[at] = append(groups[at], keyHead{h, sequences})
		}
	}
	return groups
}

func (k *backward[T]) run(b *Backend) {
	flops := k.BackwardFLOPs()
	if k.g.DBias.IsSet() {
		clear(kernels.Host[T](k.g.DBias))
	}
	k.clearUnused()
	k.prepare(b, flops)
	defer k.memory.release()
	k.sumSinks()
	defer writeTables(k)
	if !k.wanted && !k.g.DBias.IsSet() && k.tables == nil {
		return
	}
	// Where a bias has one element for all keys, the key tiles of a group add to the same elements
	// of its gradient.
	tilesOfTask := 1
	if broadcastsColumns(k.g.DBias) {
		tilesOfTask = max(1, k.keyTiles)
	}
	share := b.parallel
	if k.keyTiles == tilesOfTask && k.tables == nil {
		share = b.inRuns // no task waits for another
	}
	share(len(k.groups)*k.keyTiles/tilesOfTask, flops, func(claim func() (int, bool)) {
		w, ended := newBackwardScratch(k), false
		defer w.memory.release()
		defer k.leave(&ended)
		for task, ok := claim(); ok; task, ok = claim() {
			// A task waits for the key tile before its own, of the same heads. In this order that
			// one has been claimed, and by as many tasks earlier as there are groups, so that it is
			// mostly done.
			first := task / len(k.groups) * tilesOfTask
			for tile := first; tile < first+tilesOfTask; tile++ {
				for _, keys := range k.groups[task%len(k.groups)] {
					k.do(w, keys, tile*k.tile.columns)
				}
			}
			if k.tables != nil {
				k.tables.add(task, w.tables)
			}
		}
		ended = true
	})
}

// leave lets nobody wait for a worker that has not come to its end.
func (k *backward[T]) leave(ended *bool) {
	if *ended {
		return
	}
	k.order.abandon()
	if k.tables != nil {
		k.tables.turns.abandon()
	}
}

// clearUnused is the gradient of the rows that belong to no sequence.
func (k *backward[T]) clearUnused() {
	if !k.wanted {
		return
	}
	if from, to := k.unusedRows(); from < to {
		for h := range k.heads {
			clearRows(matrix[T](k.g.DQ, 0, h, from), to-from, k.d)
		}
	}
	if n := k.K.Shape[2]; n > 0 && k.hasUnusedKeys() {
		for at := range k.K.Shape[0] * k.kvHeads {
			clearRows(matrix[T](k.g.DK, at/k.kvHeads, at%k.kvHeads, 0), n, k.d)
			clearRows(matrix[T](k.g.DV, at/k.kvHeads, at%k.kvHeads, 0), n, k.dv)
		}
	}
}

// prepare makes the operands of every query head, and clears where dq is summed.
func (k *backward[T]) prepare(b *Backend, flops float64) {
	k.queries = make([]queries[T], len(k.sequences)*k.heads)
	bytes := 0
	for _, s := range k.sequences {
		bytes += k.heads * k.queryBytes(s.Sq)
	}
	k.memory = newWorkspace(bytes)
	for i := range k.queries {
		k.takeQueries(&k.queries[i], k.sequences[i/k.heads].Sq)
	}
	b.each(len(k.queries), flops, func(i int) { k.prepareQueries(&k.queries[i], k.sequences[i/k.heads], i%k.heads) })
}

func (k *backward[T]) queryBytes(n int) int {
	bytes := bytesFor[T](n)
	for _, buffer := range []struct {
		used   bool
		padded int
	}{{k.copyQ, k.dPadded}, {k.copyDO, k.dvPadded}, {k.sumDQ, k.dPadded}} {
		if buffer.used {
			bytes += bytesFor[T](roundUp(n, simd.TileLines) * buffer.padded)
		}
	}
	if k.tiled {
		bytes += tileBytes(n, k.d) + tileBytes(n, k.dv) + tileBytes(k.d, n) + tileBytes(k.dv, n)
	}
	return bytes
}

func (k *backward[T]) takeQueries(q *queries[T], n int) {
	q.lse = take[T](k.memory, n)
	if k.copyQ {
		q.q.data = take[T](k.memory, n*k.dPadded)
	}
	if k.copyDO {
		q.dO.data = take[T](k.memory, n*k.dvPadded)
	}
	if k.sumDQ {
		q.dq = rows[T]{take[T](k.memory, roundUp(n, simd.TileLines)*k.dPadded), k.dPadded}
	}
	if k.tiled {
		q.qRows, q.dORows = takeTiles(k.memory, n, k.d), takeTiles(k.memory, n, k.dv)
		q.qColumns, q.dOColumns = takeTiles(k.memory, k.d, n), takeTiles(k.memory, k.dv, n)
	}
}

func (k *backward[T]) prepareQueries(out *queries[T], s kernels.Sequence, h int) {
	q, dO := matrix[T](k.Q, s.Batch, h, s.Q0), matrix[T](k.g.DO, s.Batch, h, s.Q0)
	out.finite = !k.masked || finite(q, s.Sq, k.d) && finite(dO, s.Sq, k.dv)
	if k.tiled && s.Sq > 0 {
		out.qRows, out.dORows = packRows(out.qRows, q, s.Sq, k.d, false), packRows(out.dORows, dO, s.Sq, k.dv, false)
		out.qColumns, out.dOColumns = packColumns(out.qColumns, q, k.d, s.Sq, false), packColumns(out.dOColumns, dO, k.dv, s.Sq, false)
	}
	if k.copyQ {
		q = copyRows(out.q.data, q, s.Sq, k.d, k.dPadded)
	}
	if k.copyDO {
		dO = copyRows(out.dO.data, dO, s.Sq, k.dv, k.dvPadded)
	}
	out.q, out.dO = q, dO
	start := k.row(s, h)
	out.delta = kernels.Host[T](k.g.Delta)[start:][:s.Sq]
	for i, lse := range kernels.Host[T](k.g.LSE)[start:][:s.Sq] {
		if out.lse[i] = lse / T(k.left); math.IsInf(float64(lse), -1) {
			out.lse[i] = T(math.Inf(1))
		}
	}
	if k.rules != nil && k.rules.hide != nil {
		for i, lse := range out.lse {
			out.finite = out.finite && lse == lse && out.delta[i]-out.delta[i] == 0
		}
	}
	if !k.wanted {
		return
	}
	result := matrix[T](k.g.DQ, s.Batch, h, s.Q0)
	clearRows(result, s.Sq, k.d)
	if k.sumDQ {
		clear(out.dq.data)
	} else {
		out.dq = result
	}
}

func clearRows[T kernels.Float](m rows[T], n, d int) {
	for i := range n {
		clear(m.data[i*m.stride:][:d])
	}
}

// sumSinks computes dsink_h = −Σ_i exp(sink_h − LSE_i) δ_i. No weight is above 1, however LSE was
// rounded.
func (k *backward[T]) sumSinks() {
	if !k.g.DSinks.IsSet() {
		return
	}
	out, lse, delta := kernels.Host[T](k.g.DSinks), kernels.Host[T](k.g.LSE), kernels.Host[T](k.g.Delta)
	for h := range out {
		sum := 0.0
		for _, s := range k.sequences {
			start := k.row(s, h)
			for i, d := range delta[start:][:s.Sq] {
				// A row of LSE = −∞ has neither a key nor a sink.
				if l := float64(lse[start+i]); !math.IsInf(l, -1) {
					sum -= math.Exp(min(0, float64(k.sinks[h])-l)) * float64(d)
				}
			}
		}
		out[h] = T(sum)
	}
}

// backwardScratch is what a worker needs for itself.
type backwardScratch[T kernels.Float] struct {
	memory                        *workspace
	keysTransposed, valTransposed []T
	keys                          []T
	dk, dv                        rows[T]
	scores, dP, slope             rows[T]
	factor                        []T
	programScratch[T]
	parts []gradientBlock[T]
	backwardTiles[T]
}

// programScratch is for a Score and a Mask.
type programScratch[T kernels.Float] struct {
	points  *pointScratch[T]
	derived []rows[T] // the outputs of a score but the first
	tables  []*tableSum
	shown   []bool        // of a block: whether the mask shows a pair
	states  []panelStates // of a tile of keys: each strip of queries
}

// backwardTiles is for products of tiles.
type backwardTiles[T kernels.Float] struct {
	// Keys and values as the columns of a product, the columns of the keys, and P or dS of a block.
	keyTiles, valueTiles, keyColumns, scoreTiles tiles
	dkColumns, dvColumns                         rows[T] // what they add to dk and dv, a key a column
}

func newBackwardScratch[T kernels.Float](k *backward[T]) *backwardScratch[T] {
	r, c := k.tile.rows, k.tile.columns
	stride := c + simd.Lanes[T]() // rows apart from each other in the cache's sets
	size := bytesFor[T]
	bytes := size(c*k.d) + size(c*k.dv) + 2*size(c*k.dPadded) + size(c*k.dvPadded) + 3*size(r*stride) + size(max(r, c))
	if k.tiled {
		bytes += tileBytes(c, k.d) + tileBytes(c, k.dv) + tileBytes(k.d, c) + tileBytes(max(r, c), max(r, c)) + size(k.dPadded*stride) + size(k.dvPadded*stride)
	}
	w := &backwardScratch[T]{memory: newWorkspace(bytes)}
	w.keysTransposed, w.valTransposed = take[T](w.memory, c*k.d), take[T](w.memory, c*k.dv)
	w.keys = take[T](w.memory, c*k.dPadded)
	w.dk, w.dv = rows[T]{take[T](w.memory, c*k.dPadded), k.dPadded}, rows[T]{take[T](w.memory, c*k.dvPadded), k.dvPadded}
	w.scores, w.dP = rows[T]{take[T](w.memory, r*stride), stride}, rows[T]{take[T](w.memory, r*stride), stride}
	w.slope = rows[T]{take[T](w.memory, r*stride), stride}
	w.factor = take[T](w.memory, max(r, c))
	if k.tiled {
		w.keyTiles, w.valueTiles, w.keyColumns = takeTiles(w.memory, c, k.d), takeTiles(w.memory, c, k.dv), takeTiles(w.memory, k.d, c)
		w.scoreTiles = takeTiles(w.memory, max(r, c), max(r, c))
		w.dkColumns, w.dvColumns = rows[T]{take[T](w.memory, k.dPadded*stride), stride}, rows[T]{take[T](w.memory, k.dvPadded*stride), stride}
	}
	k.takePoints(w, stride)
	return w
}

// do computes the tile of keys that starts at k0.
func (k *backward[T]) do(w *backwardScratch[T], head keyHead, k0 int) {
	columns := 0
	for _, s := range head.sequences {
		columns = max(columns, min(k.tile.columns, s.Sk-k0))
	}
	if columns == 0 {
		return
	}
	at := head.sequences[0]
	keys, values := matrix[T](k.K, at.KeyBatch, head.index, at.K0+k0), matrix[T](k.V, at.KeyBatch, head.index, at.K0+k0)
	finiteKeys := !k.masked || finite(keys, columns, k.d)
	if k.tiled {
		w.keyTiles, w.valueTiles = packRows(w.keyTiles, keys, columns, k.d, true), packRows(w.valueTiles, values, columns, k.dv, true)
		w.keyColumns = packColumns(w.keyColumns, keys, k.d, columns, true)
	}
	if k.masked || !k.tiled { // under a mask, vectors may be needed beside tiles
		simd.PackTransposed(w.keysTransposed, keys.data, columns, k.d, keys.stride)
		simd.PackTransposed(w.valTransposed, values.data, columns, k.dv, values.stride)
	}
	if k.copyK {
		keys = copyRows(w.keys, keys, columns, k.d, k.dPadded)
	}
	for _, sums := range []rows[T]{w.dk, w.dv, w.dkColumns, w.dvColumns} {
		clear(sums.data)
	}
	for _, s := range head.sequences {
		if k0 >= s.Sk {
			continue
		}
		k.addSequence(w, s, head.index, gradientBlock[T]{k0: k0, columns: min(k.tile.columns, s.Sk-k0), keys: keys, exact: !finiteKeys})
	}
	if !k.wanted {
		return
	}
	if k.tiled {
		addTransposed(w.dk, w.dkColumns, columns, k.d, w.keysTransposed)
		addTransposed(w.dv, w.dvColumns, columns, k.dv, w.valTransposed)
	}
	dk, dv := matrix[T](k.g.DK, at.KeyBatch, head.index, at.K0+k0), matrix[T](k.g.DV, at.KeyBatch, head.index, at.K0+k0)
	simd.ScaleRows(columns, k.d, dk.at(0), dk.stride, w.dk.at(0), w.dk.stride, fill(w.factor[:columns], k.scale))
	simd.ScaleRows(columns, k.dv, dv.at(0), dv.stride, w.dv.at(0), w.dv.stride, fill(w.factor[:columns], k.dropScale))
}

// addTransposed adds the columns of a matrix, each d numbers, to n rows. scratch has room for
// these.
func addTransposed[T kernels.Float](to, columns rows[T], n, d int, scratch []T) {
	simd.Transpose(d, n, &scratch[0], d, columns.at(0), columns.stride)
	simd.AddTile(n, d, to.at(0), to.stride, &scratch[0], d)
}

// addSequence adds the gradients of one sequence's queries, of all heads that read the keys.
func (k *backward[T]) addSequence(w *backwardScratch[T], s kernels.Sequence, kvHead int, keys gradientBlock[T]) {
	lo, hi := k.band(s)
	firstRow, endRow := max(0, keys.k0-hi+1), min(s.Sq, keys.k0+keys.columns-lo)
	for h := kvHead * k.group; h < (kvHead+1)*k.group; h++ {
		queries := &k.queries[s.Index*k.heads+h]
		states := k.tileStates(w, s, h, keys.k0)
		for q0 := firstRow / k.tile.rows * k.tile.rows; q0 < endRow; q0 += k.tile.rows {
			b := keys
			b.queries, b.s, b.head, b.q0, b.n = queries, s, h, q0, min(k.tile.rows, s.Sq-q0)
			if states != nil {
				b.strips = states[q0/k.maskStrip:][:ceilDiv(b.n, k.maskStrip)]
				b.stripRows = k.maskStrip
				if !b.isShown() {
					continue
				}
			}
			b.lo, b.hi = lo+q0-b.k0, hi+q0-b.k0
			b.exact = keys.exact || !queries.finite
			b.tiled = k.tiled && !b.exact
			k.step(w, b)
		}
	}
}

func fill[T kernels.Float](s []T, value float64) []T {
	for i := range s {
		s[i] = T(value)
	}
	return s
}

// gradientBlock is a tile of query rows against a tile of keys. Its row 0 sees the columns from lo
// up to hi.
type gradientBlock[T kernels.Float] struct {
	*queries[T]
	s                  kernels.Sequence
	head, q0, k0       int
	n, columns, lo, hi int
	keys               rows[T]
	exact              bool // an operand holds a NaN or an Inf, which rows that do not see it must not meet
	tiled              bool

	strips    []panelStates // what a mask shows of each strip; nil where it is a band
	stripRows int
	blockPart
}

// blockPart is the part of a block that a block stands for: rows that see the same columns.
type blockPart struct {
	row, first int         // its first row in the block, and its first column
	panels     panelStates // what the mask shows of the columns
	partly     bool        // the mask hides more than the band
}

// span is the part of the block's columns that some row in [i, i+n) sees.
func (b *gradientBlock[T]) span(i, n, unit int) (from, to int) {
	from, to = span(i, n, b.columns, b.lo, b.hi, unit)
	return max(from, b.first), to
}

// step adds the part of one block to all gradients.
func (k *backward[T]) step(w *backwardScratch[T], b gradientBlock[T]) {
	from, to := b.span(0, b.n, k.columnUnit)
	if from >= to {
		return
	}
	w.parts = b.parts(w.parts[:0])
	for _, part := range w.parts {
		k.stepPart(w, part)
	}
	if k.wanted {
		k.addQueryGradients(w, b)
	}
}

// stepPart computes P and dS of a part of a block, and adds them to the gradients of keys and
// values.
func (k *backward[T]) stepPart(w *backwardScratch[T], b gradientBlock[T]) {
	from, to := b.span(0, b.n, k.columnUnit)
	if b.partly && b.exact {
		k.look(w, b)
	}
	strip := b.n
	if b.lo+b.n-1 > b.first || b.hi < b.columns {
		strip = k.tile.strip
		if b.tiled { // whole tiles are multiplied, also of what no strip sees
			clear(w.scores.data[:b.n*w.scores.stride])
			clear(w.dP.data[:b.n*w.dP.stride])
		}
	}
	for i := 0; i < b.n; i += strip {
		k.scoreGradients(w, b, i, min(strip, b.n-i), from)
	}
	switch {
	case !k.wanted:
	case b.tiled:
		// dVᵀ = dOᵀ·P and dKᵀ = Qᵀ·dS: so P and dS are tiles as they lie.
		scores := packColumns(w.scoreTiles, rows[T]{w.scores.data, w.scores.stride}, to-from, b.n, true)
		b.dOColumns.multiply(0, k.dv, b.q0, scores, 0, to-from, 0, unsafe.Pointer(&w.dvColumns.data[from]), w.dvColumns.stride, true)
		scores = packColumns(w.scoreTiles, rows[T]{w.dP.data, w.dP.stride}, to-from, b.n, true)
		b.qColumns.multiply(0, k.d, b.q0, scores, 0, to-from, 0, unsafe.Pointer(&w.dkColumns.data[from]), w.dkColumns.stride, true)
	default:
		k.addKeyGradients(w, b, from, to-from)
	}
}

// scoreGradients computes P into scores and dS into dP for the rows [i, i+n) of the block and the
// columns that one of them sees, up to a whole unit. The first column of both tiles is the block's
// column start.
func (k *backward[T]) scoreGradients(w *backwardScratch[T], b gradientBlock[T], i, n, start int) {
	lanes, panel := simd.Lanes[T](), simd.Panel[T]()
	from, to := b.span(i, n, k.columnUnit)
	if from >= to {
		return
	}
	to = min(b.columns, roundUp(to, k.columnUnit))
	columns, vectors, stride := to-from, ceilDiv(to-from, lanes), w.scores.stride
	lo, hi := b.lo+i-from, b.hi+i-from
	at := (b.row+i)*stride + from - start
	scores, dP := &w.scores.data[at], &w.dP.data[at]
	row := b.q0 + i
	if b.tiled {
		b.qRows.multiply(row, n, 0, w.keyTiles, from, columns, 0, unsafe.Pointer(scores), stride, false)
		b.dORows.multiply(row, n, 0, w.valueTiles, from, columns, 0, unsafe.Pointer(dP), stride, false)
	} else {
		simd.Gemm(n, vectors, k.d, b.q.at(row), b.q.stride, 1, &w.keysTransposed[from*k.d], panel, k.d*panel, scores, stride, false)
		simd.Gemm(n, vectors, k.dv, b.dO.at(row), b.dO.stride, 1, &w.valTransposed[from*k.dv], panel, k.dv*panel, dP, stride, false)
	}
	factor, slope := k.scale, (*T)(nil)
	if k.SoftCap != 0 {
		slope = &w.slope.data[at]
	}
	if k.transformed {
		factor = k.transform(b.s, b.head, row, b.k0+from, n, columns, scores, slope, stride)
	}
	k.changeScores(w, b, i, n, from, columns, scores, stride, factor)
	if k.Dropout.P > 0 {
		k.drop(b.s, b.head, row, b.k0+from, n, columns, dP, dP, stride, T(k.dropScale))
	}
	simd.SoftmaxGrad(n, columns, scores, dP, stride, &b.lse[row], &b.delta[row], T(k.left*log2e), lo, hi)
	k.changeGradients(w, b, i, n, from, columns, scores, dP, stride)
	if k.g.DBias.IsSet() {
		k.addBiasGradient(k.g.DBias, b.s, b.head, row, b.k0+from, n, columns, dP, stride)
	}
	if k.SoftCap != 0 {
		simd.MulTile(n, columns, dP, slope, stride)
	}
	if k.Dropout.P > 0 {
		k.drop(b.s, b.head, row, b.k0+from, n, columns, scores, scores, stride, 1)
	}
}

// addBiasGradient adds dS, a tile whose first element is row i and column j of the score matrix, to
// the gradient of the bias.
func (p *problem[T]) addBiasGradient(gradient kernels.Tensor, s kernels.Sequence, head, i, j, nRows, nColumns int, dS *T, stride int) {
	dBias, rowStride := p.biasAt(gradient, s, head, i, j)
	if !broadcastsColumns(gradient) {
		simd.AddTile(nRows, nColumns, dBias, rowStride, dS, stride)
		return
	}
	for r := range nRows {
		sum := 0.0
		for c := range nColumns {
			sum += float64(*offset(dS, r*stride+c))
		}
		*offset(dBias, r*rowStride) += T(sum)
	}
}

// addKeyGradients does dV += Pᵀ·dO and dK += dSᵀ·Q. Row j of a transposed tile sees the query rows
// from j−hi+1 up to j−lo+1.
func (k *backward[T]) addKeyGradients(w *backwardScratch[T], b gradientBlock[T], from, columns int) {
	const block = kernels.DropoutColumns // divides a unit of columns, up to which scoreGradients writes what a strip of rows does not see as zeros
	lo, hi := b.lo-from, b.hi-from
	if b.partly && b.exact {
		k.addShownColumns(w, b, from, columns)
		return
	}
	addProduct(k.dvPadded/simd.Lanes[T](), product[T]{
		left: w.scores.at(b.row), rowStep: 1, columnStep: w.scores.stride, right: b.dO.from(b.q0), out: w.dv.from(from),
	}, columns, b.n, 1-hi, 1-lo, block, b.exact)
	addProduct(k.dPadded/simd.Lanes[T](), product[T]{
		left: w.dP.at(b.row), rowStep: 1, columnStep: w.dP.stride, right: b.q.from(b.q0), out: w.dk.from(from),
	}, columns, b.n, 1-hi, 1-lo, block, b.exact)
}

// addQueryGradients does dQ += dS·K in the order of the key tiles, and finishes the rows if it is
// the last.
func (k *backward[T]) addQueryGradients(w *backwardScratch[T], b gradientBlock[T]) {
	place := (b.s.Index*k.heads+b.head)*k.queryTiles + b.q0/k.tile.rows
	before, last := k.keyTileOrder(b)
	if b.tiled {
		from, to := b.span(0, b.n, k.columnUnit)
		dq := b.dq.from(b.q0)
		dS := packRows(w.scoreTiles, rows[T]{w.dP.data, w.dP.stride}, b.n, to-from, false)
		k.order.wait(place, before)
		dS.multiply(0, b.n, 0, w.keyColumns, 0, k.d, from, unsafe.Pointer(dq.at(0)), dq.stride, true)
	} else {
		k.order.wait(place, before)
		for _, part := range w.parts {
			k.addQueryPart(w, part)
		}
	}
	if last {
		dq := b.dq.from(b.q0)
		out := matrix[T](k.g.DQ, b.s.Batch, b.head, b.s.Q0+b.q0)
		simd.ScaleRows(b.n, k.d, out.at(0), out.stride, dq.at(0), dq.stride, fill(w.factor[:b.n], k.scale))
	}
	k.order.pass(place)
}

// addQueryPart does dQ += dS·K for a part of a block.
func (k *backward[T]) addQueryPart(w *backwardScratch[T], b gradientBlock[T]) {
	from, to := b.span(0, b.n, k.columnUnit)
	p := product[T]{left: w.dP.at(b.row), rowStep: w.dP.stride, columnStep: 1, right: b.keys.from(from), out: b.dq.from(b.q0)}
	if b.partly && b.exact {
		k.addShownRows(w, b, p, from, to-from)
		return
	}
	addProduct(k.dPadded/simd.Lanes[T](), p, b.n, to-from, b.lo-from, b.hi-from, blockRows, b.exact)
}

// keyTileOrder is how many key tiles before a block's its query tile sees, and whether it sees none
// behind.
func (k *backward[T]) keyTileOrder(b gradientBlock[T]) (before int, last bool) {
	own := b.k0 / k.tile.columns
	if b.strips != nil {
		return orderOf(k.rules.places[b.s.Index*k.heads+b.head].blocks[b.q0/k.tile.rows], own)
	}
	lo, hi := k.band(b.s)
	return own - max(0, b.q0+lo)/k.tile.columns, own == (min(b.s.Sk, b.q0+b.n-1+hi)-1)/k.tile.columns
}
