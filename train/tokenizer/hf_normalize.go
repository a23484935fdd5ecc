package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// hfNormalizer changes a text before it is split.
type hfNormalizer func(hfText) (hfText, error)

// hfNormalizerJSON is a normaliser as tokenizer.json has it: the fields of all kinds.
type hfNormalizerJSON struct {
	Type        string
	Normalizers []hfNormalizerJSON
	Prepend     string
	Pattern     hfPatternJSON
	Content     string

	StripLeft  bool `json:"strip_left"`
	StripRight bool `json:"strip_right"`

	CleanText          bool  `json:"clean_text"`
	HandleChineseChars bool  `json:"handle_chinese_chars"`
	StripAccents       *bool `json:"strip_accents"`
	Lowercase          bool

	CharsMap *string `json:"precompiled_charsmap"` // in base64
}

// hfPatternJSON is a text or a regular expression.
type hfPatternJSON struct{ String, Regex *string }

func (p hfPatternJSON) pattern() (hfPattern, error) {
	switch {
	case p.String != nil:
		return hfLiteral(*p.String)
	case p.Regex != nil:
		return hfRegex(*p.Regex)
	}
	return nil, fmt.Errorf("the pattern needs to be a String or a Regex")
}

func (n *hfNormalizerJSON) normalizer() (hfNormalizer, error) {
	switch n.Type {
	case "Sequence":
		return n.sequence()
	case "NFC":
		return composed(norm.NFC), nil
	case "NFD":
		return composed(norm.NFD), nil
	case "NFKC":
		return composed(norm.NFKC), nil
	case "NFKD":
		return composed(norm.NFKD), nil
	case "Lowercase":
		return each(lower), nil
	case "StripAccents":
		return each(without(isMark)), nil
	case "Strip":
		return n.strip, nil
	case "Prepend":
		if n.Prepend == "" {
			return nil, errors.New("prepend is empty, for which the library spells the first character twice or puts it elsewhere: it needs to be a text")
		}
		return func(t hfText) (hfText, error) { return t.prepended(n.Prepend), nil }, nil
	case "Replace":
		pattern, err := n.Pattern.pattern()
		if err != nil {
			return nil, err
		}
		return func(t hfText) (hfText, error) { return t.replaced(pattern, n.Content) }, nil
	case "Nmt":
		return each(nmt), nil
	case "BertNormalizer":
		return n.bert, nil
	case "ByteLevel":
		return func(t hfText) (hfText, error) { return t.inAlphabet(), nil }, nil
	case "Precompiled":
		if n.CharsMap == nil || *n.CharsMap == "" {
			return func(t hfText) (hfText, error) { return t, nil }, nil
		}
		p, err := readPrecompiled(*n.CharsMap)
		if err != nil {
			return nil, err
		}
		return p.normalize, nil
	}
	return nil, fmt.Errorf("the normalizer %q is not known", n.Type)
}

func (n *hfNormalizerJSON) sequence() (hfNormalizer, error) {
	var steps []hfNormalizer
	for i := range n.Normalizers {
		step, err := n.Normalizers[i].normalizer()
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return func(t hfText) (hfText, error) {
		var err error
		for _, step := range steps {
			if t, err = step(t); err != nil {
				return t, err
			}
		}
		return t, nil
	}, nil
}

// each is the normaliser that replaces each character by what f gives for it.
func each(f func(r rune, s string) string) hfNormalizer {
	return func(t hfText) (hfText, error) { return t.mapped(f), nil }
}

func lower(r rune, s string) string {
	switch {
	case r < utf8.RuneSelf && (r < 'A' || r > 'Z'):
		return s
	case r == 'İ':
		return "i̇" // the one letter whose small form is two characters
	}
	if small, found := lowerNew(r); found {
		return string(small)
	}
	return string(unicode.ToLower(r))
}

// without drops the characters of a kind.
func without(kind func(rune) bool) func(r rune, s string) string {
	return func(r rune, s string) string {
		if kind(r) {
			return ""
		}
		return s
	}
}

// nmt drops control characters and makes spaces of the separators that SentencePiece's rule of that
// name lists.
func nmt(r rune, s string) string {
	switch {
	case r >= 0x01 && r <= 0x08, r == 0x0B, r >= 0x0E && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		return ""
	case r == 0x09, r == 0x0A, r == 0x0C, r == 0x0D, r == 0x1680, r >= 0x200B && r <= 0x200F, r == 0x2028, r == 0x2029,
		r == 0x2581, r == 0xFEFF, r == 0xFFFD:
		return " "
	}
	return s
}

func (n *hfNormalizerJSON) strip(t hfText) (hfText, error) {
	from, to := 0, len(t.s)
	if n.StripLeft {
		from = to - len(strings.TrimLeftFunc(t.s, unicode.IsSpace))
	}
	if n.StripRight {
		to = from + len(strings.TrimRightFunc(t.s[from:], unicode.IsSpace))
	}
	return t.slice(from, to), nil
}

// replaced is the text with what a pattern matches replaced.
func (t hfText) replaced(pattern hfPattern, content string) (hfText, error) {
	var b *hfBuilder
	at := 0
	err := pattern(t.s, func(from, to int) {
		if b == nil {
			b = t.builder()
		}
		b.keep(at, from)
		at = to
		switch {
		case from < to:
			_, n := utf8.DecodeLastRuneInString(t.s[from:to])
			b.add(content, to-n, to)
		case from > 0:
			_, n := utf8.DecodeLastRuneInString(t.s[:from])
			b.add(content, from-n, from)
		case t.s != "":
			b.addAtStart(content)
		}
	})
	if err != nil || b == nil {
		return t, err
	}
	b.keep(at, len(t.s))
	return b.text(), nil
}

// bert is BERT's cleaning: control characters go, white space becomes spaces, Chinese characters
// stand alone, and accents and capitals go if asked.
func (n *hfNormalizerJSON) bert(t hfText) (hfText, error) {
	if n.CleanText {
		t = t.mapped(func(r rune, s string) string {
			switch {
			case r == 0 || r == utf8.RuneError || isControl(r):
				return ""
			case unicode.IsSpace(r):
				return " "
			}
			return s
		})
	}
	if n.HandleChineseChars {
		t = t.mapped(func(r rune, s string) string {
			if isChinese(r) {
				return " " + s + " "
			}
			return s
		})
	}
	if n.StripAccents != nil && *n.StripAccents || n.StripAccents == nil && n.Lowercase {
		t, _ = composed(norm.NFD)(t)
		t = t.mapped(without(isAccent))
	}
	if n.Lowercase {
		t = t.mapped(lower)
	}
	return t, nil
}

// decodeStrictly reads JSON and refuses fields that are not known: they may change what a tokenizer
// does.
func decodeStrictly(text json.RawMessage, into any) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
