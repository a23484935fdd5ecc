package tokenizer

import (
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/rangetable"
)

// This file is what kinds of characters Hugging Face's tokenizers see. Vocabularies were made with
// the tables of its libraries, which are older than Go's: what Unicode has assigned since is none
// of these to them, and a few characters were of another kind then.

var (
	unicode8 = rangetable.Assigned("8.0.0")
	unicode9 = rangetable.Assigned("9.0.0")
)

// isControl reports whether BERT's cleaning drops a character as a control character, a format or
// one of private use.
func isControl(r rune) bool {
	return r != '\t' && r != '\n' && r != '\r' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) && unicode.Is(unicode8, r)
}

// isPunctuation reports whether a character is punctuation of Unicode, or another of ASCII that
// looks like it.
func isPunctuation(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return r > ' ' && r < 0x7F && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	case r == 0x166D || r == 0x111C9:
		return true
	}
	return unicode.IsPunct(r) && unicode.Is(unicode8, r)
}

// isAccent reports whether BERT's cleaning drops a character as a mark that takes no space.
func isAccent(r rune) bool {
	switch r {
	case 0x1734:
		return true
	case 0x1885, 0x1886, 0xA9BD, 0x111C9:
		return false
	}
	return unicode.Is(unicode.Mn, r) && unicode.Is(unicode8, r)
}

// isMark reports whether the normaliser StripAccents drops a character, which may be a mark of any
// kind.
func isMark(r rune) bool {
	switch r {
	case 0x1CF2, 0x1CF3:
		return true
	case 0x111C9:
		return false
	}
	return unicode.Is(unicode.M, r) && unicode.Is(unicode9, r)
}

// scriptOf is the script of a character by Unicode 9, with one name for those of Japanese and
// Chinese. A space has none.
func scriptOf(r rune) string {
	switch {
	case r == ' ':
		return ""
	case r < utf8.RuneSelf:
		if unicode.IsLetter(r) {
			return "Latin"
		}
		return "Common"
	case r == 0x589 || r == 0x61C:
		return "Common"
	case r == 0x953 || r == 0x954:
		return "Devanagari"
	case r == 'ー':
		return "Han"
	case !unicode.Is(unicode9, r):
		return ""
	}
	for _, s := range scripts {
		if unicode.Is(s.table, r) {
			return s.name
		}
	}
	return ""
}

// hfScript is a script and its characters.
type hfScript struct {
	name  string
	table *unicode.RangeTable
}

// scripts begin with those that most texts have.
var scripts = func() []hfScript {
	list := []hfScript{
		{"Common", unicode.Common}, {"Han", unicode.Han}, {"Han", unicode.Hiragana}, {"Han", unicode.Katakana},
		{"Latin", unicode.Latin}, {"Cyrillic", unicode.Cyrillic}, {"Arabic", unicode.Arabic}, {"Hangul", unicode.Hangul},
	}
	for _, name := range slices.Sorted(maps.Keys(unicode.Scripts)) {
		list = append(list, hfScript{name, unicode.Scripts[name]})
	}
	return list
}()

// isWord reports whether a regular expression's \w matches.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control) ||
		r >= 0x800 && unicode.In(r, newLetters, newNumbers, unicode16["Mn"], unicode16["Mc"])
}

// isNumber reports whether the pre-tokenizer Digits takes a character for one, by Unicode 17.
func isNumber(r rune) bool {
	return unicode.IsNumber(r) || r >= 0x800 && unicode.Is(newNumbers, r) || r >= 0x11de0 && r <= 0x11de9 || r >= 0x16ff4 && r <= 0x16ff6
}

func isChinese(r rune) bool {
	return r >= 0x4E00 && r <= 0x9FFF || r >= 0x3400 && r <= 0x4DBF || r >= 0x20000 && r <= 0x2A6DF ||
		r >= 0x2A700 && r <= 0x2B73F || r >= 0x2B740 && r <= 0x2B81F || r >= 0x2B920 && r <= 0x2CEAF ||
		r >= 0xF900 && r <= 0xFAFF || r >= 0x2F800 && r <= 0x2FA1F
}
