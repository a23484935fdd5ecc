package report

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// lines are the figure's panels over X: one for each series, with a line and a colour for each
// contender, whose name is at the line's end. Panels have the same axes. A series of one place has
// no panel, unless all are: tables show it.
func (f Figure) lines() ([]*plot.Plot, error) {
	a := f.axes()
	all := unique(f.results, func(r Result) string { return r.Series })
	series := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return len(unique(f.of(name), func(r Result) string { return fmt.Sprint(r.X) })) < 2
	})
	if len(series) == 0 {
		series = all
	}
	var panels []*plot.Plot
	for _, name := range series {
		p := f.panel(name)
		a.draw(p)
		var ends []end
		for _, by := range unique(f.of(name), func(r Result) string { return r.By }) {
			e, err := f.line(p, a, name, by)
			if err != nil {
				return nil, err
			}
			ends = append(ends, e)
		}
		if f.ceiling != nil {
			e, err := a.level(p, measure.Median(f.ceiling.Rates)/a.scale, "ceiling: "+f.ceiling.Name)
			if err != nil {
				return nil, err
			}
			ends = append(ends, e)
		}
		if err := a.name(p, ends); err != nil {
			return nil, err
		}
		panels = append(panels, p)
	}
	return panels, nil
}

// of are the results of a series.
func (f Figure) of(series string) []Result {
	return slices.DeleteFunc(slices.Clone(f.results), func(r Result) bool { return r.Series != series })
}

// axes are those of all panels of a figure.
type axes struct {
	unit     string
	scale    float64 // what values are divided by
	memory   bool    // values are bytes, on a logarithmic axis
	from, to float64 // of X
	low, top float64 // of values
}

// nameRoom is the part of a panel's width that is for names.
const nameRoom = 0.33

func (f Figure) axes() axes {
	a := axes{memory: f.results[0].Quantity == Bytes, from: math.Inf(1), low: math.Inf(1)}
	a.unit, a.scale = rateUnit(f.results)
	if a.memory {
		a.unit, a.scale = "MiB", 1<<20
	}
	for _, r := range f.results {
		y := a.value(r)
		a.from, a.to, a.low, a.top = min(a.from, r.X), max(a.to, r.X), min(a.low, y), max(a.top, y)
	}
	if a.from == a.to {
		a.from, a.to = a.from/2, a.to*2
	}
	if f.ceiling != nil {
		a.top = max(a.top, measure.Median(f.ceiling.Rates)/a.scale)
	}
	if a.memory {
		a.top *= 1.5
	} else {
		a.low, a.top = 0, 1.05*a.top
	}
	return a
}

func (a axes) value(r Result) float64 {
	if a.memory {
		return measure.Median(r.Samples) / a.scale
	}
	return r.Rate() / a.scale
}

func (a axes) draw(p *plot.Plot) {
	p.X.Label.Text, p.Y.Label.Text = "sequence length", a.unit
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.TickerFunc(func(float64, float64) []plot.Tick { return doublings(a.from, a.to) })
	if a.memory {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(powersOfTen)
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridGrey, gridGrey
	p.Add(grid)
	p.X.Min, p.X.Max = a.from, a.to*math.Pow(a.to/a.from, nameRoom/(1-nameRoom))
	p.Y.Min, p.Y.Max = a.low, a.top
}

// end is where a line ends, and its name.
type end struct {
	plotter.XY
	name   string
	colour color.Color
}

// line draws the results of a series that one contender has.
func (f Figure) line(p *plot.Plot, a axes, series, by string) (end, error) {
	var points plotter.XYs
	for _, r := range f.of(series) {
		if r.By == by {
			points = append(points, plotter.XY{X: r.X, Y: a.value(r)})
		}
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return end{}, err
	}
	others := unique(f.results, func(r Result) string { return r.By })
	c := palette[slices.Index(others, by)%len(palette)]
	line.Color, line.Width, dots.Color, dots.Radius, dots.Shape = c, vg.Points(1.5), c, vg.Points(2.4), draw.CircleGlyph{}
	if by == Ours {
		line.Width = vg.Points(2.6)
	}
	p.Add(line, dots)
	_, kernel, several := strings.Cut(by, ", ") // of PyTorch's kernels, the kernel's name
	if !several {
		kernel = by
	}
	return end{points[len(points)-1], kernel, c}, nil
}

// level draws a line at one height.
func (a axes) level(p *plot.Plot, y float64, name string) (end, error) {
	last := plotter.XY{X: a.to, Y: y}
	line, err := plotter.NewLine(plotter.XYs{{X: a.from, Y: y}, last})
	if err != nil {
		return end{}, err
	}
	line.Color, line.Width = textGrey, vg.Points(1)
	p.Add(line)
	return end{last, name, textGrey}, nil
}

// name writes the names of lines at their ends: those at the panel's side beside them, moved apart
// where they would lie on each other, and others above them.
func (a axes) name(p *plot.Plot, ends []end) error {
	slices.SortStableFunc(ends, func(a, b end) int { return cmp.Compare(a.Y, b.Y) })
	const apart = 0.055 // of the panel's height, a line of text
	height := func(y float64) float64 { return p.Y.Scale.Normalize(p.Y.Min, p.Y.Max, y) }
	var side []int
	for i, e := range ends {
		if e.X == a.to {
			side = append(side, i)
		}
	}
	places := make([]float64, len(side))
	for n, i := range side {
		places[n] = height(ends[i].Y)
	}
	for n, y := range spread(places, apart, 1) {
		ends[side[n]].Y = a.at(y)
	}
	for _, e := range ends {
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{e.XY}, Labels: []string{e.name}})
		if err != nil {
			return err
		}
		nameStyle(&label.TextStyle[0], e.colour)
		if e.X == a.to {
			label.Offset.X = vg.Points(6)
		} else {
			label.TextStyle[0].XAlign, label.TextStyle[0].YAlign = text.XCenter, text.YBottom
			label.Offset.Y = vg.Points(5)
		}
		p.Add(label)
	}
	return nil
}

// at is the value at a part of the panel's height.
func (a axes) at(height float64) float64 {
	if a.memory {
		return a.low * math.Pow(a.top/a.low, height)
	}
	return a.low + height*(a.top-a.low)
}

// spread moves ascending places apart, as little as that takes, below a top.
func spread(places []float64, apart, top float64) []float64 {
	moved := slices.Clone(places)
	for i := range moved {
		if i > 0 {
			moved[i] = max(moved[i], moved[i-1]+apart)
		}
	}
	for i := len(moved) - 1; i >= 0; i-- {
		moved[i] = min(moved[i], top)
		top = moved[i] - apart
	}
	return moved
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
