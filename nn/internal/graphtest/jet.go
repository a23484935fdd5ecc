package graphtest

import (
	"math"
	"slices"
)

// jet is a number with its derivatives along two directions: x + a·ε₁ + b·ε₂ + c·ε₁ε₂, where the
// square of each ε is 0. So a and b are slopes, and c is the second derivative along both.
type jet struct{ x, a, b, c float64 }

func number(x float64) jet { return jet{x: x} }

func (x jet) add(y jet) jet { return jet{x.x + y.x, x.a + y.a, x.b + y.b, x.c + y.c} }

func (x jet) times(k float64) jet { return jet{k * x.x, k * x.a, k * x.b, k * x.c} }

func (x jet) sub(y jet) jet { return x.add(y.times(-1)) }

func (x jet) plus(k float64) jet { return x.add(number(k)) }

func (x jet) mul(y jet) jet {
	return jet{x.x * y.x, x.a*y.x + x.x*y.a, x.b*y.x + x.x*y.b, x.c*y.x + x.a*y.b + x.b*y.a + x.x*y.c}
}

func (x jet) div(y jet) jet { return x.mul(y.of(1/y.x, -1/(y.x*y.x), 2/(y.x*y.x*y.x))) }

// of is a function of x, given its value and derivatives there.
func (x jet) of(value, slope, curve float64) jet {
	return jet{value, slope * x.a, slope * x.b, slope*x.c + curve*x.a*x.b}
}

func (x jet) exp() jet {
	y := math.Exp(x.x)
	return x.of(y, y, y)
}

func (x jet) log() jet { return x.of(math.Log(x.x), 1/x.x, -1/(x.x*x.x)) }

func (x jet) sqrt() jet {
	y := math.Sqrt(x.x)
	return x.of(y, 0.5/y, -0.25/(y*x.x))
}

func (x jet) sigmoid() jet {
	y := 1 / (1 + math.Exp(-x.x))
	return x.of(y, y*(1-y), y*(1-y)*(1-2*y))
}

func (x jet) tanh() jet {
	y := math.Tanh(x.x)
	return x.of(y, 1-y*y, -2*y*(1-y*y))
}

// normal is the distribution function of a normal variable.
func (x jet) normal() jet {
	density := math.Exp(-x.x*x.x/2) / math.Sqrt(2*math.Pi)
	return x.of((1+math.Erf(x.x/math.Sqrt2))/2, density, -x.x*density)
}

// array is a value: floats, or integers.
type array struct {
	shape []int
	x     []jet
	ints  []int
}

func newArray(shape ...int) array {
	return array{shape: slices.Clone(shape), x: make([]jet, size(shape))}
}

func size(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// last is the size of the last axis.
func (a array) last() int { return a.shape[len(a.shape)-1] }

// rows are the parts of a along its last axis.
func (a array) rows() [][]jet {
	var list [][]jet
	for n, at := a.last(), 0; at < len(a.x); at += n {
		list = append(list, a.x[at:at+n])
	}
	return list
}

// each is an array of functions of a's elements.
func (a array) each(f func(x jet) jet) array {
	y := newArray(a.shape...)
	for i, x := range a.x {
		y.x[i] = f(x)
	}
	return y
}

// with is an array of functions of the elements of two arrays that broadcast to each other.
func (a array) with(b array, f func(x, y jet) jet) array {
	shape := broadcast(a.shape, b.shape)
	y := newArray(shape...)
	for i := range y.x {
		at := place(i, shape)
		y.x[i] = f(a.x[a.at(at)], b.x[b.at(at)])
	}
	return y
}

// at is the number of the element at a place of a shape that a broadcasts to.
func (a array) at(place []int) int {
	n := 0
	for axis, d := range a.shape {
		n *= d
		if d > 1 {
			n += place[axis+len(place)-len(a.shape)]
		}
	}
	return n
}

// place is the place of element i of a shape.
func place(i int, shape []int) []int {
	at := make([]int, len(shape))
	for axis := len(shape) - 1; axis >= 0; axis-- {
		at[axis] = i % shape[axis]
		i /= shape[axis]
	}
	return at
}

// broadcast is the shape that two have together; nil where they do not fit.
func broadcast(a, b []int) []int {
	shape := make([]int, max(len(a), len(b)))
	for i := range shape {
		x, y := 1, 1
		if at := i - len(shape) + len(a); at >= 0 {
			x = a[at]
		}
		if at := i - len(shape) + len(b); at >= 0 {
			y = b[at]
		}
		switch {
		case x == y || y == 1:
			shape[i] = x
		case x == 1:
			shape[i] = y
		default:
			return nil
		}
	}
	return shape
}

// rearranged is an array whose element at a place is that of a at from(place), or none's, which is
// a number.
func (a array) rearranged(shape []int, none float64, from func(place []int) []int) array {
	y := newArray(shape...)
	for i := range y.x {
		if at := from(place(i, shape)); at == nil {
			y.x[i] = number(none)
		} else {
			y.x[i] = a.x[a.at(at)]
		}
	}
	return y
}

func sum(list []jet) (total jet) {
	for _, x := range list {
		total = total.add(x)
	}
	return total
}

// matmul is the product of the last two axes, over batches that broadcast.
func matmul(a, b array) array {
	m, k, n := a.shape[len(a.shape)-2], a.last(), b.last()
	batch := broadcast(a.shape[:len(a.shape)-2], b.shape[:len(b.shape)-2])
	y := newArray(append(slices.Clone(batch), m, n)...)
	for i := range y.x {
		at := place(i, y.shape)
		row, column := slices.Clone(at), slices.Clone(at)
		for j := range k {
			row[len(row)-1], column[len(column)-2] = j, j
			y.x[i] = y.x[i].add(a.x[a.at(row)].mul(b.x[b.at(column)]))
		}
	}
	return y
}

func (a array) permuted(axes ...int) array {
	shape := make([]int, len(axes))
	for i, axis := range axes {
		shape[i] = a.shape[axis]
	}
	return a.rearranged(shape, 0, func(place []int) []int {
		at := make([]int, len(axes))
		for i, axis := range axes {
			at[axis] = place[i]
		}
		return at
	})
}

func (a array) transposed() array {
	axes := make([]int, len(a.shape))
	for i := range axes {
		axes[i] = i
	}
	last := len(axes) - 1
	axes[last-1], axes[last] = last, last-1
	return a.permuted(axes...)
}

func (a array) reshaped(shape ...int) array { return array{shape: shape, x: a.x, ints: a.ints} }

// softmax is that of rows; its logarithm, the logsumexp of each row, comes beside it.
func softmax(row []jet) (p []jet, lse jet) {
	largest := math.Inf(-1)
	for _, x := range row {
		largest = max(largest, x.x)
	}
	for _, x := range row {
		p = append(p, x.plus(-largest).exp())
	}
	total := sum(p)
	for i := range p {
		p[i] = p[i].div(total)
	}
	return p, total.log().plus(largest)
}
