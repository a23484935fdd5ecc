package tokenizer

import (
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// firstPiece is the length of the first piece of a text that is not empty. Pieces are those of
// GPT-2's pattern
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// written by hand, since package regexp has no lookahead.
func firstPiece(text string) int {
	if n := contraction(text); n > 0 {
		return n
	}
	start := 0
	kind, _ := kindOf(text)
	if text[0] == ' ' && len(text) > 1 {
		if next, _ := kindOf(text[1:]); next != space {
			start, kind = 1, next
		}
	}
	end, last := run(text, start, kind)
	if kind == space && end < len(text) && last > 0 {
		// \s+(?!\S) leaves the last of several spaces to what follows; a single one is left to \s+.
		return last
	}
	return end
}

// contraction is the length of what is left of a word behind an apostrophe, such as 's, and 0 where
// there is none.
func contraction(text string) int {
	if text[0] != '\'' || len(text) < 2 {
		return 0
	}
	switch text[1] {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(text) < 3 {
		return 0
	}
	switch text[1:3] {
	case "re", "ve", "ll":
		return 3
	}
	return 0
}

// run is the end of the characters of one kind that begin at start, and where the last of them
// begins.
func run(text string, start int, k kind) (end, last int) {
	end = start
	for end < len(text) {
		next, width := kindOf(text[end:])
		if next != k {
			break
		}
		last, end = end, end+width
	}
	return end, last
}

// kind is what the pattern tells characters apart by. A byte that is not UTF-8 is of the kind
// other.
type kind uint8

const (
	other  kind = iota
	letter      // \p{L}
	number      // \p{N}
	space       // \s
)

// kindOf is the kind of a text's first character, and its length.
func kindOf(text string) (k kind, width int) {
	if text[0] < utf8.RuneSelf {
		return asciiKinds[text[0]], 1
	}
	r, width := utf8.DecodeRuneInString(text)
	return kindOfRune(r), width
}

var asciiKinds = func() (kinds [utf8.RuneSelf]kind) {
	for r := range kinds {
		kinds[r] = searchKind(rune(r))
	}
	return kinds
}()

// kinds has the kinds of 256 characters at a time, from when one of them is asked for.
var kinds [unicode.MaxRune>>8 + 1]atomic.Pointer[[256]kind]

func kindOfRune(r rune) kind {
	page := kinds[uint32(r)>>8].Load()
	if page == nil {
		page = new([256]kind)
		for i := range page {
			page[i] = searchKind(r&^0xFF + rune(i))
		}
		kinds[uint32(r)>>8].Store(page)
	}
	return page[r&0xFF]
}

// searchKind finds the kind of a character in Unicode's tables.
func searchKind(r rune) kind {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	case r < 0x800:
		return other
	case unicode.Is(newLetters, r):
		return letter
	case unicode.Is(newNumbers, r):
		return number
	}
	return other
}
