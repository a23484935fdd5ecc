package watch

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cheggaaa/pb/v3"
	"github.com/stheno-ml/stheno/train"
)

// slowClock tells times that are so far apart.
func slowClock(gap time.Duration) func() time.Time {
	now := time.Unix(1700000000, 0)
	return func() time.Time {
		now = now.Add(gap)
		return now
	}
}

func TestProgressLines(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		gap    time.Duration // between two looks at the clock
		events []any
		want   string
	}{
		{"a fast run has its first step and its last", 0, run(0, 10, 10), `
training 809,856 parameters for 10 steps of 768 tokens
step  0/10  evaluation: training loss 2.5000, validation loss 2.6000, the best so far
step  1/10  loss 4.0000  lr 1.0e-03  norm 2.00  38.4k tok/s  200ms left
step  4/10  evaluation: training loss 2.4600, validation loss 2.5600, the best so far
step  8/10  evaluation: training loss 2.4200, validation loss 2.5200, the best so far
step 10/10  loss 2.5272  lr 1.0e-04  norm 1.10  38.4k tok/s
10 steps done after 300ms, best loss 2.5000 at step 10, 38.4k tok/s
`},
		{"a slow one has more", 6 * time.Second, run(0, 3, 3), `
training 809,856 parameters for 3 steps of 768 tokens
step 0/3  evaluation: training loss 2.5000, validation loss 2.6000, the best so far
step 1/3  loss 4.0000  lr 1.0e-03  norm 2.00  38.4k tok/s  0s left
step 2/3  loss 3.4875  lr 5.0e-04  norm 1.50  38.4k tok/s  0s left
step 3/3  loss 3.2001  lr 3.3e-04  norm 1.33  38.4k tok/s
3 steps done after 100ms, best loss 2.5000 at step 3, 38.4k tok/s
`},
		{"resumed and interrupted", 0, append(run(1500, 1502, 2000)[:3], train.Checkpoint{Done: 1502, Path: "out/1502"}, train.End{
			Done: 1502, Steps: 2000, Cancelled: true, BestLoss: nan, Elapsed: 61 * time.Second}), `
training 809,856 parameters for 2,000 steps of 768 tokens, resumed after step 1,500
step 1501/2000  loss 2.0013  lr 6.7e-07  norm 1.00  38.4k tok/s  10s left
step 1502/2000  checkpoint out/1502
interrupted after 1m1s, 1,502 of 2,000 steps done, 38.4k tok/s
`},
		{"skipped steps", 0, []any{
			train.Start{Steps: 9, Parameters: 999, TokensPerStep: 768}, stepAt(1, 9), skippedAt(2, 9), skippedAt(3, 9), stepAt(4, 9), skippedAt(5, 9),
			train.Evaluation{Done: 5, Train: nan, Validation: nan},
			train.End{Done: 5, Steps: 9, Err: errors.New("no luck"), BestLoss: nan, Elapsed: 2 * time.Hour},
		}, `
training 999 parameters for 9 steps of 768 tokens
step 1/9  loss 4.0000  lr 1.0e-03  norm 2.00  38.4k tok/s  200ms left
step 2/9  skipped: the gradient of blocks.0.up.weight is not finite
step 5/9  skipped: the gradient of blocks.0.up.weight is not finite
step 5/9  evaluation: training loss NaN
failed after 2h0m, 5 of 9 steps done, 38.4k tok/s, 3 skipped: no luck
`},
		{"a loss that is not a number", 0, []any{train.Start{Steps: 1}, skippedAt(1, 1), train.End{Done: 1, Steps: 1, BestLoss: nan}}, `
training 0 parameters for 1 steps of 0 tokens
step 1/1  skipped: the gradient of blocks.0.up.weight is not finite
step 1/1  loss NaN  lr 1.0e-03  norm +Inf  38.4k tok/s  1 skipped
1 steps done after 0s, 38.4k tok/s, 1 skipped
`},
		{"an end without a start", 0, []any{train.End{Err: errors.New("no folder")}}, "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := play(newProgress(&b, nil, slowClock(c.gap)).hook(), c.events...); err != nil {
				t.Fatal(err)
			}
			if got := "\n" + b.String(); got != c.want {
				t.Errorf("got%s\nit needs to be%s", got, c.want)
			}
		})
	}
}

// What a terminal shows in the end is the lines, and the last bar above the summary.
func TestProgressBar(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{110, `
training 809,856 parameters for 10 steps of 768 tokens
step  0/10  evaluation: training loss 2.5000, validation loss 2.6000, the best so far
step  4/10  evaluation: training loss 2.4600, validation loss 2.5600, the best so far
step  7/10 [████████████████████████████░░░░░░░░░░░░] loss 2.6938 lr 1.4e-04 norm 1.14 38.4k tok/s 100ms left
interrupted after 200ms, 7 of 10 steps done, best loss 2.5000 at step 7, 38.4k tok/s
`},
		{80, `
training 809,856 parameters for 10 steps of 768 tokens
step  0/10  evaluation: training loss 2.5000, validation loss 2.6000, the best so far
step  4/10  evaluation: training loss 2.4600, validation loss 2.5600, the best so far
step  7/10 [███████░░░] loss 2.6938 lr 1.4e-04 norm 1.14 38.4k tok/s 100ms left
interrupted after 200ms, 7 of 10 steps done, best loss 2.5000 at step 7, 38.4k tok/s
`},
	} {
		var b bytes.Buffer
		if err := play(newProgress(&b, func() int { return c.width }, slowClock(0)).hook(), run(0, 7, 10)...); err != nil {
			t.Fatal(err)
		}
		if got := "\n" + screen(b.String()); got != c.want {
			t.Errorf("width %d: the screen shows%s\nit needs to show%s", c.width, got, c.want)
		}
	}
}

// No bar is wider than its terminal, and what is dropped in narrow ones goes by importance.
func TestProgressWidths(t *testing.T) {
	for width := 1; width < 140; width++ {
		var b bytes.Buffer
		events := run(0, 7, 10)
		events[2] = skippedAt(1, 10)
		if err := play(newProgress(&b, func() int { return width }, slowClock(time.Second)).hook(), events...); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.FieldsFunc(b.String(), func(r rune) bool { return r == '\r' || r == '\n' }) {
			isBar := strings.ContainsAny(line, "█░") || strings.HasPrefix(line, "step  7/10")
			if isBar && pb.CellCount(line) > max(width-1, 1) {
				t.Errorf("width %d: %q has %d cells", width, line, pb.CellCount(line))
			}
		}
		last := strings.Split(screen(b.String()), "\n")
		bar := last[len(last)-3]
		for part, from := range map[string]int{"loss": 31, "left": 42, "skipped": 52, "tok/s": 64, "lr": 75, "norm": 85} {
			if got := strings.Contains(bar, part); got != (width > from) {
				t.Errorf("width %d: it is %v that %q contains %q", width, got, bar, part)
			}
		}
	}
}

// screen is what a terminal shows of a text: a carriage return goes back to the start of the line, which the next text
// covers. Space at the end of a line is not to be seen.
func screen(text string) string {
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		var cells []rune
		for _, pass := range strings.Split(line, "\r") {
			written := []rune(pass)
			cells = append(written, cells[min(len(written), len(cells)):]...)
		}
		lines = append(lines, strings.TrimRight(string(cells), " "))
	}
	return strings.Join(lines, "\n")
}

// The bar is drawn at most ten times a second.
func TestProgressRedraws(t *testing.T) {
	const steps = 1000
	var b bytes.Buffer
	events := []any{train.Start{Steps: steps}}
	for done := 1; done <= steps; done++ {
		events = append(events, stepAt(done, steps))
	}
	if err := play(newProgress(&b, func() int { return 80 }, slowClock(redraw/10)).hook(), events...); err != nil {
		t.Fatal(err)
	}
	if drawn := strings.Count(b.String(), "\r"); drawn > steps/9 || drawn < steps/20 {
		t.Errorf("drawn %d times in %d steps of %v", drawn, steps, redraw/10)
	}
}

func TestTerminalWidth(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if terminalWidth(file) != nil || terminalWidth(&bytes.Buffer{}) != nil {
		t.Error("a file or a buffer is taken for a terminal")
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{rate(0), "0 tok/s"}, {rate(999.4), "999 tok/s"}, {rate(999.6), "1.0k tok/s"}, {rate(38400), "38.4k tok/s"},
		{rate(523_000), "523k tok/s"}, {rate(999_600), "1.0M tok/s"}, {rate(2.5e9), "2.5G tok/s"},
		{thousands(0), "0"}, {thousands(999), "999"}, {thousands(1000), "1,000"}, {thousands(1234567), "1,234,567"}, {thousands(-123), "-123"},
		{spell(90 * time.Millisecond), "100ms"}, {spell(9940 * time.Millisecond), "9.9s"}, {spell(72 * time.Second), "1m12s"},
		{spell(3*time.Hour + 25*time.Minute + 29*time.Second), "3h25m"},
		{loss(1.23456), "1.2346"}, {loss(math.NaN()), "NaN"}, {loss(math.Inf(1)), "+Inf"}, {loss(123456789), "1.235e+08"},
	} {
		if c.got != c.want {
			t.Errorf("%q needs to be %q", c.got, c.want)
		}
	}
}

func TestProgressNotes(t *testing.T) {
	var b bytes.Buffer
	notes := func(e train.Evaluation) (string, error) {
		if e.Done == 4 {
			return "", errors.New("no words")
		}
		return "To be,\nor not\n", nil
	}
	events := []any{train.Start{Steps: 9}, train.Evaluation{Done: 2, Train: 2, Validation: math.NaN()}}
	if err := play(newProgress(&b, nil, slowClock(0), notes).hook(), events...); err != nil {
		t.Fatal(err)
	}
	want := "training 0 parameters for 9 steps of 0 tokens\nstep 2/9  evaluation: training loss 2.0000\nTo be,\nor not\n"
	if b.String() != want {
		t.Errorf("lines\n%s\nwant\n%s", b.String(), want)
	}
	err := play(newProgress(&b, nil, slowClock(0), notes).hook(), train.Start{Steps: 9}, train.Evaluation{Done: 4})
	if err == nil || err.Error() != "Progress: no words" {
		t.Errorf("a note that fails: error %v", err)
	}
}
