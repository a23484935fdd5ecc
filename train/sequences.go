package train

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// rowsOf gives each rank that shares sequences ([PlaceConfig].SequenceRanks) its rows of every
// batch, which has a number for each of these ranks.
func rowsOf(batches data.Batches, ranks *distributed.Group) data.Batches {
	if batches == nil || ranks.Size() == 1 {
		return batches
	}
	return sharedBatches{batches, ranks}
}

type sharedBatches struct {
	whole data.Batches
	ranks *distributed.Group
}

// Batch returns this rank's rows of a batch, which has a number for each rank.
func (s sharedBatches) Batch(n int) (data.Batch, error) {
	whole, err := s.whole.Batch(n / s.ranks.Size())
	if err != nil {
		return nil, err
	}
	own := data.Batch{}
	for _, name := range whole.Names() {
		if own[name], err = heldRows(whole[name], s.ranks); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return own, nil
}

// heldRows is what a rank holds of an array: rows of an early part, and of a late one.
func heldRows(array *tensor.Dense, ranks *distributed.Group) (*tensor.Dense, error) {
	if array == nil || array.Dims() < 2 {
		return nil, errors.New("it needs at least two axes (batch, length), for ranks to share its sequences")
	}
	rows, err := ops.HeldRows(ranks, array.Shape()[1])
	if err != nil {
		return nil, err
	}
	half := len(rows) / 2
	var parts [2]*tensor.Dense
	for i, part := range [][]int{rows[:half], rows[half:]} {
		view, err := array.Slice(nil, tensor.S(part[0], part[0]+half))
		if err != nil {
			return nil, err
		}
		parts[i] = view.Materialize().(*tensor.Dense)
	}
	return parts[0].Concat(1, parts[1])
}
