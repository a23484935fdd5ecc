package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Tokens is a sequence of token ids that is read only. Many goroutines may read it at once.
type Tokens struct {
	memory   *memory
	from, to int // the part of the memory, in ids
}

// memory is what the parts of one sequence share.
type memory struct {
	ids     []byte // little-endian
	width   int    // bytes an id, 2 or 4
	release func() error
	closed  bool
}

var errClosed = errors.New("the tokens are closed, they need to be open")

// FromInts copies ids to memory, with two bytes each where all are below 65536 and four otherwise.
func FromInts(ids []int) (*Tokens, error) {
	m := &memory{width: 2}
	for i, id := range ids {
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("FromInts: id %d is %d, it needs to be from 0 to %d", i, id, math.MaxInt32)
		}
		if id > math.MaxUint16 {
			m.width = 4
		}
	}
	m.ids = make([]byte, 0, m.width*len(ids))
	for _, id := range ids {
		m.ids = appendID(m.ids, id, m.width)
	}
	return m.tokens(), nil
}

// FromBytes makes tokens of little-endian uint16 without a header, such as an embedded file. It
// keeps b, which must not change from then on.
func FromBytes(b []byte) (*Tokens, error) {
	if err := checkRaw(b, int64(len(b))); err != nil {
		return nil, fmt.Errorf("FromBytes: b %w", err)
	}
	return (&memory{ids: b, width: 2}).tokens(), nil
}

func (m *memory) tokens() *Tokens { return &Tokens{memory: m, to: len(m.ids) / m.width} }

// Len is the number of tokens.
func (t *Tokens) Len() int { return t.to - t.from }

// At is the id at i. As with a slice, an i outside [0, Len) panics, and so does any i once the
// tokens are closed.
func (t *Tokens) At(i int) int {
	if i < 0 || i >= t.Len() {
		panic(fmt.Sprintf("data: token %d of %d", i, t.Len()))
	}
	return t.memory.at(t.from + i)
}

func (m *memory) at(i int) int {
	if m.width == 2 {
		return int(binary.LittleEndian.Uint16(m.ids[2*i:]))
	}
	return int(binary.LittleEndian.Uint32(m.ids[4*i:]))
}

func appendID(b []byte, id, width int) []byte {
	if width == 2 {
		return binary.LittleEndian.AppendUint16(b, uint16(id))
	}
	return binary.LittleEndian.AppendUint32(b, uint32(id))
}

// Copy fills ids with the tokens that begin at from.
func (t *Tokens) Copy(ids []int, from int) error {
	if from < 0 || from > t.Len()-len(ids) {
		return fmt.Errorf("Copy: from is %d, there are not %d tokens from there on, but %d in all", from, len(ids), t.Len())
	}
	if t.memory == nil || t.memory.closed {
		return fmt.Errorf("Copy: %w", errClosed)
	}
	t.copy(ids, from)
	return nil
}

func (t *Tokens) copy(ids []int, from int) {
	decode(ids, t.memory.ids[(t.from+from)*t.memory.width:], t.memory.width)
}

// decode reads ids of some bytes each.
func decode(ids []int, b []byte, width int) {
	b = b[:width*len(ids)]
	if width == 2 {
		for i := range ids {
			ids[i] = int(binary.LittleEndian.Uint16(b[2*i:]))
		}
		return
	}
	for i := range ids {
		ids[i] = int(binary.LittleEndian.Uint32(b[4*i:]))
	}
}

// Slice is the tokens from..to-1, over the same memory.
func (t *Tokens) Slice(from, to int) (*Tokens, error) {
	if from < 0 || from > to || to > t.Len() {
		return nil, fmt.Errorf("Slice: from is %d and to is %d, they need to be in order and from 0 to %d", from, to, t.Len())
	}
	return &Tokens{memory: t.memory, from: t.from + from, to: t.from + to}, nil
}

// Split is the first ⌊fraction·Len⌋ tokens, to train on, and the others, to validate on.
func (t *Tokens) Split(fraction float64) (train, validation *Tokens, err error) {
	if !(fraction >= 0 && fraction <= 1) {
		return nil, nil, fmt.Errorf("Split: fraction is %v, it needs to be from 0 to 1", fraction)
	}
	at := t.from + int(float64(t.Len())*fraction)
	return &Tokens{memory: t.memory, from: t.from, to: at}, &Tokens{memory: t.memory, from: at, to: t.to}, nil
}

// Max is the largest id, and -1 where there is none. A vocabulary must be larger than it. It reads
// all tokens.
func (t *Tokens) Max() int {
	largest := -1
	for i := t.from; i < t.to; i++ {
		largest = max(largest, t.memory.at(i))
	}
	return largest
}

// Close ends these tokens and all others over the same memory, and unmaps the file. Nothing may be
// reading them. Closing them again does nothing.
func (t *Tokens) Close() error {
	m := t.memory
	if m == nil || m.closed {
		return nil
	}
	m.closed, m.ids = true, nil
	if m.release == nil {
		return nil
	}
	return m.release()
}
