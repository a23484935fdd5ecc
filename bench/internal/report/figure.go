package report

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is a plot of the report: the results of the cases that name it. Where cases have a place
// X, it has lines over X, of rates or, on logarithmic axes, of bytes; where they have none, bars of
// times.
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
	figureWidth, figureHeight = 8 * vg.Inch, 4.5 * vg.Inch
	margin                    = vg.Inch / 8
)

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
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = fmt.Sprintf("%s, %s", f.Title, threads(max(1, f.results[0].Threads)))
	if f.results[0].Threads == 0 {
		p.Title.Text = f.Title
	}
	style(p)
	paint := f.lines
	if f.results[0].X == 0 {
		paint = f.bars
	}
	if err := paint(p); err != nil {
		return nil, err
	}
	canvas := vgsvg.New(figureWidth, figureHeight)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	p.Draw(draw.Crop(whole, margin, -margin, margin, -margin))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}

// lines draws a line for each series and contender, those of others dashed in our colour for the
// series.
func (f Figure) lines(p *plot.Plot) error {
	memory := f.results[0].Quantity == Bytes
	unit, scale := rateUnit(f.results)
	p.X.Label.Text, p.X.Scale, p.X.Tick.Marker = "sequence length", plot.LogScale{}, plot.TickerFunc(doublings)
	p.Y.Label.Text = unit
	if !memory {
		p.Y.Min = 0
	} else {
		p.Y.Label.Text, p.Y.Scale, p.Y.Tick.Marker = "MiB", plot.LogScale{}, plot.TickerFunc(powersOfTen)
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridGrey, gridGrey
	p.Add(grid)
	series := unique(f.results, func(r Result) string { return r.Series })
	others := unique(f.results, func(r Result) string { return r.By })
	for _, name := range unique(f.results, label) {
		var points plotter.XYs
		var of Result
		for _, r := range f.results {
			if label(r) != name {
				continue
			}
			of = r
			y := r.Rate() / scale
			if memory {
				y = measure.Median(r.Samples) / (1 << 20)
			}
			points = append(points, plotter.XY{X: r.X, Y: y})
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		c := palette[slices.Index(series, of.Series)%len(palette)]
		by := slices.Index(others, of.By)
		if len(series) == 1 {
			c = palette[by%len(palette)]
		}
		line.Color, line.Width, dots.Color, dots.Radius, dots.Shape = c, vg.Points(1.8), c, vg.Points(2.6), draw.CircleGlyph{}
		if of.By != Ours {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(2 * float64(1+by))}
		}
		p.Add(line, dots)
		p.Legend.Add(joined(of.By, of.Series), line, dots)
	}
	if f.ceiling != nil {
		top := measure.Median(f.ceiling.Rates) / scale
		from, to := span(f.results)
		line, err := plotter.NewLine(plotter.XYs{{X: from, Y: top}, {X: to, Y: top}})
		if err != nil {
			return err
		}
		line.Color, line.Width = textGrey, vg.Points(1)
		p.Add(line)
		p.Legend.Add("ceiling: "+f.ceiling.Name, line)
	}
	if memory {
		p.Legend.Left = true
		p.Legend.XOffs = vg.Points(8)
	} else {
		p.Y.Max *= 1.35 // room for the legend
	}
	return nil
}

// bars draws the median times, a group for each case and a colour for each contender.
func (f Figure) bars(p *plot.Plot) error {
	cases := unique(f.results, func(r Result) string { return r.Name })
	others := unique(f.results, func(r Result) string { return r.By })
	p.Y.Label.Text, p.Y.Min = "ms", 0
	p.NominalX(cases...)
	const width = 28
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
		p.Add(bars)
		p.Legend.Add(by, bars)
	}
	p.Y.Max *= 1.25
	return nil
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

func span(results []Result) (from, to float64) {
	from, to = math.Inf(1), math.Inf(-1)
	for _, r := range results {
		from, to = min(from, r.X), max(to, r.X)
	}
	return from, to
}

// doublings marks powers of two, which lengths are.
func doublings(from, to float64) []plot.Tick {
	return powers(2, from, to, func(x float64) string {
		if x >= 1024 {
			return fmt.Sprintf("%.0fk", x/1024)
		}
		return fmt.Sprintf("%.0f", x)
	})
}

func powersOfTen(from, to float64) []plot.Tick {
	return powers(10, from, to, func(x float64) string { return fmt.Sprintf("%g", x) })
}

// powers marks the powers of a base between two positive ends, give or take rounding.
func powers(base, from, to float64, label func(float64) string) []plot.Tick {
	const slack = 1e-6
	var all []plot.Tick
	first, last := math.Log(from)/math.Log(base), math.Log(to)/math.Log(base)
	for i := int(math.Ceil(first - slack)); i <= int(math.Floor(last+slack)); i++ {
		x := math.Pow(base, float64(i))
		all = append(all, plot.Tick{Value: x, Label: label(x)})
	}
	return all
}

func style(p *plot.Plot) {
	p.Title.TextStyle.Font.Size, p.Title.TextStyle.Font.Variant, p.Title.Padding = vg.Points(13), "Sans", vg.Points(6)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Size, a.Label.TextStyle.Color = vg.Points(12), textGrey
		a.Tick.Label.Font.Size, a.Tick.Label.Color = vg.Points(10), textGrey
		a.Tick.LineStyle.Color, a.LineStyle.Color = textGrey, textGrey
		a.Label.TextStyle.Font.Variant, a.Tick.Label.Font.Variant = "Sans", "Sans"
	}
	p.Legend.Top = true
	p.Legend.TextStyle.Font.Size, p.Legend.TextStyle.Color, p.Legend.TextStyle.Font.Variant = vg.Points(10), textGrey, "Sans"
	p.Legend.ThumbnailWidth, p.Legend.Padding = vg.Points(26), vg.Points(3)
}
