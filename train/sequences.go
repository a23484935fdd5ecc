package train

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
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
	own, _, err := s.weighed(n)
	return own, err
}

// weighed returns also how much the rank's loss counts, which is 1 in the mean over the ranks: as
// much as it has of the targets that count.
func (s sharedBatches) weighed(n int) (own data.Batch, weight float64, err error) {
	whole, err := batchOf(s.whole, n/s.ranks.Size())
	if err != nil {
		return nil, 1, err
	}
	own = data.Batch{}
	for _, name := range whole.Names() {
		if own[name], err = heldRows(whole[name], s.ranks); err != nil {
			return nil, 1, fmt.Errorf("%s: %w", name, err)
		}
	}
	weight = 1
	if all, known := teaching(whole); known && all > 0 {
		part, _ := teaching(own)
		weight = float64(part*s.ranks.Size()) / float64(all)
	}
	return own, weight, nil
}

// weighed returns a batch and how much its loss counts, which is 1 but where ranks share it.
func weighed(batches data.Batches, n int) (data.Batch, float64, error) {
	if shared, ok := batches.(sharedBatches); ok {
		return shared.weighed(n)
	}
	b, err := batchOf(batches, n)
	return b, 1, err
}

// batchOf is a batch of batches that a program may have written. A panic in them is an error, with
// its line.
func batchOf(batches data.Batches, n int) (b data.Batch, err error) {
	defer guard.CatchLine(&err, "the code of the batches")
	return batches.Batch(n)
}

// teaching counts the targets of a batch that count, as far as its arrays tell.
func teaching(b data.Batch) (count int, known bool) {
	if b["targets"] == nil {
		return 0, false
	}
	switch ids := b["targets"].Data().(type) {
	case []int:
		return notNegative(ids), true
	case []int32:
		return notNegative(ids), true
	case []int64:
		return notNegative(ids), true
	}
	return 0, false
}

func notNegative[T int | int32 | int64](ids []T) (count int) {
	for _, id := range ids {
		if id >= 0 {
			count++
		}
	}
	return count
}

// weight is what the gradients of a graph's loss are multiplied by.
type weight struct {
	host  []float64
	scale kernels.Tensor // where the graph computes
	place kernels.Backend
}

// weigh lets the gradients of the loss be multiplied by a weight, which is 1 to begin with.
func (t *graph) weigh() error {
	w := &weight{host: []float64{1}}
	if w.scale = kernels.Of(w.host, 1); t.device != nil {
		var err error
		w.place = t.device.Backend()
		if w.scale, err = w.place.Alloc(kernels.F64, 1); err == nil {
			err = w.place.Copy(w.scale, kernels.Of(w.host, 1))
		}
		if err != nil {
			return err
		}
	}
	t.weight = w
	return ops.ScaleLoss(t.g, w.scale)
}

// setWeight sets the weight of the coming run.
func (t *graph) setWeight(x float64) error {
	switch w := t.weight; {
	case w == nil && x == 1 || w != nil && w.host[0] == x:
		return nil
	case w == nil:
		return errors.New("LossScaling is set and one of the ranks that share a batch has more targets that count than another, which needs a scale of its own")
	default:
		if w.host[0] = x; w.place == nil {
			return nil
		}
		return w.place.Copy(w.scale, kernels.Of(w.host, 1))
	}
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
