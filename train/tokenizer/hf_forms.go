package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// composed is one of Unicode's normal forms.
func composed(form norm.Form) hfNormalizer {
	return func(t hfText) (hfText, error) {
		if form.IsNormalString(t.s) {
			return t, nil
		}
		b := t.builder()
		for at := 0; at < len(t.s); {
			end := at + form.NextBoundaryInString(t.s[at:], true)
			if form.IsNormalString(t.s[at:end]) {
				b.keep(at, end)
			} else {
				b.formedKnown(form, at, end)
			}
			at = end
		}
		return b.text(), nil
	}
}

// formedKnown appends the normal form of source[from:to] by Unicode 9, whose tables the library
// has: characters that came later stay, and separate what is on their two sides.
func (b *hfBuilder) formedKnown(form norm.Form, from, to int) {
	start := from
	for at := from; at < to; {
		r, n := utf8.DecodeRuneInString(b.source.s[at:])
		if !unicode.Is(unicode9, r) {
			b.formed(form, start, at)
			b.keep(at, at+n)
			start = at + n
		}
		at += n
	}
	b.formed(form, start, to)
}

// hfFormed is a character of a normal form, and by how many more it stands for than it takes the
// place of: 1 for one that is new, −1 for one that two became.
type hfFormed struct {
	r    rune
	more int
}

func (c hfFormed) class() uint8 { return norm.NFD.PropertiesString(string(c.r)).CCC() }

// formed appends the normal form of source[from:to].
func (b *hfBuilder) formed(form norm.Form, from, to int) {
	taken := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		taken = norm.NFKD
	}
	var list []hfFormed
	for _, r := range b.source.s[from:to] {
		more := 0
		for _, part := range taken.String(string(r)) {
			list = append(list, hfFormed{part, more})
			more = 1
		}
	}
	for first := 0; first < len(list); first++ {
		last := first
		for last < len(list) && list[last].class() != 0 {
			last++
		}
		slices.SortStableFunc(list[first:last], func(x, y hfFormed) int { return int(x.class()) - int(y.class()) })
		first = last
	}
	if form == norm.NFC || form == norm.NFKC {
		list = joinedMarks(list)
	}
	b.transform(list, from, to)
}

// transform appends characters in place of source[from:to]. The library counts where each comes
// from by how many characters there are, which is not always where it came from: marks change
// places, and what is dropped at the start is not counted. This counts as it does.
func (b *hfBuilder) transform(list []hfFormed, from, to int) {
	at := from
	for _, c := range list {
		first := at
		if c.more <= 0 && at < to {
			_, n := utf8.DecodeRuneInString(b.source.s[at:])
			at += n
		} else if first > 0 {
			_, n := utf8.DecodeLastRuneInString(b.source.s[:at])
			first -= n
		} else {
			b.addAtStart(string(c.r))
			continue
		}
		b.add(string(c.r), first, at)
		for more := c.more; more < 0 && at < to; more++ {
			_, n := utf8.DecodeRuneInString(b.source.s[at:])
			at += n
		}
	}
}

// joinedMarks joins letters with the marks behind them where a character is both.
func joinedMarks(list []hfFormed) []hfFormed {
	var out []hfFormed
	letter, last := -1, uint8(0) // where in out the letter is, and the class of the mark before
	for _, c := range list {
		class := c.class()
		if letter >= 0 && (last == 0 && letter == len(out)-1 || last < class) {
			both := norm.NFC.String(string([]rune{out[letter].r, c.r}))
			if r, size := utf8.DecodeRuneInString(both); size == len(both) {
				out[letter] = hfFormed{r, out[letter].more + c.more - 1}
				continue
			}
		}
		out = append(out, c)
		if last = class; class == 0 {
			letter = len(out) - 1
		}
	}
	return out
}
