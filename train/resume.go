package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// ReadSettings reads the Settings of the loop that wrote a checkpoint.
func ReadSettings(c checkpoint.Checkpoint, settings any) error {
	var s loopState
	if err := json.Unmarshal(c.Meta, &s); err != nil {
		return fmt.Errorf("the checkpoint of step %d: its state is not a loop's: %w", c.Step, err)
	}
	if s.Settings == nil {
		return fmt.Errorf("the checkpoint of step %d holds no settings", c.Step)
	}
	if err := json.Unmarshal(s.Settings, settings); err != nil {
		return fmt.Errorf("the checkpoint of step %d: its settings do not fit: %w", c.Step, err)
	}
	return nil
}

// Resume makes the loop go on from the newest whole checkpoint in its folder, as if it had never
// stopped: the same data, model, seeds and machine give the same bits. A checkpoint of another
// model or optimiser is an error that says what differs, and changes nothing. So is one of a model
// with dropout from a program that drew other masks for the same seeds, unless AllowNewMasks was
// called. Checkpoints that are damaged are passed over and listed in refused; without
// any that is whole the error is checkpoint.ErrNone. With other ranks every rank resumes, from the
// checkpoint that rank 0 reads, or with SharedFiles of the place all of them together; their number
// may be another than before, as long as a step takes as many batches.
//
// In a group that came together again (PlaceConfig.Lost), the other ranks are at work already: Run
// then goes on with what they have.
func (l *Loop) Resume() (refused []error, err error) {
	if l.training == nil {
		return nil, errZeroLoop
	}
	if l.ranks.Rank() == 0 && l.c.Checkpoints == nil {
		return nil, errors.New("Loop: checkpoints is nil, resuming needs the folder that they are in")
	}
	return refused, l.resumeOrLater(func() error { refused, err = l.resumeNewest(); return err })
}

// resumeOrLater resumes, or leaves that to Run where others are at work already, or where a rank is
// lost meanwhile.
func (l *Loop) resumeOrLater(resume func() error) error {
	if !l.ranks.Renewed() {
		err := resume()
		if !errors.Is(err, distributed.ErrLost) || l.ranks.Lost() == distributed.LostEnds {
			return err
		}
	}
	l.later = resume
	return nil
}

// resumeNewest goes on from the newest whole checkpoint.
func (l *Loop) resumeNewest() (refused []error, err error) {
	return l.resumeUpTo(math.MaxInt)
}

// resumeUpTo goes on from the newest whole checkpoint of at most so many steps.
func (l *Loop) resumeUpTo(step int) (refused []error, err error) {
	leads := l.ranks.Rank() == 0
	together := !l.ranks.alone() && l.c.Place.sharedFiles
	if err := l.ranks.decide(&together); err != nil {
		return nil, fmt.Errorf("Loop: %w", err)
	}
	var c checkpoint.Checkpoint
	if together {
		c, refused, err = l.saver.readTogether(step)
	} else {
		if leads {
			c, refused, err = l.latest(step, checkpoint.Load)
		}
		c, err = l.saver.receive(0, c, err)
	}
	if err != nil {
		return refused, fmt.Errorf("Loop: %w", err)
	}
	if err := l.restore(c, together); err != nil {
		return refused, err
	}
	l.saver.begun = l.done
	return refused, nil
}

// latest is the newest whole checkpoint of at most so many steps in the folder, if there is one.
func (l *Loop) latest(step int, load func(path string) (checkpoint.Checkpoint, error)) (checkpoint.Checkpoint, []error, error) {
	if l.c.Checkpoints == nil {
		return checkpoint.Checkpoint{}, nil, checkpoint.ErrNone
	}
	return l.c.Checkpoints.LatestUpTo(step, load)
}

// AllowNewMasks lets Resume go on from a checkpoint of a program whose dropout drew other masks for
// the same seeds. The weights are the same, and what follows is another course.
func (l *Loop) AllowNewMasks() { l.newMasks = true }

// ResumeFrom is [Loop.Resume] from a checkpoint of the caller's choice, such as the best. With the
// first checkpoint that the loop then writes, those of later steps are removed: they belong to a
// course that the training has left.
func (l *Loop) ResumeFrom(c checkpoint.Checkpoint) error {
	if l.training == nil {
		return errZeroLoop
	}
	return l.resumeOrLater(func() error {
		c, err := l.saver.receive(0, c, nil)
		if err != nil {
			return fmt.Errorf("Loop: %w", err)
		}
		if err := l.restore(c, false); err != nil {
			return err
		}
		l.saver.begun, l.saver.branched = none, true
		return nil
	})
}

// restore goes on from a checkpoint, whose tensors are whole or what this rank holds of them.
func (l *Loop) restore(c checkpoint.Checkpoint, shards bool) error {
	var s loopState
	err := json.Unmarshal(c.Meta, &s)
	if err != nil {
		err = fmt.Errorf("its state is not a loop's: %w", err)
	}
	if err = firstError(err, l.accepts(s)); err == nil {
		err = l.restoreTensors(c, s, shards)
	}
	if err != nil {
		return fmt.Errorf("Loop: the checkpoint of step %d: %w", c.Step, err)
	}
	l.progress = progress{done: s.Done, evaluated: s.Done, bestLoss: math.NaN(), bestStep: s.BestStep, resumed: true}
	if s.Unevaluated {
		l.evaluated = none
	}
	if s.BestLoss != nil {
		l.bestLoss = *s.BestLoss
	}
	l.badSteps, l.course, l.emptied = 0, s.course, false
	if l.weights = weightsGood; s.SkippedInARow > 0 {
		l.weights = weightsDoubtful
	}
	l.saver.postponed, l.saver.failed, l.saver.newest = false, none, saved{l.done, c.Path}
	return nil
}

// accepts returns why the loop cannot go on from a state.
func (l *Loop) accepts(s loopState) error {
	if batches := (s.Done + s.LeftOut) * l.batchesOfStep(); s.Batches != batches {
		return fmt.Errorf("it took %d batches for %d steps, this loop would have taken %d: it needs the ranks and the accumulation that it began with", s.Batches, s.Done, batches)
	}
	if s.Done > l.c.Steps {
		return fmt.Errorf("it has %d steps, this loop ends at %d, which needs to be more", s.Done, l.c.Steps)
	}
	if drawn := max(s.Masks, 1); drawn != kernels.DropoutVersion && !l.newMasks && l.training.mode().Drops() {
		return fmt.Errorf("its dropout drew masks of version %d, this program draws those of version %d, so it cannot go on "+
			"as if it had never stopped: after AllowNewMasks it goes on from the same weights with other masks", drawn, kernels.DropoutVersion)
	}
	return nil
}

// restoreTensors checks all tensors before it changes any.
func (l *Loop) restoreTensors(c checkpoint.Checkpoint, s loopState, shards bool) error {
	if err := checkpoint.Match(c.Weights, l.wantedWeights(shards)); err != nil {
		return err
	}
	err := l.stepper.setState(State{
		Optimizer: s.Optimizer, Step: s.Updates, Skipped: s.Skipped, SkippedInARow: s.SkippedInARow, Tensors: c.Optimizer.Map(),
		LossScale: s.LossScale, LossScaleGoodSteps: s.GoodSteps,
	}, shards)
	if err != nil {
		return err
	}
	from := c.Weights.Map()
	for _, n := range l.Parameters() {
		value := from[n.Name()]
		if _, ranks := ops.WholeOf(n); ranks != nil && !shards {
			if value, err = ops.PartOf(ranks, value); err != nil {
				return fmt.Errorf("%s: %w", n.Name(), err)
			}
		}
		if err := ops.Assign(n.Value(), value); err != nil {
			return fmt.Errorf("%s: %w", n.Name(), err)
		}
	}
	return nil
}

// wantedWeights are tensors like those of a checkpoint for this loop: whole, or what this rank
// holds of them.
func (l *Loop) wantedWeights(shards bool) (list safetensors.Tensors) {
	for _, n := range l.Parameters() {
		value := n.Value().(*tensor.Dense)
		if whole, ranks := ops.WholeOf(n); ranks != nil && !shards {
			value = tensor.New(tensor.Of(n.Dtype()), tensor.WithShape(whole.Shape()...))
		}
		list = append(list, safetensors.Tensor{Name: n.Name(), Value: value})
	}
	return list
}

// empty are tensors of zeros like those of a checkpoint: whole, or what this rank holds of them,
// which is nothing of some that are small.
func (s *saver) empty(shards bool) (weights, state safetensors.Tensors) {
	add := func(list *safetensors.Tensors, name string, dtype tensor.Dtype, whole, held []int) {
		shape := whole
		if shards {
			shape = held
		}
		if !slices.Contains(shape, 0) {
			*list = append(*list, safetensors.Tensor{Name: name, Value: tensor.New(tensor.Of(dtype), tensor.WithShape(shape...))})
		}
	}
	for _, n := range s.loop.Parameters() {
		whole, _ := ops.WholeOf(n)
		add(&weights, n.Name(), n.Dtype(), whole.Shape(), n.Shape())
	}
	for _, t := range s.loop.stepper.stateTensors() {
		add(&state, t.name, t.of.node.Dtype(), t.whole, s.loop.stepper.stateShape(t))
	}
	return weights, state
}

// receive gives all ranks what one has: a checkpoint, or the error that there is none.
func (s *saver) receive(from int, c checkpoint.Checkpoint, err error) (checkpoint.Checkpoint, error) {
	ranks := s.loop.ranks
	if ranks.alone() || ranks.Rank() == from && err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return c, err
	}
	header := []int64{int64(c.Step), int64(len(c.Meta))}
	if err != nil {
		header[1] = 0
	}
	if shareErr := ranks.Broadcast(from, kernels.Of(header, 2)); shareErr != nil {
		return c, shareErr
	}
	if header[1] == 0 {
		return c, errors.Join(err, ranks.noCheckpoint())
	}
	own := checkpoint.Checkpoint{Step: int(header[0]), Meta: make(json.RawMessage, header[1])}
	own.Weights, own.Optimizer = s.empty(false)
	if ranks.Rank() == from { // before tensors are sent to ranks that expect these
		err = errors.Join(checkpoint.Match(c.Weights, own.Weights), checkpoint.Match(c.Optimizer, own.Optimizer))
		own = c
	}
	list := []kernels.Tensor{bytesTensor(own.Meta)}
	for _, tensors := range []safetensors.Tensors{own.Weights, own.Optimizer} {
		for _, t := range safetensors.Sorted(tensors.Map()) {
			view, err := viewOf(t.Value, t.Value.Dtype(), t.Value.Shape())
			if err != nil {
				return c, fmt.Errorf("%s %w", t.Name, err)
			}
			list = append(list, view)
		}
	}
	return own, errors.Join(err, ranks.Broadcast(from, list...))
}

// noCheckpoint is what ranks say that were told by rank 0 that there is none.
func (r ranks) noCheckpoint() error {
	if r.Rank() == 0 {
		return nil
	}
	return fmt.Errorf("rank 0: %w", checkpoint.ErrNone)
}
