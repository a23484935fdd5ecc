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
	scores       []float64
	unknown      int
	unknownScore float64
	byteFallback bool
	byteIDs      [256]int32
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
	if len(j.Vocab) == 0 || j.UnkID == nil || *j.UnkID < 0 || *j.UnkID >= len(j.Vocab) {
		return nil, errors.New("unk_id needs to be a token of the vocabulary")
	}
	u := &hfUnigram{unknown: *j.UnkID, byteFallback: j.ByteFallback}
	ids := make(map[string]int32, len(j.Vocab))
	least := math.Inf(1)
	for id, entry := range j.Vocab {
		ids[entry.token] = int32(id)
		u.scores = append(u.scores, entry.score)
		least = min(least, entry.score)
	}
	u.unknownScore = least - 10
	for b := range u.byteIDs {
		id, found := ids[fmt.Sprintf("<0x%02X>", b)]
		if !found && u.byteFallback {
			return nil, fmt.Errorf("byte_fallback is set, but the vocabulary has no <0x%02X>", b)
		}
		u.byteIDs[b] = id
	}
	u.tokens = newHFPrefixes(ids)
	return u, nil
}

// tokenize finds for each place the best way there, by the ways to the places before it.
func (u *hfUnigram) tokenize(part string, tokens []hfToken) []hfToken {
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
		if !single {
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
	if !u.byteFallback {
		return tokens
	}
	found := append([]hfToken(nil), tokens[first:]...)
	tokens = tokens[:first]
	for _, t := range found {
		if t.id != u.unknown {
			tokens = append(tokens, t)
			continue
		}
		for i := t.from; i < t.to; i++ {
			// As in the library, each byte of an unknown piece stands for all of the piece.
			tokens = append(tokens, hfToken{int(u.byteIDs[part[i]]), t.from, t.to})
		}
	}
	return tokens
}

// hfWordPiece takes the longest token that the rest of a word begins with.
type hfWordPiece struct {
	first, rest *hfPrefixes // tokens that begin a word, and those that do not, without their prefix
	unknown     int
	longest     int // word, in characters
}

type hfWordPieceJSON struct {
	Type     string
	UnkToken string `json:"unk_token"`
	Prefix   string `json:"continuing_subword_prefix"`
	Longest  int    `json:"max_input_chars_per_word"`
	Vocab    map[string]int
}

func (j *hfWordPieceJSON) model() (*hfWordPiece, error) {
	id, found := j.Vocab[j.UnkToken]
	if !found {
		return nil, fmt.Errorf("unk_token is %q, it needs to be a token of the vocabulary", j.UnkToken)
	}
	first, rest := map[string]int32{}, map[string]int32{}
	for token, id := range j.Vocab {
		first[token] = int32(id)
		if after, found := strings.CutPrefix(token, j.Prefix); found {
			rest[after] = int32(id)
		}
	}
	return &hfWordPiece{newHFPrefixes(first), newHFPrefixes(rest), id, j.Longest}, nil
}

func (w *hfWordPiece) tokenize(part string, tokens []hfToken) []hfToken {
	first := len(tokens)
	if utf8.RuneCountInString(part) > w.longest {
		return append(tokens, hfToken{w.unknown, 0, len(part)})
	}
	known := w.first
	for from := 0; from < len(part); known = w.rest {
		n, id, found := known.longest(part[from:])
		if !found {
			return append(tokens[:first], hfToken{w.unknown, 0, len(part)})
		}
		tokens = append(tokens, hfToken{int(id), from, from + n})
		from += n
	}
	return tokens
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

func (w *hfWordLevel) tokenize(part string, tokens []hfToken) []hfToken {
	id, found := w.ids[part]
	if !found {
		id = w.unknown
	}
	if id < 0 {
		return tokens
	}
	return append(tokens, hfToken{id, 0, len(part)})
}
