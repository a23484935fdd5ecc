package tokenizer

import (
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"
)

// hfSplitter cuts a text into the parts that the model sees one by one. It calls yield with each,
// none empty.
type hfSplitter func(t hfText, yield func(hfText) error) error

// hfSplitterJSON is a pre-tokenizer as tokenizer.json has it: the fields of all kinds.
type hfSplitterJSON struct {
	Type          string
	Pretokenizers []hfSplitterJSON
	Pattern       hfPatternJSON
	Behavior      string
	Invert        bool

	hfSpacesJSON
	TrimOffsets bool  `json:"trim_offsets"`
	UseRegex    *bool `json:"use_regex"`
	Individual  bool  `json:"individual_digits"`
	Delimiter   string
	Length      *int
}

// bytes reports whether the model sees bytes: the last step is ByteLevel.
func (p *hfSplitterJSON) bytes() bool {
	if p.Type == "Sequence" && len(p.Pretokenizers) > 0 {
		return p.Pretokenizers[len(p.Pretokenizers)-1].bytes()
	}
	return p.Type == "ByteLevel"
}

func (p *hfSplitterJSON) splitter() (hfSplitter, error) {
	switch p.Type {
	case "Sequence":
		return p.sequence()
	case "ByteLevel":
		return p.byteLevel()
	case "Metaspace":
		return p.metaspace()
	case "Split":
		if first := p.pieces(); first != nil {
			return inIsolation(first), nil
		}
		pattern, err := p.Pattern.pattern()
		if err != nil {
			return nil, err
		}
		return cut(pattern, p.Behavior, p.Invert)
	case "Whitespace":
		return cut(inPieces(firstWord), "Removed", false, unicode.IsSpace)
	case "WhitespaceSplit":
		return cut(characters(unicode.IsSpace), "Removed", false)
	case "BertPreTokenizer":
		spaces, _ := cut(characters(unicode.IsSpace), "Removed", false)
		punctuation, _ := cut(characters(isPunctuation), "Isolated", false)
		return inTurn(spaces, punctuation), nil
	case "Punctuation":
		if p.Behavior == "" {
			p.Behavior = "Isolated"
		}
		return cut(characters(isPunctuation), p.Behavior, false)
	case "Digits":
		if p.Individual {
			return cut(characters(isNumber), "Isolated", false)
		}
		return cut(characters(isNumber), "Contiguous", false)
	case "CharDelimiterSplit":
		pattern, err := hfLiteral(p.Delimiter)
		if err != nil {
			return nil, err
		}
		return cut(pattern, "Removed", false)
	case "FixedLength":
		length := 5
		if p.Length != nil {
			length = *p.Length
		}
		if length <= 0 {
			return nil, fmt.Errorf("the pre-tokenizer FixedLength has the length %d, it needs to be at least 1", length)
		}
		return cut(inPieces(func(s string) int { return firstCharacters(s, length) }), "Isolated", false)
	case "UnicodeScripts":
		return byScript, nil
	}
	return nil, fmt.Errorf("the pre-tokenizer %q is not known", p.Type)
}

func (p *hfSplitterJSON) sequence() (hfSplitter, error) {
	var steps []hfSplitter
	for i := range p.Pretokenizers {
		inner := &p.Pretokenizers[i]
		step, err := inner.splitter()
		if err != nil {
			return nil, err
		}
		if inner.changes() {
			steps = append(steps, step)
		}
		if inner.bytes() && i < len(p.Pretokenizers)-1 {
			// What follows sees the characters that bytes are written with.
			steps = append(steps, func(t hfText, yield func(hfText) error) error { return yield(t.inAlphabet()) })
		}
	}
	return inTurn(steps...), nil
}

// inTurn applies splitters one after the other, each to what the one before it gives.
func inTurn(steps ...hfSplitter) hfSplitter {
	switch len(steps) {
	case 0:
		return func(t hfText, yield func(hfText) error) error { return yield(t) }
	case 1:
		return steps[0]
	}
	first, rest := steps[0], inTurn(steps[1:]...)
	return func(t hfText, yield func(hfText) error) error {
		return first(t, func(part hfText) error { return rest(part, yield) })
	}
}

// changes reports whether a step does anything but let the model see bytes.
func (p *hfSplitterJSON) changes() bool {
	if p.Type == "Sequence" {
		return slices.ContainsFunc(p.Pretokenizers, func(inner hfSplitterJSON) bool { return inner.changes() })
	}
	return p.Type != "ByteLevel" || p.UseRegex == nil || *p.UseRegex || p.AddPrefixSpace != nil && *p.AddPrefixSpace
}

// pieces is the length of the first part of a text, where the whole splitter is one of the patterns
// that are written by hand. It is nil otherwise.
func (p *hfSplitterJSON) pieces() func(text string) int {
	switch p.Type {
	case "Sequence":
		var first func(text string) int
		for i := range p.Pretokenizers {
			inner := &p.Pretokenizers[i]
			switch {
			case inner.bytes() && i < len(p.Pretokenizers)-1:
				return nil
			case !inner.changes():
			case first != nil:
				return nil
			default:
				if first = inner.pieces(); first == nil {
					return nil
				}
			}
		}
		return first
	case "ByteLevel":
		if p.changes() && (p.UseRegex == nil || *p.UseRegex) && (p.AddPrefixSpace == nil || !*p.AddPrefixSpace) {
			return firstPiece
		}
	case "Split":
		if p.Behavior == "Isolated" && !p.Invert && p.Pattern.String == nil && p.Pattern.Regex != nil {
			return firstOf(*p.Pattern.Regex)
		}
	}
	return nil
}

// inIsolation cuts a text into pieces; first gives the length of the first one.
func inIsolation(first func(text string) int) hfSplitter {
	return func(t hfText, yield func(hfText) error) error {
		for at := 0; at < len(t.s); {
			n := first(t.s[at:])
			if err := yield(t.slice(at, at+n)); err != nil {
				return err
			}
			at += n
		}
		return nil
	}
}

// byteLevel splits as GPT-2 does. That the model sees bytes is the model's affair; the file's
// detour by printable characters is not taken.
func (p *hfSplitterJSON) byteLevel() (hfSplitter, error) {
	split := hfSplitter(func(t hfText, yield func(hfText) error) error { return yield(t) })
	if p.UseRegex == nil || *p.UseRegex {
		split = inIsolation(firstPiece)
	}
	if p.AddPrefixSpace == nil || !*p.AddPrefixSpace {
		return split, nil
	}
	return func(t hfText, yield func(hfText) error) error {
		if t.s[0] != ' ' {
			t = t.prepended(" ")
		}
		return split(t, yield)
	}, nil
}

// metaspace replaces spaces, puts another before the text, and splits before each.
func (p *hfSplitterJSON) metaspace() (hfSplitter, error) {
	if p.PrependScheme == "" {
		p.PrependScheme = "always"
		if p.AddPrefixSpace != nil && !*p.AddPrefixSpace {
			p.PrependScheme = "never"
		}
	}
	switch p.PrependScheme {
	case "always", "first", "never":
	default:
		return nil, fmt.Errorf("the prepend_scheme %q is not known, it needs to be always, first or never", p.PrependScheme)
	}
	space, _ := hfLiteral(" ")
	pattern, err := hfLiteral(p.Replacement)
	if err != nil {
		return nil, fmt.Errorf("the replacement: %w", err)
	}
	split, err := cut(pattern, "MergedWithNext", false)
	if err != nil {
		return nil, err
	}
	return func(t hfText, yield func(hfText) error) error {
		from, _ := t.span(0, 1)
		t, err := t.replaced(space, p.Replacement)
		if err != nil {
			return err
		}
		starts := len(t.s) >= len(p.Replacement) && t.s[:len(p.Replacement)] == p.Replacement
		if !starts && (p.PrependScheme == "always" || p.PrependScheme == "first" && from == 0) {
			t = t.prepended(p.Replacement)
		}
		if p.Split != nil && !*p.Split {
			return yield(t)
		}
		return split(t, yield)
	}, nil
}

// cut splits at what a pattern matches. Behaviour says what becomes of the matches: they are
// removed, stand alone, go with what is before or after them, or those side by side are one.
// Inverted, matches are what lies between. Drop, if it is given, tells which characters of the
// matches are left out.
func cut(pattern hfPattern, behaviour string, invert bool, drop ...func(rune) bool) (hfSplitter, error) {
	switch behaviour {
	case "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous":
	default:
		return nil, fmt.Errorf("the behavior %q is not known", behaviour)
	}
	return func(t hfText, yield func(hfText) error) error {
		c := cutter{text: t, yield: yield, behaviour: behaviour}
		if len(drop) > 0 {
			// Pieces of characters of one kind: those that are dropped are the matches.
			err := pattern(t.s, func(from, to int) {
				r, _ := utf8.DecodeRuneInString(t.s[from:])
				c.part(from, to, drop[0](r))
			})
			return c.finish(err)
		}
		at := 0
		err := pattern(t.s, func(from, to int) {
			if at < from {
				c.part(at, from, invert)
			}
			c.part(from, to, !invert)
			at = to
		})
		if at < len(t.s) {
			c.part(at, len(t.s), invert)
		}
		return c.finish(err)
	}, nil
}

// cutter joins parts as a behaviour says.
type cutter struct {
	text      hfText
	yield     func(hfText) error
	behaviour string
	err       error

	from, to int // what is held back, since it may be joined with what follows
	held     bool
	match    bool // of the part before
}

// part adds what lies next to the part before. A match may be empty, and separates all the same.
func (c *cutter) part(from, to int, match bool) {
	join := false
	switch c.behaviour {
	case "Removed":
		if match {
			c.match = true
			return
		}
	case "MergedWithPrevious":
		join = match && !c.match
	case "MergedWithNext":
		join = !match && c.match
	case "Contiguous":
		join = match == c.match
	}
	if c.held && join {
		c.to = to
	} else {
		c.release()
		c.from, c.to, c.held = from, to, true
	}
	c.match = match
}

func (c *cutter) release() {
	if c.held && c.from < c.to && c.err == nil {
		c.err = c.yield(c.text.slice(c.from, c.to))
	}
	c.held = false
}

func (c *cutter) finish(err error) error {
	c.release()
	if err != nil {
		return err
	}
	return c.err
}

// characters is a pattern of single characters of a kind.
func characters(is func(rune) bool) hfPattern {
	return func(s string, yield func(from, to int)) error {
		for at, r := range s {
			if is(r) {
				yield(at, at+utf8.RuneLen(r))
			}
		}
		return nil
	}
}

// firstCharacters is the length of so many characters.
func firstCharacters(s string, most int) int {
	end := 0
	for ; most > 0 && end < len(s); most-- {
		_, n := utf8.DecodeRuneInString(s[end:])
		end += n
	}
	return end
}

// byScript cuts where the script changes. Spaces and what has no script go with what is before
// them. As in the library, those at the start of a text are lost.
func byScript(t hfText, yield func(hfText) error) error {
	start, last := -1, ""
	for at, r := range t.s {
		script := scriptOf(r)
		if script == "" || script == last {
			continue
		}
		if start >= 0 {
			if err := yield(t.slice(start, at)); err != nil {
				return err
			}
		}
		start, last = at, script
	}
	if start < 0 {
		return nil
	}
	return yield(t.slice(start, len(t.s)))
}

// firstWord is the length of the first piece by \w+|[^\w\s]+|\s+.
func firstWord(text string) int {
	kind := func(r rune) int {
		switch {
		case isWord(r):
			return 0
		case unicode.IsSpace(r):
			return 1
		}
		return 2
	}
	first, end := utf8.DecodeRuneInString(text)
	for end < len(text) {
		r, n := utf8.DecodeRuneInString(text[end:])
		if kind(r) != kind(first) {
			break
		}
		end += n
	}
	return end
}
