package watch

import (
	"io"
	"strings"

	"golang.org/x/term"
)

// screen is lines of text and, on a terminal, a bar below them that is drawn again and again.
//
// The cursor rests at the bar's first cell. When the terminal becomes narrower and breaks the bar
// into two rows, the cursor stays with the first, so that erasing everything from there on leaves
// nothing behind. A key that was typed and shown has moved it, within the row.
type screen struct {
	w      io.Writer
	width  func() int // nil where there is no bar
	hasBar bool
}

const (
	eraseBelow   = "\x1b[J" // from the cursor to the end of the screen
	defaultWidth = 80
)

// newScreen makes a screen of lines alone unless w is a terminal that knows how to erase.
func newScreen(w io.Writer) *screen {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) || !obeysEscapes(f.Fd()) {
		return &screen{w: w}
	}
	return &screen{w: w, width: func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 {
			return defaultWidth
		}
		return width
	}}
}

// columns is how wide text may be; the last column stays empty, as some terminals start a new line
// after it.
func (s *screen) columns() int { return max(s.width()-1, 1) }

// lines writes lines in place of the bar, and the bar below them.
func (s *screen) lines(text, bar string) error {
	text += "\n"
	if s.hasBar {
		text = "\r" + eraseBelow + text + bar + "\r"
	}
	return s.write(text)
}

// draw shows a bar in place of the one before.
func (s *screen) draw(bar string) error {
	s.hasBar = true
	return s.write("\r" + bar + eraseBelow + "\r")
}

// leave lets the bar stand as a line, or makes it go if it is empty.
func (s *screen) leave(bar string) error {
	if !s.hasBar {
		return nil
	}
	s.hasBar = false
	end := ""
	if bar != "" {
		end = "\n"
	}
	return s.write("\r" + bar + eraseBelow + end)
}

// write writes in one piece, so that nothing else comes between.
func (s *screen) write(text string) error {
	_, err := io.WriteString(s.w, text)
	return err
}

// quote is text between other lines, behind a rule, in rows that fit.
func (s *screen) quote(text string) string {
	const rule = "  │ "
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(shown(text), "\n"), "\n") {
		list := []string{line}
		if s.width != nil {
			list = rows(line, max(s.columns()-widthOf(rule), 1))
		}
		for _, row := range list {
			b.WriteString(strings.TrimRight(rule+row, " ") + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// fitted cuts a line between words where the terminal is narrower. All rows but the first are to be
// moved in by two cells. A longer word goes on.
func (s *screen) fitted(line string) []string {
	if s.width == nil || widthOf(line) <= s.columns() {
		return []string{line}
	}
	var all []string
	row, end := "", 0
	for i, word := range strings.Split(line, " ") {
		if i > 0 && end > 0 && widthOf(row)+1+widthOf(word) > s.columns()-2*min(len(all), 1) {
			all, row, end = append(all, strings.TrimRight(row, " ")), "", 0
		} else if i > 0 {
			row += " "
		}
		if row += word; word != "" {
			end = len(row)
		}
	}
	return append(all, row)
}
