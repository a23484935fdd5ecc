package watch

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

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
step  0/10  evaluation: train 2.5000, validation 2.6000, best so far
step  1/10  loss 4.0000  lr 1.0e-03  norm 2.00  38.4k tok/s  200ms left
step  4/10  evaluation: train 2.4600, validation 2.5600, best so far
step  8/10  evaluation: train 2.4200, validation 2.5200, best so far
step 10/10  loss 2.5272  lr 1.0e-04  norm 1.10  38.4k tok/s
done after 300ms at step 10/10, best loss 2.5000 at step 10, 38.4k tok/s
`},
		{"a slow one has more", 6 * time.Second, run(0, 3, 3), `
training 809,856 parameters for 3 steps of 768 tokens
step 0/3  evaluation: train 2.5000, validation 2.6000, best so far
step 1/3  loss 4.0000  lr 1.0e-03  norm 2.00  38.4k tok/s  0s left
step 2/3  loss 3.4875  lr 5.0e-04  norm 1.50  38.4k tok/s  0s left
step 3/3  loss 3.2001  lr 3.3e-04  norm 1.33  38.4k tok/s
done after 100ms at step 3/3, best loss 2.5000 at step 3, 38.4k tok/s
`},
		{"resumed and interrupted", 0, append(run(1500, 1502, 2000)[:3], train.Checkpoint{Done: 1502, Path: "out/best", Best: true},
			train.Checkpoint{Done: 1502, Path: "out/1502"}, train.End{
				Done: 1502, Steps: 2000, Cancelled: true, BestLoss: nan, Elapsed: 61 * time.Second}), `
training 809,856 parameters for 2,000 steps of 768 tokens, from step 1,500
step 1501/2000  loss 2.0013  lr 6.7e-07  norm 1.00  38.4k tok/s  10s left
step 1502/2000  checkpoint out/1502
stopped after 1m1s at step 1502/2000, no checkpoint, 38.4k tok/s
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
step 5/9  evaluation: train NaN
failed after 2h0m at step 5/9, 3 skipped, 38.4k tok/s
`},
		{"a loss that is not a number", 0, []any{train.Start{Steps: 1}, skippedAt(1, 1), train.End{Done: 1, Steps: 1, BestLoss: nan}}, `
training 0 parameters for 1 steps of 0 examples
step 1/1  skipped: the gradient of blocks.0.up.weight is not finite
step 1/1  loss NaN  lr 1.0e-03  norm +Inf  38.4k tok/s  1 skipped
done after 0s at step 1/1, 1 skipped, 38.4k tok/s
`},
		{"an end without a start", 0, []any{train.End{Err: errors.New("no folder")}}, "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := play(newProgress(&screen{w: &b}, slowClock(c.gap)).hook(), c.events...); err != nil {
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
step  0/10  evaluation: train 2.5000, validation 2.6000, best so far
step  4/10  evaluation: train 2.4600, validation 2.5600, best so far
step  7/10 [████████████████████████████░░░░░░░░░░░░] loss 2.6938 lr 1.4e-04 norm 1.14 38.4k tok/s 100ms left
stopped after 200ms at step 7/10, no checkpoint, best loss 2.5000 at step 7, 38.4k tok/s
`},
		{80, `
training 809,856 parameters for 10 steps of 768 tokens
step  0/10  evaluation: train 2.5000, validation 2.6000, best so far
step  4/10  evaluation: train 2.4600, validation 2.5600, best so far
step  7/10 [███████░░░] loss 2.6938 lr 1.4e-04 norm 1.14 38.4k tok/s 100ms left
stopped after 200ms at step 7/10, no checkpoint, best loss 2.5000 at step 7
`},
	} {
		v := newTerminal(c.width, true)
		if err := play(newProgress(v.screen(), slowClock(0)).hook(), run(0, 7, 10)...); err != nil {
			t.Fatal(err)
		}
		v.want(t, fmt.Sprint("width ", c.width), c.want)
	}
}

// No bar is wider than its terminal, and what is dropped in narrow ones goes by importance.
func TestProgressWidths(t *testing.T) {
	for width := 1; width < 140; width++ {
		v := newTerminal(width, true)
		p := newProgress(v.screen(), slowClock(time.Second))
		events := run(0, 7, 10)
		events[2] = skippedAt(1, 10)
		if err := play(p.hook(), events[:len(events)-1]...); err != nil { // no end: it would be the last line
			t.Fatal(err)
		}
		bar := p.bar()
		if n := widthOf(bar); n > max(width-1, 1) {
			t.Errorf("width %d: %q has %d cells", width, bar, n)
		}
		for part, from := range map[string]int{"loss": 31, "left": 42, "skipped": 52, "tok/s": 64, "lr": 75, "norm": 85} {
			if got := strings.Contains(bar, part); got != (width > from) {
				t.Errorf("width %d: it is %v that %q contains %q", width, got, bar, part)
			}
		}
	}
}

// The bar is drawn at most ten times a second.
func TestProgressRedraws(t *testing.T) {
	const steps = 1000
	var b bytes.Buffer
	events := []any{train.Start{Steps: steps}}
	for done := 1; done <= steps; done++ {
		events = append(events, stepAt(done, steps))
	}
	if err := play(newProgress(&screen{w: &b, width: func() int { return 80 }}, slowClock(redraw/10)).hook(), events...); err != nil {
		t.Fatal(err)
	}
	if drawn := strings.Count(b.String(), eraseBelow); drawn > steps/9 || drawn < steps/20 {
		t.Errorf("drawn %d times in %d steps of %v", drawn, steps, redraw/10)
	}
}

func TestWhatIsNoTerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if newScreen(file).width != nil || newScreen(&bytes.Buffer{}).width != nil {
		t.Error("a file or a buffer is taken for a terminal")
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{rate(0), "0"}, {rate(999.4), "999"}, {rate(999.6), "1.0k"}, {rate(38400), "38.4k"},
		{rate(523_000), "523k"}, {rate(999_600), "1.0M"}, {rate(2.5e9), "2.5G"},
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

// A note is quoted, and one that fails is left out with a line, while the run and the other notes
// go on.
func TestProgressNotes(t *testing.T) {
	var b bytes.Buffer
	failing := func(e train.Evaluation) (string, error) {
		if e.Done == 4 {
			return "", errors.New("no words")
		}
		return "To be,\r\n\tor not\n\n", nil
	}
	other := func(train.Evaluation) (string, error) { return "again", nil }
	nan := math.NaN()
	events := []any{train.Start{Steps: 9}}
	for done := 2; done <= 6; done += 2 {
		events = append(events, train.Evaluation{Done: done, Train: 2, Validation: nan})
	}
	if err := play(newProgress(&screen{w: &b}, slowClock(0), failing, other).hook(), events...); err != nil {
		t.Fatal(err)
	}
	want := `training 0 parameters for 9 steps of 0 examples
step 2/9  evaluation: train 2.0000
  │ To be,
  │ 	or not
  │ again
step 4/9  evaluation: train 2.0000
step 4/9  a note failed and is left out from now on: no words
  │ again
step 6/9  evaluation: train 2.0000
  │ again
`
	if b.String() != want {
		t.Errorf("lines\n%s\nwant\n%s", b.String(), want)
	}
}

// Long evaluations and steps of many batches show how far they are, without a terminal at least now
// and then.
func TestProgressOfBatches(t *testing.T) {
	events := []any{
		train.Start{Steps: 9}, train.Batch{Evaluation: true, Batch: 5, Batches: 40}, train.Batch{Evaluation: true, Batch: 6, Batches: 40},
		train.Evaluation{Train: 2, Validation: math.NaN()}, stepAt(1, 9), train.Batch{Done: 1, Batch: 3, Batches: 8},
	}
	v := newTerminal(120, true)
	if err := play(newProgress(v.screen(), slowClock(time.Second)).hook(), events[:3]...); err != nil {
		t.Fatal(err)
	}
	v.want(t, "an evaluation", `
training 0 parameters for 9 steps of 0 examples
step 0/9 [`+strings.Repeat("░", 92)+`] evaluation 6/40
`)
	v = newTerminal(120, true)
	if err := play(newProgress(v.screen(), slowClock(time.Second)).hook(), events...); err != nil {
		t.Fatal(err)
	}
	v.want(t, "a batch", `
training 0 parameters for 9 steps of 0 examples
step 0/9  evaluation: train 2.0000
step 1/9 [████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░] batch 3/8 loss 4.0000 lr 1.0e-03 norm 2.00 38.4k tok/s 200ms left
`)
	var b bytes.Buffer
	if err := play(newProgress(&screen{w: &b}, slowClock(shortestGap)).hook(), events...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"step 0/9  evaluation 5/40\n", "step 1/9  batch 3/8  loss 4.0000  lr"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("without a terminal, %q is not in\n%s", want, b.String())
		}
	}
}

// What a step waits for is said while it waits, above the bar, in a line that fits.
func TestProgressSaysWhatIsCompiled(t *testing.T) {
	const began = "cuda:0: compiling attention for a score or mask of one's own: backward"
	v := newTerminal(80, true)
	h := newProgress(v.screen(), slowClock(time.Second)).hook()
	events := run(0, 3, 9)[:3]
	if err := play(h, events[:2]...); err != nil {
		t.Fatal(err)
	}
	h.OnCompile(began)
	v.want(t, "while it is compiled", `
training 809,856 parameters for 9 steps of 768 tokens
step 0/9  evaluation: train 2.5000, validation 2.6000, best so far
`+began+`
step 0/9 [░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░]
`)
	h.OnCompile("cuda:0: compiled in 2.1 s, and kept for the next time")
	if err := play(h, append(events[2:], train.End{Done: 1, Steps: 9, Cancelled: true, BestLoss: math.NaN(), Elapsed: time.Second})...); err != nil {
		t.Fatal(err)
	}
	v.want(t, "in the end", `
training 809,856 parameters for 9 steps of 768 tokens
step 0/9  evaluation: train 2.5000, validation 2.6000, best so far
`+began+`
cuda:0: compiled in 2.1 s, and kept for the next time
step 1/9 [█░░░░░░░░░░░] loss 4.0000 lr 1.0e-03 norm 2.00 38.4k tok/s 200ms left
stopped after 1s at step 1/9, no checkpoint, 38.4k tok/s
`)
}

// Who cancels a run is told at once what happens now, on a line of its own, and the bar is gone.
func TestProgressSaysThatItStops(t *testing.T) {
	v := newTerminal(100, true)
	h := newProgress(v.screen(), slowClock(time.Second)).hook()
	h.OnCancel(train.Cancel{}) // before the start there is nothing to stop
	if err := play(h, run(0, 3, 9)[:4]...); err != nil {
		t.Fatal(err)
	}
	v.Write([]byte("^C")) // as terminals show what was typed
	h.OnCancel(train.Cancel{Reason: errors.New("interrupt signal received"), Checkpoint: true})
	if err := play(h, stepAt(4, 9), train.Checkpoint{Done: 4, Path: "out/4"},
		train.End{Done: 4, Steps: 9, Cancelled: true, BestLoss: math.NaN(), Elapsed: time.Second, Checkpoint: "out/4"}); err != nil {
		t.Fatal(err)
	}
	v.want(t, "cancelled", `
training 809,856 parameters for 9 steps of 768 tokens
step 0/9  evaluation: train 2.5000, validation 2.6000, best so far
interrupt signal received: stopping after this batch, with a checkpoint
step 4/9  checkpoint out/4
stopped after 1s at step 4/9, 38.4k tok/s
`)
}
