package train

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// ShareSequences gives each rank its rows of every batch, for a model whose attention shares sequences ([ops.AttentionOptions]): all ranks
// take the same batches, one a step (or Accumulation), and the second axis of an array, (B, S) or (B, S, ...), is the sequence.
// Options.Ranks of the optimiser is the same group, whose mean of the ranks' gradients is that of the whole, as long as each has as many
// targets that count. All of a loop's batches need to be shared, or none. What the ranks compute of a batch is what one process computes, up to the order of sums.
func ShareSequences(batches data.Batches, ranks *distributed.Group) data.Batches {
	if ranks.Size() == 1 {
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

// sharedBy is how many ranks share the sequences of batches.
func sharedBy(batches data.Batches) int {
	if s, ok := batches.(sharedBatches); ok {
		return s.ranks.Size()
	}
	return 1
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
