// Package resample says how the elements of a row of another length are made of those of a row:
// what makes images, and tables of positions, larger and smaller.
package resample

import "math"

// Filter is a function that weighs elements by their distance, and how far it reaches.
type Filter struct {
	Reach float64
	At    func(distance float64) float64
}

// Bilinear weighs the two nearest elements.
var Bilinear = Filter{1, func(x float64) float64 { return max(0, 1-math.Abs(x)) }}

// Bicubic is the cubic convolution whose slope at distance 1 is a: −0.5 for images as Pillow and
// PyTorch with antialias have it, −0.75 for PyTorch without.
func Bicubic(a float64) Filter {
	return Filter{2, func(x float64) float64 {
		switch x = math.Abs(x); {
		case x < 1:
			return ((a+2)*x-(a+3))*x*x + 1
		case x < 2:
			return (((x-5)*x+8)*x - 4) * a
		}
		return 0
	}}
}

// Lanczos is a sinc under another that is three times as wide.
var Lanczos = Filter{3, func(x float64) float64 {
	if x <= -3 || x >= 3 {
		return 0
	}
	return sinc(x) * sinc(x/3)
}}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	return math.Sin(math.Pi*x) / (math.Pi * x)
}

// Element is what one element is made of: those from First on, times Weights, whose sum is 1.
type Element struct {
	First   int
	Weights []float64
}

// Row is what the elements of a row of length to are made of one of length from. The filter is as
// wide as an element of the coarser row, and ends at the row's ends.
func Row(f Filter, from, to int) []Element {
	step := float64(from) / float64(to)
	wide := max(step, 1)
	row := make([]Element, to)
	for i := range row {
		center := (float64(i) + 0.5) * step
		first := max(0, int(center-f.Reach*wide+0.5))
		end := min(from, int(center+f.Reach*wide+0.5))
		weights, sum := make([]float64, end-first), 0.0
		for j := range weights {
			weights[j] = f.At((float64(first+j) - center + 0.5) / wide)
			sum += weights[j]
		}
		for j := range weights {
			weights[j] /= sum
		}
		row[i] = Element{first, weights}
	}
	return row
}

// RowAsIs is [Row] with a filter that is as wide as an element of the first row, whatever the
// other's length: the first and last elements stand for those beyond the ends.
func RowAsIs(f Filter, from, to int) []Element {
	step := float64(from) / float64(to)
	row := make([]Element, to)
	for i := range row {
		center := (float64(i)+0.5)*step - 0.5
		lowest := int(math.Floor(center)) - int(f.Reach) + 1
		first := min(max(lowest, 0), from-1)
		last := min(max(lowest+2*int(f.Reach)-1, 0), from-1)
		row[i] = Element{first, make([]float64, last-first+1)}
		for j := lowest; j < lowest+2*int(f.Reach); j++ {
			row[i].Weights[min(max(j, 0), from-1)-first] += f.At(float64(j) - center)
		}
	}
	return row
}
