package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomParts are parts of few different bytes and all lengths, many of which come again.
func randomParts(r *rand.Rand, count int) []string {
	var parts []string
	for range count {
		part := make([]byte, 1+r.IntN(longestSeen))
		for i := range part {
			part[i] = "ab\x00\xff"[r.IntN(2+r.IntN(3))]
		}
		if r.IntN(3) > 0 {
			part = part[:1+r.IntN(min(len(part), 9))]
		}
		parts = append(parts, string(part))
	}
	return parts
}

// What is remembered of a part is found by that part alone.
func TestSeen(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	h, want := newHFSeen(0), map[string]int{}
	for i, part := range randomParts(r, 100000) {
		key := keyOf(part)
		slot := h.slot(part, key)
		id, found := want[part]
		if found != (slot.to > 0) {
			t.Fatalf("%q: found %v, want %v", part, slot.to > 0, found)
		}
		if !found {
			want[part] = i
			h.take(slot, part, key, []hfToken{{i, 0, len(part)}, {1, 2, 3}})
			continue
		}
		wanted := []shortToken{{int32(id), 0, uint8(len(part))}, {1, 2, 3}}
		if tokens := h.known[slot.from:slot.to]; !slices.Equal(tokens, wanted) {
			t.Fatalf("%q: it has %v, want %v", part, tokens, wanted)
		}
	}
	if h.taken != len(want) || len(want) < 10000 {
		t.Errorf("%d parts of %d are remembered", h.taken, len(want))
	}
}

// A part of which nothing is left takes no place, and no more than so many parts do.
func TestSeenBounds(t *testing.T) {
	h := newHFSeen(0)
	for i := range maxSeen + 1000 {
		part := fmt.Sprint(i)
		h.take(h.slot(part, keyOf(part)), part, keyOf(part), []hfToken{{id: i}})
		h.take(h.slot("none", keyOf("none")), "none", keyOf("none"), nil)
	}
	if h.taken != maxSeen || len(h.slots) > 4*maxSeen {
		t.Errorf("%d parts have %d places", h.taken, len(h.slots))
	}
}

func TestPartFilter(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	list := map[string]bool{strings.Repeat("long", 100): true}
	for _, part := range randomParts(r, 2000) {
		list[part] = true
	}
	f := newPartFilter(list)
	for part := range list {
		if !f.mayHave(part) {
			t.Errorf("%q is in the list", part)
		}
	}
	wrong := 0
	for i := range 10000 {
		if f.mayHave(fmt.Sprint("x", i)) {
			wrong++
		}
	}
	if wrong > 2000 {
		t.Errorf("of 10000 parts that are not in the list %d may be", wrong)
	}
}

// What is joined by searches and by a queue are the same tokens, and no order of merges differs.
func TestJoinFew(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		letters := 2 + r.IntN(4)
		b := &hfBPE{merges: newMergeTable(40)}
		tokens := letters
		for rank := range 40 {
			p := pair{int32(r.IntN(tokens)), int32(r.IntN(tokens))}
			joined := int32(tokens)
			if r.IntN(4) == 0 {
				joined = int32(r.IntN(tokens)) // as another merge makes it
			}
			if _, found := b.merges.find(p); !found {
				b.merges.add(p, merged{int32(rank), joined})
				tokens = max(tokens, int(joined)+1)
			}
		}
		few, queued := bpeWord{model: b}, bpeWord{model: b}
		for range r.IntN(fewSymbols) {
			id := int32(r.IntN(letters))
			few.add(id, 1)
			queued.add(id, 1)
		}
		few.fewCharacters()
		few.joinFew()
		queued.join()
		var have, want []hfToken
		for _, s := range few.few {
			have = append(have, hfToken{int(s.id), int(s.from), int(s.to)})
		}
		for at := 0; at < len(queued.symbols); at = queued.symbols[at].next {
			s := queued.symbols[at]
			want = append(want, hfToken{int(s.id), s.from, s.to})
		}
		if !slices.Equal(have, want) {
			t.Fatalf("%v, want %v", have, want)
		}
	}
}

func TestMergeTable(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	want, table := map[pair]merged{}, newMergeTable(3000)
	for rank := range 3000 {
		p := pair{int32(r.IntN(100)), int32(r.IntN(100)) << 20}
		if _, found := want[p]; !found {
			want[p] = merged{int32(rank), int32(r.IntN(50))}
		}
		table.add(p, merged{int32(rank), want[p].joined})
	}
	for left := range int32(100) {
		for right := range int32(100) {
			p := pair{left, right << 20}
			m, isThere := want[p]
			if have, found := table.find(p); found != isThere || found && have != m {
				t.Fatalf("%v: %v, %v, want %v, %v", p, have, found, m, isThere)
			}
		}
	}
	for p, m := range table.all() {
		if want[p] != m {
			t.Errorf("%v becomes %v, want %v", p, m, want[p])
		}
	}
	if table.count != len(want) {
		t.Errorf("%d merges, want %d", table.count, len(want))
	}
}
