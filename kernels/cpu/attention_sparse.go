package cpu

import (
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/score"
)

// This file goes through the tiles that a mask shows. Those that are hidden are not computed; of those that are shown in part, what
// is hidden becomes −∞ before the softmax.

// isSparse reports whether a mask hides more than a band bounds.
func (f *forward[T]) isSparse() bool { return f.rules != nil && f.rules.hide != nil }

// segment is a run of visible keys of a tile of queries, which lie side by side with others in a tile of scores.
type segment struct {
	k0, columns int
	at          int  // its first column in the tile of scores
	partly      bool // the mask hides some of it
}

// doSparse is do where a mask has tiles. b's band counts columns from key 0.
func (f *forward[T]) doSparse(w *forwardScratch[T], b block[T], n int) {
	tiles := f.rules.places[b.s.Index*f.heads+b.head].tiles
	w.parts = w.parts[:0]
	used := 0
	flush := func() {
		f.stepSparse(w, b, n, used)
		w.parts, used = w.parts[:0], 0
	}
	for _, r := range tiles.Keys[b.q0/maskRows] {
		end := min(int(r.End)*maskColumns, b.s.Sk)
		for k0 := int(r.First) * maskColumns; k0 < end; {
			columns := min(f.tile.columns-used, end-k0)
			// What the band cuts is a step of its own, which follows the band in strips of rows.
			if cut := f.cutColumns(b, n, k0, columns); cut > 0 {
				flush()
				f.stepBand(w, b, n, k0, min(cut, f.tile.columns, end-k0), r.Partly)
				k0 += min(cut, f.tile.columns, end-k0)
				continue
			} else if cut < 0 {
				columns = -cut
			}
			w.parts = append(w.parts, segment{k0: k0, columns: columns, at: used, partly: r.Partly})
			k0 += columns
			if used += columns; used == f.tile.columns || used%maskColumns != 0 {
				flush()
			}
		}
	}
	flush()
}

// cutColumns is how many of the columns from k0 on are in tiles that the band cuts, or, negative, how many are in tiles before the
// first that it cuts; 0 where it cuts none.
func (f *forward[T]) cutColumns(b block[T], n, k0, columns int) int {
	isCut := func(k int) bool { return b.lo+n-1 > k || b.hi < min(k+maskColumns, b.s.Sk) }
	first := isCut(k0)
	for k := k0 + maskColumns; k < k0+columns; k += maskColumns {
		if isCut(k) != first {
			if first {
				return k - k0
			}
			return k0 - k
		}
	}
	if first {
		return columns
	}
	return 0
}

// blockAt completes a block with the keys from k0 on, and says where these begin in its operands.
func (f *forward[T]) blockAt(w *forwardScratch[T], b block[T], k0, columns int) block[T] {
	keys, at := &w.own, 0
	if f.shared {
		keys, at = &f.keys[b.s.Index*f.kvHeads+b.head/f.group], k0
	} else {
		f.packRange(keys, b.s, b.head/f.group, k0, k0+columns)
	}
	b.k0, b.columns = k0, columns
	b.lo, b.hi = b.lo-k0, b.hi-k0
	b.keys, b.values, b.finite = keys.transposed[at*f.d:], keys.values.from(at), keys.finite
	return b
}

// stepBand takes a block that the band cuts through a step of the softmax, in strips of rows.
func (f *forward[T]) stepBand(w *forwardScratch[T], b block[T], n, k0, columns int, partly bool) {
	b = f.blockAt(w, b, k0, columns)
	b.partly = partly
	for i := 0; i < n; i += f.tile.strip {
		f.step(w, b, i, min(f.tile.strip, n-i))
	}
}

// stepSparse takes the segments that were gathered through one step of the softmax.
func (f *forward[T]) stepSparse(w *forwardScratch[T], b block[T], n, columns int) {
	if columns == 0 {
		return
	}
	if !f.shared {
		// Keys are packed one tile at a time.
		for _, p := range w.parts {
			whole := f.blockAt(w, b, p.k0, p.columns)
			whole.partly = p.partly
			f.step(w, whole, 0, n)
		}
		return
	}
	lanes, panel, stride := simd.Lanes[T](), simd.Panel[T](), w.scores.stride
	factor := 1.0
	for _, p := range w.parts {
		part := f.blockAt(w, b, p.k0, p.columns)
		part.partly = p.partly
		scores := &w.scores.data[p.at]
		simd.Gemm(n, ceilDiv(p.columns, lanes), f.d, b.q.at(0), b.q.stride, 1, &part.keys[0], panel, f.d*panel, scores, stride, false)
		factor = f.scores(w, part, 0, n, 0, p.columns, scores)
	}
	simd.Softmax(n, columns, &w.scores.data[0], stride, &w.m[0], &w.l[0], w.o.at(0), w.o.stride, f.dvPadded, T(factor*log2e), -n, columns)
	for _, p := range w.parts {
		part := f.blockAt(w, b, p.k0, p.columns)
		part.partly = p.partly
		scores := &w.scores.data[p.at]
		if f.Dropout.P > 0 {
			simd.Dropout(n, p.columns, scores, scores, stride, f.Dropout, f.plane(b.s, b.head), b.q0, p.k0, 1)
		}
		f.addValues(w, part, 0, n, 0, p.columns, scores)
	}
}

// visibleRuns calls do with the runs of columns that the mask shows, of a part's row r, from lo up to hi.
func (w *pointScratch[T]) visibleRuns(mask *score.Program, at part[T], r, lo, hi int, values []score.Values[T], do func(from, to int)) {
	e := w.evaluator(mask)
	e.Run(at.line(r, values))
	shown := e.Bools(0)
	for from := max(0, lo); from < min(hi, at.columns); from++ {
		if !shown[from] {
			continue
		}
		to := from + 1
		for to < min(hi, at.columns) && shown[to] {
			to++
		}
		do(from, to)
		from = to
	}
}

// addValues adds the product of weights, a tile whose first row and column are row i and column from of the block, and values.
func (f *forward[T]) addValues(w *forwardScratch[T], b block[T], i, n, from, to int, weights *T) {
	vectors, lo, hi := f.dvPadded/simd.Lanes[T](), b.lo+i-from, b.hi+i-from
	p := product[T]{left: weights, rowStep: w.scores.stride, columnStep: 1, right: b.values.from(from), out: w.o.from(i)}
	if !b.partly || b.finite {
		addProduct(vectors, p, n, to-from, lo, hi, blockRows, !b.finite)
		return
	}
	at := f.rules.part(f.problem, b.s, b.head, b.q0+i, b.k0+from, n, to-from, weights, w.scores.stride)
	for r := range n {
		w.points.visibleRuns(f.Mask.Rest, at, r, lo+r, hi+r, f.rules.values, func(from, to int) { p.add(vectors, r, 1, from, to) })
	}
}
