package data

import (
	"errors"
	"fmt"
	"math"
)

// Batches is a sequence of batches without end.
type Batches interface {
	// Shape is the shape of each batch: how many rows, and how many tokens each has.
	Shape() (rows, length int)
	// Fill writes batch n, counted from 0, into tokens and targets, which have rows·length elements, one row after
	// another. The targets are the tokens one place later. Batch n is the same whenever it is asked for.
	Fill(n int, tokens, targets []int) error
}

// cutter cuts rows out of tokens: what all batches here have in common.
type cutter struct {
	name         string // the function that made the batches, for errors
	tokens       *Tokens
	rows, length int
}

func newCutter(name string, tokens *Tokens, rows, length int) (cutter, error) {
	switch {
	case tokens == nil:
		return cutter{}, fmt.Errorf("%s: tokens is nil, it needs to be tokens", name)
	case rows < 1 || length < 1 || rows > math.MaxInt/length:
		return cutter{}, fmt.Errorf("%s: rows is %d and length is %d, each needs to be at least 1 and their product an int",
			name, rows, length)
	case tokens.Len() <= length:
		return cutter{}, fmt.Errorf("%s: tokens holds %d, a row of %d and the target after it need at least %d",
			name, tokens.Len(), length, length+1)
	}
	return cutter{name, tokens, rows, length}, nil
}

// Shape is the shape of each batch.
func (c *cutter) Shape() (rows, length int) { return c.rows, c.length }

// fill writes a batch whose rows begin at start(row).
func (c *cutter) fill(n int, tokens, targets []int, start func(row int) int) error {
	if err := checkFill(n, c.rows, c.length, tokens, targets); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	if c.tokens.memory.closed {
		return fmt.Errorf("%s: %w", c.name, errClosed)
	}
	for row := range c.rows {
		x, y := tokens[row*c.length:][:c.length], targets[row*c.length:][:c.length]
		from := start(row)
		c.tokens.copy(x, from)
		copy(y, x[1:])
		y[c.length-1] = c.tokens.At(from + c.length)
	}
	return nil
}

// checkFill checks the arguments of Fill.
func checkFill(n, rows, length int, tokens, targets []int) error {
	switch {
	case n < 0:
		return fmt.Errorf("n is %d, it needs to be at least 0", n)
	case n > math.MaxInt/rows-1:
		return errors.New("n is so large that its rows have no number")
	case len(tokens) != rows*length || len(targets) != rows*length:
		return fmt.Errorf("tokens has %d elements and targets %d, for %d rows of %d each needs %d",
			len(tokens), len(targets), rows, length, rows*length)
	}
	return nil
}
