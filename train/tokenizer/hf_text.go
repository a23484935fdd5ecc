package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// hfText is a part of a text that may have been normalised, and where each of its bytes comes from
// in the text as it was.
type hfText struct {
	s string
	// from and to are the span in the original text of the character that each byte of s comes
	// from. They are nil where s is a part of the original, which then begins at base there.
	from, to []int32
	base     int
	original string
	// grown is true where the text became larger than normalisers may make it, and was cut off.
	grown bool
}

// mostGrown is how large a text may become that was so large. Unicode's forms make 18 bytes of one.
func mostGrown(size int) int { return 1<<20 + 64*size }

// check returns an error for a text that has grown too much.
func (t hfText) check() error {
	if t.grown {
		return fmt.Errorf("a text of %d bytes becomes one of more than %d", len(t.original), mostGrown(len(t.original)))
	}
	return nil
}

// slice is s[a:b].
func (t hfText) slice(a, b int) hfText {
	t.s = t.s[a:b]
	if t.from == nil {
		t.base += a
		return t
	}
	t.from, t.to = t.from[a:b], t.to[a:b]
	return t
}

// span is where s[a:b], which is not empty, lies in the original text, in whole characters.
func (t hfText) span(a, b int) (from, to int) {
	if t.from != nil {
		return int(t.from[a]), int(t.to[b-1])
	}
	from, to = t.base+a, t.base+b
	for from > 0 && !utf8.RuneStart(t.original[from]) {
		from--
	}
	for to < len(t.original) && !utf8.RuneStart(t.original[to]) {
		to++
	}
	return from, to
}

// hfBuilder makes a text of another, part by part.
type hfBuilder struct {
	source   hfText
	s        []byte
	from, to []int32
	grown    bool
}

func (t hfText) builder() *hfBuilder {
	n := len(t.s) + len(t.s)/4
	return &hfBuilder{source: t, s: make([]byte, 0, n), from: make([]int32, 0, n), to: make([]int32, 0, n)}
}

// add appends what takes the place of source[a:b], which is not empty.
func (b *hfBuilder) add(s string, from, to int) {
	first, last := b.source.span(from, to)
	b.addAt(s, first, last)
}

// addAt appends what comes from a span of the original text.
func (b *hfBuilder) addAt(s string, first, last int) {
	if len(b.s)+len(s) > mostGrown(len(b.source.original)) {
		b.grown = true
		return
	}
	for range len(s) {
		b.from, b.to = append(b.from, int32(first)), append(b.to, int32(last))
	}
	b.s = append(b.s, s...)
}

// addAtStart appends what comes from nothing, before the first character of source, which is not
// empty.
func (b *hfBuilder) addAtStart(s string) {
	start, _ := b.source.span(0, 1)
	b.addAt(s, start, start)
}

// keep appends source[from:to] as it is.
func (b *hfBuilder) keep(from, to int) {
	for from < to {
		_, n := utf8.DecodeRuneInString(b.source.s[from:to])
		b.add(b.source.s[from:from+n], from, from+n)
		from += n
	}
}

func (b *hfBuilder) text() hfText {
	return hfText{s: string(b.s), from: b.from, to: b.to, original: b.source.original, grown: b.grown || b.source.grown}
}

// mapped is the text with each character replaced by what f gives for it.
func (t hfText) mapped(f func(r rune, s string) string) hfText {
	b := t.builder()
	for at := 0; at < len(t.s); {
		r, n := utf8.DecodeRuneInString(t.s[at:])
		b.add(f(r, t.s[at:at+n]), at, at+n)
		at += n
	}
	return b.text()
}

// inAlphabet is the text with its bytes written as the printable characters of byte-level tokens.
func (t hfText) inAlphabet() hfText {
	return t.mapped(func(_ rune, s string) string { return toAlphabet(s) })
}

// prepended is the text with something before it, which counts as a part of its first character.
func (t hfText) prepended(s string) hfText {
	if t.s == "" {
		return t
	}
	b := t.builder()
	_, n := utf8.DecodeRuneInString(t.s)
	b.add(s, 0, n)
	b.keep(0, len(t.s))
	return b.text()
}
