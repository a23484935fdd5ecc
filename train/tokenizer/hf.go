package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// HuggingFace is a [Tokenizer] read from a tokenizer.json, the file that Hugging Face's tokenizers
// library writes and most published models have. A text goes through its parts in order:
//
//	added tokens → normaliser → splitter (pre-tokenizer) → model: BPE, Unigram, WordPiece or WordLevel → template
//
// Encode leaves the last out, so that its ids stand for the text alone; [HuggingFace.EncodeWith]
// gives all that the library does. Where a text is somebody else's, [HuggingFace.WithoutSpecial]
// keeps its special tokens from meaning anything.
type HuggingFace struct {
	source json.RawMessage
	hfTokens
	normalize hfNormalizer
	split     hfSplitter
	first     func(text string) int // the length of the first part, where split is no more than that; nil otherwise
	model     hfModel
	inBytes   bool // the model sees bytes
	fallback  bool // tokens such as <0x0A> are bytes
	processor *hfProcessor
	decode    hfDecoder
	truncate  *hfTruncationJSON
	padding   *hfPaddingJSON
	cutsLeft  bool // texts of too many tokens lose the first of them
	plain     bool // see WithoutSpecial
}

// hfTokens is what a text may become, and the added tokens that are searched for in it.
type hfTokens struct {
	names     []string       // of each id, empty for an id that is none
	unadded   map[int]string // what the model calls ids whose names are those of added tokens
	vanished  map[int]bool   // added tokens of which the normaliser makes an empty text, which decode to nothing
	special   map[int]bool
	added     map[string]int // special or not, as the file has them
	raw       *hfAdded       // added tokens that are searched for in the text as it is
	rawNoSpec *hfAdded       // those of them that are not special
	later     *hfAdded       // added tokens that are searched for after the normaliser
}

type hfJSON struct {
	Truncation    *hfTruncationJSON
	Padding       *hfPaddingJSON
	AddedTokens   []hfAddedJSON `json:"added_tokens"`
	Normalizer    json.RawMessage
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage
	Model         json.RawMessage
}

// OpenHuggingFace reads a tokenizer.json.
func OpenHuggingFace(path string) (*HuggingFace, error) {
	content, err := plainfile.ReadFile(path, 1<<30)
	if err != nil {
		return nil, fmt.Errorf("OpenHuggingFace: %w", err)
	}
	t, err := parseHuggingFace(content)
	if err != nil {
		return nil, fmt.Errorf("OpenHuggingFace: %s: %w", path, err)
	}
	return t, nil
}

// ReadHuggingFace reads a tokenizer.json, to the end of r.
func ReadHuggingFace(r io.Reader) (*HuggingFace, error) {
	if r == nil {
		return nil, errors.New("ReadHuggingFace: r is nil, it needs to be a reader")
	}
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("ReadHuggingFace: %w", err)
	}
	t, err := parseHuggingFace(content)
	if err != nil {
		return nil, fmt.Errorf("ReadHuggingFace: %w", err)
	}
	return t, nil
}

// WithoutSpecial is the same tokenizer, except that special tokens in a text, such as
// <|endoftext|>, are text like any other.
func (t *HuggingFace) WithoutSpecial() *HuggingFace {
	plain := *t
	plain.plain = true
	return &plain
}

// Lowered is the tokenizer with a step in front that makes the letters of a text small. Added
// tokens that are not normalised are found before that step. A tokenizer whose normaliser has such
// a step is returned as it is.
func (t *HuggingFace) Lowered() (*HuggingFace, error) {
	lowered, err := t.lowered()
	if err != nil {
		return nil, fmt.Errorf("Lowered: %w", err)
	}
	return lowered, nil
}

func (t *HuggingFace) lowered() (*HuggingFace, error) {
	if err := t.isMade(); err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(t.source, &fields); err != nil {
		return nil, err
	}
	const kind = "Lowercase"
	steps := []any{hfObject{"type": kind}}
	if old := fields["normalizer"]; !isNull(old) {
		var n struct {
			Type        string
			Normalizers []json.RawMessage
		}
		if err := json.Unmarshal(old, &n); err != nil {
			return nil, err
		}
		if n.Type != "Sequence" {
			n.Normalizers = []json.RawMessage{old}
		}
		for _, step := range n.Normalizers {
			var of struct{ Type string }
			if err := json.Unmarshal(step, &of); err != nil {
				return nil, err
			}
			if of.Type == kind {
				return t, nil
			}
			steps = append(steps, step)
		}
	}
	text, err := json.Marshal(normalizers(steps...))
	if err != nil {
		return nil, err
	}
	fields["normalizer"] = text
	lowered, err := parseFields(fields)
	if err != nil {
		return nil, err
	}
	lowered.cutsLeft, lowered.plain = t.cutsLeft, t.plain
	return lowered, nil
}

func isNull(text json.RawMessage) bool { return len(text) == 0 || string(text) == "null" }

func readHFJSON(content []byte) (*hfJSON, error) {
	j := &hfJSON{}
	return j, json.Unmarshal(content, j)
}

// parseFields makes a tokenizer of the fields of a tokenizer.json.
func parseFields(fields map[string]json.RawMessage) (*HuggingFace, error) {
	content, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return parseHuggingFace(content)
}

func parseHuggingFace(content []byte) (*HuggingFace, error) {
	j, err := readHFJSON(content)
	if err != nil {
		return nil, err
	}
	t := &HuggingFace{
		source: content, hfTokens: hfTokens{special: map[int]bool{}, added: map[string]int{}}, truncate: j.Truncation, padding: j.Padding,
	}
	if err := t.readSteps(j); err != nil {
		return nil, err
	}
	t.cutsLeft = t.truncate != nil && t.truncate.Direction == "Left"
	if len(j.Model) == 0 {
		return nil, errors.New("it has no model, it needs to be a tokenizer.json of Hugging Face's")
	}
	vocab, err := t.readModel(j.Model)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return t, t.readTokens(vocab, j.AddedTokens)
}

// readSteps reads all but the model.
func (t *HuggingFace) readSteps(j *hfJSON) (err error) {
	t.normalize = func(x hfText) (hfText, error) { return x, nil }
	if !isNull(j.Normalizer) {
		var n hfNormalizerJSON
		if err := decodeStrictly(j.Normalizer, &n); err != nil {
			return fmt.Errorf("normalizer: %w", err)
		}
		normalize, err := n.normalizer()
		if err != nil {
			return err
		}
		t.normalize = func(x hfText) (hfText, error) {
			x, err := normalize(x)
			return x, errors.Join(err, x.check())
		}
	}
	t.split = func(x hfText, yield func(hfText) error) error { return yield(x) }
	if !isNull(j.PreTokenizer) {
		var p hfSplitterJSON
		if err := decodeStrictly(j.PreTokenizer, &p); err != nil {
			return fmt.Errorf("pre_tokenizer: %w", err)
		}
		if t.split, err = p.splitter(); err != nil {
			return err
		}
		t.inBytes, t.first = p.bytes(), p.pieces()
	}
	t.processor = plainProcessor()
	if !isNull(j.PostProcessor) {
		if t.processor, err = readHFProcessor(j.PostProcessor); err != nil {
			return fmt.Errorf("post_processor: %w", err)
		}
	}
	t.decode = func(tokens []string) ([]string, error) { return []string{strings.Join(tokens, " ")}, nil }
	if !isNull(j.Decoder) {
		if t.decode, err = readHFDecoder(j.Decoder); err != nil {
			return fmt.Errorf("decoder: %w", err)
		}
	}
	if j.Truncation != nil {
		if err := j.Truncation.check(); err != nil {
			return fmt.Errorf("truncation: %w", err)
		}
	}
	if j.Padding != nil {
		if err := j.Padding.check(); err != nil {
			return fmt.Errorf("padding: %w", err)
		}
	}
	return nil
}

// readModel reads the model and gives its tokens and their ids.
func (t *HuggingFace) readModel(text json.RawMessage) (vocab map[string]int, err error) {
	var kind struct {
		Type   string
		Merges json.RawMessage
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, err
	}
	if kind.Type == "" && kind.Merges != nil {
		kind.Type = "BPE" // as the first versions of the library wrote it
	}
	if t.inBytes && kind.Type != "BPE" {
		t.writeBytes()
	}
	switch kind.Type {
	case "BPE":
		var j hfBPEJSON
		if err := decodeStrictly(text, &j); err != nil {
			return nil, err
		}
		t.fallback = j.ByteFallback
		if j.Prefix != nil && *j.Prefix != "" || j.Suffix != nil && *j.Suffix != "" {
			t.writeBytes()
		}
		model, err := j.model(t.inBytes)
		if t.inBytes && (err != nil || slices.Contains(model.byteIDs[:], -1)) {
			t.writeBytes() // some bytes are no tokens, or some tokens not of bytes
			model, err = j.model(false)
		}
		if err != nil {
			return nil, err
		}
		t.model = model
		if model.hasWords() {
			t.split, t.first = inTurn(t.split, model.words), nil
		}
		return j.Vocab, nil
	case "Unigram":
		var j hfUnigramJSON
		if err := decodeStrictly(text, &j); err != nil {
			return nil, err
		}
		t.fallback = j.ByteFallback
		vocab = map[string]int{}
		for id, entry := range j.Vocab {
			vocab[entry.token] = id
		}
		t.model, err = j.model()
		return vocab, err
	case "WordPiece":
		j := hfWordPieceJSON{Prefix: "##", Longest: 100}
		if err := decodeStrictly(text, &j); err != nil {
			return nil, err
		}
		t.model = j.model()
		return j.Vocab, nil
	case "WordLevel":
		var j hfWordLevelJSON
		if err := decodeStrictly(text, &j); err != nil {
			return nil, err
		}
		t.model = j.model()
		return j.Vocab, nil
	}
	return nil, fmt.Errorf("its type is %q, it needs to be BPE, Unigram, WordPiece or WordLevel", kind.Type)
}

// writeBytes gives the model printable characters in place of bytes, where it has no bytes of its
// own.
func (t *HuggingFace) writeBytes() {
	if !t.inBytes {
		return
	}
	t.inBytes, t.first = false, nil
	t.split = inTurn(t.split, func(x hfText, yield func(hfText) error) error { return yield(x.inAlphabet()) })
}

// maxTokens bounds the ids, which files choose.
const maxTokens = 1 << 24

// readTokens names the ids and sorts the added tokens by when they are searched for.
func (t *HuggingFace) readTokens(vocab map[string]int, addedTokens []hfAddedJSON) error {
	size := 0
	for token, id := range vocab {
		if id < 0 || id >= maxTokens {
			return fmt.Errorf("model: token %q has the id %d, it needs to be from 0 to %d", token, id, maxTokens-1)
		}
		size = max(size, id+1)
	}
	for _, a := range addedTokens {
		if a.ID < 0 || a.ID >= maxTokens || a.Content == "" {
			return fmt.Errorf("added_tokens: %q has the id %d, it needs a text and an id from 0 to %d", a.Content, a.ID, maxTokens-1)
		}
		size = max(size, a.ID+1)
	}
	t.names, t.unadded, t.vanished = make([]string, size), map[int]string{}, map[int]bool{}
	for token, id := range vocab {
		t.names[id] = token
	}
	raw, rawNoSpec, later := map[string]*hfAddedJSON{}, map[string]*hfAddedJSON{}, map[string]*hfAddedJSON{}
	special := map[string]bool{}
	for i := range addedTokens {
		a := &addedTokens[i]
		t.names[a.ID], t.added[a.Content] = a.Content, a.ID
		special[a.Content] = special[a.Content] || a.Special
		if !a.Normalized {
			raw[a.Content] = a
			if !a.Special {
				rawNoSpec[a.Content] = a
			}
			continue
		}
		normal, err := t.normalize(hfText{s: a.Content, original: a.Content})
		if err != nil {
			return err
		}
		if before := t.names[a.ID]; before != normal.s && normal.s != "" {
			t.unadded[a.ID] = before
		}
		own := *a
		own.Content = normal.s
		later[normal.s] = &own // of several, the library takes any
		if normal.s != "" {
			t.names[a.ID] = normal.s
		} else {
			t.vanished[a.ID] = true
		}
	}
	for id, name := range t.names {
		if special[name] {
			t.special[id] = true
		}
	}
	t.raw, t.rawNoSpec, t.later = newHFAdded(raw), newHFAdded(rawNoSpec), newHFAdded(later)
	for _, id := range t.processor.ids {
		if id < 0 || id >= size {
			return fmt.Errorf("post_processor: it adds the id %d, it needs to be from 0 to %d", id, size-1)
		}
	}
	return nil
}

// encoding is the tokens of one text while they are found; spans count from the start of the text.
type encoding struct {
	*HuggingFace
	tokens  []hfToken
	spells  map[int]string     // of tokens that the text has otherwise than the vocabulary writes them
	spans   bool               // whether anyone asks for them
	ids     []int              // in place of tokens, where spans are not asked for
	seen    *hfSeen            // the parts that were encoded before
	part    []hfToken          // those of one part; their spans count from its start
	bpe     *hfBPE             // the model, if it is one
	word    bpeWord            // memory for it
	unigram *hfUnigram         // the model, if it is one
	parts   func(hfText) error // encodes what lies between added tokens
	lasts   func(hfText) error // and a part that is split no more
	token   func(int, hfText) error
}

// isMade returns an error for the zero value.
func (t *HuggingFace) isMade() error {
	if t.model == nil {
		return errors.New("it is a zero value, it needs to be what OpenHuggingFace or ReadHuggingFace gave")
	}
	return nil
}

// encode finds the tokens of a text, or their ids alone where spans are not asked for.
func (t *HuggingFace) encode(text string, spans bool) (*encoding, error) {
	if err := t.isMade(); err != nil {
		return nil, err
	}
	e := &encoding{HuggingFace: t, spans: spans, seen: newHFSeen(len(text)), spells: map[int]string{}}
	if spans {
		e.tokens = make([]hfToken, 0, len(text)/3+1)
	} else {
		e.ids = make([]int, 0, len(text)/2+1)
	}
	e.bpe, _ = t.model.(*hfBPE)
	e.unigram, _ = t.model.(*hfUnigram)
	e.lasts = e.last
	e.parts = func(part hfText) error {
		switch {
		case part.s == "":
			return nil
		case t.first != nil:
			return e.pieces(part)
		}
		return t.split(part, e.lasts)
	}
	e.token = func(id int, part hfText) error {
		if !spans {
			e.ids = append(e.ids, id)
			return nil
		}
		from, to := part.span(0, len(part.s))
		if t.processor.spells {
			e.spells[len(e.tokens)] = part.s // which may have taken spaces with it
		}
		e.tokens = append(e.tokens, hfToken{id, from, to})
		return nil
	}
	first := t.raw
	if t.plain {
		first = t.rawNoSpec
	}
	return e, first.split(hfText{s: text, original: text}, func(part hfText) error {
		part, err := t.normalize(part)
		if err != nil {
			return err
		}
		return t.later.split(part, e.parts, e.token)
	}, e.token)
}

// pieces encodes a text that is cut into pieces.
func (e *encoding) pieces(t hfText) error {
	for at := 0; at < len(t.s); {
		n := e.first(t.s[at:])
		var err error
		if e.spans {
			err = e.last(t.slice(at, at+n))
		} else {
			err = e.addIDs(t.s[at : at+n])
		}
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// addIDs encodes a part where spans are not asked for.
func (e *encoding) addIDs(part string) error {
	known, tokens, err := e.tokensOf(part)
	if err != nil {
		return err
	}
	for _, token := range known {
		e.ids = append(e.ids, int(token.id))
	}
	for _, token := range tokens {
		e.ids = append(e.ids, token.id)
	}
	return nil
}

// tokensOf is the tokens of a part, as they are remembered or as they were found now, whose spans
// count from its start. They are valid until the next call.
func (e *encoding) tokensOf(part string) (known []shortToken, tokens []hfToken, err error) {
	var key partKey
	var slot *hfSeenPart
	if len(part) <= longestSeen {
		key = keyOf(part)
		if slot = e.seen.slot(part, key); slot.to > 0 {
			return e.seen.known[slot.from:slot.to], nil, nil
		}
	}
	if e.bpe != nil {
		e.part, err = e.bpe.tokenizeIn(&e.word, part, e.part[:0])
	} else {
		e.part, err = e.model.tokenize(part, e.part[:0])
	}
	if err == nil && slot != nil {
		e.seen.take(slot, part, key, e.part)
	}
	return nil, e.part, err
}

// last encodes a part that the model sees.
func (e *encoding) last(part hfText) error {
	if !e.spans {
		return e.addIDs(part.s)
	}
	known, tokens, err := e.tokensOf(part.s)
	if err != nil {
		return err
	}
	for _, token := range known {
		e.add(hfToken{int(token.id), int(token.from), int(token.to)}, part)
	}
	for _, token := range tokens {
		e.add(token, part)
	}
	return nil
}

// add appends a token of a part.
func (e *encoding) add(token hfToken, part hfText) {
	if e.unigram != nil && token.id == e.unigram.unknown && e.processor.spells {
		e.spells[len(e.tokens)] = part.s[token.from:token.to]
	}
	token.from, token.to = part.span(token.from, token.to)
	e.tokens = append(e.tokens, token)
}

// Encode is the ids of a text, without those that the template adds, and neither cut short nor
// padded.
func (t *HuggingFace) Encode(text string) ([]int, error) {
	e, err := t.encode(text, false)
	if err != nil {
		return nil, fmt.Errorf("HuggingFace: %w", err)
	}
	return e.ids, nil
}

// Decode is the text of ids. With a BPE of bytes, or with byte tokens, it need not be valid UTF-8:
// a token may be a part of a character.
func (t *HuggingFace) Decode(ids []int) (string, error) { return t.decodeIDs(ids, false) }

// DecodeText is [HuggingFace.Decode] that leaves special tokens out.
func (t *HuggingFace) DecodeText(ids []int) (string, error) { return t.decodeIDs(ids, true) }

func (t *HuggingFace) decodeIDs(ids []int, skipSpecial bool) (string, error) {
	if err := t.isMade(); err != nil {
		return "", fmt.Errorf("HuggingFace: %w", err)
	}
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		if err := t.checkID(id); err != nil {
			return "", err
		}
		switch {
		case t.vanished[id]:
			tokens = append(tokens, "")
		case !skipSpecial || !t.special[id]:
			tokens = append(tokens, t.names[id])
		}
	}
	tokens, err := t.decode(tokens)
	if err != nil {
		return "", fmt.Errorf("HuggingFace: %w", err)
	}
	return strings.Join(tokens, ""), nil
}

func (t *HuggingFace) checkID(id int) error {
	if err := checkID("HuggingFace", id, len(t.names)); err != nil {
		return err
	}
	if t.names[id] == "" {
		return fmt.Errorf("HuggingFace: id %d is no token", id)
	}
	return nil
}

// Bytes is the text of one id as it is within a text, where, say, a space is before it.
func (t *HuggingFace) Bytes(id int) ([]byte, error) {
	if err := t.checkID(id); err != nil {
		return nil, err
	}
	if b, is := byteToken(t.names[id]); is && t.fallback {
		return []byte{b}, nil
	}
	once, err := t.Decode([]int{id})
	if err != nil {
		return nil, err
	}
	twice, err := t.Decode([]int{id, id})
	if err != nil {
		return nil, err
	}
	return []byte(strings.TrimPrefix(twice, once)), nil
}

// Size is the number of ids, those included that no token has.
func (t *HuggingFace) Size() int { return len(t.names) }

// Token is how the vocabulary writes a token.
func (t *HuggingFace) Token(id int) (string, error) {
	if err := t.checkID(id); err != nil {
		return "", err
	}
	return t.names[id], nil
}

// ID is the id of a token as the vocabulary writes it, such as <|endoftext|>, and whether there is
// one.
func (t *HuggingFace) ID(token string) (id int, found bool) {
	if id, found = t.added[token]; found {
		return id, true
	}
	for id, name := range t.names {
		if name == token && token != "" {
			return id, true
		}
	}
	return 0, false
}

// MarshalJSON is what [Save] writes.
func (t *HuggingFace) MarshalJSON() ([]byte, error) {
	if t.plain {
		return nil, errors.New("HuggingFace: a tokenizer WithoutSpecial cannot be saved, save the one that it was made of")
	}
	return json.Marshal(saved{Kind: huggingFaceKind, HuggingFace: t.source, CutsLeft: t.cutsLeft})
}
