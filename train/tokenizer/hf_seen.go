package tokenizer

import (
	"hash/maphash"
	"math/bits"
)

// hfSeen finds the parts of a text that were encoded before: most words come many times.
type hfSeen struct {
	slots []hfSeenPart // a power of two of them, of which at most half are taken
	taken int
	long  []string     // parts that are not in their slots
	known []shortToken // of all parts
}

// hfSeenPart is a part and where in known its tokens are. It is empty where to is 0: a part without
// tokens is not remembered.
type hfSeenPart struct {
	partKey
	from, to int32
}

// shortToken is a token of a part that is remembered.
type shortToken struct {
	id       int32
	from, to uint8
}

// partKey is a part of up to 15 bytes, with its length in the last, or the hash of a longer one. In
// place of the length that has longKey and, in the lower half, its number in the list.
type partKey struct{ low, high uint64 }

const (
	maxSeen     = 1 << 18 // parts, which bounds the memory for texts in which hardly one comes twice
	longestSeen = 63      // bytes
	longKey     = 0xFF << 56
)

// seed is by chance, so that no text can choose parts that fall together.
var seed = maphash.MakeSeed()

var seeds = [2]uint64{maphash.String(seed, "low"), maphash.String(seed, "high")}

func keyOf(s string) partKey {
	n := len(s)
	length := uint64(n) << 56
	switch {
	case n > 15:
		return partKey{maphash.String(seed, s), longKey}
	case n >= 8:
		high := load8(s[n-8:]) >> (8 * uint(16-n)) // n of 8 gives 0
		return partKey{load8(s), high | length}
	case n >= 4:
		return partKey{uint64(load4(s)) | uint64(load4(s[n-4:]))<<(8*uint(n-4)), length}
	case n > 0: // the first, the middle and the last byte tell those of one length apart
		return partKey{uint64(s[0]) | uint64(s[n/2])<<8 | uint64(s[n-1])<<16, length}
	}
	return partKey{}
}

// load8 is the first 8 bytes; the compiler makes one load of it.
func load8(s string) uint64 { return uint64(load4(s)) | uint64(load4(s[4:]))<<32 }

func load4(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func (k partKey) hash() uint64 {
	if k.high >= longKey {
		return k.low
	}
	high, low := bits.Mul64(k.low^seeds[0], k.high^seeds[1])
	return high ^ low
}

// newHFSeen is for a text of a length.
func newHFSeen(length int) *hfSeen {
	return &hfSeen{slots: make([]hfSeenPart, 1<<bits.Len(uint(min(max(length/8, 15), 1<<13))))}
}

// slot is where a part is, or would be. It is valid until the next call.
func (h *hfSeen) slot(s string, k partKey) *hfSeenPart {
	if 2*h.taken >= len(h.slots) {
		h.grow()
	}
	for at := int(k.hash()); ; at++ {
		p := &h.slots[at&(len(h.slots)-1)]
		switch {
		case p.to == 0, p.partKey == k:
			return p
		case k.high == longKey && p.high >= longKey && p.low == k.low && h.long[uint32(p.high)] == s:
			return p
		}
	}
}

// take fills the slot of a part, unless there are too many.
func (h *hfSeen) take(p *hfSeenPart, s string, k partKey, tokens []hfToken) {
	if h.taken == maxSeen || len(tokens) == 0 {
		return
	}
	if k.high == longKey {
		k.high |= uint64(len(h.long))
		h.long = append(h.long, s)
	}
	from := len(h.known)
	for _, t := range tokens {
		h.known = append(h.known, shortToken{int32(t.id), uint8(t.from), uint8(t.to)})
	}
	*p = hfSeenPart{k, int32(from), int32(len(h.known))}
	h.taken++
}

func (h *hfSeen) grow() {
	old := h.slots
	h.slots = make([]hfSeenPart, 2*len(old))
	for _, p := range old {
		if p.to == 0 {
			continue
		}
		at := int(p.hash())
		for h.slots[at&(len(h.slots)-1)].to != 0 {
			at++
		}
		h.slots[at&(len(h.slots)-1)] = p
	}
}

// partFilter knows of most parts that they are not in a list. It takes a byte for each that is, and
// stays in a cache.
type partFilter struct {
	bits  []uint64
	shift int
}

func newPartFilter[V any](parts map[string]V) *partFilter {
	size := bits.Len(uint(len(parts) | 7))
	f := &partFilter{bits: make([]uint64, 1<<(size-3)), shift: 64 - size - 3}
	for part := range parts {
		h := keyOf(part).hash() >> f.shift
		f.bits[h/64] |= 1 << (h % 64)
	}
	return f
}

func (f *partFilter) mayHave(part string) bool {
	h := keyOf(part).hash() >> f.shift
	return f.bits[h/64]>>(h%64)&1 != 0
}
