package watch

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cheggaaa/pb/v3"
	"github.com/stheno-ml/stheno/train"
	"golang.org/x/term"
)

// Progress shows how a run goes. On a terminal it is a bar with the running mean of the loss, the learning rate, the norm
// of the gradients, the tokens a second and the time left; what does not fit in its width is left out. Anywhere else it
// is a line now and then: for the first step and the last, and for others at growing intervals of five seconds to a
// minute. Evaluations, checkpoints and steps that were skipped have lines of their own, above the bar. What notes give is
// shown below each evaluation: text that the model writes at the moment, say.
func Progress(w io.Writer, notes ...func(train.Evaluation) (string, error)) train.Hook {
	return newProgress(w, terminalWidth(w), time.Now, notes...).hook()
}

// terminalWidth gives a function that gives a terminal's width at the moment; nil if w is no terminal.
func terminalWidth(w io.Writer) func() int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 {
			return defaultWidth
		}
		return width
	}
}

const (
	defaultWidth = 80
	meanSpan     = 20 // steps
	redraw       = 100 * time.Millisecond

	// A line comes at the earliest after this share of the time that the run has taken, within these limits.
	lineShare   = 20
	shortestGap = 5 * time.Second
	longestGap  = time.Minute
)

type progress struct {
	w     io.Writer
	width func() int // nil where there is no bar
	now   func() time.Time
	notes []func(train.Evaluation) (string, error)
	bar   *pb.ProgressBar

	// What is known of the run; run is nil before one.
	run     *train.Start
	last    train.Step
	loss    average
	seconds average // of a step
	skipped int
	tokens  int
	busy    time.Duration // in steps

	first   train.Step // for the time left
	started time.Time
	shown   time.Time
	isShown bool // the cursor is behind the bar
}

func newProgress(w io.Writer, width func() int, now func() time.Time, notes ...func(train.Evaluation) (string, error)) *progress {
	return &progress{w: w, width: width, now: now, notes: notes}
}

func (p *progress) hook() train.Hook {
	return train.Hook{
		OnStart:      func(s train.Start) error { return p.wrap(p.start(s)) },
		OnStep:       func(s train.Step) error { return p.wrap(p.step(s)) },
		OnEval:       func(e train.Evaluation) error { return p.wrap(p.evaluation(e)) },
		OnCheckpoint: func(c train.Checkpoint) error { return p.wrap(p.checkpoint(c)) },
		OnEnd:        func(e train.End) error { return p.wrap(p.end(e)) },
	}
}

func (p *progress) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("Progress: %w", err)
	}
	return nil
}

func (p *progress) start(s train.Start) error {
	fresh := newProgress(p.w, p.width, p.now, p.notes...)
	fresh.run, fresh.started = &s, p.now()
	fresh.loss.span, fresh.seconds.span = meanSpan, meanSpan
	*p = *fresh
	what := fmt.Sprintf("training %s parameters for %s steps of %s tokens",
		thousands(s.Parameters), thousands(s.Steps), thousands(s.TokensPerStep))
	if s.Resumed || s.Step > 0 {
		what += fmt.Sprintf(", resumed after step %s", thousands(s.Step))
	}
	if err := p.line(what); err != nil || p.width == nil {
		return err
	}
	p.bar = pb.New(s.Steps).Set(pb.Static, true).SetWriter(io.Discard).
		SetTemplateString(`{{string . "before"}} {{bar . "[" "█" "█" "░" "]"}} {{string . "after"}}`)
	p.last.Done = s.Step
	return p.draw()
}

func (p *progress) step(s train.Step) error {
	again := s.Skipped && p.last.Skipped // a line for the first of many in a row is enough
	p.last = s
	if p.first.Done == 0 {
		p.first = s
	}
	p.loss.add(s.Loss)
	p.seconds.add(s.Duration.Seconds())
	p.tokens += s.Tokens
	p.busy += s.Duration
	if s.Skipped {
		p.skipped++
		if !again {
			if err := p.line(fmt.Sprintf("%s  skipped: the gradient of %s is not finite", p.at(s.Done), s.NonFinite)); err != nil {
				return err
			}
		}
	}
	if s.Done != p.first.Done && s.Done != s.Steps && p.now().Sub(p.shown) < p.gap() {
		return nil
	}
	if p.width != nil {
		return p.draw()
	}
	p.shown = p.now()
	return p.line(p.at(s.Done) + "  " + p.figures("  ", math.MaxInt))
}

// gap is how long what was shown stays.
func (p *progress) gap() time.Duration {
	if p.width != nil {
		return redraw
	}
	return min(max(p.now().Sub(p.started)/lineShare, shortestGap), longestGap)
}

func (p *progress) evaluation(e train.Evaluation) error {
	text := fmt.Sprintf("%s  evaluation: training loss %s", p.at(e.Done), loss(e.Train))
	if !math.IsNaN(e.Validation) {
		text += fmt.Sprintf(", validation loss %s", loss(e.Validation))
	}
	if e.Best {
		text += ", the best so far"
	}
	for _, note := range p.notes {
		more, err := note(e)
		if err != nil {
			return err
		}
		text += "\n" + strings.TrimRight(more, "\n")
	}
	for line := range strings.SplitSeq(text, "\n") {
		if err := p.line(line); err != nil {
			return err
		}
	}
	return nil
}

func (p *progress) checkpoint(c train.Checkpoint) error {
	return p.line(fmt.Sprintf("%s  checkpoint %s", p.at(c.Done), c.Path))
}

// end is also called when a run has failed before it started; its error is told by who ran it.
func (p *progress) end(e train.End) error {
	if p.run == nil {
		return nil
	}
	if p.isShown {
		if err := p.draw(); err != nil {
			return err
		}
		p.isShown = false
		if _, err := io.WriteString(p.w, "\n"); err != nil {
			return err
		}
	}
	elapsed := "after " + spell(e.Elapsed)
	text := fmt.Sprintf("%s steps done %s", thousands(e.Done), elapsed)
	switch {
	case e.Err != nil:
		text = fmt.Sprintf("failed %s, %s of %s steps done", elapsed, thousands(e.Done), thousands(e.Steps))
	case e.Cancelled:
		text = fmt.Sprintf("interrupted %s, %s of %s steps done", elapsed, thousands(e.Done), thousands(e.Steps))
	}
	if !math.IsNaN(e.BestLoss) {
		text += fmt.Sprintf(", best loss %s at step %s", loss(e.BestLoss), thousands(e.BestStep))
	}
	if p.busy > 0 {
		text += ", " + rate(float64(p.tokens)/p.busy.Seconds())
	}
	if p.skipped > 0 {
		text += fmt.Sprintf(", %s skipped", thousands(p.skipped))
	}
	if e.Err != nil {
		text += fmt.Sprintf(": %v", e.Err)
	}
	p.run = nil
	return p.line(text)
}

// line writes a line, above the bar if there is one.
func (p *progress) line(text string) error {
	if !p.isShown {
		_, err := io.WriteString(p.w, text+"\n")
		return err
	}
	if spaces := p.lineWidth() - len([]rune(text)); spaces > 0 {
		text += strings.Repeat(" ", spaces) // over the rest of the bar
	}
	if _, err := io.WriteString(p.w, "\r"+text+"\n"); err != nil {
		return err
	}
	return p.draw()
}

// lineWidth leaves the last column empty, as some terminals start a new line after it.
func (p *progress) lineWidth() int { return max(p.width()-1, 1) }

// draw shows the bar, in place of the one before.
func (p *progress) draw() error {
	const leastBar = 8
	width := p.lineWidth()
	before, after := p.at(p.last.Done), ""
	if p.first.Done > 0 {
		after = p.figures(" ", width-len(before)-leastBar-len("  "))
	}
	text := p.bar.SetCurrent(int64(p.last.Done)).SetWidth(width).Set("before", before).Set("after", after).String()
	if err := p.bar.Err(); err != nil {
		return err
	}
	if spaces := width - pb.CellCount(text); spaces > 0 {
		text += strings.Repeat(" ", spaces)
	}
	p.shown, p.isShown = p.now(), true
	_, err := io.WriteString(p.w, "\r"+text)
	return err
}

// at names a step, as wide as the last.
func (p *progress) at(done int) string {
	steps := 0
	if p.run != nil {
		steps = p.run.Steps
	}
	last := strconv.Itoa(steps)
	return fmt.Sprintf("step %*d/%s", len(last), done, last)
}

// figures are what is to be known of the last step, as many as fit in a width.
func (p *progress) figures(between string, width int) string {
	shown := p.loss.value()
	if !finite(p.last.Loss) {
		shown = p.last.Loss
	}
	left, speed, skipped := "", "", ""
	if p.last.Done < p.last.Steps {
		left = spell(p.left()) + " left"
	}
	if seconds := p.seconds.value(); seconds > 0 {
		speed = rate(float64(p.last.Tokens) / seconds)
	}
	if p.skipped > 0 {
		skipped = thousands(p.skipped) + " skipped"
	}
	all := []figure{
		{0, "loss " + loss(shown)},
		{4, fmt.Sprintf("lr %.1e", p.last.LearningRate)},
		{5, "norm " + norm(p.last.GradientNorm)},
		{3, speed},
		{2, skipped},
		{1, left},
	}
	for most := len(all); ; most-- {
		var fitting []string
		for _, f := range all {
			if f.text != "" && f.rank < most {
				fitting = append(fitting, f.text)
			}
		}
		if text := strings.Join(fitting, between); len(text) <= width || len(fitting) == 0 {
			return text
		}
	}
}

// figure is a part of a line; those of the highest rank are the first to be left out.
type figure struct {
	rank int
	text string
}

// left is the time until the last step, if what comes goes like what was, evaluations and all. The first step is left out
// as soon as there are others, as it is slower.
func (p *progress) left() time.Duration {
	steps, took := p.last.Done-p.first.Done, p.last.Elapsed-p.first.Elapsed
	if steps == 0 {
		steps, took = 1, p.last.Duration
	}
	return time.Duration(float64(took) / float64(steps) * float64(p.last.Steps-p.last.Done))
}

// loss is as people compare losses, and short where it is out of all bounds.
func loss(x float64) string {
	if math.Abs(x) >= 1e5 {
		return fmt.Sprintf("%.4g", x)
	}
	return fmt.Sprintf("%.4f", x)
}

// norm is short, whatever its size.
func norm(x float64) string {
	if x < 0.01 || x >= 100 {
		return fmt.Sprintf("%.1e", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// rate is tokens a second in three digits.
func rate(x float64) string {
	unit := ""
	for _, u := range []string{"k", "M", "G"} {
		if x < 999.5 {
			break
		}
		x /= 1000
		unit = u
	}
	digits := 0
	if unit != "" && x < 99.95 {
		digits = 1
	}
	return fmt.Sprintf("%.*f%s tok/s", digits, x, unit)
}

// spell rounds a time to what matters of it.
func spell(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	default:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
}

// thousands writes a number with commas.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
