package ring

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Rows is some rows that follow each other: Count of them, from row From on.
type Rows struct{ From, Count int }

// Held returns the rows of a sequence of a length that a rank of size holds, in their order. The
// length needs to be a multiple of 2·size, unless a rank alone holds all.
func Held(rank, size, length int) ([]Rows, error) {
	switch {
	case size < 1 || rank < 0 || rank >= size:
		return nil, fmt.Errorf("rank is %d of %d, it needs to be from 0 to the last", rank, size)
	case size == 1:
		return []Rows{{0, length}}, nil
	case length < 0 || length%(2*size) != 0:
		return nil, fmt.Errorf("the length is %d, it needs to be a multiple of 2·%d ranks", length, size)
	}
	count := length / (2 * size)
	return []Rows{{rank * count, count}, {(2*size - 1 - rank) * count, count}}, nil
}

// problem is what all ranks know.
type problem struct {
	size, rows int // ranks, and the rows of each
	lo, hi     int // row i of a sequence sees keys from i + lo up to, not including, i + hi
	ends       []int
	placed     bool // the kernels are told where a block lies
	batch      int
}

// far is farther than any sequence is long, and can be added to without overflow.
const far = 1 << 40

func newProblem(size int, a *kernels.Attention) *problem {
	p := &problem{
		size: size, rows: a.Q.Shape[2], ends: a.QLens, batch: a.Q.Shape[0], placed: a.ALiBi != nil || a.Dropout.Threshold() > 0,
	}
	p.lo, p.hi = a.Band(kernels.Sequence{Sq: far / 4, Sk: far / 4})
	p.lo, p.hi = max(p.lo, -far), min(p.hi, far)
	return p
}

// block is attention of rows of a rank to keys of another, or of the same. Row i of it sees keys
// from i + lo up to, not including, i + hi.
type block struct {
	q, k   Rows
	lo, hi int
	lens   []int // of sequences that lie in both, which are then the same rows; nil for one that goes through them
	places []kernels.Place
}

// whole reports whether all rows see all keys.
func (b *block) whole() bool { return b.lens == nil && b.seesFirst() && b.hi >= b.k.Count }

// seesFirst reports whether no row sees less than others on the left.
func (b *block) seesFirst() bool { return b.lo <= 1-b.q.Count }

// blocks lists what a rank's rows see of the keys of another.
func (p *problem) blocks(rank, source int) []block {
	var list []block
	count := p.rows / 2
	pieces := func(rank int) [2]int { return [2]int{rank, 2*p.size - 1 - rank} }
	for i, query := range pieces(rank) {
		for j, key := range pieces(source) {
			b, ok := p.block(Rows{query * count, count}, Rows{key * count, count})
			if !ok {
				continue
			}
			b.q.From += i*count - query*count // as they lie at their rank
			b.k.From += j*count - key*count
			if last := len(list) - 1; last >= 0 && p.joinKeys(&list[last], &b) {
				continue
			}
			list = append(list, b)
		}
		if n := len(list); n > 1 && p.joinQueries(&list[n-2], &list[n-1]) {
			list = list[:n-1]
		}
	}
	return list
}

// block is what queries see of keys, both as they lie in the whole.
func (p *problem) block(q, k Rows) (block, bool) {
	b := block{q: q, k: k}
	sequence, start := 0, 0
	if p.ends != nil {
		from, to := min(q.From, k.From), max(q.From, k.From)
		sequence = p.sequenceOf(min(from+q.Count, p.ends[len(p.ends)-1]) - 1) // that of the last row of the earlier piece
		if sequence < 0 {
			return b, false
		}
		start = p.ends[sequence]
		end := p.ends[sequence+1]
		if q == k && start > from {
			return p.packed(b)
		}
		if end <= to {
			return b, false
		}
		b.q, b.k = within(q, start, end), within(k, start, end)
	}
	b.lo, b.hi = p.lo+b.q.From-b.k.From, p.hi+b.q.From-b.k.From
	if max(b.lo, 1-b.q.Count) >= min(b.hi, b.k.Count) {
		return b, false
	}
	b.trim()
	if p.placed {
		for n := range p.batch {
			b.places = append(b.places, kernels.Place{Sequence: n + sequence, Row: b.q.From - start, Column: b.k.From - start})
		}
	}
	return b, true
}

// trim leaves out the first and the last rows that see no key, and keys that no row sees.
func (b *block) trim() {
	first, last := max(0, 1-b.hi), min(b.q.Count, b.k.Count-b.lo)
	b.q = Rows{b.q.From + first, last - first}
	b.lo, b.hi = b.lo+first, b.hi+first
	first, last = max(0, b.lo), min(b.k.Count, b.q.Count-1+b.hi)
	b.k = Rows{b.k.From + first, last - first}
	b.lo, b.hi = b.lo-first, b.hi-first
}

// sequenceOf is the sequence that a row belongs to, −1 for none.
func (p *problem) sequenceOf(row int) int {
	for n := len(p.ends) - 2; n >= 0; n-- {
		if p.ends[n] <= row {
			if row < p.ends[n+1] {
				return n
			}
			return -1
		}
	}
	return -1
}

// within is the rows that lie between two others.
func within(r Rows, from, to int) Rows {
	from, to = max(r.From, from), min(r.From+r.Count, to)
	return Rows{from, to - from}
}

// packed is a piece's queries and its own keys, of several sequences that are cut where it begins
// and ends.
func (p *problem) packed(b block) (block, bool) {
	from, to := b.q.From, b.q.From+b.q.Count
	b.lo, b.hi, b.lens = p.lo, p.hi, []int{0}
	for n := range len(p.ends) - 1 {
		start, end := max(p.ends[n], from), min(p.ends[n+1], to)
		if start >= end {
			continue
		}
		b.lens = append(b.lens, end-from)
		if p.placed {
			at := start - p.ends[n]
			b.places = append(b.places, kernels.Place{Sequence: n, Row: at, Column: at})
		}
	}
	return b, len(b.lens) > 1 && b.lo < b.hi
}

// follows reports whether a block lies so many rows and columns behind another in the whole, if
// they have places.
func (b *block) follows(a *block, rows, columns int) bool {
	for n, at := range a.places {
		if b.places[n] != (kernels.Place{Sequence: at.Sequence, Row: at.Row + rows, Column: at.Column + columns}) {
			return false
		}
	}
	return true
}

// joinKeys makes one of two blocks of the same queries whose keys lie side by side, if one band
// serves both.
func (p *problem) joinKeys(a, b *block) bool {
	if a.q != b.q || a.k.From+a.k.Count != b.k.From || !a.whole() || b.lens != nil || !b.seesFirst() || b.hi < 0 || !b.follows(a, 0, a.k.Count) {
		return false
	}
	a.hi = b.hi + a.k.Count
	a.k.Count += b.k.Count
	a.lo = -far
	return true
}

// joinQueries makes one of two blocks of the same keys whose queries lie side by side, if all are
// seen.
func (p *problem) joinQueries(a, b *block) bool {
	if a.k != b.k || a.q.From+a.q.Count != b.q.From || !a.whole() || !b.whole() || !b.follows(a, a.q.Count, 0) {
		return false
	}
	a.q.Count += b.q.Count
	a.lo, a.hi = -far, far
	return true
}

// keysOf is the rows of keys that blocks see, with those between them.
func keysOf(list []block) Rows {
	from, to := math.MaxInt, 0
	for _, b := range list {
		from, to = min(from, b.k.From), max(to, b.k.From+b.k.Count)
	}
	if len(list) == 0 {
		return Rows{}
	}
	return Rows{from, to - from}
}

// steps lists the steps in which some rank sees keys of another.
func (p *problem) steps() []int {
	var list []int
	for step := 1; step < p.size; step++ {
		for rank := range p.size {
			if len(p.blocks(rank, (rank-step+p.size)%p.size)) > 0 {
				list = append(list, step)
				break
			}
		}
	}
	return list
}
