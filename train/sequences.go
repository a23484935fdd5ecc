package train

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// ShareSequences gives each rank its rows of every batch, for a model whose attention shares sequences ([ops.AttentionOptions]): the ranks
// take the same batches, and the second axis of an array, (B, S) or (B, S, ...), is the sequence. Options.Ranks of the optimiser is the
// same group, and a step takes one batch (or Accumulation).
//
// Or it is a group of which the ranks that share are a part, [distributed.Group.Split]. Then each part takes batches of its own, and a step
// as many as there are parts:
//
//	row, err := group.Split(2)        // of 8 ranks, every two share sequences
//	Options{Ranks: group}             // and a step takes 4 batches
//
// The mean of the ranks' gradients is that of the whole, as long as each has as many targets that count. All of a loop's batches need to be
// shared, or none. What the ranks compute of a batch is what one process computes, up to the order of sums.
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

// sharersOf are the ranks that share the sequences of batches, nil where each takes batches of its own.
func sharersOf(batches data.Batches) *distributed.Group {
	s, _ := batches.(sharedBatches)
	return s.ranks
}

// sharers are how many ranks take the same batches.
func (l *Loop) sharers() int { return sharersOf(l.c.Data).Size() }

// batchesOfStep is how many batches of the data a step takes, each of which has a number for each rank that shares it.
func (l *Loop) batchesOfStep() int { return l.optimizer.batchesOfStep() / l.sharers() }

// checkSharers makes sure that ranks which share sequences train together, and that what the loop looks at is shared alike.
func (l *Loop) checkSharers() error {
	sharers, ranks := sharersOf(l.c.Data), l.ranks()
	if ranks.Size()%sharers.Size() != 0 || ranks.Rank()%sharers.Size() != sharers.Rank() {
		return fmt.Errorf("data is shared by %d ranks of which this is rank %d, and it is rank %d of %d in the optimizer's Ranks: these need to be the same group, or what its Split gives",
			sharers.Size(), sharers.Rank(), ranks.Rank(), ranks.Size())
	}
	for name, batches := range map[string]data.Batches{"eval data": l.c.EvalData, "validation": l.c.Validation} {
		if other := sharersOf(batches); batches != nil && other != sharers {
			return fmt.Errorf("%s is shared by %d ranks and data by %d, all batches need to be shared alike", name, other.Size(), sharers.Size())
		}
	}
	return nil
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
