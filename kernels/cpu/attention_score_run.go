package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/score"
)

// lines are the values of a program's lines in one score matrix: of queries, of keys, or of
// diagonals. Diagonals are numbered by key − query, from 1 − QueryLength on, so that a row of the
// matrix is a part of them.
type lines[T kernels.Float] struct {
	floats  [][]T     // of each line; of integers too, and conditions are 0 and 1
	ints    [][]int32 // of integers
	exact   []bool    // of integers, whether floats hold them exactly
	offsets [][score.Pairs][]int
}

// lineChunk is how many values of a line are computed at a time.
const lineChunk = 2048

// lengthOf is how many values a line has.
func lengthOf(v score.Varies, w score.Where) int {
	switch v {
	case score.Rows:
		return w.QueryLength
	case score.Columns:
		return w.KeyLength
	case score.Diagonals:
		return max(0, w.QueryLength+w.KeyLength-1)
	}
	return 1
}

// compute evaluates the lines of a score matrix. Each has room for a vector behind its end.
func (l *lines[T]) compute(p *pointwise, w score.Where, values []score.Values[T]) {
	n := len(p.lines)
	l.floats, l.ints, l.exact = make([][]T, n), make([][]int32, n), make([]bool, n)
	var along [score.Pairs][]int
	for at, instr := range p.lines {
		i := p.program.Code[instr]
		along[i.Varies] = append(along[i.Varies], at)
		l.floats[at] = make([]T, lengthOf(i.Varies, w)+2*simd.Lanes[T]())
		if l.exact[at] = true; i.Type == score.Int {
			l.ints[at] = make([]int32, lengthOf(i.Varies, w))
		}
	}
	for varies, list := range along {
		if len(list) == 0 {
			continue
		}
		instrs := make([]int, len(list))
		for k, at := range list {
			instrs[k] = p.lines[at]
		}
		part := p.program.Part(instrs...)
		e := score.NewEvaluator[T](part)
		length := lengthOf(score.Varies(varies), w)
		for from := 0; from < length; from += lineChunk {
			line := score.Line[T]{Where: w, N: min(lineChunk, length-from), Tables: values}
			switch score.Varies(varies) {
			case score.Rows:
				line.Query, line.QueryStep = from, 1
			case score.Columns:
				line.Key, line.KeyStep = from, 1
			case score.Diagonals:
				line.Query, line.Key, line.KeyStep = w.QueryLength-1, from, 1
			}
			e.Run(line)
			for k, at := range list {
				l.keep(e, part, k, at, from)
			}
		}
	}
	l.offsets = make([][score.Pairs][]int, len(p.lookups))
	for k, a := range p.lookups {
		for varies, axes := range a.lines {
			if len(axes) == 0 {
				continue
			}
			sum := make([]int, lengthOf(score.Varies(varies), w))
			for _, axis := range axes {
				for n, index := range l.ints[axis.line] {
					sum[n] += score.Clamp(index, axis.size) * axis.stride
				}
			}
			l.offsets[k][varies] = sum
		}
	}
}

// keep stores the k-th result of a part, from an element of its line on.
func (l *lines[T]) keep(e *score.Evaluator[T], part *score.Program, k, at, from int) {
	to := l.floats[at][from:]
	switch part.Code[part.Results[k]].Type {
	case score.Int:
		most := int32(1 << 24)
		if kernels.DTypeOf[T]() == kernels.F64 {
			most = 1<<31 - 1
		}
		copy(l.ints[at][from:], e.Ints(k))
		for n, x := range e.Ints(k) {
			to[n] = T(x)
			l.exact[at] = l.exact[at] && x <= most && x >= -most
		}
	case score.Bool:
		for n, x := range e.Bools(k) {
			if to[n] = 0; x {
				to[n] = 1
			}
		}
	default:
		copy(to, e.Floats(k))
	}
}

// scoreStrip is the number of rows that a program goes through at once, so that what comes between
// operations stays in the first cache.
const scoreStrip = 8

// pointScratch is what a worker needs to run programs.
type pointScratch[T kernels.Float] struct {
	stride     int
	slots      []T // tiles of a strip
	same       []T // a vector for each line and row of the strip
	factors    []T // a vector for each multiple of the factor
	scaled     []T // a row of scores
	evaluators map[*score.Program]*score.Evaluator[T]
	offsets    []int // of a row
	products   []T   // a tile of a strip, for gradients
	lineSums   []T   // of the columns of a strip, or of its diagonals
}

func newPointScratch[T kernels.Float](columns int, programs ...*pointwise) *pointScratch[T] {
	slots, lines, factors := 0, 0, 1
	for _, p := range programs {
		if p != nil {
			slots, lines = max(slots, p.slots), max(lines, len(p.lines))
			factors = max(factors, len(p.multiples))
		}
	}
	lanes := simd.Lanes[T]()
	w := &pointScratch[T]{stride: roundUp(columns, lanes) + lanes, evaluators: map[*score.Program]*score.Evaluator[T]{}}
	w.slots = make([]T, slots*scoreStrip*w.stride)
	w.same = make([]T, lines*scoreStrip*lanes)
	w.factors = make([]T, factors*lanes)
	w.scaled, w.offsets = make([]T, columns), make([]int, columns)
	w.products, w.lineSums = make([]T, scoreStrip*w.stride), make([]T, columns+scoreStrip)
	return w
}

// part is where a program runs: n rows and columns of a score matrix, the first being row i and
// column j.
type part[T kernels.Float] struct {
	*scorePlace[T]
	lines   *lines[T]
	i, j    int
	n       int
	columns int
	scores  *T // the tile that comes in and goes out
	derived []*T
	stride  int // of both
}

// part is a part of a score matrix to which the score applies.
func (r *rules[T]) part(p *problem[T], s kernels.Sequence, head, i, j, n, columns int, scores *T, stride int) part[T] {
	at := &r.places[s.Index*p.heads+head]
	return part[T]{scorePlace: at, lines: at.scoreLines, i: i, j: j, n: n, columns: columns, scores: scores, stride: stride}
}

// masked is the same part for the mask.
func (at part[T]) masked() part[T] {
	at.lines = at.maskLines
	return at
}

// run computes a program in a part of a score matrix.
func (w *pointScratch[T]) run(p *pointwise, at part[T], factor T, values []score.Values[T]) {
	lanes := simd.Lanes[T]()
	for n, multiple := range p.multiples {
		fill(w.factors[n*lanes:][:lanes], float64(factor)*multiple)
	}
	for first := 0; first < at.n; first += scoreStrip {
		s := at
		s.i, s.n = at.i+first, min(scoreStrip, at.n-first)
		s.scores = offset(at.scores, first*at.stride)
		s.derived = nil
		for _, d := range at.derived {
			s.derived = append(s.derived, offset(d, first*at.stride))
		}
		w.spread(p, s)
		for k := range p.ops {
			w.do(p, &p.ops[k], s, factor, values)
		}
	}
}

// spread makes vectors of what is the same for all columns of a row.
func (w *pointScratch[T]) spread(p *pointwise, s part[T]) {
	lanes := simd.Lanes[T]()
	for n, instr := range p.lines {
		to := w.same[n*scoreStrip*lanes:]
		switch p.program.Code[instr].Varies {
		case score.Nowhere:
			fill(to[:lanes], float64(s.lines.floats[n][0]))
		case score.Rows:
			for r, x := range s.lines.floats[n][s.i : s.i+s.n] {
				fill(to[r*lanes:][:lanes], float64(x))
			}
		}
	}
}

func (w *pointScratch[T]) do(p *pointwise, op *pointOp, s part[T], factor T, values []score.Values[T]) {
	to := w.points(p, op.to, s)
	switch {
	case op.evaluated != nil:
		w.evaluate(op.evaluated, s, to, factor, values)
	case op.lookup != nil:
		table := values[op.lookup.table].Floats
		for r := range s.n {
			out := w.row(to, r, s.columns)
			for c, at := range w.find(op.lookup, s, r, factor, values) {
				out[c] = table[at]
			}
		}
	case op.integers && !(s.lines.exact[op.x.index] && s.lines.exact[op.y.index]):
		w.compare(p, op, s, to)
	default:
		simd.Pointwise(op.op, s.n, s.columns, to.At, to.Stride, w.points(p, op.x, s), w.points(p, op.y, s), w.points(p, op.z, s))
	}
}

func (w *pointScratch[T]) row(tile simd.Points[T], r, n int) []T {
	return sliceOf(offset(tile.At, r*tile.Stride), n)
}

// points is an operand of an operation on a strip.
func (w *pointScratch[T]) points(p *pointwise, o operand, s part[T]) simd.Points[T] {
	lanes := simd.Lanes[T]()
	switch o.kind {
	case inScores:
		return simd.Points[T]{At: s.scores, Stride: s.stride}
	case inDerived:
		return simd.Points[T]{At: s.derived[o.index], Stride: s.stride}
	case inFactor:
		return simd.Points[T]{At: &w.factors[o.index*lanes], Same: true}
	case inSlot:
		return simd.Points[T]{At: &w.slots[o.index*scoreStrip*w.stride], Stride: w.stride}
	case inLine:
		switch p.program.Code[p.lines[o.index]].Varies {
		case score.Nowhere:
			return simd.Points[T]{At: &w.same[o.index*scoreStrip*lanes], Same: true}
		case score.Rows:
			return simd.Points[T]{At: &w.same[o.index*scoreStrip*lanes], Stride: lanes, Same: true}
		case score.Columns:
			return simd.Points[T]{At: &s.lines.floats[o.index][s.j]}
		}
		return simd.Points[T]{At: &s.lines.floats[o.index][s.diagonal(0)], Stride: -1}
	}
	return simd.Points[T]{}
}

// diagonal is the number of the diagonal on which row r of the part begins.
func (s *part[T]) diagonal(r int) int { return s.j - (s.i + r) + s.QueryLength - 1 }

// line is the pairs of row r.
func (s *part[T]) line(r int, values []score.Values[T]) score.Line[T] {
	return score.Line[T]{Where: s.Where, N: s.columns, Query: s.i + r, Key: s.j, KeyStep: 1, Tables: values}
}

func (w *pointScratch[T]) evaluator(p *score.Program) *score.Evaluator[T] {
	if w.evaluators[p] == nil {
		w.evaluators[p] = score.NewEvaluator[T](p)
	}
	return w.evaluators[p]
}

// evaluateRow runs a program that has no vectors on the pairs of a row.
func (w *pointScratch[T]) evaluateRow(p *score.Program, s part[T], r int, factor T, values []score.Values[T]) *score.Evaluator[T] {
	l := s.line(r, values)
	l.Scores = w.scaled[:s.columns]
	for c, x := range sliceOf(offset(s.scores, r*s.stride), s.columns) {
		l.Scores[c] = x * factor
	}
	e := w.evaluator(p)
	e.Run(l)
	return e
}

func (w *pointScratch[T]) evaluate(p *score.Program, s part[T], to simd.Points[T], factor T, values []score.Values[T]) {
	for r := range s.n {
		e, out := w.evaluateRow(p, s, r, factor, values), w.row(to, r, s.columns)
		if p.Code[p.Results[0]].Type == score.Float {
			copy(out, e.Floats(0))
			continue
		}
		for c, holds := range e.Bools(0) {
			if out[c] = 0; holds {
				out[c] = 1
			}
		}
	}
}

// compare compares integers that are no numbers of T.
func (w *pointScratch[T]) compare(p *pointwise, op *pointOp, s part[T], to simd.Points[T]) {
	for r := range s.n {
		out := w.row(to, r, s.columns)
		for c := range out {
			x, y := w.integer(p, op.x, s, r, c), w.integer(p, op.y, s, r, c)
			if out[c] = 0; op.op == score.OpEqual && x == y || op.op == score.OpLess && x < y || op.op == score.OpLessEqual && x <= y {
				out[c] = 1
			}
		}
	}
}

// integer is the value of a line of integers at a pair.
func (w *pointScratch[T]) integer(p *pointwise, o operand, s part[T], r, c int) int32 {
	ints := s.lines.ints[o.index]
	switch p.program.Code[p.lines[o.index]].Varies {
	case score.Rows:
		return ints[s.i+r]
	case score.Columns:
		return ints[s.j+c]
	case score.Diagonals:
		return ints[s.diagonal(r)+c]
	}
	return ints[0]
}

// find is where a lookup finds its element of each column of row r.
func (w *pointScratch[T]) find(a *address, s part[T], r int, factor T, values []score.Values[T]) []int {
	at, lines := w.offsets[:s.columns], &s.lines.offsets[a.number]
	start := 0
	if o := lines[score.Nowhere]; o != nil {
		start = o[0]
	}
	if o := lines[score.Rows]; o != nil {
		start += o[s.i+r]
	}
	for c := range at {
		at[c] = start
	}
	if o := lines[score.Columns]; o != nil {
		for c, x := range o[s.j : s.j+s.columns] {
			at[c] += x
		}
	}
	if o := lines[score.Diagonals]; o != nil {
		first := s.diagonal(r)
		for c, x := range o[first : first+s.columns] {
			at[c] += x
		}
	}
	if a.evaluated != nil {
		e := w.evaluateRow(a.evaluated, s, r, factor, values)
		for n, axis := range a.pairs {
			for c, index := range e.Ints(n) {
				at[c] += score.Clamp(index, axis.size) * axis.stride
			}
		}
	}
	return at
}
