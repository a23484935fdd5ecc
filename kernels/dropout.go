package kernels

import (
	"fmt"
	"math"
)

// DropoutKernels drop elements of a tensor.
type DropoutKernels interface {
	// Dropout computes y = x·keep·d.Scale(): with x seen as rows of its last axis, the element in
	// row r and column c is kept if d.Keep(0, d.Row + r, c). The backward kernel is the same, from
	// dy to dx. y may be x itself; x and y have one shape, one dtype and contiguous rows.
	Dropout(d Dropout, x, y Tensor) error
}

// Dropout says which elements are dropped: a function of the seed, the step and the position alone,
// so that a mask is never stored and forward, backward, CPU and GPU agree on it.
type Dropout struct {
	// P is the probability to drop an element, rounded to a multiple of 2⁻¹⁶: 0 or less than 2⁻¹⁷
	// drops nothing, and what rounds to 1 is refused.
	P    float64
	Seed uint64
	Step uint32 // changes the mask from one training step to the next
	Row  int    // of the tensor's first row, where it is part of a larger one; attention does not look at it
}

// DropoutVersion numbers the ways to draw masks that there have been: under another one the same
// seed gives other masks. The first had a word of ten rounds an element.
const DropoutVersion = 2

// DropoutRounds is how many rounds of [Philox] draw a mask.
const DropoutRounds = 7

// DropoutColumns is how many neighbouring columns share a counter.
const DropoutColumns = 8

// dropoutParts is how many probabilities there are: a number that decides has 16 bits.
const dropoutParts = 1 << 16

// Threshold is the number under which a random number of 16 bits drops its element: P·2¹⁶, rounded.
func (d Dropout) Threshold() uint32 { return uint32(math.Round(d.P * dropoutParts)) }

// Keep reports whether the element at (plane, row, column) is kept. A plane is a matrix of its own,
// such as one head of one batch item. Eight neighbouring columns share the counter (step, plane,
// row, column/8), whose four words are eight numbers of 16 bits, in the order of the columns: word
// n has that of column 2n in its lower half and that of 2n+1 in its upper.
func (d Dropout) Keep(plane, row, column int) bool {
	counter := [4]uint32{d.Step, uint32(plane), uint32(row), uint32(column / DropoutColumns)}
	words := Philox(DropoutRounds, PhiloxKey(d.Seed), counter)
	within := column % DropoutColumns
	return words[within/2]>>(within%2*16)&(dropoutParts-1) >= d.Threshold()
}

// Scale is what a kept element is multiplied by, 1/(1−p) for the probability p that P is rounded
// to, so that the mean stays.
func (d Dropout) Scale() float64 { return dropoutParts / float64(dropoutParts-d.Threshold()) }

// Check returns what is wrong with a call of Dropout.
func (d Dropout) Check(x, y Tensor) error {
	if err := d.Validate(); err != nil {
		return err
	}
	return checkAlike(x, "x", operandList{{"x", x}}, operandList{{"y", y}})
}

// Validate returns an error unless P can be the probability to drop an element.
func (d Dropout) Validate() error {
	if !(d.P >= 0 && d.P < 1) {
		return fmt.Errorf("dropout is %v, it needs to be in [0, 1)", d.P)
	}
	if d.Row < 0 || d.Row > math.MaxInt32 {
		return fmt.Errorf("dropout begins at row %d, it needs to be from 0 to 2³¹−1", d.Row)
	}
	if d.Threshold() == dropoutParts {
		return fmt.Errorf("dropout is %v, it needs to be less than 1−2⁻¹⁷: probabilities are multiples of 2⁻¹⁶, and it rounds to 1", d.P)
	}
	return nil
}
