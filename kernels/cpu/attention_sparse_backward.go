package cpu

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/score"
)

// This file is the backward side of scores and masks that users write.

// takePoints makes a worker's scratch for them. stride is that of the tiles of scores.
func (k *backward[T]) takePoints(w *backwardScratch[T], stride int) {
	if k.rules == nil {
		return
	}
	w.points = newPointScratch[T](k.tile.columns, k.rules.score, k.rules.hide)
	if k.rules.score != nil {
		for range len(k.rules.score.outputs) - 1 {
			w.derived = append(w.derived, rows[T]{make([]T, k.tile.rows*stride), stride})
		}
	}
	if k.rules.hide != nil {
		w.states = make([]tileState, k.queryTiles)
		w.shown = make([]bool, k.tile.rows*k.tile.columns)
	}
	if k.tables != nil {
		w.tables = k.tables.private()
	}
}

// tilesOf is the tiles of a score matrix, nil where the mask is a band.
func (k *backward[T]) tilesOf(s kernels.Sequence, head int) *score.Tiles {
	if k.rules == nil {
		return nil
	}
	return k.rules.places[s.Index*k.heads+head].tiles
}

// tileState is what a mask shows of a block: of each of its tiles, one or two, side by side.
type tileState [2]struct{ shown, partly bool }

func (t tileState) shown() bool { return t[0].shown || t[1].shown }

// columns is the part of the block's columns that is shown, and whether a pair of it may be hidden.
func (t tileState) columns(all int) (first, end int, partly bool) {
	if end = all; !t[1].shown {
		end = min(all, maskColumns)
	}
	if !t[0].shown {
		first = maskColumns
	}
	return first, end, t[0].partly || t[1].partly
}

// tileStates is what a mask shows of the blocks of one tile of keys, a tile of queries each; nil where the mask is a band.
func (k *backward[T]) tileStates(w *backwardScratch[T], s kernels.Sequence, head, k0 int) []tileState {
	tiles := k.tilesOf(s, head)
	if tiles == nil {
		return nil
	}
	clear(w.states)
	for part := range k.tile.columns / maskColumns {
		at := k0/maskColumns + part
		if at >= len(tiles.Queries) {
			break
		}
		for _, r := range tiles.Queries[at] {
			for q := r.First; q < r.End; q++ {
				w.states[q][part].shown, w.states[q][part].partly = true, r.Partly
			}
		}
	}
	return w.states
}

// orderOf is how many key tiles of backward lie before the one at k0 in a list of the mask's tiles, and whether none lies behind.
func (k *backward[T]) orderOf(runs []score.Run, k0 int) (before int, last bool) {
	each, own := int32(k.tile.columns/maskColumns), int32(k0/k.tile.columns)
	counted := int32(-1) // the last key tile that was counted
	for _, r := range runs {
		first, end := max(counted+1, r.First/each), (r.End-1)/each
		if counted = max(counted, end); first < own {
			before += int(max(0, min(end+1, own)-first))
		}
	}
	return before, counted == own
}

// changeScores applies the score and the mask to a part of a block, with the score's derivatives, and returns the factor that is
// still to be multiplied in.
func (k *backward[T]) changeScores(w *backwardScratch[T], b gradientBlock[T], i, n, from, columns int, scores *T, stride int, factor float64) float64 {
	if k.rules == nil {
		return factor
	}
	at := k.rules.part(k.problem, b.s, b.head, b.q0+i, b.k0+from, n, columns, scores, stride)
	if k.rules.score != nil {
		for _, d := range w.derived {
			at.derived = append(at.derived, &d.data[i*stride+from])
		}
		w.points.run(k.rules.score, at, T(factor), k.rules.values)
		factor = 1
	}
	if b.partly {
		if !(factor > 0) {
			simd.ALiBi(n, columns, scores, stride, T(factor), 0, 0) // −∞ stays what it is under positive factors alone
			factor = 1
		}
		w.points.run(k.rules.hide, at.masked(), T(math.Inf(-1)), k.rules.values)
	}
	return factor
}

// changeGradients adds dS·∂Score/∂table to the gradients of tables, and multiplies dS by ∂Score/∂S. Where dS is 0 it stays 0: a
// score may have no derivative at pairs that are hidden.
func (k *backward[T]) changeGradients(w *backwardScratch[T], b gradientBlock[T], i, n, from, columns int, weights, dS *T, stride int) {
	if k.rules == nil {
		return
	}
	at := k.rules.part(k.problem, b.s, b.head, b.q0+i, b.k0+from, n, columns, weights, stride)
	if b.partly && b.exact {
		w.points.run(k.rules.hide, at.masked(), 0, k.rules.values)
		at.scores = dS
		w.points.run(k.rules.hide, at.masked(), 0, k.rules.values)
	}
	if k.rules.score == nil {
		return
	}
	for _, d := range w.derived {
		at.derived = append(at.derived, &d.data[i*stride+from])
	}
	p := k.rules.score
	for first := 0; first < n; first += scoreStrip {
		s := at
		s.i, s.n, s.scores, s.derived = at.i+first, min(scoreStrip, n-first), offset(dS, first*stride), nil
		for _, d := range at.derived {
			s.derived = append(s.derived, offset(d, first*stride))
		}
		w.points.spread(p, s)
		own := simd.Points[T]{At: s.scores, Stride: stride}
		for g := range k.rules.gradients {
			if k.tables == nil || k.tables.sums[k.rules.gradients[g].Table] == nil {
				continue
			}
			product := simd.Points[T]{At: &w.points.products[0], Stride: w.points.stride}
			if isOne(p, p.outputs[2+g]) {
				product = own
			} else {
				simd.Pointwise(simd.OpMulNonzero, s.n, columns, product.At, product.Stride, own, w.points.points(p, p.outputs[2+g], s), simd.Points[T]{})
			}
			w.points.scatter(p.addresses[g], s, product, w.tables[k.rules.gradients[g].Table], k.rules.values)
		}
		if !isOne(p, p.outputs[1]) {
			simd.Pointwise(simd.OpMulNonzero, s.n, columns, s.scores, stride, own, w.points.points(p, p.outputs[1], s), simd.Points[T]{})
		}
	}
}

// isOne reports whether an operand is the number 1.
func isOne(p *pointwise, o operand) bool {
	if o.kind != inLine {
		return false
	}
	i := p.program.Code[p.lines[o.index]]
	return i.Op == score.OpNumber && i.Value == 1
}

// look finds which pairs of a block the mask shows, for products that must not meet what is hidden.
func (k *backward[T]) look(w *backwardScratch[T], b gradientBlock[T]) {
	clear(w.shown)
	at := k.rules.part(k.problem, b.s, b.head, b.q0, b.k0, b.n, b.columns, w.scores.at(0), w.scores.stride)
	for r := range b.n {
		w.points.visibleRuns(k.Mask.Rest, at, r, max(b.first, b.lo+r), b.hi+r, k.rules.values, func(from, to int) {
			for c := from; c < to; c++ {
				w.shown[r*k.tile.columns+c] = true
			}
		})
	}
}

// addShownRows adds the product of each row of a block, whose first column is from, with the keys that it sees.
func (k *backward[T]) addShownRows(w *backwardScratch[T], b gradientBlock[T], p product[T], from, columns int) {
	for r := range b.n {
		runsOf(columns, func(c int) bool { return w.shown[r*k.tile.columns+from+c] }, func(first, end int) {
			p.add(k.dPadded/simd.Lanes[T](), r, 1, first, end)
		})
	}
}

// addShownColumns does addKeyGradients for each key with the queries that see it.
func (k *backward[T]) addShownColumns(w *backwardScratch[T], b gradientBlock[T], from, columns int) {
	dv := product[T]{left: w.scores.at(0), rowStep: 1, columnStep: w.scores.stride, right: b.dO.from(b.q0), out: w.dv.from(from)}
	dk := product[T]{left: w.dP.at(0), rowStep: 1, columnStep: w.dP.stride, right: b.q.from(b.q0), out: w.dk.from(from)}
	for c := range columns {
		runsOf(b.n, func(r int) bool { return w.shown[r*k.tile.columns+from+c] }, func(first, end int) {
			dv.add(k.dvPadded/simd.Lanes[T](), c, 1, first, end)
			dk.add(k.dPadded/simd.Lanes[T](), c, 1, first, end)
		})
	}
}

// runsOf calls do with each run of numbers below n of which is says yes.
func runsOf(n int, is func(int) bool, do func(first, end int)) {
	for first := 0; first < n; first++ {
		if !is(first) {
			continue
		}
		end := first + 1
		for end < n && is(end) {
			end++
		}
		do(first, end)
		first = end
	}
}
