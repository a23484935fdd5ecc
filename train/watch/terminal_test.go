package watch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/train"
)

// terminal is as much of a terminal as progress may use: characters, line breaks, tabs, carriage
// returns and erasing from the cursor on. Whatever else it is sent, it keeps as an error.
type terminal struct {
	width   int
	reflows bool       // when it becomes narrower it breaks lines anew; others cut them off
	lines   [][]string // cells that were written between line breaks, however many rows they take
	line    int        // of the cursor
	at      int        // of the cursor, from the start of the line; a row is as many cells as the width
	errors  []string
}

func newTerminal(width int, reflows bool) *terminal {
	return &terminal{width: width, reflows: reflows, lines: [][]string{nil}}
}

func (v *terminal) screen() *screen { return &screen{w: v, width: func() int { return v.width }} }

func (v *terminal) Write(text []byte) (int, error) {
	for rest := string(text); rest != ""; {
		if after, found := strings.CutPrefix(rest, "\x1b[J"); found {
			v.lines = v.lines[:v.line+1]
			v.lines[v.line] = v.lines[v.line][:min(v.at, len(v.lines[v.line]))]
			rest = after
			continue
		}
		r, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		switch {
		case r == '\n':
			v.feed()
		case r == '\r':
			v.at -= v.at % v.width
		case r == '\t':
			v.at = min(v.at-v.at%8+8, v.at-v.at%v.width+v.width-1) // and what it goes over stays
		case r < ' ' || r == 0x7F || r == utf8.RuneError && size == 1 || r >= 0x80 && r < 0xA0:
			v.errors = append(v.errors, fmt.Sprintf("%q was sent", r))
		default:
			v.put(string(r), cellsOf(r))
		}
	}
	return len(text), nil
}

// feed goes to the start of the next row, which may be of the same line.
func (v *terminal) feed() {
	v.at += v.width - v.at%v.width
	if v.at >= len(v.lines[v.line]) {
		v.line++
		v.at = 0
	}
	if v.line == len(v.lines) {
		v.lines = append(v.lines, nil)
	}
}

func (v *terminal) put(character string, cells int) {
	line := v.lines[v.line]
	if cells == 0 {
		line[v.at-1] += character
		return
	}
	for len(line) < v.at+cells {
		line = append(line, " ")
	}
	line[v.at] = character
	for i := 1; i < cells; i++ {
		line[v.at+i] = ""
	}
	v.lines[v.line] = line
	v.at += cells
}

func (v *terminal) resize(width int) {
	if !v.reflows {
		for i, line := range v.lines {
			v.lines[i] = line[:min(len(line), width)]
		}
		v.at = min(v.at, width-1)
	}
	v.width = width
}

// String is the rows as one sees them, without space at their ends.
func (v *terminal) String() string {
	var b strings.Builder
	for i, line := range v.lines {
		for len(line) > v.width {
			fmt.Fprintln(&b, trimmed(line[:v.width]))
			line = line[v.width:]
		}
		if i < len(v.lines)-1 || len(line) > 0 {
			fmt.Fprintln(&b, trimmed(line))
		}
	}
	return b.String()
}

func trimmed(row []string) string { return strings.TrimRight(strings.Join(row, ""), " ") }

func (v *terminal) want(t *testing.T, name, want string) {
	t.Helper()
	if got := "\n" + v.String(); got != want {
		t.Errorf("%s: the terminal shows%s\nit needs to show%s", name, got, want)
	}
	if len(v.errors) > 0 {
		t.Errorf("%s: %v", name, v.errors[0])
	}
}

// wild is what a model may write: tabs, line breaks of two kinds, what terminals obey, characters
// of two cells and of none.
const wild = "func\tf() {\r\n\t\treturn\x1b[2J\x07 \r1\x00\x7f \u0085\u200e 漢字 e\u0301 \xff\r\n}\n\n"

const wildShown = `  │ func    f() {
  │         return␛[2J␇ ␍1␀␡ \u0085\u200e 漢字 e` + "\u0301" + ` �
  │ }
`

// TestNoDebrisStays plays a run with wild notes on terminals of many widths, which change during
// it. In the end there are the lines and nothing else.
func TestNoDebrisStays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, reflows := range []bool{true, false} {
		for _, width := range []int{80, 200, 81, 60} {
			for _, resized := range []bool{false, true} {
				v := newTerminal(width, reflows)
				p := newProgress(v.screen(), slowClock(time.Second), func(train.Evaluation) (string, error) { return wild, nil })
				h := p.hook()
				// The notes keep their rows only where the terminal is as wide as when they were
				// written.
				want := "\ntraining 809,856 parameters for 9 steps of 768 tokens\n"
				for _, e := range run(0, 9, 9) {
					if err := play(h, e); err != nil {
						t.Fatal(err)
					}
					if e, ok := e.(train.Evaluation); ok {
						want += fmt.Sprintf("step %d/9  evaluation: train %.4f, validation %.4f, best so far\n", e.Done, e.Train, e.Validation) + wildShown
					}
					if _, ok := e.(train.Step); ok && resized {
						v.resize(72 + random.IntN(60)) // as wide as every line, and seldom as the bar before
					}
				}
				v.resize(200)
				shown := "\n" + strings.ReplaceAll(v.String(), "best\n  so far", "best so far") // on 60 columns
				rest := strings.TrimPrefix(shown, want)
				bar, end, _ := strings.Cut(rest, "\n")
				if shown == rest || !strings.HasPrefix(bar, "step 9/9 [") ||
					!strings.HasPrefix(end, "done after 200ms at step 9/9, best loss 2.5000 at step 9") || strings.Count(end, "\n") != 1 {
					t.Errorf("width %d, resized %v, reflows %v: the terminal shows\n%v\nit needs to show%s", width, resized, reflows, v, want)
				}
				if len(v.errors) > 0 {
					t.Errorf("width %d: %v", width, v.errors)
				}
			}
		}
	}
}

// Lines that are wider than their terminal end between words.
func TestLinesAreFitted(t *testing.T) {
	v := newTerminal(21, true)
	p := newProgress(v.screen(), slowClock(0))
	if err := p.hook().OnNotice("the loss does not use 漢字漢字漢 as it is, unspeakablyLongWord goes on"); err != nil {
		t.Fatal(err)
	}
	v.want(t, "a notice", `
the loss does not
  use 漢字漢字漢 as
  it is,
  unspeakablyLongWord
  goes on
`)
}

// TestNotesAreFolded has a note wider than its terminal.
func TestNotesAreFolded(t *testing.T) {
	v := newTerminal(20, true)
	note := func(train.Evaluation) (string, error) { return "\tif a == 1 {\n漢字漢字漢字漢字漢字", nil }
	p := newProgress(v.screen(), slowClock(0), note)
	if err := play(p.hook(), train.Start{}, train.Evaluation{}); err != nil {
		t.Fatal(err)
	}
	if err := p.screen.leave(""); err != nil {
		t.Fatal(err)
	}
	const folded = "\n  │     if a == 1 {\n  │ 漢字漢字漢字漢\n  │ 字漢字\n"
	if got := v.String(); !strings.HasSuffix(got, folded) || len(v.errors) > 0 {
		t.Errorf("the terminal shows\n%s\nit needs to end with%s\n%v", got, folded, v.errors)
	}
}

// TestLinesFitIn80Columns plays the longest runs of the presets.
func TestLinesFitIn80Columns(t *testing.T) {
	const steps = 600_000
	v := newTerminal(80, true)
	at := stepAt(steps-1, steps)
	events := []any{
		train.Start{Steps: steps, Parameters: 124_475_904, TokensPerStep: 491_520}, at,
		train.Evaluation{Done: steps - 1, Train: 12.3456, Validation: 12.3456, Best: true},
		train.Checkpoint{Done: steps - 1, Path: "runs/1234/checkpoints/best-00599999"}, skippedAt(steps, steps),
		train.End{Done: steps, Steps: steps, BestLoss: 12.3456, BestStep: steps, Elapsed: 123 * time.Hour},
	}
	if err := play(newProgress(v.screen(), slowClock(time.Second)).hook(), events...); err != nil {
		t.Fatal(err)
	}
	for _, line := range v.lines {
		if len(line) >= 80 {
			t.Errorf("%q has %d cells", trimmed(line), len(line))
		}
	}
}

// TestPrintable writes a text in pieces of every size: what comes out does not depend on how it was
// cut.
func TestPrintable(t *testing.T) {
	const want = "func    f() {\n        return␛[2J␇ ␍1␀␡ \\u0085\\u200e 漢字 e\u0301 \ufffd\n}\n\n"
	for size := 1; size <= len(wild); size++ {
		var b strings.Builder
		w := Printable(&b)
		for rest := wild; rest != ""; rest = rest[min(size, len(rest)):] {
			piece := rest[:min(size, len(rest))]
			if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
		}
		if b.String() != want {
			t.Errorf("in pieces of %d: %q, it needs to be %q", size, b.String(), want)
		}
	}
}
