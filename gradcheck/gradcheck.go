package gradcheck

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Options say what is checked. The zero value is a thorough check of something small.
type Options struct {
	// Seed of what is drawn: which elements, which directions, the weights of results.
	Seed uint64
	// Elements is how many elements of each input are looked at, drawn at random: 0 means 32, and
	// a negative number all.
	Elements int
	// Directions is how many random directions through all inputs are looked at: 0 means 4, and a
	// negative number none.
	Directions int
	// Tolerance multiplies what a gradient and a slope may differ by; 0 means 1.
	Tolerance float64
	// Contiguous leaves out the check with views, for ops that refuse them.
	Contiguous bool
	// Second checks second derivatives in place of first ones: what is differentiated is the sum of
	// the gradients of the result's elements, and of half their squares, each times a random
	// number. A lispMachine cannot compute them. See [Graph] and [ops.Gradients].
	Second bool
	// Single checks gradients in float32 too, beside those in float64. See [Graph].
	Single bool
	// Device checks gradients of a device too, in float32; nil for none. See [Graph].
	Device Device
}

func (o Options) elements(n int) int {
	switch {
	case o.Elements == 0:
		return min(n, 32)
	case o.Elements < 0:
		return n
	}
	return min(n, o.Elements)
}

func (o Options) directions() int {
	if o.Directions == 0 {
		return 4
	}
	return max(0, o.Directions)
}

func (o Options) tolerance() float64 {
	if o.Tolerance == 0 {
		return 1
	}
	return o.Tolerance
}

// Variable is an input of a function, and the gradient that is to be checked.
type Variable struct {
	Name     string
	Shape    []int     // for messages; nil counts as one axis
	X        []float64 // the function reads it, the check changes it and puts it back
	Gradient []float64
}

// Mismatch is a gradient that is not the function's.
type Mismatch struct {
	Of        string // how the gradient was computed, such as "lispMachine"
	Input     string // empty for a direction through all inputs
	Element   []int
	Direction int
	// Gradient is what was checked, Slope what it should be. They may differ by Allowed.
	Gradient, Slope, Allowed float64
}

func (m *Mismatch) Error() string {
	what := fmt.Sprintf("the gradient of %s%v", m.Input, m.Element)
	if m.Input == "" {
		what = fmt.Sprintf("the gradient along random direction %d", m.Direction)
	}
	if m.Of != "" {
		what = m.Of + ": " + what
	}
	return fmt.Sprintf("%s is %.12g, it needs to be %.12g: the two differ by %.3g, they may by %.3g",
		what, m.Gradient, m.Slope, math.Abs(m.Gradient-m.Slope), m.Allowed)
}

// Function checks the gradients of a function of some variables, whose elements it reads anew in
// each call.
func Function(f func() float64, variables []Variable, o Options) error {
	checked := func() (float64, float64, error) {
		y := f()
		return y, math.Abs(y), nil
	}
	return function(checked, "", variables, o)
}

// evaluate computes the function, and how large the terms are that it sums up.
type evaluate func() (y, size float64, err error)

func function(f evaluate, of string, variables []Variable, o Options) error {
	for _, v := range variables {
		if len(v.Gradient) != len(v.X) {
			return fmt.Errorf("the gradient of %s has %d elements, it needs %d", v.Name, len(v.Gradient), len(v.X))
		}
		for i, g := range v.Gradient {
			if math.IsNaN(g) || math.IsInf(g, 0) {
				return &Mismatch{Of: of, Input: v.Name, Element: place(i, v.Shape), Gradient: g, Slope: math.NaN()}
			}
		}
	}
	r := rand.New(rand.NewPCG(o.Seed, 0x6772616463686b))
	noise, err := towards(f, variables, r).noise()
	if err != nil {
		return err
	}
	for _, v := range variables {
		largest := greatest(v.Gradient)
		for _, i := range r.Perm(len(v.X))[:o.elements(len(v.X))] {
			x := v.X[i]
			along := line{evaluate: f, unit: max(1, math.Abs(x)), move: func(t float64) { v.X[i] = x + t }, back: func() { v.X[i] = x }}
			s, err := along.slope(largest, noise)
			if err != nil {
				return fmt.Errorf("%s%v: %w", v.Name, place(i, v.Shape), err)
			}
			if allowed := o.tolerance() * s.allowed; !(math.Abs(v.Gradient[i]-s.value) <= allowed) {
				return &Mismatch{of, v.Name, place(i, v.Shape), 0, v.Gradient[i], s.value, allowed}
			}
		}
	}
	for k := range o.directions() {
		along := towards(f, variables, r)
		gradient, terms := 0.0, 0.0
		for n, v := range variables {
			for i, d := range along.steps[n] {
				gradient += d * v.Gradient[i]
				terms += math.Abs(d * v.Gradient[i])
			}
		}
		s, err := along.slope(terms, noise)
		if err != nil {
			return fmt.Errorf("along random direction %d: %w", k, err)
		}
		if allowed := o.tolerance() * (s.allowed + 0x1p-50*terms); !(math.Abs(gradient-s.value) <= allowed) {
			return &Mismatch{Of: of, Direction: k, Gradient: gradient, Slope: s.value, Allowed: allowed}
		}
	}
	return nil
}

// towards is a random direction of length 1 through all variables.
func towards(f evaluate, variables []Variable, r *rand.Rand) line {
	var starts, steps [][]float64
	count := 0
	for _, v := range variables {
		starts, steps, count = append(starts, slices.Clone(v.X)), append(steps, make([]float64, len(v.X))), count+len(v.X)
	}
	for _, step := range steps {
		for i := range step {
			step[i] = r.NormFloat64() / math.Sqrt(float64(count))
		}
	}
	return line{evaluate: f, unit: 1, steps: steps, move: func(t float64) {
		for n, v := range variables {
			for i := range v.X {
				v.X[i] = starts[n][i] + t*steps[n][i]
			}
		}
	}, back: func() {
		for n, v := range variables {
			copy(v.X, starts[n])
		}
	}}
}

// line is a function along one direction.
type line struct {
	evaluate
	unit  float64     // a step of which is moderate
	steps [][]float64 // of each variable, if it goes through all
	move  func(t float64)
	back  func()
}

// noise is how much rounding moves the function: what is left of its second differences where
// steps are so small that they should be nothing.
func (l line) noise() (largest float64, err error) {
	defer l.back()
	var y [12]float64
	for k := range y {
		l.move(float64(k) * 0x1p-28)
		if y[k], _, err = l.evaluate(); err != nil {
			return 0, err
		}
		if k >= 2 {
			largest = max(largest, math.Abs(y[k]-2*y[k-1]+y[k-2]))
		}
	}
	return largest, nil
}

// slope is a slope, and what a right gradient may differ from it by.
type slope struct{ value, allowed float64 }

// errRough is what is wrong with a function that differences find no slope of.
var errRough = errors.New("the function is not smooth enough for differences: move the inputs away from its edges and jumps")

// slope finds the slope at 0. Where it does not settle for a step size it tries smaller ones, which
// are nearer to the point and suffer more from rounding.
func (l line) slope(typical, noise float64) (s slope, err error) {
	for _, h := range []float64{0x1p-7, 0x1p-11, 0x1p-15, 0x1p-19} {
		h *= l.unit
		var unsure float64
		if s, unsure, err = l.differences(h, noise); err != nil {
			return s, err
		}
		if unsure <= 1e-7*(math.Abs(s.value)+typical)+s.allowed/2 {
			s.allowed += 4 * unsure
			return s, nil
		}
	}
	return s, errRough
}

// differences extrapolates central differences of three step sizes to a step of 0. Allowed is what
// rounding makes of it alone, and unsure how far the extrapolations differ.
func (l line) differences(h, noise float64) (s slope, unsure float64, err error) {
	defer l.back()
	var d [3]float64
	size := 0.0
	for k := range d {
		var y [2]float64
		for side, t := range []float64{h, -h} {
			l.move(t)
			value, terms, err := l.evaluate()
			if err != nil {
				return s, 0, err
			}
			y[side], size = value, max(size, terms, math.Abs(value))
		}
		d[k] = (y[0] - y[1]) / (2 * h)
		h /= 2
	}
	first, second := (4*d[1]-d[0])/3, (4*d[2]-d[1])/3 // without errors of h²
	s.value = (16*second - first) / 15                // nor h⁴
	s.allowed = (8*noise+0x1p-50*size)/h + 0x1p-48*math.Abs(s.value) + 0x1p-44
	if unsure = math.Abs(s.value - second); math.IsNaN(unsure) {
		return s, 0, fmt.Errorf("the function is %v at one of the points beside it", y(d))
	}
	return s, unsure, nil
}

func y(d [3]float64) float64 { return d[0] + d[1] + d[2] }

func greatest(x []float64) (largest float64) {
	for _, v := range x {
		largest = max(largest, math.Abs(v))
	}
	return largest
}

// place is the index of an element of a shape.
func place(i int, shape []int) []int {
	if len(shape) == 0 {
		return []int{i}
	}
	at := make([]int, len(shape))
	for axis := len(shape) - 1; axis >= 0; axis-- {
		at[axis] = i % shape[axis]
		i /= shape[axis]
	}
	return at
}
