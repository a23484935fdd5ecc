package tokenizer

import (
	"maps"
	"slices"
	"unicode"

	"golang.org/x/text/unicode/rangetable"
)

// What Unicode 15.1 and 16 added to the tables of Unicode 15, which the language has, by kind.
// Published patterns mean the newer ones.
var unicode16 = map[string]*unicode.RangeTable{
	"Lu": { // capital letters
		R16: []unicode.Range16{
			{0x1c89, 0x1c89, 1}, {0xa7cb, 0xa7cc, 1}, {0xa7da, 0xa7da, 1}, {0xa7dc, 0xa7dc, 1},
		},
		R32: []unicode.Range32{
			{0x10d50, 0x10d65, 1},
		},
	},
	"Ll": { // small letters
		R16: []unicode.Range16{
			{0x1c8a, 0x1c8a, 1}, {0xa7cd, 0xa7cd, 1}, {0xa7db, 0xa7db, 1},
		},
		R32: []unicode.Range32{
			{0x10d70, 0x10d85, 1},
		},
	},
	"Lm": { // modifiers
		R32: []unicode.Range32{
			{0x10d4e, 0x10d4e, 1}, {0x10d6f, 0x10d6f, 1}, {0x16d40, 0x16d42, 1},
			{0x16d6b, 0x16d6c, 1},
		},
	},
	"Lo": { // other letters
		R32: []unicode.Range32{
			{0x105c0, 0x105f3, 1}, {0x10d4a, 0x10d4d, 1}, {0x10d4f, 0x10d4f, 1},
			{0x10ec2, 0x10ec4, 1}, {0x11380, 0x11389, 1}, {0x1138b, 0x1138b, 1},
			{0x1138e, 0x1138e, 1}, {0x11390, 0x113b5, 1}, {0x113b7, 0x113b7, 1},
			{0x113d1, 0x113d1, 1}, {0x113d3, 0x113d3, 1}, {0x11bc0, 0x11be0, 1},
			{0x13460, 0x143fa, 1}, {0x16100, 0x1611d, 1}, {0x16d43, 0x16d6a, 1},
			{0x18cff, 0x18cff, 1}, {0x1e5d0, 0x1e5ed, 1}, {0x1e5f0, 0x1e5f0, 1},
			{0x2ebf0, 0x2ee5d, 1},
		},
	},
	"Mn": { // marks
		R16: []unicode.Range16{
			{0x0897, 0x0897, 1},
		},
		R32: []unicode.Range32{
			{0x10d69, 0x10d6d, 1}, {0x10efc, 0x10efc, 1}, {0x113bb, 0x113c0, 1},
			{0x113ce, 0x113ce, 1}, {0x113d0, 0x113d0, 1}, {0x113d2, 0x113d2, 1},
			{0x113e1, 0x113e2, 1}, {0x11f5a, 0x11f5a, 1}, {0x1611e, 0x16129, 1},
			{0x1612d, 0x1612f, 1}, {0x1e5ee, 0x1e5ef, 1},
		},
	},
	"Mc": { // marks that take room
		R32: []unicode.Range32{
			{0x113b8, 0x113ba, 1}, {0x113c2, 0x113c2, 1}, {0x113c5, 0x113c5, 1},
			{0x113c7, 0x113ca, 1}, {0x113cc, 0x113cd, 1}, {0x113cf, 0x113cf, 1},
			{0x1612a, 0x1612c, 1},
		},
	},
	"Nd": { // digits
		R32: []unicode.Range32{
			{0x10d40, 0x10d49, 1}, {0x116d0, 0x116e3, 1}, {0x11bf0, 0x11bf9, 1},
			{0x16130, 0x16139, 1}, {0x16d70, 0x16d79, 1}, {0x1ccf0, 0x1ccf9, 1},
			{0x1e5f1, 0x1e5fa, 1},
		},
	},
	"Pd": { // dashes
		R32: []unicode.Range32{
			{0x10d6e, 0x10d6e, 1},
		},
	},
	"Po": { // other punctuation
		R16: []unicode.Range16{
			{0x1b4e, 0x1b4f, 1}, {0x1b7f, 0x1b7f, 1},
		},
		R32: []unicode.Range32{
			{0x113d4, 0x113d5, 1}, {0x113d7, 0x113d8, 1}, {0x11be1, 0x11be1, 1},
			{0x16d6d, 0x16d6f, 1}, {0x1e5ff, 0x1e5ff, 1},
		},
	},
	"Sm": { // signs of mathematics
		R32: []unicode.Range32{
			{0x10d8e, 0x10d8f, 1},
		},
	},
	"So": { // other symbols
		R16: []unicode.Range16{
			{0x2427, 0x2429, 1}, {0x2ffc, 0x2fff, 1}, {0x31e4, 0x31e5, 1}, {0x31ef, 0x31ef, 1},
		},
		R32: []unicode.Range32{
			{0x1cc00, 0x1ccef, 1}, {0x1cd00, 0x1ceb3, 1}, {0x1f8b2, 0x1f8bb, 1},
			{0x1f8c0, 0x1f8c1, 1}, {0x1fa89, 0x1fa89, 1}, {0x1fa8f, 0x1fa8f, 1},
			{0x1fabe, 0x1fabe, 1}, {0x1fac6, 0x1fac6, 1}, {0x1fadc, 0x1fadc, 1},
			{0x1fadf, 0x1fadf, 1}, {0x1fae9, 0x1fae9, 1}, {0x1fbcb, 0x1fbef, 1},
		},
	},
}

// scripts16 are the characters that came with Unicode 15.1 and 16, by the scripts that were there.
var scripts16 = map[string]*unicode.RangeTable{
	"Arabic": {
		R16: []unicode.Range16{
			{0x0897, 0x0897, 1},
		},
		R32: []unicode.Range32{
			{0x10ec2, 0x10ec4, 1}, {0x10efc, 0x10efc, 1},
		},
	},
	"Balinese": {
		R16: []unicode.Range16{
			{0x1b4e, 0x1b4f, 1}, {0x1b7f, 0x1b7f, 1},
		},
	},
	"Common": {
		R16: []unicode.Range16{
			{0x2427, 0x2429, 1}, {0x2ffc, 0x2fff, 1}, {0x31e4, 0x31e5, 1}, {0x31ef, 0x31ef, 1},
		},
		R32: []unicode.Range32{
			{0x1cc00, 0x1ccf9, 1}, {0x1cd00, 0x1ceb3, 1}, {0x1f8b2, 0x1f8bb, 1},
			{0x1f8c0, 0x1f8c1, 1}, {0x1fa89, 0x1fa89, 1}, {0x1fa8f, 0x1fa8f, 1},
			{0x1fabe, 0x1fabe, 1}, {0x1fac6, 0x1fac6, 1}, {0x1fadc, 0x1fadc, 1},
			{0x1fadf, 0x1fadf, 1}, {0x1fae9, 0x1fae9, 1}, {0x1fbcb, 0x1fbef, 1},
		},
	},
	"Cyrillic": {
		R16: []unicode.Range16{
			{0x1c89, 0x1c8a, 1},
		},
	},
	"Egyptian_Hieroglyphs": {
		R32: []unicode.Range32{
			{0x13460, 0x143fa, 1},
		},
	},
	"Han": {
		R32: []unicode.Range32{
			{0x2ebf0, 0x2ee5d, 1},
		},
	},
	"Kawi": {
		R32: []unicode.Range32{
			{0x11f5a, 0x11f5a, 1},
		},
	},
	"Khitan_Small_Script": {
		R32: []unicode.Range32{
			{0x18cff, 0x18cff, 1},
		},
	},
	"Latin": {
		R16: []unicode.Range16{
			{0xa7cb, 0xa7cd, 1}, {0xa7da, 0xa7dc, 1},
		},
	},
	"Myanmar": {
		R32: []unicode.Range32{
			{0x116d0, 0x116e3, 1},
		},
	},
}

// newAlphabetic are the marks that count as letters by Unicode 16 and not by 15.
var newAlphabetic = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x0363, 0x036f, 1}, {0x0897, 0x0897, 1}, {0x1dd3, 0x1de6, 1},
	},
	R32: []unicode.Range32{
		{0x10d69, 0x10d69, 1}, {0x10efc, 0x10efc, 1}, {0x113b8, 0x113c0, 1},
		{0x113c2, 0x113c2, 1}, {0x113c5, 0x113c5, 1}, {0x113c7, 0x113ca, 1},
		{0x113cc, 0x113cd, 1}, {0x1611e, 0x1612e, 1},
	},
}

// newLetters and newNumbers are those of unicode16, and newKinds all of it.
var newLetters, newNumbers, newKinds = newTable("Lu", "Ll", "Lm", "Lo"), newTable("Nd"),
	newTable(slices.Sorted(maps.Keys(unicode16))...)

func newTable(kinds ...string) *unicode.RangeTable {
	var tables []*unicode.RangeTable
	for _, kind := range kinds {
		tables = append(tables, unicode16[kind])
	}
	return rangetable.Merge(tables...)
}

// hasNew reports whether a text has characters that the language's tables lack.
func hasNew(s string) bool {
	for _, r := range s {
		if r >= 0x800 && unicode.Is(newKinds, r) {
			return true
		}
	}
	return false
}

// lowerNew is the small letter of a capital that came with Unicode 16 or 17.
func lowerNew(r rune) (small rune, found bool) {
	switch {
	case r == 0xa7cb:
		return 0x264, true
	case r == 0xa7dc:
		return 0x19b, true
	case r >= 0x10d50 && r <= 0x10d65:
		return r + 0x20, true
	case r >= 0x16ea0 && r <= 0x16eb8:
		return r + 0x1b, true
	case r == 0x1c89 || r == 0xa7cc || r == 0xa7ce || r == 0xa7d2 || r == 0xa7d4 || r == 0xa7da:
		return r + 1, true
	}
	return r, false
}
