package watch

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/train"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
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
	if _, err := canvasFor(path, 0); err != nil {
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
	if _, err := canvasFor(d.path, 0); err != nil {
		return err
	}
	file, err := os.Create(temporary(d.path))
	if err != nil {
		return err
	}
	d.curve, d.drawn = newCurve(s.Steps), time.Now()
	return errors.Join(file.Close(), os.Remove(temporary(d.path)))
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

// The size of the picture: 1200x750 pixels as PNG.
const (
	pictureWidth  = 8 * vg.Inch
	pictureHeight = 5 * vg.Inch
	pictureDPI    = 150
	margin        = vg.Inch / 8
	lineHeight    = 20 * vg.Inch / 72 // of a legend
	legendHeight  = 3 * lineHeight
	panelHeight   = 5 * vg.Inch / 2 // of a metric's
)

var (
	faintBlue = color.NRGBA{R: 158, G: 190, B: 222, A: 255}
	blue      = color.NRGBA{R: 24, G: 90, B: 160, A: 255}
	orange    = color.NRGBA{R: 217, G: 95, B: 14, A: 255}
	gridGrey  = color.NRGBA{R: 230, G: 230, B: 230, A: 255}
	textGrey  = color.NRGBA{R: 60, G: 60, B: 60, A: 255}
)

// canvas is something to draw on that can be written to a file.
type canvas interface {
	vg.CanvasSizer
	io.WriterTo
}

// canvasFor is an empty canvas of the kind that a file's name asks for, with room for so many
// panels below the curve.
func canvasFor(path string, panels int) (canvas, error) {
	height := pictureHeight + vg.Length(panels)*panelHeight

	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".png":
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(pictureWidth, height), vgimg.UseDPI(pictureDPI))}, nil
	case ".svg":
		return vgsvg.New(pictureWidth, height), nil
	default:
		return nil, fmt.Errorf("%s ends in %q, it needs to end in .png or .svg", path, ext)
	}
}

// draw replaces the file by a picture of the curve.
func (c *curve) draw(path string) error {
	names := slices.Sorted(maps.Keys(c.metrics))
	to, err := canvasFor(path, len(names))
	if err != nil {
		return err
	}
	p, legend, err := c.plot()
	if err != nil {
		return err
	}
	whole := draw.New(to)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	inner := draw.Crop(whole, margin, -margin, margin, -margin)
	top := draw.Crop(inner, 0, 0, vg.Length(len(names))*panelHeight, 0)
	legend.Draw(top) // above the axes, where no curve can be
	p.Draw(draw.Crop(top, 0, 0, 0, -legendHeight))
	for i, name := range names {
		p, legend, err := c.metrics[name].plot(name)
		if err != nil {
			return err
		}
		below := vg.Length(len(names)-1-i) * panelHeight
		panel := draw.Crop(inner, 0, 0, below, 0)
		panel.Max.Y = panel.Min.Y + panelHeight
		legend.Draw(panel)
		p.Draw(draw.Crop(panel, 0, 0, 0, -lineHeight))
	}
	return replace(path, to)
}

// replace writes a file beside the one that it is to be, and gives it its name when it is complete.
func replace(path string, content io.WriterTo) error {
	file, err := os.Create(temporary(path))
	if err != nil {
		return err
	}
	_, err = content.WriteTo(file)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(temporary(path), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary(path)))
	}
	return nil
}

func temporary(path string) string { return path + ".part" }

// empty is a picture without curves.
func empty(what string) (*plot.Plot, plot.Legend) {
	p := plot.New()
	p.BackgroundColor = color.White
	style(p)
	p.Y.Label.Text = what
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridGrey, gridGrey
	p.Add(grid)
	return p, newLegend()
}

// plot puts the picture of a metric together, and its legend, in one line.
func (m *measured) plot(name string) (*plot.Plot, plot.Legend, error) {
	p, legend := empty(name)
	var entries []plot.Thumbnailer
	for _, series := range []struct {
		points plotter.XYs
		color  color.Color
	}{{m.training, blue}, {m.validation, orange}} {
		if len(series.points) == 0 {
			continue
		}
		between, dots, err := plotter.NewLinePoints(series.points)
		if err != nil {
			return nil, legend, err
		}
		between.Color, between.Width = series.color, vg.Points(1.2)
		dots.Color, dots.Shape, dots.Radius = series.color, draw.CircleGlyph{}, vg.Points(2.8)
		p.Add(between, dots)
		entries = append(entries, between)
	}
	text := name + " on training data"
	if len(m.validation) > 0 {
		text = name + fmt.Sprintf(", on validation data (orange) %s at the end", measure(m.validation[len(m.validation)-1].Y))
	}
	legend.Add(text, entries...)
	return p, legend, nil
}

// plot puts the picture together, and its legend.
func (c *curve) plot() (*plot.Plot, plot.Legend, error) {
	p, legend := empty("loss")
	training, mean, validation := c.points()
	if len(training) > 0 {
		if err := addLine(p, &legend, "training loss", training, faintBlue, 0.6); err != nil {
			return nil, legend, err
		}
		if err := addLine(p, &legend, "its running mean", mean, blue, 2); err != nil {
			return nil, legend, err
		}
	}
	if len(validation) > 0 {
		between, dots, err := plotter.NewLinePoints(validation)
		if err != nil {
			return nil, legend, err
		}
		between.Color, between.Width = orange, vg.Points(1.2)
		dots.Color, dots.Shape, dots.Radius = orange, draw.CircleGlyph{}, vg.Points(2.8)
		p.Add(between, dots)
		legend.Add(fmt.Sprintf("validation loss, at best %.3f", c.best), between, dots)
	}
	return p, legend, nil
}

// addLine adds a line in short pieces, as the time to paint one grows with the square of its
// length.
func addLine(p *plot.Plot, legend *plot.Legend, name string, points plotter.XYs, c color.Color, width float64) error {
	const piece = 100
	for from := 0; from == 0 || from < len(points)-1; from += piece {
		l, err := plotter.NewLine(points[from:min(from+piece+1, len(points))])
		if err != nil {
			return err
		}
		l.Color, l.Width = c, vg.Points(width)
		p.Add(l)
		if from == 0 {
			legend.Add(name, l)
		}
	}
	return nil
}

// style sets the axes and the legend.
func style(p *plot.Plot) {
	p.X.Label.Text = "step"
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Size, a.Label.TextStyle.Color = vg.Points(13), textGrey
		a.Label.Padding = vg.Points(6)
		a.Tick.Label.Font.Size, a.Tick.Label.Color = vg.Points(11), textGrey
		a.Tick.LineStyle.Color, a.LineStyle.Color = textGrey, textGrey
		a.Tick.Marker = plot.TickerFunc(ticks)
		a.Padding = vg.Points(4)
		for _, f := range []*string{(*string)(&a.Label.TextStyle.Font.Variant), (*string)(&a.Tick.Label.Font.Variant)} {
			*f = "Sans"
		}
	}
}

func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.TextStyle.Font.Size, l.TextStyle.Color = vg.Points(12), textGrey
	l.TextStyle.Font.Variant = "Sans"
	l.Padding, l.ThumbnailWidth = vg.Points(3), vg.Points(28)
	l.XOffs = vg.Points(40)
	return l
}

// ticks marks multiples of 1, 2 or 5 times a power of ten, some three to nine of them.
func ticks(from, to float64) []plot.Tick {
	least := (to - from) / 8
	power := math.Floor(math.Log10(least))
	gap := math.Pow(10, power)
	for _, factor := range []float64{2, 5, 10} {
		if gap < least {
			gap = factor * math.Pow(10, power)
		}
	}
	digits := int(max(-math.Floor(math.Log10(gap)), 0))
	var all []plot.Tick
	for i := math.Ceil(from / gap); i*gap <= to; i++ {
		label := strconv.FormatFloat(i*gap, 'f', digits, 64)
		if gap >= 1 && math.Abs(i*gap) < 1e15 {
			label = thousands(int(i * gap))
		}
		all = append(all, plot.Tick{Value: i * gap, Label: label})
	}
	return all
}
