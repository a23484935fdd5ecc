package tokenizer

import (
	"fmt"
	"io"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// GPT2 is GPT-2's [Tokenizer], a byte-pair encoding. It splits a text into pieces, which are
// roughly words with the space before them, and each piece into bytes; then it joins neighbours
// within a piece, those first whose merge has the lowest rank and of equal ones the leftmost, until
// there is nothing left to join.
type GPT2 struct {
	tokens    []string // the bytes of each id
	byteIDs   [256]int32
	merges    []merge // by rank
	ranks     map[pair]int32
	endOfText int // its id, -1 where the vocabulary has none
	special   bool
}

// pair are the ids of two neighbours.
type pair struct{ left, right int32 }

// merge joins a pair.
type merge struct {
	pair
	joined int32
}

// EndOfText is the token that GPT-2 has between documents.
const EndOfText = "<|endoftext|>"

// OpenGPT2 makes a tokenizer of two files; see [NewGPT2].
func OpenGPT2(vocabPath, mergesPath string) (*GPT2, error) {
	vocab, _, err := plainfile.Open(vocabPath)
	if err != nil {
		return nil, fmt.Errorf("OpenGPT2: vocab: %w", err)
	}
	defer vocab.Close()
	merges, _, err := plainfile.Open(mergesPath)
	if err != nil {
		return nil, fmt.Errorf("OpenGPT2: merges: %w", err)
	}
	defer merges.Close()
	t, err := readGPT2(vocab, merges)
	if err != nil {
		return nil, fmt.Errorf("OpenGPT2: %s, %s: %w", vocabPath, mergesPath, err)
	}
	return t, nil
}

// NewGPT2 makes a tokenizer of a vocabulary and merges as GPT-2's vocab.json and merges.txt have
// them (encoder.json and vocab.bpe in the first release): a JSON object from tokens to ids, and a
// line of two tokens for each merge, in the order of rank. The ids need to be 0 to n-1, and each of
// the 256 bytes needs to be a token.
func NewGPT2(vocab, merges io.Reader) (*GPT2, error) {
	t, err := readGPT2(vocab, merges)
	if err != nil {
		return nil, fmt.Errorf("NewGPT2: %w", err)
	}
	return t, nil
}

// WithEndOfText is the same tokenizer, except that [EndOfText] in a text becomes the one token.
// Without it, it is text like any other, which is safer where the text is somebody else's.
func (t *GPT2) WithEndOfText() (*GPT2, error) {
	if t.endOfText < 0 {
		return nil, fmt.Errorf("GPT2: the vocabulary has no %s", EndOfText)
	}
	special := *t
	special.special = true
	return &special, nil
}

// EndOfText is the id of [EndOfText], and whether the vocabulary has it.
func (t *GPT2) EndOfText() (id int, found bool) { return t.endOfText, t.endOfText >= 0 }

// Encode is the ids of a text, which need not be valid UTF-8; the error is always nil.
func (t *GPT2) Encode(text string) ([]int, error) {
	e := encoder{GPT2: t, ids: make([]int, 0, len(text)/3+1), seen: map[string]span{}}
	for text != "" {
		before, found := text, false
		if t.special {
			before, text, found = strings.Cut(text, EndOfText)
		} else {
			text = ""
		}
		for before != "" {
			n := firstPiece(before)
			e.encode(before[:n])
			before = before[n:]
		}
		if found {
			e.ids = append(e.ids, t.endOfText)
		}
	}
	return e.ids, nil
}

// Decode is the text of ids, which is valid UTF-8 only if they end where a character ends.
func (t *GPT2) Decode(ids []int) (string, error) {
	var text strings.Builder
	for _, id := range ids {
		if err := checkID("GPT2", id, t.Size()); err != nil {
			return "", err
		}
		text.WriteString(t.tokens[id])
	}
	return text.String(), nil
}

// Bytes is the bytes of a token, which may be a part of a character.
func (t *GPT2) Bytes(id int) ([]byte, error) {
	if err := checkID("GPT2", id, t.Size()); err != nil {
		return nil, err
	}
	return []byte(t.tokens[id]), nil
}

// Size is the number of tokens: 50257 for GPT-2's own vocabulary.
func (t *GPT2) Size() int { return len(t.tokens) }
