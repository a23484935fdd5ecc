package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"strings"
)

// svg is a picture as text.
type svg struct{ content bytes.Buffer }

func newSVG(width, height float64) *svg {
	s := new(svg)
	fmt.Fprintf(&s.content, `<svg xmlns="http://www.w3.org/2000/svg" width="%gpt" height="%gpt" viewBox="0 0 %g %g" `,
		width, height, width, height)
	fmt.Fprintf(&s.content, "font-family=\"Liberation Sans, Arial, Helvetica, sans-serif\">\n")
	fmt.Fprintf(&s.content, "<rect width=\"%g\" height=\"%g\" fill=\"%s\"/>\n", width, height, hex(white))
	return s
}

func hex(c color.NRGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

func (s *svg) line(points []Point, width float64, c color.NRGBA) {
	s.content.WriteString(`<polyline points="`)
	for i, p := range points {
		if i > 0 {
			s.content.WriteByte(' ')
		}
		fmt.Fprintf(&s.content, "%.2f,%.2f", p.X, p.Y)
	}
	fmt.Fprintf(&s.content, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" stroke-linejoin=\"round\"/>\n", hex(c), width)
}

func (s *svg) dot(at Point, radius float64, c color.NRGBA) {
	fmt.Fprintf(&s.content, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%g\" fill=\"%s\"/>\n", at.X, at.Y, radius, hex(c))
}

func (s *svg) text(at Point, size float64, a anchor, text string) {
	place, turn := "start", ""
	switch a {
	case middle:
		place = "middle"
	case right:
		place = "end"
	case upright:
		place, turn = "middle", fmt.Sprintf(` transform="rotate(-90 %.2f %.2f)"`, at.X, at.Y)
	}
	fmt.Fprintf(&s.content, `<text x="%.2f" y="%.2f" font-size="%g" fill="%s" text-anchor="%s"%s>`,
		at.X, at.Y, size, hex(textGrey), place, turn)
	s.content.WriteString(escaper.Replace(text))
	s.content.WriteString("</text>\n")
}

// textWidth is about what digits and small letters take.
func (s *svg) textWidth(size float64, text string) float64 {
	return 0.55 * size * float64(len([]rune(text)))
}

func (s *svg) write(w io.Writer) error {
	s.content.WriteString("</svg>\n")
	_, err := s.content.WriteTo(w)
	return err
}

// escaper writes text as XML has it.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
