package data

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gorgonia.org/tensor"
)

// ExampleBatches are [Batches] of the examples of a data set, each of which comes once an epoch.
type ExampleBatches struct {
	all         Batch
	count, rows int
	seed        uint64
}

// Examples makes batches of a data set in memory. Its arrays have an element for each example along
// their first axis; those of a batch have as many as rows. The order of each epoch follows from the
// seed and the epoch. Where the rows do not divide the number of examples, a batch holds the end of
// one epoch and the beginning of the next.
func Examples(all Batch, rows int, seed uint64) (*ExampleBatches, error) {
	e := &ExampleBatches{all: all, rows: rows, seed: seed}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("Examples: %w", err)
	}
	return e, nil
}

func (e *ExampleBatches) check() error {
	if len(e.all) == 0 {
		return errors.New("there are no arrays, it needs at least one")
	}
	first := e.all.Names()[0]
	for _, name := range e.all.Names() {
		switch array := e.all[name]; {
		case array == nil:
			return fmt.Errorf("%s is nil, it needs to be an array", name)
		case array.Dims() == 0 || !slices.Equal(array.Strides(), array.Shape().CalcStrides()):
			return fmt.Errorf("%s has shape %v and strides %v, it needs an axis of examples, and its elements to lie row by row without gaps",
				name, []int(array.Shape()), array.Strides())
		case name == first:
			e.count = array.Shape()[0]
		case array.Shape()[0] != e.count:
			return fmt.Errorf("%s has %d examples, %s has %d: they need to be as many", name, array.Shape()[0], first, e.count)
		}
		if _, err := gather(e.all[name], nil); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
	}
	if e.count < 1 || e.rows < 1 || e.rows > math.MaxInt32 {
		return fmt.Errorf("there are %d examples and rows is %d, each needs to be at least 1", e.count, e.rows)
	}
	return nil
}

// Count is the number of examples, which are the rows of one epoch.
func (e *ExampleBatches) Count() int { return e.count }

// Batch returns batch n.
func (e *ExampleBatches) Batch(n int) (Batch, error) {
	if err := checkNumber(n, e.rows); err != nil {
		return nil, fmt.Errorf("Examples: %w", err)
	}
	picked := make([]int, e.rows)
	for row := range picked {
		i := n*e.rows + row
		picked[row] = permute(e.seed, i/e.count, e.count, i%e.count)
	}
	b := Batch{}
	for name, array := range e.all {
		rows, err := gather(array, picked)
		if err != nil {
			return nil, fmt.Errorf("Examples: %s %w", name, err)
		}
		shape := slices.Clone(array.Shape())
		shape[0] = e.rows
		b[name] = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(rows))
	}
	return b, nil
}

// gather copies rows of an array, one after another.
func gather(array *tensor.Dense, picked []int) (any, error) {
	switch from := array.Data().(type) {
	case []float32:
		return gatherOf(from, array.Shape()[0], picked), nil
	case []float64:
		return gatherOf(from, array.Shape()[0], picked), nil
	case []int:
		return gatherOf(from, array.Shape()[0], picked), nil
	case []int32:
		return gatherOf(from, array.Shape()[0], picked), nil
	case []int64:
		return gatherOf(from, array.Shape()[0], picked), nil
	case []bool:
		return gatherOf(from, array.Shape()[0], picked), nil
	}
	return nil, fmt.Errorf("is %v, it needs to be float32, float64, int, int32, int64 or bool", array.Dtype())
}

func gatherOf[T any](from []T, rows int, picked []int) []T {
	size := len(from) / rows
	to := make([]T, 0, size*len(picked))
	for _, row := range picked {
		to = append(to, from[row*size:][:size]...)
	}
	return to
}
