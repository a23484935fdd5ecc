package report

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is a plot of the report: the results of the cases that name it. Where cases have a place
// X, it has lines over X, of rates or, on logarithmic axes, of bytes, a panel for each series;
// where they have none, bars of times.
type Figure struct {
	Name, Title string
	section     string
	results     []Result
	ceiling     *Ceiling // that bounds the results, where it is one for all
}

// File is the name of the figure's file.
func (f Figure) File() string { return f.Name + ".svg" }

// Figures lists the plots of the report, each at the largest number of threads that the results
// have.
func (r *Report) Figures() []Figure {
	var all []Figure
	for _, s := range r.Sections {
		results := r.most(s.Name)
		for _, name := range unique(results, func(x Result) string { return x.Figure }) {
			if name == "" {
				continue
			}
			f := Figure{Name: name, Title: s.Title, section: s.Name}
			for _, x := range results {
				if x.Figure == name {
					f.results = append(f.results, x)
				}
			}
			f.ceiling = r.ceilingOf(f.results[0])
			all = append(all, f)
		}
	}
	return all
}

// ceilingOf finds what bounds a result, nil if nothing is known to.
func (r *Report) ceilingOf(x Result) *Ceiling {
	for i := range r.Ceilings {
		if c := &r.Ceilings[i]; c.Name == x.Ceiling && c.Threads == x.Threads && c.Unit == x.Unit {
			return c
		}
	}
	return nil
}

// SaveFigures draws all plots into a folder.
func (r *Report) SaveFigures(folder string) error {
	for _, f := range r.Figures() {
		picture, err := f.SVG()
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, f.File()), picture, 0o644); err != nil {
			return err
		}
	}
	return nil
}

const (
	panelHeight = 4.5 * vg.Inch
	margin      = vg.Inch / 8
)

// panelWidth is that of one panel, and of each of two beside each other.
var panelWidth = [2]vg.Length{8 * vg.Inch, 6 * vg.Inch}

var (
	gridGrey = color.NRGBA{R: 230, G: 230, B: 230, A: 255}
	textGrey = color.NRGBA{R: 60, G: 60, B: 60, A: 255}
	// Colours that remain different for those who see fewer.
	palette = []color.Color{
		color.NRGBA{R: 24, G: 90, B: 160, A: 255}, color.NRGBA{R: 217, G: 95, B: 14, A: 255}, color.NRGBA{R: 0, G: 135, B: 100, A: 255},
		color.NRGBA{R: 170, G: 75, B: 140, A: 255}, color.NRGBA{R: 120, G: 120, B: 120, A: 255}, color.NRGBA{R: 150, G: 110, B: 0, A: 255},
	}
)

// SVG draws the figure.
func (f Figure) SVG() ([]byte, error) {
	panels, err := f.panels()
	if err != nil {
		return nil, err
	}
	columns := min(2, len(panels))
	rows := make([][]*plot.Plot, (len(panels)+columns-1)/columns)
	for i, p := range panels {
		rows[i/columns] = append(rows[i/columns], p)
	}
	if last := &rows[len(rows)-1]; len(*last) < columns {
		*last = append(*last, nil)
	}
	canvas := vgsvg.New(panelWidth[columns-1]*vg.Length(columns), panelHeight*vg.Length(len(rows)))
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	tiles := draw.Tiles{Rows: len(rows), Cols: columns, PadX: margin, PadY: margin, PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin}
	for i, row := range plot.Align(rows, tiles, whole) {
		for j, place := range row {
			if rows[i][j] != nil {
				rows[i][j].Draw(place)
			}
		}
	}
	var out bytes.Buffer
	_, err = canvas.WriteTo(&out)
	return out.Bytes(), err
}

// panels are the plots of the figure, side by side.
func (f Figure) panels() ([]*plot.Plot, error) {
	if f.results[0].X > 0 {
		return f.lines()
	}
	p := f.panel("")
	return []*plot.Plot{p}, f.bars(p)
}

// panel is an empty plot with the figure's title.
func (f Figure) panel(of string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = joined(f.Title, of)
	if n := f.results[0].Threads; n > 0 {
		p.Title.Text = joined(p.Title.Text, threads(n))
	}
	style(p)
	return p
}

// bars draws the median times, a group for each case and a colour for each contender.
func (f Figure) bars(p *plot.Plot) error {
	cases := unique(f.results, func(r Result) string { return r.Name })
	others := unique(f.results, func(r Result) string { return r.By })
	p.Y.Label.Text, p.Y.Min = "ms", 0
	p.NominalX(cases...)
	p.X.Min, p.X.Max = -0.7, float64(len(cases))-0.3
	const width = 72
	for i, by := range others {
		heights := make(plotter.Values, len(cases))
		for _, r := range f.results {
			if r.By == by {
				heights[slices.Index(cases, r.Name)] = 1e3 * measure.Median(r.Samples)
			}
		}
		bars, err := plotter.NewBarChart(heights, vg.Points(width))
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = palette[i%len(palette)], 0
		bars.Offset = vg.Points(width * (float64(i) - float64(len(others)-1)/2))
		names := plotter.XYLabels{}
		for x, height := range heights {
			if height > 0 {
				names.XYs, names.Labels = append(names.XYs, plotter.XY{X: float64(x), Y: height}), append(names.Labels, by)
			}
		}
		labels, err := plotter.NewLabels(names)
		if err != nil {
			return err
		}
		for n := range labels.TextStyle {
			nameStyle(&labels.TextStyle[n], bars.Color)
			labels.TextStyle[n].XAlign = draw.XCenter
		}
		labels.Offset = vg.Point{X: bars.Offset, Y: vg.Points(8)}
		p.Add(bars, labels)
	}
	p.Y.Max *= 1.1
	return nil
}

// nameStyle writes a contender's name in its colour.
func nameStyle(s *text.Style, c color.Color) {
	s.Color, s.Font.Size, s.Font.Variant, s.YAlign = c, vg.Points(10), "Sans", draw.YCenter
}

// rateUnit is the label of the axis of rates, and what to divide them by.
func rateUnit(results []Result) (label string, scale float64) {
	most := 0.0
	for _, r := range results {
		most = max(most, r.Rate())
	}
	switch unit := results[0].Unit; {
	case unit == "token":
		return "tokens/s", 1
	case most >= 1e12:
		return "T" + unit + "/s", 1e12
	default:
		return "G" + unit + "/s", 1e9
	}
}

func style(p *plot.Plot) {
	p.Title.TextStyle.Font.Size, p.Title.TextStyle.Font.Variant, p.Title.Padding = vg.Points(13), "Sans", vg.Points(6)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Size, a.Label.TextStyle.Color = vg.Points(12), textGrey
		a.Tick.Label.Font.Size, a.Tick.Label.Color = vg.Points(10), textGrey
		a.Tick.LineStyle.Color, a.LineStyle.Color = textGrey, textGrey
		a.Label.TextStyle.Font.Variant, a.Tick.Label.Font.Variant = "Sans", "Sans"
	}
}
