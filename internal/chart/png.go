package chart

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// raster is a picture of pixels.
type raster struct {
	pixels *image.RGBA
	shape  [][]Point             // polygons that are painted together, in pixels
	faces  map[float64]font.Face // by size
}

// perPoint is how many pixels a point has.
const perPoint = dpi / 72.0

func newPNG(width, height float64) (*raster, error) {
	f, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("the picture's font: %w", err)
	}
	w, h := int(math.Round(width*perPoint)), int(math.Round(height*perPoint))
	r := &raster{pixels: image.NewRGBA(image.Rect(0, 0, w, h)), faces: map[float64]font.Face{}}
	for _, size := range []float64{labelSize, tickSize, rowSize} {
		if r.faces[size], err = opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: dpi}); err != nil {
			return nil, fmt.Errorf("the picture's font: %w", err)
		}
	}
	draw.Draw(r.pixels, r.pixels.Bounds(), image.NewUniform(white), image.Point{}, draw.Src)
	return r, nil
}

// fill paints the shape, and looks at no more of the picture than the shape takes.
func (r *raster) fill(c color.NRGBA) {
	low, high := Point{math.Inf(1), math.Inf(1)}, Point{math.Inf(-1), math.Inf(-1)}
	for _, polygon := range r.shape {
		for _, p := range polygon {
			low.X, low.Y, high.X, high.Y = min(low.X, p.X), min(low.Y, p.Y), max(high.X, p.X), max(high.Y, p.Y)
		}
	}
	if len(r.shape) == 0 {
		return
	}
	box := image.Rect(int(math.Floor(low.X)), int(math.Floor(low.Y)), int(math.Ceil(high.X)), int(math.Ceil(high.Y))).Intersect(r.pixels.Bounds())
	at := func(p Point) (x, y float32) {
		return float32(p.X - float64(box.Min.X)), float32(p.Y - float64(box.Min.Y))
	}
	v := vector.NewRasterizer(box.Dx(), box.Dy())
	for _, polygon := range r.shape {
		v.MoveTo(at(polygon[0]))
		for _, p := range polygon[1:] {
			v.LineTo(at(p))
		}
		v.ClosePath()
	}
	v.Draw(r.pixels, box, image.NewUniform(c), image.Point{})
	r.shape = r.shape[:0]
}

// line adds each piece, and a disk where two meet, to one shape. All go round the same way, so that
// what lies in several is painted once.
func (r *raster) line(points []Point, width float64, c color.NRGBA) {
	half := width * perPoint / 2
	for i := 1; i < len(points); i++ {
		x0, y0 := points[i-1].X*perPoint, points[i-1].Y*perPoint
		x1, y1 := points[i].X*perPoint, points[i].Y*perPoint
		length := math.Hypot(x1-x0, y1-y0)
		if length == 0 {
			continue
		}
		dx, dy := (x1-x0)/length*half, (y1-y0)/length*half
		r.shape = append(r.shape, []Point{{x0 - dy, y0 + dx}, {x0 + dy, y0 - dx}, {x1 + dy, y1 - dx}, {x1 - dy, y1 + dx}})
		if i+1 < len(points) {
			r.disk(x1, y1, half)
		}
	}
	r.fill(c)
}

func (r *raster) dot(at Point, radius float64, c color.NRGBA) {
	r.disk(at.X*perPoint, at.Y*perPoint, radius*perPoint)
	r.fill(c)
}

// disk adds a disk to the shape, of so many corners that none is seen.
func (r *raster) disk(x, y, radius float64) {
	corners := 8 + 2*int(radius)
	var round []Point
	for i := range corners {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(corners))
		round = append(round, Point{x + radius*cos, y + radius*sin})
	}
	r.shape = append(r.shape, round)
}

func (r *raster) textWidth(size float64, s string) float64 {
	return float64(font.MeasureString(r.faces[size], s)) / 64 / perPoint
}

func (r *raster) text(at Point, size float64, a anchor, s string) {
	if a == upright {
		r.textUpright(at, size, s)
		return
	}
	x := at.X
	switch a {
	case middle:
		x -= r.textWidth(size, s) / 2
	case right:
		x -= r.textWidth(size, s)
	}
	d := font.Drawer{Dst: r.pixels, Src: image.NewUniform(textGrey), Face: r.faces[size], Dot: fixedPoint(x*perPoint, at.Y*perPoint)}
	d.DrawString(s)
}

// textUpright writes into a mask of its own, which is turned.
func (r *raster) textUpright(at Point, size float64, s string) {
	w, h := int(math.Ceil(r.textWidth(size, s)*perPoint))+2, int(2*size*perPoint)
	lying := image.NewAlpha(image.Rect(0, 0, w, h))
	base := h * 3 / 4
	d := font.Drawer{Dst: lying, Src: image.Opaque, Face: r.faces[size], Dot: fixedPoint(1, float64(base))}
	d.DrawString(s)
	standing := image.NewAlpha(image.Rect(0, 0, h, w))
	for y := range h {
		for x := range w {
			standing.SetAlpha(y, w-1-x, lying.AlphaAt(x, y))
		}
	}
	corner := image.Pt(int(at.X*perPoint)-base, int(at.Y*perPoint)-w/2)
	draw.DrawMask(r.pixels, standing.Bounds().Add(corner), image.NewUniform(textGrey), image.Point{}, standing, image.Point{}, draw.Over)
}

func fixedPoint(x, y float64) fixed.Point26_6 {
	return fixed.Point26_6{X: fixed.Int26_6(math.Round(x * 64)), Y: fixed.Int26_6(math.Round(y * 64))}
}

func (r *raster) write(w io.Writer) error { return png.Encode(w, r.pixels) }
