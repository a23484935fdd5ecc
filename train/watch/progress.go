package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/train"
)

// Progress shows how a run goes. On a terminal it is a bar with the running mean of the loss, the
// learning rate, the norm of the gradients, the tokens a second and the time left; what does not
// fit in its width is left out. Anywhere else it is a line now and then: for the first step and the
// last, and for others at growing intervals of five seconds to a minute. Evaluations, checkpoints,
// notices, steps that were skipped and kernels that are compiled have lines of their own, above the
// bar. What notes return is shown below each evaluation: text that the model writes at the moment,
// say, of which all that a terminal would obey is shown instead (as by [Printable]). A note that
// fails is left out from then on.
func Progress(w io.Writer, notes ...func(train.Evaluation) (string, error)) train.Hook {
	if w == nil {
		return nilWriter("Progress")
	}
	return newProgress(newScreen(w), time.Now, notes...).hook()
}

const (
	meanSpan = 20 // steps
	redraw   = 100 * time.Millisecond

	// A line comes at the earliest after this share of the time that the run has taken, within
	// these limits.
	lineShare   = 20
	shortestGap = 5 * time.Second
	longestGap  = time.Minute
)

type progress struct {
	screen *screen
	now    func() time.Time
	notes  []func(train.Evaluation) (string, error)

	mutex sync.Mutex // guards what follows, since cancelled comes from elsewhere

	known
	first   train.Step // for the time left
	started time.Time
	shown   time.Time
}

// known is what is known of the run; run is nil before one.
type known struct {
	run       *train.Start
	last      train.Step
	batch     train.Batch // of what is going on; Batches is 0 where there is nothing to tell
	loss      average
	seconds   average // of a step
	skipped   int
	result    string        // the metrics of the last evaluation
	count     int           // tokens, or examples
	busy      time.Duration // in steps
	cancelled bool
}

func newProgress(s *screen, now func() time.Time, notes ...func(train.Evaluation) (string, error)) *progress {
	return &progress{screen: s, now: now, notes: notes}
}

func (p *progress) hook() train.Hook {
	return train.Hook{
		OnStart:      func(s train.Start) error { return p.locked(func() error { return p.start(s) }) },
		OnBatch:      func(b train.Batch) error { return p.locked(func() error { return p.through(b) }) },
		OnStep:       func(s train.Step) error { return p.locked(func() error { return p.step(s) }) },
		OnEval:       p.evaluation,
		OnCheckpoint: func(c train.Checkpoint) error { return p.locked(func() error { return p.checkpoint(c) }) },
		OnCancel:     p.cancel,
		OnNotice:     func(n train.Notice) error { return p.locked(func() error { return p.line(string(n)) }) },
		OnCompile:    p.compile,
		OnEnd:        func(e train.End) error { return p.locked(func() error { return p.end(e) }) },
		Display:      true,
	}
}

func (p *progress) locked(do func() error) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if err := do(); err != nil {
		return fmt.Errorf("Progress: %w", err)
	}
	return nil
}

func (p *progress) start(s train.Start) error {
	p.run, p.last, p.batch, p.first = &s, train.Step{Done: s.Step}, train.Batch{}, train.Step{}
	p.loss, p.seconds = average{span: meanSpan}, average{span: meanSpan}
	p.skipped, p.result, p.count, p.busy, p.cancelled = 0, "", 0, 0, false
	p.started, p.shown = p.now(), p.now()
	count, unit := amount(s.ExamplesPerStep, s.TokensPerStep)
	of := thousands(s.Parameters)
	if s.Trained > 0 && s.Trained < s.Parameters {
		of = thousands(s.Trained) + " of " + of
	}
	what := fmt.Sprintf("training %s parameters for %s steps of %s %s", of, thousands(s.Steps), thousands(count), unit)
	if s.Resumed || s.Step > 0 {
		what += fmt.Sprintf(", from step %s", thousands(s.Step))
	}
	if err := p.line(what); err != nil || p.screen.width == nil {
		return err
	}
	return p.draw()
}

// through tells of a batch: on a terminal at once, elsewhere when a line is due.
func (p *progress) through(b train.Batch) error {
	p.batch = b
	if p.now().Sub(p.shown) < p.gap() {
		return nil
	}
	return p.show()
}

func (p *progress) step(s train.Step) error {
	again := s.Skipped && p.last.Skipped // a line for the first of many in a row is enough
	p.last, p.batch = s, train.Batch{}
	if p.first.Done == 0 {
		p.first = s
	}
	p.loss.add(s.Loss)
	p.seconds.add(s.Duration.Seconds())
	count, _ := amount(s.Examples, s.Tokens)
	p.count += count
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
	return p.show()
}

// gap is how long what was shown stays.
func (p *progress) gap() time.Duration {
	if p.screen.width != nil {
		return redraw
	}
	return min(max(p.now().Sub(p.started)/lineShare, shortestGap), longestGap)
}

// show shows how far the run is, by the bar or by a line.
func (p *progress) show() error {
	if p.screen.width != nil {
		return p.draw()
	}
	p.shown = p.now()
	return p.line(p.at(p.last.Done) + "  " + p.figures("  ", math.MaxInt))
}

// evaluation holds no lock while notes are made, which may take long.
func (p *progress) evaluation(e train.Evaluation) error {
	err := p.locked(func() error {
		p.batch = train.Batch{}
		text := fmt.Sprintf("%s  evaluation: train %s", p.at(e.Done), loss(e.Train))
		if !math.IsNaN(e.Validation) {
			text += fmt.Sprintf(", validation %s", loss(e.Validation))
		}
		text += metrics(e)
		p.result = results(e)
		if e.Best {
			text += ", best so far"
		}
		return p.line(text)
	})
	for i := 0; i < len(p.notes) && err == nil; i++ {
		text, noteErr := p.notes[i](e)
		err = p.locked(func() error {
			if noteErr != nil {
				p.notes = slices.Delete(p.notes, i, i+1)
				i--
				return p.line(fmt.Sprintf("%s  a note failed and is left out from now on: %v", p.at(e.Done), noteErr))
			}
			if text == "" {
				return nil
			}
			return p.lines(p.screen.quote(text))
		})
	}
	return err
}

// checkpoint has nothing to tell of the best: its evaluation had a line.
func (p *progress) checkpoint(c train.Checkpoint) error {
	if c.Best {
		return nil
	}
	return p.line(fmt.Sprintf("%s  checkpoint %s", p.at(c.Done), c.Path))
}

// cancel says what happens now, and puts the bar away, so that a program that is ended the hard way
// leaves no half of it.
func (p *progress) cancel(c train.Cancel) {
	// What cannot be written now cannot be written by the next call either, whose error is told.
	_ = p.locked(func() error {
		if p.run == nil || p.cancelled {
			return nil
		}
		p.cancelled = true
		if err := p.screen.leave(""); err != nil {
			return err
		}
		text := "stopping after this batch"
		if c.Checkpoint {
			text += ", with a checkpoint"
		}
		if c.Reason != nil && !errors.Is(c.Reason, context.Canceled) {
			text = fmt.Sprintf("%v: %s", c.Reason, text)
		}
		return p.line(text)
	})
}

// compile tells at once what a step waits for.
func (p *progress) compile(line string) {
	// What cannot be written now cannot be written by the next call either, whose error is told.
	_ = p.locked(func() error { return p.line(line) })
}

// end is also called when a run has failed before it started. Who ran it tells its error.
func (p *progress) end(e train.End) error {
	if p.run == nil {
		return nil
	}
	if err := p.screen.leave(p.bar()); err != nil {
		return err
	}
	what := "done"
	switch {
	case e.Err != nil:
		what = "failed"
	case e.Cancelled:
		what = "stopped"
	}
	parts := []string{fmt.Sprintf("%s after %s at step %d/%d", what, spell(e.Elapsed), e.Done, e.Steps)}
	if e.Cancelled && e.Checkpoint == "" {
		parts = append(parts, "no checkpoint")
	}
	if !math.IsNaN(e.BestLoss) {
		parts = append(parts, fmt.Sprintf("best loss %s at step %d", loss(e.BestLoss), e.BestStep))
	}
	if p.result != "" {
		parts = append(parts, p.result)
	}
	if p.skipped > 0 {
		parts = append(parts, thousands(p.skipped)+" skipped")
	}
	if p.busy > 0 {
		parts = append(parts, p.rate(float64(p.count)/p.busy.Seconds()))
	}
	text := strings.Join(parts, ", ")
	for p.screen.width != nil && widthOf(text) > p.screen.columns() && len(parts) > 2 {
		parts = parts[:len(parts)-1] // the least important is the last
		text = strings.Join(parts, ", ")
	}
	p.run = nil
	return p.line(text)
}

// line writes a line, above the bar if there is one.
func (p *progress) line(text string) error {
	var all []string
	for line := range strings.SplitSeq(shown(text), "\n") {
		all = append(all, p.screen.fitted(line)...)
	}
	return p.lines(strings.Join(all, "\n  "))
}

func (p *progress) lines(text string) error {
	bar := ""
	if p.screen.hasBar {
		bar = p.bar()
	}
	return p.screen.lines(text, bar)
}

func (p *progress) draw() error {
	p.shown = p.now()
	if p.cancelled {
		return nil
	}
	return p.screen.draw(p.bar())
}

// bar is as wide as the terminal lets it be; in a narrow one it is figures alone.
func (p *progress) bar() string {
	const least = len("[") + 6 + len("]")
	if p.screen.width == nil {
		return ""
	}
	width := p.screen.columns()
	before := p.at(p.last.Done)
	after := p.figures(" ", width-len(before)-least-len("  "))
	text := before
	if after != "" {
		text += " " + after
	}
	if room := width - widthOf(text) - len(" []"); room+len("[]") >= least && p.run != nil {
		done := room * p.last.Done / max(p.run.Steps, 1)
		text = before + " [" + strings.Repeat("█", done) + strings.Repeat("░", room-done) + "]" + strings.TrimPrefix(text, before)
	}
	return rows(text, width)[0]
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

// figures are what is to be known of the last step and of the batches since, as many as fit in a
// width.
func (p *progress) figures(between string, width int) string {
	var all []figure
	if p.batch.Batches > 0 {
		what := "batch"
		if p.batch.Evaluation {
			what = "evaluation"
		}
		all = append(all, figure{0, fmt.Sprintf("%s %d/%d", what, p.batch.Batch, p.batch.Batches)})
	}
	if p.first.Done > 0 {
		all = append(all, p.stepFigures()...)
	}
	for most := figureRanks; ; most-- {
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

func (p *progress) stepFigures() []figure {
	mean := p.loss.value()
	if !finite(p.last.Loss) {
		mean = p.last.Loss
	}
	left, speed, skipped := "", "", ""
	if p.last.Done < p.last.Steps {
		left = spell(p.left()) + " left"
	}
	if seconds := p.seconds.value(); seconds > 0 {
		count, _ := amount(p.last.Examples, p.last.Tokens)
		speed = p.rate(float64(count) / seconds)
	}
	if p.skipped > 0 {
		skipped = thousands(p.skipped) + " skipped"
	}
	all := []figure{{1, "loss " + loss(mean)}}
	for _, name := range slices.Sorted(maps.Keys(p.last.Metrics)) {
		all = append(all, figure{3, name + " " + measure(p.last.Metrics[name])})
	}
	return append(all, []figure{
		{5, fmt.Sprintf("lr %.1e", p.last.LearningRate)},
		{6, "norm " + norm(p.last.GradientNorm)},
		{4, speed},
		{3, skipped},
		{2, left},
	}...)
}

// amount is how much steps take, in tokens where they have any.
func amount(examples, tokens int) (count int, unit string) {
	if tokens > 0 {
		return tokens, "tokens"
	}
	return examples, "examples"
}

// rate is an amount a second.
func (p *progress) rate(x float64) string {
	if p.last.Tokens > 0 {
		return rate(x) + " tok/s"
	}
	return rate(x) + " ex/s"
}

// metrics are those of an evaluation, each on the training data and on the validation data if there
// are any.
func metrics(e train.Evaluation) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(e.TrainMetrics)) {
		text += fmt.Sprintf(", %s %s", name, measure(e.TrainMetrics[name]))
		if x, ok := e.ValidationMetrics[name]; ok {
			text += fmt.Sprintf(" and %s", measure(x))
		}
	}
	return text
}

// results are what an evaluation's metrics come to: those on the validation data if there are any.
func results(e train.Evaluation) string {
	of := e.ValidationMetrics
	if of == nil {
		of = e.TrainMetrics
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, name+" "+measure(of[name]))
	}
	return strings.Join(all, ", ")
}

// measure is a metric in three digits, zeros too, so that those of one column are as long.
func measure(x float64) string { return strings.TrimSuffix(fmt.Sprintf("%#.3g", x), ".") }

// figureRanks is how many ranks figures have.
const figureRanks = 7

// figure is a part of a line; those of the highest rank are the first to be left out.
type figure struct {
	rank int
	text string
}

// left is the time until the last step, if what comes goes like what was, evaluations and all. The
// first step is left out as soon as there are others, as it is slower.
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

// rate is a number in three digits.
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
	return fmt.Sprintf("%.*f%s", digits, x, unit)
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
