package ops

import (
	"errors"
	"fmt"
	"image/png"
	"io"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
	"gorgonia.org/gorgonia"
)

// MaskPlace is the score matrix whose mask is drawn: of a head, the key head that it reads and a
// batch item, with so many queries and keys.
type MaskPlace = score.Where

// MaskPicture draws what a mask shows as a PNG, queries downwards and keys to the right: visible
// pairs are dark, and darkest in tiles that are visible as a whole, for which no mask is computed;
// hidden ones are light, and white in tiles that are skipped. Nodes that the mask looks up need
// values on the host. A long side is drawn with 1024 pixels, each of them a pair of many.
func MaskPicture(w io.Writer, mask func(Pair) Cond, place MaskPlace) error {
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
	return png.Encode(w, m.Picture(place, values))
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
		if err == nil {
			value, err = copied(value, value.DType, host, host)
		}
		if err != nil {
			return nil, fmt.Errorf("%s's value %w", t.Name, err)
		}
		list[n] = score.Values[float64]{Shape: value.Shape}
		for i := range value.Elements() {
			if x := kernels.HostElement(value, i); t.Type == score.Int {
				list[n].Ints = append(list[n].Ints, int32(x))
			} else {
				list[n].Floats = append(list[n].Floats, x)
			}
		}
	}
	return list, nil
}
