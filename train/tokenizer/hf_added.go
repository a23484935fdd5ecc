package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hfAddedJSON is a token beside the model's vocabulary, or one of it that a text is searched for first.
type hfAddedJSON struct {
	ID         int
	Content    string
	SingleWord bool `json:"single_word"` // only where no letter stands beside it
	LStrip     bool // takes the white space before it
	RStrip     bool // and behind it
	Normalized bool // is searched for after the normaliser
	Special    bool
}

// hfAdded finds added tokens, of several at a place the longest.
type hfAdded struct {
	tokens  map[string]*hfAddedJSON
	lengths []int // of the tokens, the longest first
	first   [256]bool
}

func newHFAdded(tokens map[string]*hfAddedJSON) *hfAdded {
	a := &hfAdded{tokens: tokens}
	for content := range tokens {
		a.first[content[0]] = true
		if !slices.Contains(a.lengths, len(content)) {
			a.lengths = append(a.lengths, len(content))
		}
	}
	slices.SortFunc(a.lengths, func(x, y int) int { return y - x })
	return a
}

// at is the token that a text begins with, nil for none.
func (a *hfAdded) at(s string) *hfAddedJSON {
	if !a.first[s[0]] {
		return nil
	}
	for _, n := range a.lengths {
		if n <= len(s) {
			if token := a.tokens[s[:n]]; token != nil {
				return token
			}
		}
	}
	return nil
}

// split cuts a text at its added tokens; plain gets what lies between them.
func (a *hfAdded) split(t hfText, plain func(hfText) error, token func(id int, t hfText) error) error {
	done := 0
	for at := 0; len(a.tokens) > 0 && at < len(t.s); {
		found := a.at(t.s[at:])
		if found == nil {
			at++
			continue
		}
		from, to := at, at+len(found.Content)
		at = to
		if found.SingleWord && (endsWithWord(t.s[:from]) || beginsWithWord(t.s[to:])) {
			continue
		}
		if found.LStrip {
			from = max(done, len(strings.TrimRightFunc(t.s[:from], unicode.IsSpace)))
		}
		if found.RStrip {
			to = len(t.s) - len(strings.TrimLeftFunc(t.s[to:], unicode.IsSpace))
		}
		if from < done {
			continue
		}
		if done < from {
			if err := plain(t.slice(done, from)); err != nil {
				return err
			}
		}
		if err := token(found.ID, t.slice(from, to)); err != nil {
			return err
		}
		done, at = to, max(at, to)
	}
	if done < len(t.s) {
		return plain(t.slice(done, len(t.s)))
	}
	return nil
}

func endsWithWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func beginsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}
