package score

import (
	"image"
	"image/color"
)

// Picture draws what the mask shows of a score matrix, queries downwards and keys to the right:
// visible pairs are dark, and darkest in tiles that are visible as a whole, for which no mask is
// computed; hidden ones are light, and white in tiles that are skipped. A long side is drawn with
// 1024 pixels, each of them a pair of many. tables has the values of what the mask looks up.
func (m *Mask) Picture(place Where, tables []Values[float64]) *image.Gray {
	const longest = 1024
	lo, hi := m.Band(place)
	tiles := &Tiles{}
	if m.Rest != nil {
		tiles = m.Tiles(place, tileRows, tileColumns, lo, hi, tables)
	}
	side := max(place.QueryLength, place.KeyLength)
	pixels := func(n int) int { return max(1, n*min(side, longest)/side) }
	picture := image.NewGray(image.Rect(0, 0, pixels(place.KeyLength), pixels(place.QueryLength)))
	e := NewEvaluator[float64](m.Whole)
	for y := range picture.Rect.Dy() {
		q := y * place.QueryLength / picture.Rect.Dy()
		e.Run(Line[float64]{Where: place, N: place.KeyLength, Query: q, KeyStep: 1, Tables: tables})
		for x := range picture.Rect.Dx() {
			k := x * place.KeyLength / picture.Rect.Dx()
			picture.SetGray(x, y, shade(e.Bools(0)[k], m.tileAt(tiles, q, k, lo, hi)))
		}
	}
	return picture
}

// tileRows and tileColumns are the shape of a picture's tiles, that of the CPU's.
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
func (m *Mask) tileAt(tiles *Tiles, q, k, lo, hi int) tileKind {
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
