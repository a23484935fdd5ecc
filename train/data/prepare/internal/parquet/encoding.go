package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errEnd = errors.New("it ends before its values")

// plainTexts are lengths, each with its bytes behind it.
type plainTexts struct{ rest []byte }

func (p *plainTexts) next() ([]byte, error) {
	text, rest, err := cut(p.rest)
	p.rest = rest
	return text, err
}

// cut takes a length, of four bytes, and what belongs to it.
func cut(content []byte) (taken, rest []byte, err error) {
	if len(content) < 4 {
		return nil, nil, errEnd
	}
	n := int64(binary.LittleEndian.Uint32(content))
	if content = content[4:]; n > int64(len(content)) {
		return nil, nil, fmt.Errorf("a length is %d, %d bytes are left", n, len(content))
	}
	return content[:n], content[n:], nil
}

// cutLevels takes the levels of a page of version 1.
func cutLevels(content []byte) (levels, rest []byte, err error) {
	if levels, rest, err = cut(content); err != nil {
		return nil, nil, fmt.Errorf("its levels: %w", err)
	}
	return levels, rest, nil
}

// hybrid is numbers of some bits each, in runs of one number and in groups of eight that are
// packed.
type hybrid struct {
	rest  []byte
	width int
	left  int64  // numbers of the run
	value uint32 // of all of them
	bits  []byte // or where they are packed
	at    int    // the next bit
}

func newHybrid(content []byte, width int) (hybrid, error) {
	if width > 32 {
		return hybrid{}, fmt.Errorf("numbers have %d bits, they can have 32", width)
	}
	return hybrid{rest: content, width: width}, nil
}

func (h *hybrid) next() (uint32, error) {
	for h.left == 0 {
		if err := h.begin(); err != nil {
			return 0, err
		}
	}
	h.left--
	if h.bits == nil {
		return h.value, nil
	}
	value := uint32(0)
	for i := range h.width {
		value |= uint32(h.bits[h.at>>3]>>(h.at&7)&1) << i
		h.at++
	}
	return value, nil
}

// begin begins a run.
func (h *hybrid) begin() error {
	head, n := binary.Uvarint(h.rest)
	if n <= 0 {
		return errEnd
	}
	h.rest = h.rest[n:]
	bytes := (h.width + 7) / 8
	if head&1 != 0 && h.width > 0 {
		// The last group may be cut off behind its last number.
		groups := min(head>>1, uint64(len(h.rest)/h.width+1))
		length := min(int(groups)*h.width, len(h.rest))
		h.bits, h.at, h.rest = h.rest[:length:length], 0, h.rest[length:]
		h.left = min(int64(groups)*8, int64(length)*8/int64(h.width))
		return nil
	}
	if h.left = int64(min(head>>1, maxValues)); head&1 != 0 {
		h.left = min(8*h.left, maxValues)
	}
	if len(h.rest) < bytes {
		return errEnd
	}
	h.bits, h.value = nil, 0
	for i, b := range h.rest[:bytes] {
		h.value |= uint32(b) << (8 * i)
	}
	h.rest = h.rest[bytes:]
	return nil
}

// dictionary is the texts that pages name by numbers, each behind its length, and where each ends.
type dictionary struct {
	content []byte
	ends    []int32
}

func (d dictionary) text(n uint32) ([]byte, error) {
	if int64(n) >= int64(len(d.ends)) {
		return nil, fmt.Errorf("a text is number %d of a dictionary of %d", n, len(d.ends))
	}
	first := int32(4)
	if n > 0 {
		first += d.ends[n-1]
	}
	return d.content[first:d.ends[n]], nil
}

// dictionaryTexts are numbers of texts.
type dictionaryTexts struct {
	dictionary dictionary
	numbers    hybrid
}

func newDictionaryTexts(of dictionary, content []byte) (texts, error) {
	if len(content) == 0 {
		return &dictionaryTexts{dictionary: of}, nil // of nulls alone
	}
	numbers, err := newHybrid(content[1:], int(content[0]))
	return &dictionaryTexts{of, numbers}, err
}

func (d *dictionaryTexts) next() ([]byte, error) {
	n, err := d.numbers.next()
	if err != nil {
		return nil, err
	}
	return d.dictionary.text(n)
}

// deltaLengthTexts are all lengths, and behind them all bytes.
type deltaLengthTexts struct {
	lengths []int32
	rest    []byte
}

func newDeltaLengthTexts(content []byte, most int64) (texts, error) {
	lengths, rest, err := deltas(content, most)
	return &deltaLengthTexts{lengths, rest}, err
}

func (d *deltaLengthTexts) next() ([]byte, error) {
	if len(d.lengths) == 0 {
		return nil, errEnd
	}
	n := int(d.lengths[0])
	if d.lengths = d.lengths[1:]; n > len(d.rest) {
		return nil, fmt.Errorf("a length is %d, %d bytes are left", n, len(d.rest))
	}
	text := d.rest[:n]
	d.rest = d.rest[n:]
	return text, nil
}

// deltaTexts say how many bytes each text has of the one before it.
type deltaTexts struct {
	kept   []int32
	behind texts
	text   []byte
}

func newDeltaTexts(content []byte, most int64) (texts, error) {
	kept, rest, err := deltas(content, most)
	if err != nil {
		return nil, err
	}
	behind, err := newDeltaLengthTexts(rest, most)
	return &deltaTexts{kept: kept, behind: behind}, err
}

func (d *deltaTexts) next() ([]byte, error) {
	if len(d.kept) == 0 {
		return nil, errEnd
	}
	n := int(d.kept[0])
	if d.kept = d.kept[1:]; n > len(d.text) {
		return nil, fmt.Errorf("a text has %d bytes of the one before it, which has %d", n, len(d.text))
	}
	behind, err := d.behind.next()
	if err != nil {
		return nil, err
	}
	if len(behind) > maxPage-n {
		return nil, fmt.Errorf("a text has more than %d bytes", maxPage)
	}
	d.text = append(d.text[:n], behind...)
	return d.text, nil
}

// deltas are numbers in the binary packed delta encoding, none of which can be negative, at most so
// many of them.
func deltas(content []byte, most int64) (numbers []int32, rest []byte, err error) {
	t := &thrift{rest: content} // whose numbers are as these
	block, minis, total, value := t.unsigned(), t.unsigned(), t.unsigned(), t.signed()
	switch {
	case t.err != nil:
		return nil, nil, errEnd
	case minis == 0 || minis > 1<<10 || block > 1<<20 || block%minis != 0 || block/minis%8 != 0 || block == 0:
		return nil, nil, fmt.Errorf("blocks have %d numbers in %d parts", block, minis)
	case total > uint64(most):
		return nil, nil, fmt.Errorf("it says that it has %d lengths, of %d texts", total, most)
	}
	perMini := int(block / minis)
	for first := true; uint64(len(numbers)) < total; first = false {
		if first {
			if numbers, err = appendNumber(numbers, value); err != nil {
				return nil, nil, err
			}
			continue
		}
		least := t.signed()
		widths := t.take(int(minis))
		if t.err != nil {
			return nil, nil, errEnd
		}
		for _, width := range widths {
			if uint64(len(numbers)) == total {
				break // what is left of the last block is not there
			}
			if width > 64 {
				return nil, nil, fmt.Errorf("numbers have %d bits, they can have 64", width)
			}
			bits := t.take(perMini * int(width) / 8)
			if t.err != nil {
				return nil, nil, errEnd
			}
			for i := 0; i < perMini && uint64(len(numbers)) < total; i++ {
				value += least + int64(bitsAt(bits, i*int(width), int(width)))
				if numbers, err = appendNumber(numbers, value); err != nil {
					return nil, nil, err
				}
			}
		}
	}
	return numbers, t.rest, nil
}

func appendNumber(numbers []int32, value int64) ([]int32, error) {
	if value < 0 || value > maxPage {
		return nil, fmt.Errorf("a length is %d", value)
	}
	return append(numbers, int32(value)), nil
}

// bitsAt is a number of some bits.
func bitsAt(bits []byte, at, width int) (value uint64) {
	for i := range width {
		value |= uint64(bits[(at+i)>>3]>>((at+i)&7)&1) << i
	}
	return value
}
