package watch

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/internal/chart"
	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/train"
)

// Plot draws the loss curve of a run into a file, a PNG or an SVG by its name: at evaluations, as
// far as that costs no more than about a hundredth of the run's time, and at the end. The file is
// replaced in one piece, so that a viewer never sees half of one. It shows what happened since the
// run, or its last resumption, started; [Draw] draws all of it from a log.
func Plot(path string) train.Hook {
	d := &drawing{path: path}
	return train.Hook{
		OnStart: func(s train.Start) error { return d.wrap(d.start(s)) },
		OnStep:  d.step,
		OnEval:  func(e train.Evaluation) error { return d.wrap(d.evaluation(e)) },
		OnEnd:   func(train.End) error { return d.wrap(d.end()) },
		Display: true,
	}
}

// Draw draws a log's loss curve into a file, a PNG or an SVG by its name: the training loss of each
// step, faint, and its running mean; and the losses of the evaluations on validation data. Each
// metric has a panel of its own below, with what evaluations made of it. Numbers that are not
// finite are left out.
func Draw(path string, log Log) error {
	if err := drawLog(path, log); err != nil {
		return fmt.Errorf("Draw: %w", err)
	}
	return nil
}

func drawLog(path string, log Log) error {
	if _, err := kindOf(path); err != nil {
		return err
	}
	steps := 0
	if n := len(log.Steps); n > 0 {
		steps = max(log.Steps[n-1].Steps, log.Steps[n-1].Done)
	}
	c := newCurve(steps)
	for _, s := range log.Steps {
		c.step(s)
	}
	for _, e := range log.Evaluations {
		c.evaluation(e)
	}
	return c.draw(path)
}

// drawing is a file that shows a curve that is going on.
type drawing struct {
	path  string
	curve *curve // nil before a run
	drawn time.Time
	cost  time.Duration // of the last time
}

// drawShare is how many times longer than a drawing the time to the next one is.
const drawShare = 100

func (d *drawing) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("Plot: %w", err)
	}
	return nil
}

// start makes sure now that the file can be written at the end.
func (d *drawing) start(s train.Start) error {
	if _, err := kindOf(d.path); err != nil {
		return err
	}
	probe, err := os.CreateTemp(filepath.Dir(d.path), ".part-*")
	if err != nil {
		return err
	}
	d.curve, d.drawn = newCurve(s.Steps), time.Now()
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func (d *drawing) step(s train.Step) error {
	d.curve.step(s)
	return nil
}

func (d *drawing) evaluation(e train.Evaluation) error {
	d.curve.evaluation(e)
	if time.Since(d.drawn) < drawShare*d.cost || !d.curve.isCurve() {
		return nil
	}
	began := time.Now()
	err := d.curve.draw(d.path)
	d.drawn = time.Now()
	d.cost = d.drawn.Sub(began)
	return err
}

// end is also called when start has failed or was not called: there is no curve then.
func (d *drawing) end() error {
	if d.curve == nil || !d.curve.isCurve() {
		return nil
	}
	return d.curve.draw(d.path)
}

// The heights of the picture's parts, in points; it is 1200x750 pixels as PNG without metrics.
const (
	curveHeight = 360
	panelHeight = 180 // of a metric's
)

var (
	faintBlue = color.NRGBA{R: 158, G: 190, B: 222, A: 255}
	blue      = color.NRGBA{R: 24, G: 90, B: 160, A: 255}
	orange    = color.NRGBA{R: 217, G: 95, B: 14, A: 255}
)

// kindOf is the kind of picture that a file's name asks for.
func kindOf(path string) (string, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".png", ".svg":
		return ext[1:], nil
	default:
		return "", fmt.Errorf("%s ends in %q, it needs to end in .png or .svg", path, ext)
	}
}

// draw replaces the file by a picture of the curve.
func (c *curve) draw(path string) error {
	kind, err := kindOf(path)
	if err != nil {
		return err
	}
	panels := []chart.Panel{c.panel()}
	for _, name := range slices.Sorted(maps.Keys(c.metrics)) {
		panels = append(panels, c.metrics[name].panel(name))
	}
	var picture bytes.Buffer
	if err := chart.Write(&picture, kind, panels); err != nil {
		return err
	}
	return plainfile.Write(path, func(w io.Writer) error { _, err := picture.WriteTo(w); return err })
}

// panel puts the picture of a metric together.
func (m *measured) panel(name string) chart.Panel {
	p := chart.Panel{X: "step", Y: name, Height: panelHeight, Rows: 1}
	for _, l := range []chart.Line{
		{Points: m.training, Color: blue, Width: 1.2, Dots: true},
		{Points: m.validation, Color: orange, Width: 1.2, Dots: true},
	} {
		if len(l.Points) > 0 {
			p.Lines = append(p.Lines, l)
		}
	}
	text := name + " on training data"
	if len(m.validation) > 0 {
		text = name + fmt.Sprintf(", on validation data (orange) %s at the end", measure(m.validation[len(m.validation)-1].Y))
	}
	p.Legend = []chart.Entry{{Text: text, Lines: p.Lines[:1]}}
	return p
}

// panel puts the picture of the losses together.
func (c *curve) panel() chart.Panel {
	p := chart.Panel{X: "step", Y: "loss", Height: curveHeight, Rows: 3}
	training, mean, validation := c.points()
	add := func(text string, l chart.Line) {
		p.Lines = append(p.Lines, l)
		p.Legend = append(p.Legend, chart.Entry{Text: text, Lines: []chart.Line{l}})
	}
	if len(training) > 0 {
		add("training loss", chart.Line{Points: training, Color: faintBlue, Width: 0.6})
		add("its running mean", chart.Line{Points: mean, Color: blue, Width: 2})
	}
	if len(validation) > 0 {
		add(fmt.Sprintf("validation loss, at best %.3f", c.best), chart.Line{Points: validation, Color: orange, Width: 1.2, Dots: true})
	}
	return p
}
