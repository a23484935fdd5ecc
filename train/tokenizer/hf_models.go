package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// hfUnigram takes the tokens whose scores have the largest sum.
type hfUnigram struct {
	tokens       *hfPrefixes
	ids          map[string]int32
	scores       []float64
	unknown      int // −1 for none
	unknownScore float64
	byteFallback bool
	byteIDs      [256]int32 // −1 for none
}

type hfUnigramJSON struct {
	Type         string
	UnkID        *int `json:"unk_id"`
	Vocab        []hfScoreJSON
	ByteFallback bool `json:"byte_fallback"`
}

// hfScoreJSON is a token and the logarithm of its probability.
type hfScoreJSON struct {
	token string
	score float64
}

func (s *hfScoreJSON) UnmarshalJSON(text []byte) error {
	list := []any{&s.token, &s.score}
	if err := json.Unmarshal(text, &list); err != nil || len(list) != 2 {
		return fmt.Errorf("%.60s needs to be a token and its score", text)
	}
	return nil
}

func (j *hfUnigramJSON) model() (*hfUnigram, error) {
	u := &hfUnigram{ids: make(map[string]int32, len(j.Vocab)), unknown: -1, byteFallback: j.ByteFallback}
	if j.UnkID != nil {
		if u.unknown = *j.UnkID; u.unknown < 0 || u.unknown >= len(j.Vocab) {
			return nil, errors.New("unk_id needs to be a token of the vocabulary")
		}
	}
	least := math.Inf(1)
	for id, entry := range j.Vocab {
		u.ids[entry.token] = int32(id)
		u.scores = append(u.scores, entry.score)
		least = min(least, entry.score)
	}
	u.unknownScore = least - 10
	for b := range u.byteIDs {
		u.byteIDs[b] = -1
		if id, found := u.ids[fmt.Sprintf("<0x%02X>", b)]; found {
			u.byteIDs[b] = id
		}
	}
	u.tokens = newHFPrefixes(u.ids)
	return u, nil
}

// tokenize finds for each place the best way there, by the ways to the places before it.
func (u *hfUnigram) tokenize(part string, tokens []hfToken) ([]hfToken, error) {
	type way struct {
		score float64
		from  int // where its last token begins; −1 for no way
		id    int
	}
	best := make([]way, len(part)+1)
	for i := range best[1:] {
		best[i+1].from = -1
	}
	reach := func(from, to, id int, score float64) {
		if w := &best[to]; w.from < 0 || best[from].score+score > w.score {
			*w = way{best[from].score + score, from, id}
		}
	}
	for from, width := 0, 0; from < len(part); from += width {
		_, width = utf8.DecodeRuneInString(part[from:])
		single := false
		search := u.tokens.search(part[from:])
		for n, id, found := search.next(); found; n, id, found = search.next() {
			reach(from, from+n, int(id), u.scores[id])
			single = single || n == width
		}
		if w := best[from+width]; !single && u.unknown < 0 && (w.from < 0 || best[from].score+u.unknownScore > w.score) {
			return nil, fmt.Errorf("%q is no token, and there is none for what is unknown", part[from:from+width])
		}
		if !single && u.unknown >= 0 {
			reach(from, from+width, u.unknown, u.unknownScore)
		}
	}
	first := len(tokens)
	for to := len(part); to > 0; to = best[to].from {
		w := best[to]
		last := len(tokens) - 1
		if last >= first && w.id == u.unknown && tokens[last].id == u.unknown {
			tokens[last].from = w.from // neighbours that are unknown are one token
			continue
		}
		tokens = append(tokens, hfToken{w.id, w.from, to})
	}
	for i, j := first, len(tokens)-1; i < j; i, j = i+1, j-1 {
		tokens[i], tokens[j] = tokens[j], tokens[i]
	}
	if u.unknown < 0 {
		return tokens, nil
	}
	found := append([]hfToken(nil), tokens[first:]...)
	tokens = tokens[:first]
	for _, t := range found {
		if t.id == u.unknown {
			tokens = u.fallBack(part, t, tokens)
		} else {
			tokens = append(tokens, t)
		}
	}
	return tokens, nil
}

// fallBack appends what stands for an unknown piece. As in the library, each byte of one stands for
// all of it.
func (u *hfUnigram) fallBack(part string, t hfToken, tokens []hfToken) []hfToken {
	if id, found := u.ids[part[t.from:t.to]]; found {
		t.id = int(id) // the unknown token itself, or several that are a token together
		return append(tokens, t)
	}
	for i := t.from; i < t.to; i++ {
		if !u.byteFallback || u.byteIDs[part[i]] < 0 {
			return append(tokens, t)
		}
	}
	for i := t.from; i < t.to; i++ {
		tokens = append(tokens, hfToken{int(u.byteIDs[part[i]]), t.from, t.to})
	}
	return tokens
}

// hfWordPiece takes the longest token that the rest of a word begins with.
type hfWordPiece struct {
	first, rest *hfPrefixes // tokens that begin a word, and those that do not, without their prefix
	unknown     int         // −1 for none
	longest     int         // word, in characters
}

type hfWordPieceJSON struct {
	Type     string
	UnkToken string `json:"unk_token"`
	Prefix   string `json:"continuing_subword_prefix"`
	Longest  int    `json:"max_input_chars_per_word"`
	Vocab    map[string]int
}

func (j *hfWordPieceJSON) model() *hfWordPiece {
	id, found := j.Vocab[j.UnkToken]
	if !found {
		id = -1
	}
	first, rest := map[string]int32{}, map[string]int32{}
	for token, id := range j.Vocab {
		first[token] = int32(id)
		if after, found := strings.CutPrefix(token, j.Prefix); found {
			rest[after] = int32(id)
		}
	}
	return &hfWordPiece{newHFPrefixes(first), newHFPrefixes(rest), id, j.Longest}
}

func (w *hfWordPiece) tokenize(part string, tokens []hfToken) ([]hfToken, error) {
	first := len(tokens)
	if utf8.RuneCountInString(part) > w.longest {
		return unknownPart(w.unknown, part, tokens)
	}
	known := w.first
	for from := 0; from < len(part); known = w.rest {
		n, id, found := known.longest(part[from:])
		if !found {
			return unknownPart(w.unknown, part, tokens[:first])
		}
		tokens = append(tokens, hfToken{int(id), from, from + n})
		from += n
	}
	return tokens, nil
}

// unknownPart appends the unknown token for a part, if there is one.
func unknownPart(unknown int, part string, tokens []hfToken) ([]hfToken, error) {
	if unknown < 0 {
		return nil, fmt.Errorf("%.60q is no token, and there is none for what is unknown", part)
	}
	return append(tokens, hfToken{unknown, 0, len(part)}), nil
}

// hfWordLevel has a token for each word.
type hfWordLevel struct {
	ids     map[string]int
	unknown int // −1 for none
}

type hfWordLevelJSON struct {
	Type     string
	UnkToken string `json:"unk_token"`
	Vocab    map[string]int
}

func (j *hfWordLevelJSON) model() *hfWordLevel {
	unknown, found := j.Vocab[j.UnkToken]
	if !found {
		unknown = -1
	}
	return &hfWordLevel{j.Vocab, unknown}
}

func (w *hfWordLevel) tokenize(part string, tokens []hfToken) ([]hfToken, error) {
	id, found := w.ids[part]
	if !found {
		return unknownPart(w.unknown, part, tokens)
	}
	return append(tokens, hfToken{id, 0, len(part)}), nil
}
