package data

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gorgonia.org/tensor"
)

// Batch is what a model is given at once: arrays by name, such as tokens and targets, or images and
// labels.
type Batch map[string]*tensor.Dense

// Batches is a sequence of batches without end. The batches of one sequence may have several
// shapes.
type Batches interface {
	// Batch returns batch n, counted from 0, which is the same whenever it is asked for. Its arrays
	// are the caller's.
	Batch(n int) (Batch, error)
}

// Func is a function that makes batches.
type Func func(n int) (Batch, error)

// Batch calls the function.
func (f Func) Batch(n int) (Batch, error) {
	if f == nil {
		return nil, errors.New("the function is nil, it needs to be one that makes batches")
	}
	return f(n)
}

// Names lists the arrays, sorted.
func (b Batch) Names() []string { return slices.Sorted(maps.Keys(b)) }

// String describes names, types and shapes: two batches with the same description fit the same
// graph.
func (b Batch) String() string {
	var arrays []string
	for _, name := range b.Names() {
		if b[name] == nil {
			arrays = append(arrays, name+" (nil)")
			continue
		}
		arrays = append(arrays, fmt.Sprintf("%s %v of %v", name, []int(b[name].Shape()), b[name].Dtype()))
	}
	return strings.Join(arrays, ", ")
}

// Size returns how many examples a batch has, which is the first axis of its largest array, and how
// many tokens, where it has an array of that name.
func (b Batch) Size() (examples, tokens int) {
	largest := 0
	for _, name := range b.Names() {
		array := b[name]
		if array == nil || array.Dims() == 0 {
			continue
		}
		if elements := array.Shape().TotalSize(); elements > largest {
			largest, examples = elements, array.Shape()[0]
		}
		if name == "tokens" {
			tokens = array.Shape().TotalSize()
		}
	}
	return examples, tokens
}

// cutter cuts rows out of tokens: what all batches of tokens have in common.
type cutter struct {
	name         string // the function that made the batches, for errors
	tokens       *Tokens
	rows, length int
}

func newCutter(name string, tokens *Tokens, rows, length int) (cutter, error) {
	switch {
	case tokens == nil:
		return cutter{}, fmt.Errorf("%s: tokens is nil, it needs to be tokens", name)
	case rows < 1 || length < 1 || rows > math.MaxInt32/length:
		return cutter{}, fmt.Errorf("%s: rows is %d and length is %d, each needs to be at least 1 and their product an int32",
			name, rows, length)
	case tokens.Len() <= length:
		return cutter{}, fmt.Errorf("%s: tokens holds %d, a row of %d and the target after it need at least %d",
			name, tokens.Len(), length, length+1)
	}
	return cutter{name, tokens, rows, length}, nil
}

// batch makes a batch whose rows begin at start(row): tokens, and targets, which are the tokens one
// place later.
func (c *cutter) batch(n int, start func(row int) int) (Batch, error) {
	if err := checkNumber(n, c.rows); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if c.tokens.memory.closed {
		return nil, fmt.Errorf("%s: %w", c.name, errClosed)
	}
	tokens, targets := make([]int, c.rows*c.length), make([]int, c.rows*c.length)
	for row := range c.rows {
		x, y := tokens[row*c.length:][:c.length], targets[row*c.length:][:c.length]
		from := start(row)
		c.tokens.copy(x, from)
		copy(y, x[1:])
		y[c.length-1] = c.tokens.At(from + c.length)
	}
	return Batch{
		"tokens":  tensor.New(tensor.WithShape(c.rows, c.length), tensor.WithBacking(tokens)),
		"targets": tensor.New(tensor.WithShape(c.rows, c.length), tensor.WithBacking(targets)),
	}, nil
}

// checkNumber checks the number of a batch of so many rows.
func checkNumber(n, rows int) error {
	switch {
	case n < 0:
		return fmt.Errorf("n is %d, it needs to be at least 0", n)
	case n > math.MaxInt/rows-1:
		return errors.New("n is so large that its rows have no number")
	}
	return nil
}
