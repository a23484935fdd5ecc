package ops

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
	"gorgonia.org/gorgonia"
)

// MaskPlace is the score matrix whose mask is drawn: of a head, the key head that it reads and a batch item, with so many queries
// and keys.
type MaskPlace = score.Where

// MaskPicture draws what a mask shows as a PNG, queries downwards and keys to the right: visible pairs are dark, and darkest in tiles
// that are visible as a whole, for which no mask is computed; hidden ones are light, and white in tiles that are skipped. Nodes that
// the mask looks up need values on the host. A long side is drawn with 1024 pixels, each of them a pair of many.
func MaskPicture(w io.Writer, mask func(Pair) Cond, place MaskPlace) error {
	const longest = 1024
	if w == nil || mask == nil {
		return errors.New("MaskPicture: w or mask is nil, it needs a place to write to and a mask")
	}
	if place.QueryLength < 1 || place.KeyLength < 1 {
		return fmt.Errorf("MaskPicture: there are %d queries and %d keys, it needs at least one of each", place.QueryLength, place.KeyLength)
	}
	m, err := score.NewMask(mask)
	if err != nil {
		return fmt.Errorf("MaskPicture: %w", err)
	}
	values, err := valuesOf(m.Tables)
	if err != nil {
		return fmt.Errorf("MaskPicture: %w", err)
	}
	lo, hi := m.Band(place)
	tiles := &score.Tiles{}
	if m.Rest != nil {
		tiles = m.Tiles(place, tileRows, tileColumns, lo, hi, values)
	}
	side := max(place.QueryLength, place.KeyLength)
	pixels := func(n int) int { return max(1, n*min(side, longest)/side) }
	picture := image.NewGray(image.Rect(0, 0, pixels(place.KeyLength), pixels(place.QueryLength)))
	e := score.NewEvaluator[float64](m.Whole)
	for y := range picture.Rect.Dy() {
		q := y * place.QueryLength / picture.Rect.Dy()
		e.Run(score.Line[float64]{Where: place, N: place.KeyLength, Query: q, KeyStep: 1, Tables: values})
		for x := range picture.Rect.Dx() {
			k := x * place.KeyLength / picture.Rect.Dx()
			picture.SetGray(x, y, shade(e.Bools(0)[k], tileAt(m, tiles, q, k, lo, hi)))
		}
	}
	return png.Encode(w, picture)
}

// tileRows and tileColumns are the shape of the tiles, that of the CPU's.
const tileRows, tileColumns = 24, 32

// tileKind is what is done with a tile.
type tileKind int

const (
	skipped tileKind = iota
	masked
	whole
)

func shade(visible bool, tile tileKind) color.Gray {
	switch {
	case visible && tile == whole:
		return color.Gray{40}
	case visible:
		return color.Gray{110}
	case tile == skipped:
		return color.Gray{255}
	}
	return color.Gray{215}
}

// tileAt is what is done with the tile of a pair.
func tileAt(m *score.Mask, tiles *score.Tiles, q, k, lo, hi int) tileKind {
	const rows, columns = tileRows, tileColumns
	q0, k0 := q/rows*rows, k/columns*columns
	kind := whole
	switch {
	case k0+columns-1-q0 < lo || k0-(q0+rows-1) >= hi:
		return skipped
	case k0 < q0+rows-1+lo || k0+columns > q0+hi:
		kind = masked
	}
	if m.Rest == nil {
		return kind
	}
	for _, r := range tiles.Keys[q/rows] {
		if int(r.First) <= k/columns && k/columns < int(r.End) {
			if r.Partly {
				return masked
			}
			return kind
		}
	}
	return skipped
}

// valuesOf are the values of the nodes that a mask looks up.
func valuesOf(tables []*score.Table) ([]score.Values[float64], error) {
	list := make([]score.Values[float64], len(tables))
	for n, t := range tables {
		node, ok := t.Source.(*gorgonia.Node)
		if !ok || node.Value() == nil {
			return nil, fmt.Errorf("%s has no value, it needs one to be looked up", t.Name)
		}
		on, err := onHost(node.Value())
		if err != nil {
			return nil, fmt.Errorf("%s's value %w", t.Name, err)
		}
		value, err := TensorOf(on)
		if err != nil {
			return nil, fmt.Errorf("%s's value %w", t.Name, err)
		}
		list[n] = score.Values[float64]{Shape: value.Shape}
		dense := kernels.Contiguous(nil, value.DType, value.Shape...)
		for i := range dense.Elements() {
			offset, rest := 0, i
			for axis := len(value.Shape) - 1; axis >= 0; axis-- {
				offset += rest % value.Shape[axis] * value.Strides[axis]
				rest /= value.Shape[axis]
			}
			if x := kernels.HostElement(value, offset); t.Type == score.Int {
				list[n].Ints = append(list[n].Ints, int32(x))
			} else {
				list[n].Floats = append(list[n].Floats, x)
			}
		}
	}
	return list, nil
}
