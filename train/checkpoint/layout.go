package checkpoint

import (
	"cmp"
	"fmt"
	"slices"

	"gorgonia.org/tensor"
)

// This file is what readers of a checkpoint tell each other of the parts that they have read
// ([LoadPart]), before they exchange values.

// Layout is the tensors of a part without their values, in the part's order.
type Layout struct{ Weights, Optimizer []Extent }

// Extent is some of a tensor's elements, in row-major order, or all of them.
type Extent struct {
	Name        string
	DType       string
	Shape       []int // of the tensor
	From, Count int   // number of the first element, and how many there are
}

// Whole is the extent of all of a tensor.
func Whole(name string, dtype tensor.Dtype, shape []int) Extent {
	return Extent{Name: name, DType: dtype.String(), Shape: shape, Count: elements(shape)}
}

func elements(shape []int) int {
	n := 1
	for _, axis := range shape {
		n *= axis
	}
	return n
}

// Layout returns the part's.
func (p Part) Layout() (l Layout) {
	for _, w := range p.Weights {
		l.Weights = append(l.Weights, Whole(w.Name, w.Value.Dtype(), w.Value.Shape()))
	}
	for _, piece := range p.Optimizer {
		l.Optimizer = append(l.Optimizer, piece.extent())
	}
	return l
}

func (p Piece) extent() Extent {
	return Extent{p.Name, p.Value.Dtype().String(), p.Shape, p.From, elements(p.Value.Shape())}
}

// MatchParts is [Match] for the layouts of all of a checkpoint's parts, which need to have each
// element of each tensor once.
func MatchParts(parts []Layout, want Layout) error {
	var all Layout
	for _, p := range parts {
		all.Weights, all.Optimizer = append(all.Weights, p.Weights...), append(all.Optimizer, p.Optimizer...)
	}
	for _, kind := range []struct{ have, want []Extent }{{all.Weights, want.Weights}, {all.Optimizer, want.Optimizer}} {
		byName := map[string][]Extent{}
		for _, e := range kind.have {
			byName[e.Name] = append(byName[e.Name], e)
		}
		var have, model []description
		for name, list := range byName {
			slices.SortStableFunc(list, func(a, b Extent) int { return cmp.Compare(a.From, b.From) })
			whole, err := join(list)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			have = append(have, whole.describe())
		}
		for _, e := range kind.want {
			model = append(model, e.describe())
		}
		slices.SortFunc(have, func(a, b description) int { return cmp.Compare(a.name, b.name) })
		if err := match(have, model); err != nil {
			return err
		}
	}
	return nil
}

// join returns the extent of a tensor whose extents follow each other.
func join(list []Extent) (Extent, error) {
	first, end := list[0], 0
	for _, e := range list {
		if e.From != end || !slices.Equal(e.Shape, first.Shape) || e.DType != first.DType {
			return first, fmt.Errorf("a piece is elements from %d on of %s %v, the pieces before it are %d elements of %s %v",
				e.From, e.DType, e.Shape, end, first.DType, first.Shape)
		}
		end += e.Count
	}
	size := 1
	for _, n := range first.Shape {
		if n < 1 || size > end/n {
			size = -1
			break
		}
		size *= n
	}
	if size != end {
		return first, fmt.Errorf("its pieces have %d elements, its shape is %v", end, first.Shape)
	}
	first.Count = end
	return first, nil
}
