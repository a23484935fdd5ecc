package watch

import "math"

// average is a mean in which the weight of a number falls by a factor e with every span numbers
// that come after it. Numbers that are not finite are left out. It is NaN before the first.
type average struct {
	span        float64
	sum, weight float64
}

func (a *average) add(x float64) {
	if !finite(x) {
		return
	}
	keep := math.Exp(-1 / a.span)
	a.sum = a.sum*keep + x
	a.weight = a.weight*keep + 1
}

func (a *average) value() float64 { return a.sum / a.weight }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
