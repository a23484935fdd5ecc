package tokenizer

import (
	"iter"
	"math/bits"
	"math/rand/v2"
)

// merged is what becomes of a pair.
type merged struct{ rank, joined int32 }

// mergeTable finds what becomes of two tokens side by side. The zero value is empty and takes
// nothing; see newMergeTable.
type mergeTable struct {
	slots  []mergeSlot // a power of two of them, which is more than there are merges
	factor uint64      // odd, and by chance, so that no file can choose pairs that fall together
	shift  int
	filter []uint8 // of the pairs whose place is a slot, whether there is one with each of eight hashes
	count  int
}

// mergeSlot holds a merge and its pair, or nothing where the rank is negative.
type mergeSlot struct {
	pair
	merged
}

// newMergeTable is a table with room for so many merges.
func newMergeTable(most int) *mergeTable {
	size := bits.Len(uint(most + most/2 + 1))
	t := &mergeTable{slots: make([]mergeSlot, 1<<size), factor: rand.Uint64() | 1, shift: 64 - size, filter: make([]uint8, 1<<size)}
	for i := range t.slots {
		t.slots[i].rank = -1
	}
	return t
}

// hash is where the search for a pair begins, and the bit of the filter that it has there.
func (t *mergeTable) hash(p pair) (at uint64, bit uint8) {
	h := (uint64(uint32(p.left))<<32 | uint64(uint32(p.right))) * t.factor
	return h >> t.shift, 1 << (h >> (t.shift - 3) & 7)
}

// slot is where a pair is, or would be, in the search from a place on.
func (t *mergeTable) slot(p pair, at uint64) *mergeSlot {
	for {
		s := &t.slots[at]
		if s.pair == p || s.rank < 0 {
			return s
		}
		at = (at + 1) & uint64(len(t.slots)-1)
	}
}

// find is what becomes of a pair. Most pairs are none, which the filter knows: it takes a sixteenth
// of the memory and stays in a cache.
func (t *mergeTable) find(p pair) (m merged, found bool) {
	at, bit := t.hash(p)
	if t.filter[at]&bit == 0 {
		return m, false
	}
	s := t.slot(p, at)
	return s.merged, s.rank >= 0
}

// add remembers a merge, unless its pair has one.
func (t *mergeTable) add(p pair, m merged) {
	at, bit := t.hash(p)
	if s := t.slot(p, at); s.rank < 0 {
		*s = mergeSlot{p, m}
		t.filter[at] |= bit
		t.count++
	}
}

// all are the merges, in no order.
func (t *mergeTable) all() iter.Seq2[pair, merged] {
	return func(yield func(pair, merged) bool) {
		for _, s := range t.slots {
			if s.rank >= 0 && !yield(s.pair, s.merged) {
				return
			}
		}
	}
}
