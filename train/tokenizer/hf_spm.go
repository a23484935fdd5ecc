package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// sentencePiece is what a tokenizer.model of the SentencePiece library holds. The file is a message
// of protocol buffers; this reads the fields that a tokenizer needs and passes over the others.
type sentencePiece struct {
	pieces       []spPiece
	kind         uint64 // spUnigram or spBPE
	byteFallback bool
	unknown      spSpecial
	begin, end   spSpecial
	charsMap     []byte // what characters become, see hfPrecompiled
	dummyPrefix  bool   // a space is put before a text
	trimSpaces   bool   // spaces at the ends go, and of several in a row all but one
}

// spSpecial is a token with a meaning: its id, negative for none, and its text.
type spSpecial struct {
	id   int
	text string
}

// spPiece is a token. Its id is its place in the list.
type spPiece struct {
	text  string
	score float32
	kind  uint64
}

const (
	spUnigram = 1
	spBPE     = 2

	spNormal      = 1
	spUnknown     = 2
	spControl     = 3
	spUserDefined = 4
	spByte        = 6
)

// readSentencePiece reads a tokenizer.model.
func readSentencePiece(content []byte) (*sentencePiece, error) {
	m := &sentencePiece{
		kind: spUnigram, unknown: spSpecial{0, "<unk>"}, begin: spSpecial{1, "<s>"}, end: spSpecial{2, "</s>"},
		dummyPrefix: true, trimSpaces: true,
	}
	err := eachField(content, func(f spField) error {
		switch f.number {
		case 1:
			piece := spPiece{kind: spNormal}
			if err := eachField(f.bytes, piece.set); err != nil {
				return err
			}
			if piece.text == "" || !utf8.ValidString(piece.text) {
				return fmt.Errorf("piece %d is %q, it needs to be a text", len(m.pieces), piece.text)
			}
			m.pieces = append(m.pieces, piece)
		case 2:
			return eachField(f.bytes, m.setTraining)
		case 3:
			return eachField(f.bytes, m.setNormalizing)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(m.pieces) == 0 || len(m.pieces) > maxTokens {
		return nil, fmt.Errorf("it has %d pieces, it needs 1 to %d", len(m.pieces), maxTokens)
	}
	if m.kind != spUnigram && m.kind != spBPE {
		return nil, fmt.Errorf("its model_type is %d, it needs to be %d (unigram) or %d (BPE)", m.kind, spUnigram, spBPE)
	}
	for id, piece := range m.pieces {
		if m.kind == spBPE && len(piece.text) > longestPiece {
			return nil, fmt.Errorf("piece %d has %d bytes, with BPE it may have %d", id, len(piece.text), longestPiece)
		}
	}
	if m.unknown.id < 0 || m.unknown.id >= len(m.pieces) {
		return nil, fmt.Errorf("its unk_id is %d, it needs to be one of %d pieces", m.unknown.id, len(m.pieces))
	}
	return m, nil
}

func (p *spPiece) set(f spField) error {
	switch f.number {
	case 1:
		p.text = string(f.bytes)
	case 2:
		p.score = math.Float32frombits(uint32(f.value))
		if p.score != p.score {
			return errors.New("a piece's score is not a number")
		}
	case 3:
		p.kind = f.value
	}
	return nil
}

func (m *sentencePiece) setTraining(f spField) error {
	switch f.number {
	case 3:
		m.kind = f.value
	case 35:
		m.byteFallback = f.value != 0
	case 40:
		m.unknown.id = int(int32(f.value))
	case 41:
		m.begin.id = int(int32(f.value))
	case 42:
		m.end.id = int(int32(f.value))
	case 45:
		m.unknown.text = string(f.bytes)
	case 46:
		m.begin.text = string(f.bytes)
	case 47:
		m.end.text = string(f.bytes)
	}
	return nil
}

func (m *sentencePiece) setNormalizing(f spField) error {
	switch f.number {
	case 2:
		m.charsMap = f.bytes
	case 3:
		m.dummyPrefix = f.value != 0
	case 4:
		m.trimSpaces = f.value != 0
	case 5:
		if f.value == 0 {
			return errors.New("escape_whitespaces is false, only true is supported")
		}
	}
	return nil
}

// spField is a field of a message: a number, or bytes.
type spField struct {
	number uint64
	value  uint64
	bytes  []byte
}

// eachField calls f with the fields of a message, in order.
func eachField(message []byte, f func(spField) error) error {
	bad := errors.New("it is not a message of protocol buffers")
	for len(message) > 0 {
		key, n := binary.Uvarint(message)
		if n <= 0 {
			return bad
		}
		message = message[n:]
		field := spField{number: key >> 3}
		switch key & 7 {
		case 0:
			if field.value, n = binary.Uvarint(message); n <= 0 {
				return bad
			}
		case 1:
			if n = 8; len(message) < n {
				return bad
			}
			field.value = binary.LittleEndian.Uint64(message)
		case 2:
			size, head := binary.Uvarint(message)
			if head <= 0 || size > uint64(len(message)-head) {
				return bad
			}
			n = head + int(size)
			field.bytes = message[head:n]
		case 5:
			if n = 4; len(message) < n {
				return bad
			}
			field.value = uint64(binary.LittleEndian.Uint32(message))
		default:
			return bad
		}
		message = message[n:]
		if err := f(field); err != nil {
			return err
		}
	}
	return nil
}
