package tokenizer

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// hfPattern finds what a pattern matches; it calls yield with each match, in order, none
// overlapping. A match may be empty, but not right behind another.
type hfPattern func(s string, yield func(from, to int)) error

// The patterns of the families that have one of their own. Compared with an engine for all
// patterns, those written by hand are twenty times as fast.
const (
	gpt2Pattern   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Pattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// A pattern from a file may take so long for one match, and so much longer for all in a text as it
// has bytes.
var (
	longestMatch = 10 * time.Second // tests shorten it
	slowestByte  = 10 * time.Microsecond
)

// firstOf gives the length of the first piece of a text by a pattern that is written by hand. It is
// nil for others.
func firstOf(expression string) func(text string) int {
	switch expression {
	case gpt2Pattern:
		return firstPiece
	case llama3Pattern:
		return func(text string) int { return firstLlama3Piece(text, 3) }
	case qwen2Pattern:
		return func(text string) int { return firstLlama3Piece(text, 1) }
	}
	return nil
}

// hfRegex makes a pattern of a regular expression.
func hfRegex(expression string) (hfPattern, error) {
	if first := firstOf(expression); first != nil {
		return inPieces(first), nil
	}
	plain, err := compileOnig(expression, false)
	if err != nil {
		return nil, err
	}
	newest := sync.OnceValues(func() (*regexp2.Regexp, error) { return compileOnig(expression, true) })
	return func(s string, yield func(from, to int)) error {
		re := plain
		if hasNew(s) {
			var err error
			if re, err = newest(); err != nil {
				return err
			}
		}
		runes := []rune(s)
		ends := time.Now().Add(longestMatch + time.Duration(len(s))*slowestByte)
		late, at, rune, last := false, 0, 0, -1 // byte at belongs to the rune; last ends the match before
		place := func(of int) int {
			for ; rune < of; rune++ {
				_, n := utf8.DecodeRuneInString(s[at:])
				at += n
			}
			return at
		}
		err := re.FindRunesMatches(runes, -1, func(m regexp2.MatchView) bool {
			if from, n, _ := m.GroupRange(0); n > 0 || from != last {
				start := place(from)
				yield(start, place(from+n))
				last = from + n
			}
			late = time.Now().After(ends)
			return !late
		})
		if err == nil && late {
			err = fmt.Errorf("the pattern %.100q takes more than %v for %d bytes", expression, longestMatch, len(s))
		}
		return err
	}, nil
}

func compileOnig(expression string, newest bool) (*regexp2.Regexp, error) {
	translated, err := fromOnig(expression, newest)
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(translated, regexp2.Multiline) // as Ruby's patterns are
	if err != nil {
		return nil, fmt.Errorf("the pattern %.100q: %w", expression, err)
	}
	re.MatchTimeout = longestMatch
	return re, nil
}

// inPieces is a pattern that matches everywhere; first gives the length of the first match.
func inPieces(first func(text string) int) hfPattern {
	return func(s string, yield func(from, to int)) error {
		for at := 0; at < len(s); {
			n := first(s[at:])
			yield(at, at+n)
			at += n
		}
		return nil
	}
}

// hfLiteral is a pattern that is a text.
func hfLiteral(text string) (hfPattern, error) {
	if text == "" {
		return nil, fmt.Errorf("the pattern is empty")
	}
	return func(s string, yield func(from, to int)) error {
		for at := 0; ; {
			i := strings.Index(s[at:], text)
			if i < 0 {
				return nil
			}
			yield(at+i, at+i+len(text))
			at += i + len(text)
		}
	}, nil
}

// firstLlama3Piece is the length of the first piece by Llama 3's pattern, or by one that has fewer
// digits in a piece:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func firstLlama3Piece(text string, digits int) int {
	if n := foldedContraction(text); n > 0 {
		return n
	}
	first, width := kindOf(text)
	if first == letter {
		end, _ := run(text, 0, letter)
		return end
	}
	if first != number && text[0] != '\r' && text[0] != '\n' && width < len(text) {
		if next, _ := kindOf(text[width:]); next == letter {
			end, _ := run(text, width, letter)
			return end
		}
	}
	if first == number {
		end := 0
		for i := 0; i < digits && end < len(text); i++ {
			k, n := kindOf(text[end:])
			if k != number {
				break
			}
			end += n
		}
		return end
	}
	start := 0
	if text[0] == ' ' && len(text) > 1 {
		if next, _ := kindOf(text[1:]); next == other {
			start = 1
		}
	}
	if start == 1 || first == other {
		end, _ := run(text, start, other)
		for end < len(text) && (text[end] == '\r' || text[end] == '\n') {
			end++
		}
		return end
	}
	end, last := run(text, 0, space)
	if newline := strings.LastIndexAny(text[:end], "\r\n"); newline >= 0 {
		return newline + 1
	}
	if end < len(text) && last > 0 {
		return last // \s+(?!\S) leaves the last of several spaces to what follows
	}
	return end
}

// foldedContraction is contraction in either case. Among the letters whose small form is s is the
// long one, ſ.
func foldedContraction(text string) int {
	if text[0] != '\'' || len(text) < 2 {
		return 0
	}
	switch text[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	}
	if strings.HasPrefix(text[1:], "ſ") {
		return 1 + len("ſ")
	}
	if len(text) < 3 {
		return 0
	}
	switch [2]byte{text[1] | 0x20, text[2] | 0x20} {
	case [2]byte{'r', 'e'}, [2]byte{'v', 'e'}, [2]byte{'l', 'l'}:
		return 3
	}
	return 0
}
