// Package images makes of pictures what models that see them read: resized, cropped and normalised
// as the preprocessor_config.json of a model's folder says, pixel by pixel as transformers does it
// with Pillow.
//
//	p, err := images.Open(m.Folder())
//	batch, err := p.Batch(picture, another)    // (2, 3, height, width), for Model.Encoder or Contrastive
//
// Package image of Go reads the pictures. What is transparent in them is on white.
// Those of a DINOv3 are rounded to 8 bits when they are resized, as all others; transformers does
// not round these.
package images

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/internal/resample"
	"gorgonia.org/tensor"
)

// Processor is what the config of a folder says.
type Processor struct {
	resize, crop, rescale, normalise bool
	size                             size
	window                           [2]int // height and width that are cut out of the middle
	filter                           resample.Filter
	factor                           float64
	mean, std                        [3]float64
}

// size is how large a picture is made: to a height and a width, or so that its shorter side has
// edge.
type size struct{ height, width, edge int }

// filters are Pillow's, by their numbers.
var filters = map[int]resample.Filter{1: resample.Lanczos, 2: resample.Bilinear, 3: resample.Bicubic(-0.5)}

const (
	configFile = "preprocessor_config.json"
	maxConfig  = 1 << 20
	maxSide    = 1 << 14 // of pictures, given or made
	maxGiven   = 1 << 27 // pixels of a picture that is given
	maxMade    = 1 << 24 // pixels of one that is made
)

// config is the file.
type config struct {
	Resize    *bool           `json:"do_resize"`
	Crop      bool            `json:"do_center_crop"`
	Rescale   *bool           `json:"do_rescale"`
	Normalise *bool           `json:"do_normalize"`
	Pad       bool            `json:"do_pad"`
	Size      json.RawMessage `json:"size"`
	Window    json.RawMessage `json:"crop_size"`
	Filter    *int            `json:"resample"`
	Factor    *float64        `json:"rescale_factor"`
	Mean      []float64       `json:"image_mean"`
	Std       []float64       `json:"image_std"`
	Scan      bool            `json:"do_pan_and_scan"`
	Kind      string          `json:"image_processor_type"`
	OlderKind string          `json:"feature_extractor_type"`
}

// Open reads the config in a model's folder.
func Open(folder string) (*Processor, error) {
	text, err := plainfile.ReadFile(filepath.Join(folder, configFile), maxConfig)
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	var c config
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("images: %s: %w", configFile, err)
	}
	p, err := c.processor()
	if err != nil {
		return nil, fmt.Errorf("images: %s: %w", configFile, err)
	}
	return p, nil
}

func (c *config) processor() (p *Processor, err error) {
	isSet := func(b *bool) bool { return b == nil || *b }
	p = &Processor{resize: isSet(c.Resize), crop: c.Crop, rescale: isSet(c.Rescale), normalise: isSet(c.Normalise), factor: 1.0 / 255}
	if c.Pad || c.Scan {
		return nil, fmt.Errorf("do_pad is %t and do_pan_and_scan %t, only false is supported", c.Pad, c.Scan)
	}
	family, err := c.family()
	if err != nil {
		return nil, err
	}
	if c.Factor != nil {
		p.factor = *c.Factor
	}
	if p.resize {
		if p.size, err = sizeOf("size", c.Size, family == "CLIP"); err != nil {
			return nil, err
		}
		kind := families[family]
		if c.Filter != nil {
			kind = *c.Filter
		}
		var found bool
		if p.filter, found = filters[kind]; !found {
			return nil, fmt.Errorf("resample is %d, it needs to be 1, 2 or 3: Lanczos, bilinear or bicubic", kind)
		}
	}
	if p.crop {
		window, err := sizeOf("crop_size", c.Window, false)
		if err != nil {
			return nil, err
		}
		if window.edge != 0 {
			return nil, errors.New("crop_size has a shortest_edge, it needs a height and a width")
		}
		p.window = [2]int{window.height, window.width}
	}
	if p.normalise {
		if len(c.Mean) != 3 || len(c.Std) != 3 || slices.Contains(c.Std, 0) {
			return nil, fmt.Errorf("image_mean is %v and image_std %v, they need three numbers each, none of them a deviation of 0", c.Mean, c.Std)
		}
		p.mean, p.std = [3]float64(c.Mean), [3]float64(c.Std)
	}
	return p, nil
}

// families are the kinds of processors that do what is described here and no more, with the filter
// that is theirs where a config names none.
var families = map[string]int{"": 2, "ViT": 2, "Gemma3": 2, "DINOv3ViT": 2, "CLIP": 3, "Siglip": 3, "DeiT": 3, "Bit": 3}

// family is the beginning of the processor's kind, which versions of transformers end otherwise.
func (c *config) family() (string, error) {
	kind := cmp.Or(c.Kind, c.OlderKind)
	name := kind
	for _, end := range []string{"Fast", "Pil", "ImageProcessor", "FeatureExtractor"} {
		name = strings.TrimSuffix(name, end)
	}
	if _, found := families[name]; !found {
		names := slices.Sorted(maps.Keys(families))
		return "", fmt.Errorf("image_processor_type is %.60q, it needs to be one of %s, or missing", kind, strings.Join(names[1:], ", "))
	}
	return name, nil
}

// sizeOf reads a size, which older files have as one number.
func sizeOf(name string, text json.RawMessage, shortest bool) (s size, err error) {
	var one int
	var sides struct {
		Height int `json:"height"`
		Width  int `json:"width"`
		Edge   int `json:"shortest_edge"`
		Other  int `json:"longest_edge"`
	}
	switch {
	case json.Unmarshal(text, &one) == nil && shortest:
		s.edge = one
	case json.Unmarshal(text, &one) == nil:
		s.height, s.width = one, one
	case json.Unmarshal(text, &sides) == nil && sides.Other == 0:
		s = size{sides.Height, sides.Width, sides.Edge}
	}
	square := s.height > 0 && s.width > 0 && s.edge == 0
	if !square && !(s.edge > 0 && s.height == 0 && s.width == 0) || max(s.height, s.width, s.edge) > maxSide {
		return s, fmt.Errorf("%s is %.60s, it needs a height and a width, or a shortest_edge, from 1 to %d", name, text, maxSide)
	}
	if max(s.height*s.width, s.edge*s.edge) > maxMade {
		return s, fmt.Errorf("%s is %.60s, it makes pictures of more than %d pixels", name, text, maxMade)
	}
	return s, nil
}

// pixels are rows of red, green and blue.
type pixels struct {
	height, width int
	rgb           []uint8
}

// Batch is pictures as a model reads them, (B, 3, height, width). All need to come out alike.
func (p *Processor) Batch(pictures ...image.Image) (*tensor.Dense, error) {
	var all []float32
	var first pixels
	for i, picture := range pictures {
		x, err := p.shaped(picture)
		if err != nil {
			return nil, fmt.Errorf("images: picture %d: %w", i, err)
		}
		if i == 0 {
			first = x
		} else if x.height != first.height || x.width != first.width {
			return nil, fmt.Errorf("images: picture %d comes out as %d×%d and the first as %d×%d, they need one size", i, x.height, x.width, first.height, first.width)
		}
		all = p.numbers(all, x)
	}
	if len(pictures) == 0 {
		return nil, errors.New("images: there are no pictures")
	}
	return tensor.New(tensor.WithShape(len(pictures), 3, first.height, first.width), tensor.WithBacking(all)), nil
}

// shaped resizes and cuts a picture.
func (p *Processor) shaped(picture image.Image) (x pixels, err error) {
	if picture == nil {
		return x, errors.New("it is nil")
	}
	b := picture.Bounds()
	if b.Dx() < 1 || b.Dy() < 1 || max(b.Dx(), b.Dy()) > maxSide {
		return x, fmt.Errorf("it is %d×%d, it needs sides from 1 to %d", b.Dy(), b.Dx(), maxSide)
	}
	if b.Dx()*b.Dy() > maxGiven {
		return x, fmt.Errorf("it is %d×%d, it needs to have at most %d pixels", b.Dy(), b.Dx(), maxGiven)
	}
	x = read(picture)
	if p.resize {
		height, width := p.size.height, p.size.width
		if edge := p.size.edge; edge > 0 {
			height, width = edge, edge*x.width/x.height
			if x.width < x.height {
				height, width = edge*x.height/x.width, edge
			}
		}
		if max(height, width) > maxSide || height*width > maxMade {
			return x, fmt.Errorf("it would become %d×%d, its sides are too different", height, width)
		}
		x = x.resized(p.filter, height, width)
	}
	if p.crop {
		x = x.middle(p.window[0], p.window[1])
	}
	return x, nil
}

// read takes the colours of a picture, on white where it is transparent.
func read(picture image.Image) pixels {
	b := picture.Bounds()
	own := image.NewNRGBA(image.Rect(0, 0, b.Dx(), b.Dy()))
	switch from := picture.(type) {
	case *image.NRGBA, *image.NRGBA64, *image.Paletted: // package draw would round what is half transparent
		for y := range b.Dy() {
			for x := range b.Dx() {
				own.SetNRGBA(x, y, narrow(from.At(b.Min.X+x, b.Min.Y+y)))
			}
		}
	default:
		draw.Draw(own, own.Bounds(), picture, b.Min, draw.Src)
	}
	x := pixels{b.Dy(), b.Dx(), make([]uint8, 0, 3*b.Dx()*b.Dy())}
	for i := 0; i < len(own.Pix); i += 4 {
		alpha := int(own.Pix[i+3])
		for _, c := range own.Pix[i : i+3] {
			x.rgb = append(x.rgb, uint8((int(c)*alpha+255*(255-alpha)+127)/255))
		}
	}
	return x
}

// narrow is a colour in 8 bits.
func narrow(c color.Color) color.NRGBA {
	switch c := c.(type) {
	case color.NRGBA:
		return c
	case color.NRGBA64:
		return color.NRGBA{uint8(c.R >> 8), uint8(c.G >> 8), uint8(c.B >> 8), uint8(c.A >> 8)}
	}
	return color.NRGBAModel.Convert(c).(color.NRGBA)
}

// resized is a picture of another size: first its rows, then its columns, each rounded to 8 bits as
// Pillow rounds them.
func (x pixels) resized(f resample.Filter, height, width int) pixels {
	if width != x.width {
		x = x.along(resample.Row(f, x.width, width), x.height, width, 3, 3*x.width, 3*width)
	}
	if height != x.height {
		columns := pixels{height: height, width: x.width, rgb: make([]uint8, 3*height*x.width)}
		for y, e := range resample.Row(f, x.height, height) {
			weigh(columns.rgb[3*y*x.width:3*(y+1)*x.width], x.rgb[3*e.First*x.width:], 3*x.width, e.Weights)
		}
		x = columns
	}
	return x
}

// along makes rows of other rows.
func (x pixels) along(row []resample.Element, height, width, channels, from, to int) pixels {
	out := pixels{height: height, width: width, rgb: make([]uint8, height*to)}
	for y := range height {
		for i, e := range row {
			weigh(out.rgb[y*to+channels*i:][:channels], x.rgb[y*from+channels*e.First:], channels, e.Weights)
		}
	}
	return out
}

// weigh sums neighbours that lie so far apart, in 22 bits behind the point.
func weigh(to, from []uint8, apart int, weights []float64) {
	const bits = 22
	fixed := make([]int64, len(weights))
	for i, w := range weights {
		fixed[i] = int64(math.Copysign(math.Floor(math.Abs(w)*(1<<bits)+0.5), w))
	}
	for i := range to {
		sum := int64(1) << (bits - 1)
		for k, w := range fixed {
			sum += w * int64(from[i+k*apart])
		}
		to[i] = uint8(min(max(sum>>bits, 0), 255))
	}
}

// middle cuts a window out of a picture. What it has beyond the picture is black.
func (x pixels) middle(height, width int) pixels {
	top, left := (x.height-height)>>1, (x.width-width)>>1 // rounded down where they are negative
	out := pixels{height: height, width: width, rgb: make([]uint8, 3*height*width)}
	from, end := max(left, 0), min(left+width, x.width)
	for y := max(top, 0); y < min(top+height, x.height); y++ {
		copy(out.rgb[3*((y-top)*width+from-left):], x.rgb[3*(y*x.width+from):3*(y*x.width+end)])
	}
	return out
}

// numbers appends the channels of a picture, one after the other.
func (p *Processor) numbers(list []float32, x pixels) []float32 {
	for c := range 3 {
		for i := c; i < len(x.rgb); i += 3 {
			v := float64(x.rgb[i])
			if p.rescale {
				v *= p.factor
			}
			if p.normalise {
				v = (v - p.mean[c]) / p.std[c]
			}
			list = append(list, float32(v))
		}
	}
	return list
}
