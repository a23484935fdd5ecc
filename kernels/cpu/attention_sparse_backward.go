package cpu

import (
	"cmp"
	"math"
	"slices"

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
		w.states = make([]panelStates, k.queryTiles*k.tile.rows/k.maskStrip)
		w.shown = make([]bool, k.tile.rows*k.tile.columns)
	}
	if k.tables != nil {
		w.tables = k.tables.private()
	}
}

// blockRun is a run of tiles of keys that some row of a tile of queries sees, and how many such
// tiles lie before them.
type blockRun struct{ first, end, before int }

// listBlocks finds the blocks that masks show.
func (k *backward[T]) listBlocks() {
	if k.rules == nil || k.rules.hide == nil {
		return
	}
	known := map[*score.Tiles][][]blockRun{}
	for i := range k.rules.places {
		at := &k.rules.places[i]
		if known[at.tiles] == nil {
			known[at.tiles] = blocksOf(at.tiles, k.tile.rows/k.maskStrip, k.tile.columns/maskColumns)
		}
		at.blocks = known[at.tiles]
	}
}

// blocksOf makes blocks of so many strips and panels of a mask's tiles.
func blocksOf(tiles *score.Tiles, strips, panels int) (blocks [][]blockRun) {
	var all []score.Run
	for lists := range slices.Chunk(tiles.Keys, strips) {
		all = all[:0]
		for _, runs := range lists {
			all = append(all, runs...)
		}
		slices.SortFunc(all, func(a, b score.Run) int { return cmp.Compare(a.First, b.First) })
		var joined []blockRun
		before := 0
		for _, r := range all {
			first, end := int(r.First)/panels, ceilDiv(int(r.End), panels)
			if n := len(joined); n > 0 {
				last := &joined[n-1]
				if first <= last.end {
					last.end = max(last.end, end)
					continue
				}
				before = last.before + last.end - last.first
			}
			joined = append(joined, blockRun{first, end, before})
		}
		blocks = append(blocks, joined)
	}
	return blocks
}

// orderOf is how many tiles of keys on a list lie before one of them, and whether none lies behind.
func orderOf(runs []blockRun, tile int) (before int, last bool) {
	n, _ := slices.BinarySearchFunc(runs, tile, func(r blockRun, tile int) int { return cmp.Compare(r.end, tile+1) })
	r := runs[n]
	return r.before + tile - r.first, n == len(runs)-1 && tile == r.end-1
}

// panelStates is what a mask shows of a strip of queries and a tile of keys: of each of its tiles,
// side by side.
type panelStates [mostKeys / maskColumns]tileState

// tileStates is what a mask shows of a tile of keys and each strip of queries; nil where the mask
// is a band.
func (k *backward[T]) tileStates(w *backwardScratch[T], s kernels.Sequence, head, k0 int) []panelStates {
	if k.rules == nil || k.rules.hide == nil {
		return nil
	}
	lists := k.rules.places[s.Index*k.heads+head].tiles.Queries[k0/maskColumns:]
	clear(w.states)
	for panel := range min(len(lists), k.tile.columns/maskColumns) {
		for _, r := range lists[panel] {
			for strip := r.First; strip < r.End; strip++ {
				w.states[strip][panel] = stateOf(r)
			}
		}
	}
	return w.states
}

// isShown reports whether the mask shows anything of a block.
func (b *gradientBlock[T]) isShown() bool {
	return slices.ContainsFunc(b.strips, func(s panelStates) bool { return s != panelStates{} })
}

// parts cuts a block into strips, and joins those that see the same columns. Without a mask's tiles
// the block is its only part.
func (b gradientBlock[T]) parts(to []gradientBlock[T]) []gradientBlock[T] {
	if b.strips == nil {
		return append(to, b)
	}
	for strip := 0; strip < len(b.strips); {
		panels := b.strips[strip]
		first, end := panels.shown()
		last := strip + 1
		for ; last < len(b.strips); last++ {
			if f, e := b.strips[last].shown(); f != first || e != end {
				break
			}
			panels = panels.with(b.strips[last])
		}
		if first < end {
			part := b
			part.row, part.n = strip*b.stripRows, min(last*b.stripRows, b.n)-strip*b.stripRows
			part.q0, part.lo, part.hi = b.q0+part.row, b.lo+part.row, b.hi+part.row
			part.first, part.columns, part.panels = first*maskColumns, min(b.columns, end*maskColumns), panels
			part.partly = slices.ContainsFunc(panels[first:end], func(s tileState) bool { return s != wholeTile })
			to = append(to, part)
		}
		strip = last
	}
	return to
}

// shown is the first of the tiles that are shown, and the end of the last.
func (p panelStates) shown() (first, end int) {
	for n, state := range p {
		if state != hiddenTile {
			if end == 0 {
				first = n
			}
			end = n + 1
		}
	}
	return first, end
}

// with is what the mask shows of two strips together.
func (p panelStates) with(other panelStates) panelStates {
	for n, state := range other {
		if p[n] != state {
			p[n] = partlyTile
		}
	}
	return p
}

// changeScores multiplies the scores of a part of a block by a factor, unless that is left to the
// softmax, and applies the score, with its derivatives, and the mask.
func (k *backward[T]) changeScores(w *backwardScratch[T], b gradientBlock[T], i, n, from, columns int, scores *T, stride int, factor float64) {
	if k.rules != nil && k.rules.score != nil {
		at := k.rules.part(k.problem, b.s, b.head, b.q0+i, b.k0+from, n, columns, scores, stride)
		for _, d := range w.derived {
			at.derived = append(at.derived, &d.data[(b.row+i)*stride+from])
		}
		w.points.run(k.rules.score, at, T(factor), k.rules.values)
		factor = 1
	}
	settle(n, columns, scores, stride, factor, k.left)
	if b.partly {
		hides := func(panel int) bool { return b.panels[panel] != wholeTile }
		runsOf(ceilDiv(from+columns, maskColumns), hides, func(first, end int) {
			first, end = max(from, first*maskColumns), min(from+columns, end*maskColumns)
			if first < end {
				at := k.rules.part(k.problem, b.s, b.head, b.q0+i, b.k0+first, n, end-first, offset(scores, first-from), stride)
				w.points.run(k.rules.hide, at.masked(), T(math.Inf(-1)), k.rules.values)
			}
		})
	}
}

// changeGradients adds dS·∂Score/∂table to the gradients of tables, and multiplies dS by ∂Score/∂S.
// Where dS is 0 it stays 0: a score may have no derivative at pairs that are hidden.
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
		at.derived = append(at.derived, &d.data[(b.row+i)*stride+from])
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

// look finds which pairs of a part of a block the mask shows, for products that must not meet what
// is hidden.
func (k *backward[T]) look(w *backwardScratch[T], b gradientBlock[T]) {
	shown := w.shown[b.row*k.tile.columns:][:b.n*k.tile.columns]
	clear(shown)
	at := k.rules.part(k.problem, b.s, b.head, b.q0, b.k0, b.n, b.columns, w.scores.at(b.row), w.scores.stride)
	for r := range b.n {
		w.points.visibleRuns(k.Mask.Rest, at, r, max(b.first, b.lo+r), b.hi+r, k.rules.values, func(from, to int) {
			for c := from; c < to; c++ {
				shown[r*k.tile.columns+c] = true
			}
		})
	}
}

// addShownRows adds the product of each row of a part of a block, whose first column is from, with
// the keys that it sees.
func (k *backward[T]) addShownRows(w *backwardScratch[T], b gradientBlock[T], p product[T], from, columns int) {
	for r := range b.n {
		runsOf(columns, func(c int) bool { return w.shown[(b.row+r)*k.tile.columns+from+c] }, func(first, end int) {
			p.add(k.dPadded/simd.Lanes[T](), r, 1, first, end)
		})
	}
}

// addShownColumns does addKeyGradients for each key with the queries that see it.
func (k *backward[T]) addShownColumns(w *backwardScratch[T], b gradientBlock[T], from, columns int) {
	dv := product[T]{left: w.scores.at(b.row), rowStep: 1, columnStep: w.scores.stride, right: b.dO.from(b.q0), out: w.dv.from(from)}
	dk := product[T]{left: w.dP.at(b.row), rowStep: 1, columnStep: w.dP.stride, right: b.q.from(b.q0), out: w.dk.from(from)}
	for c := range columns {
		runsOf(b.n, func(r int) bool { return w.shown[(b.row+r)*k.tile.columns+from+c] }, func(first, end int) {
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
