package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// hfModel makes tokens of the parts of a text.
type hfModel interface {
	// tokenize appends the tokens of a part, whose spans count from the part's start.
	tokenize(part string, tokens []hfToken) ([]hfToken, error)
}

// hfToken is an id and the bytes of a part that it stands for.
type hfToken struct{ id, from, to int }

// hfBPE joins neighbours, those first whose merge has the lowest rank. It begins with bytes, or
// with characters.
type hfBPE struct {
	inBytes      bool
	ids          map[string]int32
	byteIDs      [256]int32 // of single bytes, or of tokens such as <0x0A>; −1 for none
	merges       *mergeTable
	bytePairs    []merged // of two bytes, at 256 times the first and the second; noRank where nothing becomes of them
	prefix       string   // of characters that do not begin a part
	suffix       string   // of the character that ends a part
	unknown      int32    // −1 for none, −2 for one that is no token
	fuseUnknown  bool
	byteFallback bool
	ignoreMerges bool        // a part that is a token is that token
	whole        *partFilter // of ids, with ignoreMerges

	characters map[rune]bool    // that are tokens
	across     map[[2]rune]bool // characters between which some merge joins tokens
}

type hfBPEJSON struct {
	Type         string
	Dropout      *float64
	UnkToken     *string `json:"unk_token"`
	Prefix       *string `json:"continuing_subword_prefix"`
	Suffix       *string `json:"end_of_word_suffix"`
	FuseUnk      bool    `json:"fuse_unk"`
	ByteFallback bool    `json:"byte_fallback"`
	IgnoreMerges bool    `json:"ignore_merges"`
	Vocab        map[string]int
	Merges       []hfMergeJSON
}

// hfMergeJSON is two tokens, in a list or, in older files, in a string with a space between them.
type hfMergeJSON [2]string

func (m *hfMergeJSON) UnmarshalJSON(text []byte) error {
	var line string
	if json.Unmarshal(text, &line) != nil {
		var list []string
		if err := json.Unmarshal(text, &list); err != nil || len(list) != 2 {
			return fmt.Errorf("the merge %.60s needs to be two tokens", text)
		}
		*m = hfMergeJSON(list)
		return nil
	}
	left, right, found := strings.Cut(line, " ")
	if !found {
		return fmt.Errorf("the merge %.60s needs to be two tokens with a space between them", text)
	}
	*m = hfMergeJSON{left, right}
	return nil
}

func (j *hfBPEJSON) model(inBytes bool) (*hfBPE, error) {
	if j.Dropout != nil && *j.Dropout != 0 {
		return nil, fmt.Errorf("dropout is %v, only 0 is supported", *j.Dropout)
	}
	b := &hfBPE{
		inBytes: inBytes, ids: make(map[string]int32, len(j.Vocab)), merges: newMergeTable(len(j.Merges)), unknown: -1,
		across: map[[2]rune]bool{}, fuseUnknown: j.FuseUnk, byteFallback: j.ByteFallback, ignoreMerges: j.IgnoreMerges,
	}
	if j.Prefix != nil {
		b.prefix = *j.Prefix
	}
	if j.Suffix != nil {
		b.suffix = *j.Suffix
	}
	for token, id := range j.Vocab {
		if inBytes {
			// Tokens that are not written in the alphabet of bytes are added ones, which the model
			// never makes.
			written, err := fromAlphabet(token)
			if err != nil {
				continue
			}
			token = written
		}
		b.ids[token] = int32(id)
	}
	if j.UnkToken != nil {
		b.unknown = -2
		if id, found := j.Vocab[*j.UnkToken]; found {
			b.unknown = int32(id)
		}
	}
	for i := range b.byteIDs {
		name := string([]byte{byte(i)})
		if !inBytes {
			name = fmt.Sprintf("<0x%02X>", i)
		}
		id, found := b.ids[name]
		if b.byteIDs[i] = -1; found {
			b.byteIDs[i] = id
		}
	}
	for rank, m := range j.Merges {
		if err := b.addMerge(rank, m); err != nil {
			return nil, fmt.Errorf("merge %d: %w", rank+1, err)
		}
	}
	if inBytes {
		b.bytePairs = make([]merged, 1<<16)
		for i := range b.bytePairs {
			b.bytePairs[i] = b.near(b.byteIDs[i>>8], b.byteIDs[i&0xFF])
		}
	}
	if b.ignoreMerges {
		b.whole = newPartFilter(b.ids)
	}
	b.characters = map[rune]bool{}
	for token := range b.ids {
		if r, n := utf8.DecodeRuneInString(token); n == len(token) {
			b.characters[r] = true
		}
	}
	return b, nil
}

// hasWords reports whether a text may be cut into words.
func (b *hfBPE) hasWords() bool {
	complete := b.unknown >= 0 || b.byteFallback && !slices.Contains(b.byteIDs[:], -1)
	return complete && !b.inBytes && !b.ignoreMerges && b.prefix == "" && b.suffix == ""
}

// words is a splitter that cuts where no merge can join what is on the two sides. Models in the
// manner of SentencePiece see a text as one part; cut into words, most of it was seen before.
func (b *hfBPE) words(t hfText, yield func(hfText) error) error {
	start, before := 0, utf8.RuneError
	for at, r := range t.s {
		if at > 0 && b.characters[before] && b.characters[r] && !b.across[[2]rune{before, r}] {
			if err := yield(t.slice(start, at)); err != nil {
				return err
			}
			start = at
		}
		before = r
	}
	return yield(t.slice(start, len(t.s)))
}

func (b *hfBPE) addMerge(rank int, m hfMergeJSON) error {
	left, right := m[0], m[1]
	if b.inBytes {
		var err error
		if left, err = fromAlphabet(left); err != nil {
			return fmt.Errorf("%q %w", m[0], err)
		}
		if right, err = fromAlphabet(right); err != nil {
			return fmt.Errorf("%q %w", m[1], err)
		}
	}
	var p [3]int32
	for i, token := range []string{left, right, left + strings.TrimPrefix(right, b.prefix)} {
		id, found := b.ids[token]
		if !found {
			return fmt.Errorf("%q and %q make %q, which needs to be a token of the vocabulary", m[0], m[1], token)
		}
		p[i] = id
	}
	last, _ := utf8.DecodeLastRuneInString(left)
	first, _ := utf8.DecodeRuneInString(right)
	b.across[[2]rune{last, first}] = true
	b.merges.add(pair{p[0], p[1]}, merged{int32(rank), p[2]})
	return nil
}

// noRank is behind that of every merge.
const noRank = math.MaxInt32

// near is what becomes of two tokens side by side, with noRank for nothing.
func (b *hfBPE) near(left, right int32) merged {
	if m, found := b.merges.find(pair{left, right}); found {
		return m
	}
	return merged{rank: noRank}
}

func (b *hfBPE) tokenize(part string, tokens []hfToken) ([]hfToken, error) {
	return b.tokenizeIn(&bpeWord{}, part, tokens)
}

// tokenizeIn is tokenize in the memory of a word.
func (b *hfBPE) tokenizeIn(w *bpeWord, part string, tokens []hfToken) ([]hfToken, error) {
	if b.ignoreMerges && b.whole.mayHave(part) {
		if id, found := b.ids[part]; found {
			return append(tokens, hfToken{int(id), 0, len(part)}), nil
		}
	}
	w.model, w.symbols = b, w.symbols[:0]
	switch {
	case b.inBytes && len(part) <= fewSymbols:
		w.fewBytes(part)
	case b.inBytes:
		w.fromBytes(part)
	default:
		if err := w.fromCharacters(part); err != nil {
			return nil, err
		}
		if len(w.symbols) <= fewSymbols {
			w.fewCharacters()
		}
	}
	if len(w.symbols) <= fewSymbols {
		w.joinFew()
		for _, s := range w.few {
			tokens = append(tokens, hfToken{int(s.id), min(int(s.from), len(part)-1), min(int(s.to), len(part))})
		}
		return tokens, nil
	}
	w.join()
	for at := 0; at < len(w.symbols); at = w.symbols[at].next {
		s := w.symbols[at] // the bytes of a prefix or suffix may lie behind the part
		tokens = append(tokens, hfToken{int(s.id), min(s.from, len(part)-1), min(s.to, len(part))})
	}
	return tokens, nil
}

// bpeWord is a part while its tokens are joined.
type bpeWord struct {
	model   *hfBPE
	symbols []bpeSymbol // a linked list; len(symbols) ends it
	queue   mergeQueue
	few     []fewSymbol
}

type bpeSymbol struct {
	id         int32 // −1 once it was joined to the one before it
	prev, next int
	from, to   int
}

// add appends a symbol for so many bytes. As in the library, symbols stand side by side even where
// something before them is no token and was left out.
func (w *bpeWord) add(id int32, bytes int) {
	from := 0
	if len(w.symbols) > 0 {
		from = w.symbols[len(w.symbols)-1].to
	}
	w.symbols = append(w.symbols, bpeSymbol{id, len(w.symbols) - 1, len(w.symbols) + 1, from, from + bytes})
}

// fromBytes begins with bytes, all of which are tokens.
func (w *bpeWord) fromBytes(part string) {
	for i := range len(part) {
		w.add(w.model.byteIDs[part[i]], 1)
	}
}

// fromCharacters begins with characters. One that is no token becomes its bytes, or the unknown
// token.
func (w *bpeWord) fromCharacters(part string) error {
	m := w.model
	unknown := 0 // bytes that wait to be one unknown token
	flush := func() {
		if unknown > 0 {
			w.add(m.unknown, unknown)
		}
		unknown = 0
	}
	for at, n := 0, 0; at < len(part); at += n {
		_, n = utf8.DecodeRuneInString(part[at:])
		name := part[at : at+n]
		if at > 0 && m.prefix != "" {
			name = m.prefix + name
		}
		if at+n == len(part) && m.suffix != "" {
			name += m.suffix
		}
		if id, found := m.ids[name]; found {
			flush()
			w.add(id, n)
			continue
		}
		if m.byteFallback && w.areTokens(name) {
			for i := range len(name) {
				w.add(m.byteIDs[name[i]], 1)
			}
			continue
		}
		switch {
		case m.unknown == -1:
			continue
		case m.unknown < 0:
			return fmt.Errorf("%q is no token, and neither is unk_token", name)
		case !m.fuseUnknown:
			flush()
		}
		unknown += n
	}
	flush()
	return nil
}

func (w *bpeWord) areTokens(s string) bool {
	for i := range len(s) {
		if w.model.byteIDs[s[i]] < 0 {
			return false
		}
	}
	return true
}

// join takes time O(n log n) for n symbols: a part may be a whole text.
func (w *bpeWord) join() {
	for at := range w.symbols {
		w.consider(at)
	}
	for len(w.queue) > 0 {
		c := w.queue.pop()
		left := &w.symbols[c.at]
		if left.id < 0 || left.next == len(w.symbols) {
			continue
		}
		right := &w.symbols[left.next]
		m, found := w.model.merges.find(pair{left.id, right.id})
		if !found || m.rank != c.rank {
			continue
		}
		left.id, left.next, left.to, right.id = m.joined, right.next, right.to, -1
		if left.next < len(w.symbols) {
			w.symbols[left.next].prev = c.at
		}
		w.consider(left.prev)
		w.consider(c.at)
	}
}

// consider adds the merge of the symbol at a place with the next, if there is one.
func (w *bpeWord) consider(at int) {
	if at < 0 || w.symbols[at].next == len(w.symbols) {
		return
	}
	if m, found := w.model.merges.find(pair{w.symbols[at].id, w.symbols[w.symbols[at].next].id}); found {
		w.queue.push(candidate{m.rank, at})
	}
}

// fewSymbols is how many symbols are joined by a search through all of them for each merge, which
// is faster for few than a queue.
const fewSymbols = 128

// fewSymbol is a symbol of few, and what becomes of it and the next.
type fewSymbol struct {
	merged
	id       int32
	from, to int32
}

func (w *bpeWord) fewBytes(part string) {
	w.few = w.few[:0]
	for i := range len(part) {
		s := fewSymbol{merged{rank: noRank}, w.model.byteIDs[part[i]], int32(i), int32(i + 1)}
		if i+1 < len(part) {
			s.merged = w.model.bytePairs[int(part[i])<<8|int(part[i+1])]
		}
		w.few = append(w.few, s)
	}
}

func (w *bpeWord) fewCharacters() {
	w.few = w.few[:0]
	for i, s := range w.symbols {
		few := fewSymbol{merged{rank: noRank}, s.id, int32(s.from), int32(s.to)}
		if i+1 < len(w.symbols) {
			few.merged = w.model.near(s.id, w.symbols[i+1].id)
		}
		w.few = append(w.few, few)
	}
}

// joinFew takes time O(n²) for n symbols.
func (w *bpeWord) joinFew() {
	list := w.few
	for {
		at, rank := 0, int32(noRank)
		for i := range list {
			if list[i].rank < rank {
				at, rank = i, list[i].rank
			}
		}
		if rank == noRank {
			break
		}
		list[at].id, list[at].to = list[at].joined, list[at+1].to
		list = append(list[:at+1], list[at+2:]...)
		if list[at].rank = noRank; at+1 < len(list) {
			list[at].merged = w.model.near(list[at].id, list[at+1].id)
		}
		if at > 0 {
			list[at-1].merged = w.model.near(list[at-1].id, list[at].id)
		}
	}
	w.few = list
}
