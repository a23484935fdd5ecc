package chart

import (
	"bytes"
	"encoding/xml"
	"image/color"
	"image/png"
	"io"
	"strings"
	"testing"
)

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		from, to    float64
		n           int
		first, last string
	}{
		{0, 2000, 5, "0", "2,000"}, {1.4, 4.3, 6, "1.5", "4.0"}, {0, 1, 6, "0.0", "1.0"},
		{2.301, 2.319, 3, "2.305", "2.315"}, {-3, 1, 9, "-3.0", "1.0"}, {0, 8, 9, "0", "8"}, {0, 5e6, 6, "0", "5,000,000"},
	} {
		got := Ticks(c.from, c.to)
		if len(got) != c.n || got[0].Label != c.first || got[len(got)-1].Label != c.last {
			t.Errorf("from %v to %v: %v, it needs to be %d from %s to %s", c.from, c.to, got, c.n, c.first, c.last)
		}
	}
}

// A line is where its points are, as thick as it says, and painted once where it crosses itself.
func TestLine(t *testing.T) {
	p, err := newPNG(72, 72) // 150 pixels
	if err != nil {
		t.Fatal(err)
	}
	black := color.NRGBA{A: 255}
	p.line([]Point{{12, 12}, {60, 12}, {60, 60}, {36, 0}}, 2.4, black) // 5 pixels
	for _, c := range []struct {
		x, y  int
		black bool
	}{{75, 25, true}, {75, 23, true}, {75, 26, true}, {75, 20, false}, {75, 32, false}, {125, 75, true}, {10, 25, false}, {20, 60, false}} {
		got := p.pixels.RGBAAt(c.x, c.y)
		want := uint8(255)
		if c.black {
			want = 0
		}
		if got.R != want {
			t.Errorf("(%d, %d) is %v, it needs to be %d", c.x, c.y, got, want)
		}
	}
}

// Pictures have the size that panels ask for, hold what is said about them, and no place makes them
// fail.
func TestWrite(t *testing.T) {
	l := Line{Points: []Point{{0, 1}, {5, 3}}, Color: color.NRGBA{G: 128, A: 255}, Width: 1, Dots: true}
	same := Line{Points: []Point{{7, 2}}, Width: 1, Dots: true}
	for name, panels := range map[string][]Panel{
		"a panel":  {{X: "step", Y: "loss", Lines: []Line{l}, Legend: []Entry{{"a < b & c", []Line{l}}}, Height: 360, Rows: 1}},
		"two":      {{X: "step", Y: "a < b & c", Lines: []Line{l}, Height: 180}, {X: "x", Y: "y", Height: 180}},
		"a point":  {{X: "a < b & c", Y: "y", Lines: []Line{same}, Height: 360}},
		"no words": {{X: "", Y: "", Lines: []Line{l, same}, Height: 360, Legend: []Entry{{Text: "a < b & c"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var pixels, text bytes.Buffer
			if err := Write(&pixels, "png", panels); err != nil {
				t.Fatal(err)
			}
			c, err := png.DecodeConfig(&pixels)
			if err != nil || c.Width != 1200 || c.Height != 750 {
				t.Errorf("the picture is %dx%d, %v, it needs to be 1200x750", c.Width, c.Height, err)
			}
			if err := Write(&text, "svg", panels); err != nil {
				t.Fatal(err)
			}
			var words strings.Builder
			for d := xml.NewDecoder(&text); ; {
				token, err := d.Token()
				if err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if chars, ok := token.(xml.CharData); ok {
					words.Write(chars)
				}
			}
			if !strings.Contains(words.String(), "a < b & c") {
				t.Errorf("the words are %q", words.String())
			}
		})
	}
	if err := Write(io.Discard, "gif", nil); err == nil {
		t.Error("a picture is a gif")
	}
}
