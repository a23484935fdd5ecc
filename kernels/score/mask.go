package score

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// Mask is a condition under which a pair is visible: that its key lies within a band along the
// diagonal, and the rest.
type Mask struct {
	Tables []*Table // what it looks up, in the numbering of its program
	// Whole has one result, whether a pair is visible.
	Whole *Program
	// Rest has one result, whether a pair within the band is visible; nil where all of them are.
	Rest *Program
	// ByBatch and ByHead say whether Rest differs between matrices of one size.
	ByBatch, ByHead bool

	// Bands are those whose conditions all pairs meet that are visible.
	Bands []Band

	text string

	lock  sync.Mutex
	lists map[matrix]*Tiles // those of the tables' values that were seen last
	seen  [][]int32
	real  [][]float64
}

// Band is a condition d ≥ 0, d > 0 or d = 0, as Op says of the program's two results, OpLessEqual,
// OpLess or OpEqual. d is the second less the first, and c + Direction·(Query − Key) with a
// direction of 1 or −1 and a c that depends on lengths and the batch item alone.
type Band struct {
	*Program
	Op        Op
	Direction int
}

// String is the mask as one would write it.
func (m *Mask) String() string { return m.text }

// NewMask checks and compiles a function. Tables that it shares with others, which come first, are
// numbered as there.
func NewMask(f func(Pair) Cond, shared ...*Table) (*Mask, error) {
	c := f(newPair())
	n := conds(OpNot, c).n.args[0]
	if n.err != nil {
		return nil, fmt.Errorf("mask: %w", n.err)
	}
	b := newBuilder()
	b.share(shared)
	result, err := b.compile("mask", n)
	if err != nil {
		return nil, err
	}
	if b.Code[result].ByScore {
		return nil, fmt.Errorf("mask: %v looks at the score, what is visible can depend on positions and lookups alone", c)
	}
	m := &Mask{Whole: b.program(result), text: c.String()}
	rest := -1
	for _, part := range b.conjuncts(result, nil) {
		if found, ok := b.bandOf(part); ok {
			m.Bands = append(m.Bands, found)
		} else if rest < 0 {
			rest = part
		} else {
			rest = b.op(OpAnd, Bool, rest, part)
		}
	}
	m.Tables, m.Whole.Tables = b.Tables, b.Tables
	if rest >= 0 {
		m.Rest = b.program(rest)
		m.ByBatch, m.ByHead = b.Code[rest].ByBatch, b.Code[rest].ByHead
	}
	return m, nil
}

// conjuncts lists the conditions of which all need to hold.
func (b *builder) conjuncts(at int, list []int) []int {
	if i := b.Code[at]; i.Op == OpAnd {
		return b.conjuncts(i.Args[1], b.conjuncts(i.Args[0], list))
	}
	if slices.Contains(list, at) {
		return list
	}
	return append(list, at)
}

// bandOf reports whether a condition is that of a band, the same for all heads.
func (b *builder) bandOf(at int) (Band, bool) {
	i := b.Code[at]
	if i.Op != OpLess && i.Op != OpLessEqual && i.Op != OpEqual || b.Code[i.Args[0]].Type != Int {
		return Band{}, false
	}
	x, y := b.Code[i.Args[0]], b.Code[i.Args[1]]
	queries, keys := y.queries-x.queries, y.keys-x.keys
	if !x.affine || !y.affine || i.ByHead || queries*queries != 1 || keys != -queries {
		return Band{}, false
	}
	p := b.program(i.Args...)
	for _, part := range p.Code {
		if part.Op == OpLookup {
			return Band{}, false
		}
	}
	return Band{p, i.Op, queries}, true
}

// Band is the part of the mask that two diagonals bound: the keys from i+lo up to, not including,
// i+hi. Without a bound on a side it is farther than any key.
func (m *Mask) Band(w Where) (lo, hi int) {
	const far = 1 << 40
	lo, hi = -far, far
	for _, b := range m.Bands {
		e := NewEvaluator[float64](b.Program)
		e.Run(Line[float64]{Where: w, N: 1})
		c := int(e.Ints(1)[0]) - int(e.Ints(0)[0])
		if b.Op == OpLess {
			c-- // d > 0 is d − 1 ≥ 0
		}
		if b.Direction > 0 || b.Op == OpEqual {
			hi = min(hi, b.Direction*c+1) // key ≤ query + c
		}
		if b.Direction < 0 || b.Op == OpEqual {
			lo = max(lo, b.Direction*c) // key ≥ query − c
		}
	}
	return lo, hi
}

// matrix is what the tiles of a mask depend on, apart from tables.
type matrix struct {
	w             Where
	rows, columns int
	lo, hi        int
}

// Tiles returns where Rest shows pairs of a matrix within the band from i+lo up to i+hi, in tiles
// of rows × columns. It keeps what it found for as long as the tables' values stay what they are.
func (m *Mask) Tiles(w Where, rows, columns, lo, hi int, tables []Values[float64]) *Tiles {
	if !m.ByBatch {
		w.Batch = 0
	}
	if !m.ByHead {
		w.Head, w.KeyHead = 0, 0
	}
	far := w.QueryLength + w.KeyLength
	key := matrix{w, rows, columns, max(lo, -far), min(hi, far)}
	m.lock.Lock()
	defer m.lock.Unlock()
	const most = 4096 // lists, which differ where lengths change from run to run
	if m.changed(tables) || len(m.lists) > most {
		m.lists = map[matrix]*Tiles{}
	}
	found := m.lists[key]
	if found == nil {
		found = newTiles(m.Rest, key, tables)
		m.lists[key] = found
	}
	return found
}

// changed reports whether the values of what Rest looks up are others than the last time, and keeps
// them.
func (m *Mask) changed(tables []Values[float64]) bool {
	changed := m.lists == nil
	if m.seen == nil {
		m.seen, m.real = make([][]int32, len(m.Tables)), make([][]float64, len(m.Tables))
	}
	for _, i := range m.Rest.Code {
		if i.Op != OpLookup {
			continue
		}
		n, values := i.Table, tables[i.Table]
		same := func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }
		if !slices.Equal(m.seen[n], values.Ints) || !slices.EqualFunc(m.real[n], values.Floats, same) {
			changed = true
			m.seen[n], m.real[n] = slices.Clone(values.Ints), slices.Clone(values.Floats)
		}
	}
	return changed
}
