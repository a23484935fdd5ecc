package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// UnmarshalJSON reads a token, which needs an id.
func (a *hfAddedJSON) UnmarshalJSON(text []byte) error {
	type plain hfAddedJSON
	read := struct {
		*plain
		ID *int `json:"id"`
	}{plain: (*plain)(a)}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	if read.ID == nil {
		return fmt.Errorf("added_tokens: %q has no id", a.Content)
	}
	a.ID = *read.ID
	return nil
}

// hfAddedJSON is a token beside the model's vocabulary, or one of it that a text is searched for
// first.
type hfAddedJSON struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no letter stands beside it
	LStrip     bool   `json:"lstrip"`      // takes the white space before it
	RStrip     bool   `json:"rstrip"`      // and behind it
	Normalized bool   `json:"normalized"`  // is searched for after the normaliser
	Special    bool   `json:"special"`
}

// hfAdded finds added tokens, of several at a place the longest.
type hfAdded struct {
	tokens   []*hfAddedJSON
	prefixes *hfPrefixes  // their numbers in the list
	begins   [256]bool    // whether one begins with a byte
	empty    *hfAddedJSON // one that the normaliser made an empty text of, nil for none
}

func newHFAdded(tokens map[string]*hfAddedJSON) *hfAdded {
	a, numbers := &hfAdded{}, map[string]int32{}
	for content, token := range tokens {
		if content == "" {
			a.empty = token
			continue
		}
		numbers[content] = int32(len(a.tokens))
		a.begins[content[0]] = true
		a.tokens = append(a.tokens, token)
	}
	a.prefixes = newHFPrefixes(numbers)
	return a
}

// at is the token that a text begins with, nil for none.
func (a *hfAdded) at(s string) *hfAddedJSON {
	if s == "" || !a.begins[s[0]] {
		return nil
	}
	if _, number, found := a.prefixes.longest(s); found {
		return a.tokens[number]
	}
	return nil
}

// split cuts a text at its added tokens; plain gets what lies between them.
func (a *hfAdded) split(t hfText, plain func(hfText) error, token func(id int, t hfText) error) error {
	done := 0
	for at, ended := 0, -1; (len(a.tokens) > 0 || a.empty != nil) && at <= len(t.s); {
		found := a.at(t.s[at:])
		if found == nil && at != ended {
			found = a.empty // which stands at any place, as in the library
		}
		if found == nil {
			for at++; a.empty == nil && at < len(t.s) && !a.begins[t.s[at]]; at++ {
			}
			continue
		}
		from, to := at, at+len(found.Content)
		if from == to && from < len(t.s) && !utf8.RuneStart(t.s[from]) {
			return fmt.Errorf("added token %d, of which the normalizer makes an empty text, stands within a character", found.ID)
		}
		at, ended = to, to
		if found.SingleWord && (endsWithWord(t.s[:from]) || beginsWithWord(t.s[to:])) {
			continue
		}
		if found.LStrip {
			from = max(done, len(strings.TrimRightFunc(t.s[:from], unicode.IsSpace)))
		}
		if found.RStrip {
			to = len(t.s) - len(strings.TrimLeftFunc(t.s[to:], unicode.IsSpace))
		}
		if from > to {
			return fmt.Errorf("added token %d: it begins within the white space that the one before it takes", found.ID)
		}
		if done < from {
			if err := plain(t.slice(done, from)); err != nil {
				return err
			}
		}
		if from < to {
			if err := token(found.ID, t.slice(from, to)); err != nil {
				return err
			}
		}
		done = to // a token that is found in the white space of the one before it counts too, as in the library
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
