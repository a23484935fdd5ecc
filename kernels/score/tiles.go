package score

import (
	"cmp"
	"math"
	"slices"
)

// Tiles is which tiles of a score matrix a mask shows. Those on no list are hidden.
type Tiles struct {
	Rows, Columns int
	Keys          Lists // of each tile of queries, the tiles of keys
	Queries       Lists // of each tile of keys, the tiles of queries
}

// Lists are runs of tiles, in ascending order.
type Lists [][]Run

// Run is the tiles from First up to, not including, End.
type Run struct {
	First, End int32
	Partly     bool // some of their pairs may be hidden
}

// add appends a tile, or several, that lies behind all others.
func (l Lists) add(at int, r Run) {
	if n := len(l[at]); n > 0 && l[at][n-1].End == r.First && l[at][n-1].Partly == r.Partly {
		l[at][n-1].End = r.End
		return
	}
	l[at] = append(l[at], r)
}

// newTiles looks at the whole matrix, and then at smaller and smaller parts of it: one of which the
// ranges of values say that it is hidden, or visible as a whole, needs no closer look.
func newTiles(p *Program, m matrix, tables []Values[float64]) *Tiles {
	t := &Tiles{Rows: m.rows, Columns: m.columns}
	t.Keys, t.Queries = make(Lists, ceilDiv(m.w.QueryLength, m.rows)), make(Lists, ceilDiv(m.w.KeyLength, m.columns))
	if len(t.Keys) == 0 || len(t.Queries) == 0 {
		return t
	}
	if g := gridOf(p); g != nil {
		g.find(&search{matrix: m, tables: tables, found: t.Keys}, p)
	} else {
		s := &search{matrix: m, ranges: newRanges(p, m.w, tables), pairs: NewEvaluator[float64](p), tables: tables, found: t.Keys}
		s.look(0, len(t.Keys), 0, len(t.Queries))
	}
	for q := range t.Keys {
		slices.SortFunc(t.Keys[q], func(a, b Run) int { return cmp.Compare(a.First, b.First) })
		sorted := t.Keys[q]
		t.Keys[q] = nil
		for _, r := range sorted {
			t.Keys.add(q, r)
		}
	}
	for q, runs := range t.Keys {
		for _, r := range runs {
			for k := r.First; k < r.End; k++ {
				t.Queries.add(int(k), Run{int32(q), int32(q + 1), r.Partly})
			}
		}
	}
	return t
}

func ceilDiv(n, by int) int { return (n + by - 1) / by }

// search goes through a matrix.
type search struct {
	matrix
	ranges *ranges
	pairs  *Evaluator[float64]
	tables []Values[float64]
	found  Lists
}

// look examines the tiles [q0, q1) × [k0, k1).
func (s *search) look(q0, q1, k0, k1 int) {
	part := area{
		query: q0 * s.rows, queryEnd: min(q1*s.rows, s.w.QueryLength), key: k0 * s.columns, keyEnd: min(k1*s.columns, s.w.KeyLength),
	}
	if part.keyEnd-1-part.query < s.lo || part.key-(part.queryEnd-1) >= s.hi {
		return
	}
	single := q1-q0 == 1 && k1-k0 == 1
	state := unknown
	if single {
		state = s.state(part)
	} else {
		state = s.ranges.of(part)
	}
	switch {
	case state == hidden:
	case state == visible || single:
		for q := q0; q < q1; q++ {
			// Of a large area, some tiles may lie beside the band.
			first := max(k0, (q*s.rows+s.lo)/s.columns)
			end := min(k1, ceilDiv(min((q+1)*s.rows, s.w.QueryLength)-1+s.hi, s.columns))
			if first < end {
				s.found[q] = append(s.found[q], Run{int32(first), int32(end), state != visible})
			}
		}
	default:
		q, k := (q0+q1+1)/2, (k0+k1+1)/2
		s.look(q0, q, k0, k)
		if k < k1 {
			s.look(q0, q, k, k1)
		}
		if q < q1 {
			s.look(q, q1, k0, k)
		}
		if q < q1 && k < k1 {
			s.look(q, q1, k, k1)
		}
	}
}

// state is what the mask makes of an area.
func (s *search) state(a area) state {
	found := s.ranges.of(a)
	if found == unknown && s.pairs.p.Code[s.pairs.p.Results[0]].Varies == Pairs {
		found = s.exactly(a)
	}
	return found
}

// state is what a mask makes of an area.
type state int

const (
	unknown state = iota // some pairs of each kind, as far as one can tell
	hidden
	visible
)

// exactly evaluates every pair of an area within the band.
func (s *search) exactly(a area) state {
	shown, all := 0, 0
	for q := a.query; q < a.queryEnd; q++ {
		from, to := max(a.key, q+s.lo), min(a.keyEnd, q+s.hi)
		if from >= to {
			continue
		}
		s.pairs.Run(Line[float64]{Where: s.w, N: to - from, Query: q, Key: from, KeyStep: 1, Tables: s.tables})
		all += to - from
		for _, visible := range s.pairs.Bools(0) {
			if visible {
				shown++
			}
		}
		if shown > 0 && shown < all {
			return unknown
		}
	}
	if shown == 0 {
		return hidden
	}
	return visible
}

// area is a part of a score matrix.
type area struct{ query, queryEnd, key, keyEnd int }

// ranges finds the range of every value of a program in an area. What differs with the query, the
// key or the diagonal alone is known exactly, from a tree of ranges over all of them.
type ranges struct {
	p      *Program
	trees  []tree // of instructions that differ along one line and are used by others
	tables []interval
	values []interval
	offset int // of the diagonals' trees: the number of keys less 1
}

// interval is the numbers from lo to hi, of conditions 0 and 1. What may be NaN is from −∞ to ∞.
type interval struct{ lo, hi float64 }

var (
	anything = interval{math.Inf(-1), math.Inf(1)}
	anyInt   = interval{math.MinInt32, math.MaxInt32}
	no, yes  = interval{0, 0}, interval{1, 1}
	either   = interval{0, 1}
)

func newRanges(p *Program, w Where, tables []Values[float64]) *ranges {
	n := len(p.Code)
	r := &ranges{p: p, trees: make([]tree, n), tables: make([]interval, len(p.Tables)), values: make([]interval, n), offset: w.KeyLength - 1}
	used := make([]bool, n) // where its range is looked for
	for _, result := range p.Results {
		used[result] = true
	}
	for _, i := range p.Code {
		for _, arg := range i.Args {
			used[arg] = used[arg] || i.Varies == Pairs
		}
		if i.Op == OpLookup && i.Type == Int {
			r.tables[i.Table] = rangeOf(tables[i.Table].Ints)
		}
	}
	for at, i := range p.Code {
		if !used[at] || i.Varies == Pairs {
			continue
		}
		line := Line[float64]{Where: w, N: 1, Tables: tables}
		switch i.Varies {
		case Rows:
			line.N, line.QueryStep = w.QueryLength, 1
		case Columns:
			line.N, line.KeyStep = w.KeyLength, 1
		case Diagonals:
			line.N, line.Query, line.QueryStep = w.QueryLength+w.KeyLength-1, -r.offset, 1
		}
		e := NewEvaluator[float64](p.Part(at))
		e.Run(line)
		switch i.Type {
		case Int:
			r.trees[at] = newTree(line.N, func(n int) interval { return interval{float64(e.Ints(0)[n]), float64(e.Ints(0)[n])} })
		case Bool:
			r.trees[at] = newTree(line.N, func(n int) interval {
				if e.Bools(0)[n] {
					return yes
				}
				return no
			})
		default:
			r.trees[at] = newTree(line.N, func(n int) interval {
				if x := e.Floats(0)[n]; x == x {
					return interval{x, x}
				}
				return anything
			})
		}
	}
	return r
}

func rangeOf(list []int32) interval {
	if len(list) == 0 {
		return anyInt
	}
	return interval{float64(slices.Min(list)), float64(slices.Max(list))}
}

// tree has a range for each element of a line, from len/2 on, and before them for each two of those
// behind.
type tree []interval

func newTree(n int, at func(int) interval) tree {
	t := make(tree, 2*n)
	for i := range n {
		t[n+i] = at(i)
	}
	for i := n - 1; i > 0; i-- {
		t[i] = t[2*i].with(t[2*i+1])
	}
	return t
}

func (a interval) with(b interval) interval { return interval{min(a.lo, b.lo), max(a.hi, b.hi)} }

// of is the range of the elements from from up to, not including, to.
func (t tree) of(from, to int) interval {
	n := len(t) / 2
	found := interval{math.Inf(1), math.Inf(-1)}
	for from, to = from+n, to+n; from < to; from, to = from/2, to/2 {
		if from%2 == 1 {
			found = found.with(t[from])
			from++
		}
		if to%2 == 1 {
			to--
			found = found.with(t[to])
		}
	}
	return found
}

// of is what the program's first result, a condition, is in an area.
func (r *ranges) of(a area) state {
	for at := range r.p.Code {
		switch i := &r.p.Code[at]; {
		case r.trees[at] == nil && i.Varies != Pairs:
		case i.Varies == Nowhere:
			r.values[at] = r.trees[at].of(0, 1)
		case i.Varies == Rows:
			r.values[at] = r.trees[at].of(a.query, a.queryEnd)
		case i.Varies == Columns:
			r.values[at] = r.trees[at].of(a.key, a.keyEnd)
		case i.Varies == Diagonals:
			r.values[at] = r.trees[at].of(a.query-(a.keyEnd-1)+r.offset, a.queryEnd-a.key+r.offset)
		default:
			r.values[at] = r.ofPairs(i)
		}
	}
	switch r.values[r.p.Results[0]] {
	case no:
		return hidden
	case yes:
		return visible
	}
	return unknown
}

// ofPairs is the range of an instruction that differs from pair to pair, whose operands' ranges are
// known.
func (r *ranges) ofPairs(i *Instr) interval {
	var x, y interval
	if len(i.Args) > 0 {
		x, y = r.values[i.Args[0]], r.values[i.Args[len(i.Args)-1]]
	}
	switch i.Op {
	case OpLess:
		return order(x.hi < y.lo, x.lo >= y.hi)
	case OpLessEqual:
		return order(x.hi <= y.lo && !math.IsInf(x.hi, 1) && !math.IsInf(y.lo, -1), x.lo > y.hi)
	case OpEqual:
		return order(x.lo == x.hi && y.lo == y.hi && x.lo == y.lo, x.hi < y.lo || y.hi < x.lo)
	case OpAnd:
		return interval{min(x.lo, y.lo), min(x.hi, y.hi)}
	case OpOr:
		return interval{max(x.lo, y.lo), max(x.hi, y.hi)}
	case OpNot:
		return interval{1 - x.hi, 1 - x.lo}
	case OpSelect:
		switch c := x; c {
		case yes:
			return r.values[i.Args[1]]
		case no:
			return r.values[i.Args[2]]
		}
		return r.values[i.Args[1]].with(r.values[i.Args[2]])
	}
	if i.Type != Int {
		return anything
	}
	found := anyInt
	switch i.Op {
	case OpLookup:
		found = r.tables[i.Table]
	case OpAdd:
		found = interval{x.lo + y.lo, x.hi + y.hi}
	case OpSub:
		found = interval{x.lo - y.hi, x.hi - y.lo}
	case OpNeg:
		found = interval{-x.hi, -x.lo}
	case OpMin:
		found = interval{min(x.lo, y.lo), min(x.hi, y.hi)}
	case OpMax:
		found = interval{max(x.lo, y.lo), max(x.hi, y.hi)}
	case OpMul:
		a, b, c, d := x.lo*y.lo, x.lo*y.hi, x.hi*y.lo, x.hi*y.hi
		found = interval{min(a, b, c, d), max(a, b, c, d)}
	case OpDiv:
		if y.lo == y.hi && y.lo > 0 {
			found = interval{math.Trunc(x.lo / y.lo), math.Trunc(x.hi / y.lo)}
		}
	case OpRem:
		switch n := y.lo; {
		case y.lo != y.hi || n <= 0:
		case x.lo >= 0 && math.Trunc(x.lo/n) == math.Trunc(x.hi/n):
			found = interval{math.Mod(x.lo, n), math.Mod(x.hi, n)}
		case x.lo >= 0:
			found = interval{0, n - 1}
		default:
			found = interval{1 - n, n - 1}
		}
	case OpAbs:
		found = interval{max(0, x.lo, -x.hi), max(-x.lo, x.hi)}
	}
	if found.lo < anyInt.lo || found.hi > anyInt.hi {
		return anyInt // it may have wrapped around
	}
	return found
}

// order is what a comparison gives that certainly holds, certainly does not, or neither.
func order(holds, fails bool) interval {
	switch {
	case holds:
		return yes
	case fails:
		return no
	}
	return either
}
