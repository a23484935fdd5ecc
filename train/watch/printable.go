package watch

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Printable returns a writer that makes text fit to be shown, as a model writes anything that it
// has read. What a terminal would obey instead of showing it, such as escape characters, is shown
// as a symbol or a code; line breaks may have a carriage return before them; bytes that are no
// UTF-8 are shown as U+FFFD; a tab reaches to the next multiple of four columns. A character may
// come in several writes; what is still incomplete at the end is never shown.
func Printable(w io.Writer) io.Writer { return &printable{w: w} }

type printable struct {
	w      io.Writer
	rest   []byte // the start of a character, or a carriage return that may be a part of a line break
	column int
}

// Write returns the length of the whole text, unless its writer fails.
func (p *printable) Write(text []byte) (int, error) {
	all := append(p.rest, text...)
	end := len(all)
	if end > 0 && all[end-1] == '\r' {
		end--
	} else {
		for back := 1; back < utf8.UTFMax && back <= end; back++ {
			if start := end - back; utf8.RuneStart(all[start]) {
				if !utf8.FullRune(all[start:end]) {
					end = start
				}
				break
			}
		}
	}
	p.rest = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(p.w, p.withoutTabs(shown(string(all[:end])))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// withoutTabs is a text with its tabs as spaces.
func (p *printable) withoutTabs(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch r {
		case '\n':
			b.WriteRune(r)
			p.column = 0
		case '\t':
			wide := tabWidth - p.column%tabWidth
			b.WriteString(strings.Repeat(" ", wide))
			p.column += wide
		default:
			b.WriteRune(r)
			p.column += cellsOf(r)
		}
	}
	return b.String()
}

// tabWidth is how many columns a tab has at most: what models write in a narrow terminal is
// indented often.
const tabWidth = 4

// shown is a text whose characters all leave a mark, but for tabs and line breaks.
func shown(text string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(text, "\r\n", "\n") {
		const symbols = '\u2400' // of the control characters, in their order
		switch {
		case r == '\n' || r == '\t' || unicode.IsGraphic(r):
			b.WriteRune(r)
		case r < ' ':
			b.WriteRune(symbols + r)
		case r == 0x7F:
			b.WriteRune('\u2421')
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// rows cuts a line that is shown into as many as it takes for none to be wider than that many
// cells, with tabs as spaces.
func rows(line string, cells int) []string {
	var all []string
	var row strings.Builder
	used := 0
	for _, r := range line {
		text, wide := string(r), cellsOf(r)
		if r == '\t' {
			wide = tabWidth - used%tabWidth
			text = strings.Repeat(" ", wide)
		}
		if used > 0 && used+wide > cells {
			all = append(all, row.String())
			row.Reset()
			used = 0
		}
		row.WriteString(text)
		used += wide
	}
	return append(all, row.String())
}

// cellsOf is how many cells of a terminal a character takes.
func cellsOf(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

func widthOf(text string) int {
	n := 0
	for _, r := range text {
		n += cellsOf(r)
	}
	return n
}
