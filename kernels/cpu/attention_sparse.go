package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/score"
)

// This file goes through the tiles that a mask shows. Those that are hidden are not computed; of
// those that are shown in part, what is hidden becomes −∞ before the softmax.

// isSparse reports whether a mask hides more than a band bounds.
func (f *forward[T]) isSparse() bool { return f.rules != nil && f.rules.hide != nil }

// segment is a run of visible keys of some rows of queries, which lie side by side with others in a
// tile of scores.
type segment struct {
	k0, columns int
	at          int  // its first column in the tile of scores
	partly      bool // the mask hides some of it
}

// tileState is what a mask shows of one of its tiles.
type tileState uint8

const (
	hiddenTile tileState = iota
	wholeTile
	partlyTile
)

// stateOf is the state of the tiles of a run.
func stateOf(r score.Run) tileState {
	if r.Partly {
		return partlyTile
	}
	return wholeTile
}

// stripStates is what a mask shows of the tiles of a column, in each strip of a task's rows.
type stripStates [taskRows / leastStrip]tileState

// doSparse is do where a mask has tiles. b's band counts columns from key 0. What is the same for
// all of the rows is done for them together, and the rest strip by strip.
func (f *forward[T]) doSparse(w *forwardScratch[T], b block[T], n int) {
	tiles := f.rules.places[b.s.Index*f.heads+b.head].tiles
	strips := ceilDiv(n, f.maskStrip)
	first, end := len(w.states), 0
	for strip := range strips {
		for _, r := range tiles.Keys[b.q0/f.maskStrip+strip] {
			for k := r.First; k < r.End; k++ {
				w.states[k][strip] = stateOf(r)
			}
			first, end = min(first, int(r.First)), max(end, int(r.End))
		}
	}
	if first >= end {
		return
	}
	common := func(k int) bool {
		for _, state := range w.states[k][1:strips] {
			if state != w.states[k][0] {
				return false
			}
		}
		return true
	}
	f.doRows(w, b, 0, n, first, end, func(k int) tileState {
		if !common(k) {
			return hiddenTile
		}
		return w.states[k][0]
	})
	for strip := range strips {
		i := strip * f.maskStrip
		f.doRows(w, b, i, min(f.maskStrip, n-i), first, end, func(k int) tileState {
			if common(k) {
				return hiddenTile
			}
			return w.states[k][strip]
		})
	}
	clear(w.states[first:end])
}

// doRows takes the rows [i, i+n) of a block through the tiles of keys [first, end) that the mask
// shows.
func (f *forward[T]) doRows(w *forwardScratch[T], b block[T], i, n, first, end int, state func(k int) tileState) {
	w.parts = w.parts[:0]
	used := 0
	flush := func() {
		f.stepSparse(w, b, i, n, used)
		w.parts, used = w.parts[:0], 0
	}
	for k := first; k < end; k++ {
		shown := state(k)
		if shown == hiddenTile {
			continue
		}
		part := segment{k0: k * maskColumns, columns: min(maskColumns, b.s.Sk-k*maskColumns), at: used, partly: shown == partlyTile}
		last := len(w.parts) - 1
		switch {
		case b.lo+i+n-1 > part.k0 || b.hi+i < part.k0+part.columns:
			f.stepBand(w, b, i, n, part) // what the band cuts is a step of its own
			continue
		case last >= 0 && w.parts[last].k0+w.parts[last].columns == part.k0 && w.parts[last].partly == part.partly:
			w.parts[last].columns += part.columns
		default:
			w.parts = append(w.parts, part)
		}
		if used += part.columns; used == f.tile.columns || used%maskColumns != 0 {
			flush()
		}
	}
	flush()
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

// stepBand takes rows of a part that the band cuts through a step of the softmax, in strips.
func (f *forward[T]) stepBand(w *forwardScratch[T], b block[T], i, n int, part segment) {
	b = f.blockAt(w, b, part.k0, part.columns)
	b.partly = part.partly
	for end := i + n; i < end; i += f.tile.strip {
		f.step(w, b, i, min(f.tile.strip, end-i))
	}
}

// stepSparse takes the segments that were gathered, for the rows [i, i+n), through one step of the
// softmax.
func (f *forward[T]) stepSparse(w *forwardScratch[T], b block[T], i, n, columns int) {
	if columns == 0 {
		return
	}
	if !f.shared {
		// Keys are packed one tile at a time.
		for _, p := range w.parts {
			whole := f.blockAt(w, b, p.k0, p.columns)
			whole.partly = p.partly
			f.step(w, whole, i, n)
		}
		return
	}
	lanes, panel, stride := simd.Lanes[T](), simd.Panel[T](), w.scores.stride
	for _, p := range w.parts {
		part := f.blockAt(w, b, p.k0, p.columns)
		part.partly = p.partly
		scores := &w.scores.data[i*stride+p.at]
		simd.Gemm(n, ceilDiv(p.columns, lanes), f.d, b.q.at(i), b.q.stride, 1, &part.keys[0], panel, f.d*panel, scores, stride, false)
		f.scores(w, part, i, n, 0, p.columns, scores)
	}
	simd.Softmax(n, columns, &w.scores.data[i*stride], stride, &w.m[i], &w.l[i], w.o.at(i), w.o.stride, f.dvPadded, T(f.left*log2e), -n, columns)
	for _, p := range w.parts {
		part := f.blockAt(w, b, p.k0, p.columns)
		part.partly = p.partly
		scores := &w.scores.data[i*stride+p.at]
		if f.Dropout.P > 0 {
			f.drop(b.s, b.head, b.q0+i, p.k0, n, p.columns, scores, scores, stride, 1)
		}
		f.addValues(w, part, i, n, 0, p.columns, scores)
	}
}

// packShown packs the keys of a head that some query sees.
func (f *forward[T]) packShown(k *packedKeys[T], s kernels.Sequence, head int) {
	shown := func(tile int) bool {
		for h := head * f.group; h < (head+1)*f.group; h++ {
			if len(f.rules.places[s.Index*f.heads+h].tiles.Queries[tile]) > 0 {
				return true
			}
		}
		return false
	}
	if k.finite = true; s.Sk == 0 {
		return
	}
	if !f.copyV {
		k.values = matrix[T](f.V, s.KeyBatch, head, s.K0)
	} else {
		k.values.stride = f.dvPadded
	}
	runsOf(ceilDiv(s.Sk, maskColumns), shown, func(first, end int) {
		from, to := first*maskColumns, min(end*maskColumns, s.Sk)
		keys, values := matrix[T](f.K, s.KeyBatch, head, s.K0+from), matrix[T](f.V, s.KeyBatch, head, s.K0+from)
		simd.PackTransposed(k.transposed[from*f.d:], keys.data, to-from, f.d, keys.stride)
		k.finite = k.finite && finite(values, to-from, f.dv)
		if f.copyV {
			copyRows(k.values.data[from*f.dvPadded:], values, to-from, f.dv, f.dvPadded)
		}
	})
}

// visibleRuns calls do with the runs of columns that the mask shows, of a part's row r, from lo up
// to hi.
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

// addValues adds the product of weights, a tile whose first row and column are row i and column
// from of the block, and values.
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
