// Package chart draws lines over steps: panels below each other, each with axes, a grid and a
// legend above it, as PNG or SVG. It knows what a picture of a training needs and no more, so that
// a program that draws one is built fast.
package chart

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
)

// Point is a point of a line.
type Point struct{ X, Y float64 }

// Line is a line through points, which have finite coordinates.
type Line struct {
	Points []Point
	Color  color.NRGBA
	Width  float64 // in points of 1/72 inch
	Dots   bool    // the points themselves are drawn too
}

// Entry is a row of a legend: a text beside short pieces of lines.
type Entry struct {
	Text  string
	Lines []Line
}

// Panel is a pair of axes with lines, and their legend above.
type Panel struct {
	X, Y   string // what the axes show
	Lines  []Line
	Legend []Entry
	Height float64 // in points, with the legend
	Rows   int     // of the legend, for which there is room
}

// Width is that of a picture in points.
const Width = 576

// dpi is the resolution of a PNG.
const dpi = 150

const (
	margin    = 9  // around all panels
	rowHeight = 20 // of a legend
	labelSize = 13
	tickSize  = 11
	rowSize   = 12
	tickMark  = 5
)

var (
	white    = color.NRGBA{R: 255, G: 255, B: 255, A: 255}
	gridGrey = color.NRGBA{R: 230, G: 230, B: 230, A: 255}
	textGrey = color.NRGBA{R: 60, G: 60, B: 60, A: 255}
)

// Write draws panels below each other, as "png" or "svg".
func Write(w io.Writer, kind string, panels []Panel) error {
	height := 0.0
	for _, p := range panels {
		height += p.Height
	}
	var to canvas
	switch kind {
	case "png":
		p, err := newPNG(Width, height)
		if err != nil {
			return err
		}
		to = p
	case "svg":
		to = newSVG(Width, height)
	default:
		return fmt.Errorf("the picture's kind is %q, it needs to be png or svg", kind)
	}
	top := 0.0
	for i, p := range panels {
		above, below := 0.0, 0.0
		if i == 0 {
			above = margin
		}
		if i == len(panels)-1 {
			below = margin
		}
		p.draw(to, top+above, top+p.Height-below)
		top += p.Height
	}
	return to.write(w)
}

// canvas is what is drawn on. Its unit is a point, its origin the upper left corner.
type canvas interface {
	line(points []Point, width float64, c color.NRGBA)
	dot(at Point, radius float64, c color.NRGBA)
	text(at Point, size float64, a anchor, s string)
	textWidth(size float64, s string) float64
	write(io.Writer) error
}

// anchor is where the given point of a text is.
type anchor int

const (
	left    anchor = iota // the start of its base line
	middle                // of its base line
	right                 // the end of its base line
	upright               // the middle of its base line, which goes upwards
)

// scale maps values to places.
type scale struct{ from, to, start, end float64 }

func (s scale) at(x float64) float64 {
	return s.start + (x-s.from)/(s.to-s.from)*(s.end-s.start)
}

func (p *Panel) draw(to canvas, top, bottom float64) {
	x, y := p.ranges()
	yTicks := Ticks(y.from, y.to)
	widest := 0.0
	for _, t := range yTicks {
		widest = max(widest, to.textWidth(tickSize, t.Label))
	}
	p.drawLegend(to, top)
	x.start, x.end = margin+labelSize+widest+16, Width-margin-12
	y.start, y.end = bottom-labelSize-tickSize-tickMark-14, top+float64(p.Rows)*rowHeight+6

	xTicks := Ticks(x.from, x.to)
	for _, t := range xTicks {
		at := x.at(t.Value)
		to.line([]Point{{at, y.start}, {at, y.end}}, 0.5, gridGrey)
		to.line([]Point{{at, y.start + 4}, {at, y.start + 4 + tickMark}}, 0.5, textGrey)
		to.text(Point{at, y.start + tickMark + tickSize + 6}, tickSize, middle, t.Label)
	}
	for _, t := range yTicks {
		at := y.at(t.Value)
		to.line([]Point{{x.start, at}, {x.end, at}}, 0.5, gridGrey)
		to.line([]Point{{x.start - 4 - tickMark, at}, {x.start - 4, at}}, 0.5, textGrey)
		to.text(Point{x.start - tickMark - 7, at + tickSize*0.36}, tickSize, right, t.Label)
	}
	to.line([]Point{{x.start, y.start + 4}, {x.end, y.start + 4}}, 0.5, textGrey)
	to.line([]Point{{x.start - 4, y.start}, {x.start - 4, y.end}}, 0.5, textGrey)
	to.text(Point{(x.start + x.end) / 2, bottom - 4}, labelSize, middle, p.X)
	to.text(Point{margin + labelSize, (y.start + y.end) / 2}, labelSize, upright, p.Y)

	for _, l := range p.Lines {
		placed := make([]Point, len(l.Points))
		for i, point := range l.Points {
			placed[i] = Point{x.at(point.X), y.at(point.Y)}
		}
		l.draw(to, placed)
	}
}

func (l Line) draw(to canvas, placed []Point) {
	if len(placed) > 1 {
		to.line(placed, l.Width, l.Color)
	}
	if l.Dots {
		for _, at := range placed {
			to.dot(at, 2.8, l.Color)
		}
	}
}

// drawLegend begins where labels of the axis end.
func (p *Panel) drawLegend(to canvas, top float64) {
	const start, thumb = margin + 40, 28
	for i, e := range p.Legend {
		at := top + (float64(i)+0.5)*rowHeight
		for _, l := range e.Lines {
			to.line([]Point{{start, at}, {start + thumb, at}}, l.Width, l.Color)
			if l.Dots {
				to.dot(Point{start + thumb/2, at}, 2.8, l.Color)
			}
		}
		to.text(Point{start + thumb + 5, at + rowSize*0.36}, rowSize, left, e.Text)
	}
}

// ranges are what the axes show: all points, and something where there are none or all are one.
func (p *Panel) ranges() (x, y scale) {
	var all []Point
	for _, l := range p.Lines {
		all = append(all, l.Points...)
	}
	span := func(of func(Point) float64) scale {
		if len(all) == 0 {
			return scale{from: 0, to: 1}
		}
		by := func(a, b Point) int { return cmp.Compare(of(a), of(b)) }
		from, to := of(slices.MinFunc(all, by)), of(slices.MaxFunc(all, by))
		if from == to {
			room := max(1, math.Abs(from)*1e-3)
			from, to = from-room, to+room
		}
		return scale{from: from, to: to}
	}
	return span(func(p Point) float64 { return p.X }), span(func(p Point) float64 { return p.Y })
}

// Tick is a marked value of an axis.
type Tick struct {
	Value float64
	Label string
}

// Ticks marks multiples of 1, 2 or 5 times a power of ten, some three to nine of them.
func Ticks(from, to float64) []Tick {
	least := (to - from) / 8
	power := math.Floor(math.Log10(least))
	gap := math.Pow(10, power)
	for _, factor := range []float64{2, 5, 10} {
		if gap < least {
			gap = factor * math.Pow(10, power)
		}
	}
	digits := int(max(-math.Floor(math.Log10(gap)), 0))
	var all []Tick
	for i := math.Ceil(from / gap); i*gap <= to; i++ {
		label := strconv.FormatFloat(i*gap, 'f', digits, 64)
		if gap >= 1 && math.Abs(i*gap) < 1e15 {
			label = thousands(strconv.FormatInt(int64(math.Round(i*gap)), 10))
		}
		all = append(all, Tick{Value: i * gap, Label: label})
	}
	return all
}

// thousands puts commas into a whole number.
func thousands(digits string) string {
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
