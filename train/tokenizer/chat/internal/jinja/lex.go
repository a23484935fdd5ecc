package jinja

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind int

const (
	endOfFile kind = iota
	dataToken      // text outside of tags
	blockBegin
	blockEnd
	variableBegin
	variableEnd
	nameToken
	stringToken
	integerToken
	floatToken
	signToken
)

// token is a word or a sign. Text is a string's contents, or the sign itself.
type token struct {
	kind  kind
	text  string
	value value // of a number
	line  int
}

func (t token) String() string {
	switch t.kind {
	case endOfFile:
		return "the end of the template"
	case blockBegin, blockEnd, variableBegin, variableEnd:
		return "the end of the tag"
	}
	return strconv.Quote(t.text)
}

// lexer cuts a template into tokens, as Jinja's does with trim_blocks and lstrip_blocks.
type lexer struct {
	source   string
	at, line int
	// lineStart is true where the text before at ends a line, which blocks may be indented from.
	lineStart bool
	tokens    []token
}

// tags begin what is not text. The first of the alternatives is a raw block's beginning.
var (
	tags    = regexp.MustCompile(`(\{%[-+]?` + space + `raw` + space + `(?:-%\}` + space + `|%\}))|(\{\{|\{%|\{#)([-+]?)`)
	rawEnds = regexp.MustCompile(`\{%([-+]?)` + space + `endraw` + space + `(?:\+%\}|-%\}` + space + `|%\}\n?)`)
	space   = `[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*`

	floats   = regexp.MustCompile(`^(?i)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+\-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)`)
	integers = regexp.MustCompile(`^(?i)(?:0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[0-9a-f])+|[1-9](?:_?\d)*|0(?:_?0)*)`)
	names    = regexp.MustCompile(`^[\pL\pN\p{Mn}\p{Mc}_]+`)
	texts    = regexp.MustCompile(`^(?s)(?:'([^'\\]*(?:\\.[^'\\]*)*)'|"([^"\\]*(?:\\.[^"\\]*)*)")`)
	signs    = regexp.MustCompile(`^(?:\*\*|//|==|!=|>=|<=|[-+/*%~\[\](){}<>=.:|,;])`)
)

var pairs = map[string]string{"{": "}", "(": ")", "[": "]"}

// lex cuts a template into tokens. What is wrong is a failure.
func lex(source string) []token {
	if len(source) > maxSource {
		fail("the template has %d bytes, it can have %d", len(source), maxSource)
	}
	source = strings.ToValidUTF8(source, "\uFFFD")
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.at < len(l.source) {
		l.root()
	}
	l.add(endOfFile, "")
	return l.tokens
}

func (l *lexer) fail(format string, values ...any) {
	fail("line %d of the template: %s", l.line, fmt.Sprintf(format, values...))
}

func (l *lexer) add(k kind, text string) {
	l.tokens = append(l.tokens, token{kind: k, text: text, line: l.line})
}

// advance goes to a place behind this one.
func (l *lexer) advance(to int) {
	l.line += strings.Count(l.source[l.at:to], "\n")
	l.lineStart = to > 0 && l.source[to-1] == '\n'
	l.at = to
}

// root reads text up to the next tag, and the tag.
func (l *lexer) root() {
	m := tags.FindStringSubmatchIndex(l.source[l.at:])
	if m == nil {
		l.data(l.source[l.at:])
		l.advance(len(l.source))
		return
	}
	text, rest := l.source[l.at:l.at+m[0]], l.source[l.at+m[0]:]
	if m[2] >= 0 {
		l.data(l.stripped(text, rest[2:3], true))
		l.advance(l.at + m[1])
		l.raw()
		return
	}
	tag, sign := rest[:2], rest[2:m[7]-m[0]]
	l.data(l.stripped(text, sign, tag != "{{"))
	l.advance(l.at + m[1])
	switch tag {
	case "{#":
		end := strings.Index(l.source[l.at:], "#}")
		if end < 0 {
			l.fail("a comment has no end")
		}
		l.advance(l.closed(l.at+end, true))
	case "{%":
		l.add(blockBegin, tag)
		l.code("%}", blockEnd)
	case "{{":
		l.add(variableBegin, tag)
		l.code("}}", variableEnd)
	}
}

func (l *lexer) data(text string) {
	if text != "" {
		l.add(dataToken, text)
	}
}

// stripped is text before a tag, without the white space that the tag takes.
func (l *lexer) stripped(text, sign string, block bool) string {
	switch {
	case sign == "-":
		return strings.TrimRightFunc(text, isSpace)
	case sign != "+" && block:
		from := strings.LastIndexByte(text, '\n') + 1
		if (from > 0 || l.lineStart) && strings.TrimFunc(text[from:], isSpace) == "" {
			return text[:from]
		}
	}
	return text
}

// closed is where the text goes on behind a tag that ends with two characters at a place, whose
// sign stands before them.
func (l *lexer) closed(at int, trims bool) int {
	behind := at + 2
	switch {
	case at > l.at && l.source[at-1] == '-':
		return len(l.source) - len(strings.TrimLeftFunc(l.source[behind:], isSpace))
	case at > l.at && l.source[at-1] == '+' && trims:
	case trims && strings.HasPrefix(l.source[behind:], "\n"):
		return behind + 1
	}
	return behind
}

// raw reads what lies between raw and endraw.
func (l *lexer) raw() {
	m := rawEnds.FindStringSubmatchIndex(l.source[l.at:])
	if m == nil {
		l.fail("a raw block has no end")
	}
	l.data(l.stripped(l.source[l.at:l.at+m[0]], l.source[l.at+m[2]:l.at+m[3]], true))
	l.advance(l.at + m[1])
}

// code reads the inside of a tag.
func (l *lexer) code(end string, kind kind) {
	var open []string // the closing signs that are awaited
	first := len(l.tokens)
	for {
		if len(l.tokens)-first > maxBlock {
			l.fail("there are more than %d words and signs in one tag", maxBlock)
		}
		rest := l.source[l.at:]
		trimmed := strings.TrimLeftFunc(rest, isSpace)
		l.advance(len(l.source) - len(trimmed))
		if trimmed == "" {
			l.fail("a tag has no end")
		}
		if len(open) == 0 {
			signed := len(trimmed) > 2 && trimmed[1:3] == end && (trimmed[0] == '-' || trimmed[0] == '+' && end == "%}")
			if signed || strings.HasPrefix(trimmed, end) {
				l.add(kind, end)
				at := l.at
				if signed {
					at++
				}
				l.advance(l.closed(at, end == "%}"))
				return
			}
		}
		open = l.word(trimmed, open)
	}
}

// word reads one word or sign.
func (l *lexer) word(rest string, open []string) []string {
	afterDot := l.at > 0 && l.source[l.at-1] == '.'
	text := ""
	switch {
	case !afterDot && floats.MatchString(rest):
		text = floats.FindString(rest)
		f, _ := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64) // infinite where too large, as in Python
		l.add(floatToken, text)
		l.tokens[len(l.tokens)-1].value = f
	case integers.MatchString(rest):
		text = integers.FindString(rest)
		n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 0, 64)
		if err != nil {
			l.fail("the number %.40s does not fit 64 bits", text)
		}
		l.add(integerToken, text)
		l.tokens[len(l.tokens)-1].value = int(n)
	case names.MatchString(rest):
		text = names.FindString(rest)
		if r, _ := utf8.DecodeRuneInString(text); r != '_' && !unicode.IsLetter(r) {
			l.fail("the name %.40q begins with %q", text, r)
		}
		l.add(nameToken, text)
	case texts.MatchString(rest):
		text = texts.FindString(rest)
		content, err := unescape(text[1 : len(text)-1])
		if err != "" {
			l.fail("the text %.40s: %s", text, err)
		}
		l.add(stringToken, content)
	default:
		text = signs.FindString(rest)
		if text == "" {
			r, _ := utf8.DecodeRuneInString(rest)
			l.fail("%q is not expected here", r)
		}
		l.add(signToken, text)
		switch text {
		case "{", "(", "[":
			open = append(open, pairs[text])
		case "}", ")", "]":
			if len(open) == 0 || open[len(open)-1] != text {
				l.fail("%q closes nothing", text)
			}
			open = open[:len(open)-1]
		}
	}
	l.advance(l.at + len(text))
	return open
}

// escapes are the characters that stand for others behind a backslash.
var escapes = map[byte]string{'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}

// unescape reads a text as Python reads one between quotes. The second result says what is wrong.
func unescape(s string) (string, string) {
	if !strings.Contains(s, "\\") {
		return s, ""
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out.WriteByte(s[i])
			continue
		}
		i++ // there is one, or the quote would be part of the text
		c := s[i]
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		switch known, ok := escapes[c]; {
		case ok:
			out.WriteString(known)
		case digits > 0:
			if len(s) < i+1+digits {
				return "", "an escape is too short"
			}
			n, err := strconv.ParseUint(s[i+1:i+1+digits], 16, 32)
			if err != nil || n > unicode.MaxRune {
				return "", "an escape is no character"
			}
			out.WriteRune(rune(n))
			i += digits
		case c >= '0' && c <= '7':
			end := i + 1
			for end < len(s) && end < i+3 && s[end] >= '0' && s[end] <= '7' {
				end++
			}
			n, _ := strconv.ParseUint(s[i:end], 8, 32)
			out.WriteRune(rune(n))
			i = end - 1
		case c == 'N':
			return "", "characters by name are not known here"
		default:
			out.WriteByte('\\')
			out.WriteByte(c)
		}
	}
	return out.String(), ""
}

// isSpace is what Python counts as white space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
