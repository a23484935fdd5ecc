package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/checkpoint"
)

// loopState is what a checkpoint holds besides tensors. Random numbers need no state: batches, dropout and first values
// are functions of seeds, which Settings hold, and of the number of the step.
type loopState struct {
	Done          int             `json:"done"`
	Batches       int             `json:"batches"` // of the data that were taken
	BestLoss      *float64        `json:"bestLoss"`
	BestStep      int             `json:"bestStep"`
	Optimizer     string          `json:"optimizer"`
	Updates       int             `json:"updates"`  // steps that changed the parameters, which is where the schedule is
	Schedule      string          `json:"schedule"` // for people: a resumed loop follows its own
	Skipped       int             `json:"skipped"`
	SkippedInARow int             `json:"skippedInARow"`
	LossScale     float64         `json:"lossScale,omitempty"`
	GoodSteps     int             `json:"lossScaleGoodSteps,omitempty"`
	Unevaluated   bool            `json:"unevaluated,omitempty"` // an evaluation of these weights is due and was cut short
	Masks         int             `json:"masks"`                 // kernels.DropoutVersion; 0 is the first, of before it was noted
	Settings      json.RawMessage `json:"settings,omitempty"`
}

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

// Resume makes the loop go on from the newest whole checkpoint in its folder, as if it had never stopped: the same data,
// model, seeds and machine give the same bits. A checkpoint of another model or optimiser is an error that says what
// differs, and changes nothing. So is one of a model with dropout from a program that drew other masks for the same seeds,
// unless NewMasks of LoopConfig is set. Checkpoints that are damaged are passed over and listed in refused; without any that is
// whole the error is checkpoint.ErrNone. With other ranks every rank resumes, from the checkpoint that rank 0 reads; their number
// may be another than before, as long as a step takes as many batches.
func (l *Loop) Resume() (refused []error, err error) {
	if l.training == nil {
		return nil, errZeroLoop
	}
	var c checkpoint.Checkpoint
	if l.ranks().Rank() == 0 {
		if l.c.Checkpoints == nil {
			return nil, errors.New("Loop: checkpoints is nil, resuming needs the folder that they are in")
		}
		c, refused, err = l.c.Checkpoints.Latest()
	}
	if c, err = l.joinCheckpoint(c, err); err != nil {
		return refused, fmt.Errorf("Loop: %w", err)
	}
	if err := l.restore(c); err != nil {
		return refused, fmt.Errorf("Loop: the checkpoint of step %d: %w", c.Step, err)
	}
	l.saved, l.savedTo = l.done, c.Path
	return refused, nil
}

// ResumeFrom is [Loop.Resume] from a checkpoint of the caller's choice, such as the best. With the first checkpoint that
// the loop then writes, those of later steps are removed: they belong to a course that the training has left.
func (l *Loop) ResumeFrom(c checkpoint.Checkpoint) error {
	if l.training == nil {
		return errZeroLoop
	}
	c, err := l.joinCheckpoint(c, nil)
	if err != nil {
		return fmt.Errorf("Loop: %w", err)
	}
	if err := l.restore(c); err != nil {
		return fmt.Errorf("Loop: the checkpoint of step %d: %w", c.Step, err)
	}
	l.saved, l.savedTo, l.branched = none, c.Path, true
	return nil
}

func (l *Loop) restore(c checkpoint.Checkpoint) error {
	var s loopState
	if err := json.Unmarshal(c.Meta, &s); err != nil {
		return fmt.Errorf("its state is not a loop's: %w", err)
	}
	if batches := s.Done * l.optimizer.batchesOfStep(); s.Batches != batches {
		return fmt.Errorf("it took %d batches for %d steps, this loop would have taken %d", s.Batches, s.Done, batches)
	}
	if s.Done > l.c.Steps {
		return fmt.Errorf("it has %d steps, this loop ends at %d", s.Done, l.c.Steps)
	}
	if drawn := max(s.Masks, 1); drawn != kernels.DropoutVersion && !l.c.NewMasks && l.training.mode().Drops() {
		return fmt.Errorf("its dropout drew masks of version %d, this program draws those of version %d, so it cannot go on "+
			"as if it had never stopped: with NewMasks it goes on from the same weights with other masks", drawn, kernels.DropoutVersion)
	}
	weights, err := l.weights()
	if err != nil {
		return err
	}
	if err := checkpoint.Match(c.Weights, weights); err != nil {
		return err
	}
	// SetState checks everything before it changes anything.
	err = l.optimizer.SetState(State{
		Optimizer: s.Optimizer, Step: s.Updates, Skipped: s.Skipped, SkippedInARow: s.SkippedInARow, Tensors: c.Optimizer.Map(),
		LossScale: s.LossScale, LossScaleGoodSteps: s.GoodSteps,
	})
	if err != nil {
		return err
	}
	from := c.Weights.Map()
	for _, n := range l.Parameters() {
		if err := ops.Assign(n.Value(), from[n.Name()]); err != nil {
			return fmt.Errorf("%s: %w", n.Name(), err)
		}
	}
	l.done, l.bestStep, l.bestLoss = s.Done, s.BestStep, math.NaN()
	l.evaluated, l.skipping, l.torn, l.postponed, l.resumed = s.Done, s.SkippedInARow > 0, false, false, true
	l.failed = none
	if s.Unevaluated {
		l.evaluated = none
	}
	if s.BestLoss != nil {
		l.bestLoss = *s.BestLoss
	}
	return nil
}

// checkpointDue reports whether a checkpoint is to be written after the step that is done.
func (l *Loop) checkpointDue() bool {
	if l.c.Checkpoints == nil && !l.helps || l.done == l.saved || l.done == 0 {
		return false
	}
	return l.done >= l.c.Steps || l.postponed || l.c.CheckpointEvery > 0 && l.done%l.c.CheckpointEvery == 0
}

// checkpoint writes a checkpoint. While steps are skipped it waits: the weights are those of a checkpoint before, or may
// be what is wrong, and would take the place of good ones.
func (l *Loop) checkpoint() error {
	if l.skipping && l.done < l.c.Steps {
		l.postponed = true
		return nil
	}
	if l.helps {
		l.saved, l.postponed = l.done, false
		return l.help()
	}
	write := l.c.Checkpoints.Save
	if l.skipping {
		write = l.c.Checkpoints.SaveBeside
	}
	path, err := l.save(write)
	if path != "" {
		l.saved, l.savedTo, l.postponed = l.done, path, false
	}
	if err == nil && l.branched {
		l.branched = false
		err = l.c.Checkpoints.RemoveAfter(l.done)
	}
	return err
}

// keep writes a checkpoint of a run that ends early, unless that was done or has failed already. It removes no other, as
// nobody knows whether this one is any better.
func (l *Loop) keep() error {
	switch {
	case l.c.Checkpoints == nil && !l.helps || l.done == l.saved || l.done == l.failed:
		return nil
	case l.torn:
		return fmt.Errorf("no checkpoint of step %d: its update failed halfway", l.done)
	case l.optimizer.isSharded() && l.ranks().Err() != nil:
		return fmt.Errorf("no checkpoint of step %d: the other ranks have parts of the optimizer's state", l.done)
	case l.helps && l.ranks().Err() != nil:
		return nil // rank 0 has all that it needs
	case l.helps:
		return l.help()
	}
	path, err := l.save(l.c.Checkpoints.SaveBeside)
	if path != "" {
		l.saved, l.savedTo = l.done, path
	}
	return err
}

// save writes the loop where to says, and tells the hooks. Hooks that fail do not keep the checkpoint from being written.
func (l *Loop) save(to func(checkpoint.Checkpoint) (string, error)) (path string, err error) {
	began := time.Now()
	hookErr := l.audience.tell(func(h *Hook) error {
		if h.BeforeCheckpoint == nil {
			return nil
		}
		return h.BeforeCheckpoint()
	})
	c, err := l.snapshot()
	switch {
	case err == nil && l.inParts():
		path, err = l.saveParts(c, to)
	case err == nil:
		path, err = to(c)
	case l.inParts():
		err = errors.Join(err, l.callOff())
	}
	if path == "" {
		l.failed = l.done
	}
	if err != nil {
		return path, errors.Join(hookErr, fmt.Errorf("no checkpoint of step %d: %w", l.done, err))
	}
	if hookErr != nil {
		return path, hookErr
	}
	return path, l.audience.tell(func(h *Hook) error {
		if h.OnCheckpoint == nil {
			return nil
		}
		return h.OnCheckpoint(Checkpoint{Done: l.done, Path: path, Duration: time.Since(began)})
	})
}

// snapshot is the loop as a checkpoint. Its tensors are the loop's own, to be written before the next step; there are none where the
// ranks write them in parts.
func (l *Loop) snapshot() (checkpoint.Checkpoint, error) {
	state := l.optimizer.State
	if l.inParts() {
		state = l.optimizer.counts
	}
	o, err := state()
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	s := loopState{
		Done: l.done, Batches: l.done * l.optimizer.batchesOfStep(), BestStep: l.bestStep,
		Optimizer: o.Optimizer, Updates: o.Step, Skipped: o.Skipped, SkippedInARow: o.SkippedInARow, Masks: kernels.DropoutVersion,
		LossScale: o.LossScale, GoodSteps: o.LossScaleGoodSteps,
		Schedule:    fmt.Sprintf("%T%+v", l.optimizer.options.Schedule, l.optimizer.options.Schedule),
		Unevaluated: l.evaluationDue(),
	}
	if !math.IsNaN(l.bestLoss) {
		s.BestLoss = &l.bestLoss
	}
	if s.Settings, err = l.settings(); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	c := checkpoint.Checkpoint{Step: l.done}
	if c.Meta, err = json.Marshal(s); err != nil || l.inParts() {
		return c, err
	}
	c.Optimizer = safetensors.Sorted(o.Tensors)
	if c.Weights, err = l.weights(); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	return c, finiteWeights(c.Weights)
}

// settings are the caller's as JSON, nil if there are none.
func (l *Loop) settings() (json.RawMessage, error) {
	if l.c.Settings == nil {
		return nil, nil
	}
	text, err := json.Marshal(l.c.Settings)
	if err != nil {
		return nil, fmt.Errorf("settings cannot be stored: %w", err)
	}
	return text, nil
}

// finiteWeights names the first tensor with a number that is none.
func finiteWeights(weights safetensors.Tensors) error {
	for _, w := range weights {
		ok := true
		switch data := w.Value.Data().(type) {
		case []float32:
			ok = allFinite(data)
		case []float64:
			ok = allFinite(data)
		}
		if !ok {
			return fmt.Errorf("%s holds a NaN or an infinity, so the weights are lost", w.Name)
		}
	}
	return nil
}

// allFinite reports whether all numbers are: 0·x is NaN for the others, and stays so in the sum.
func allFinite[T float32 | float64](data []T) bool {
	var sum T
	for _, x := range data {
		sum += 0 * x
	}
	return sum == 0
}

// weights are the values of all parameters, on the host, also of those that training does not change.
func (l *Loop) weights() (safetensors.Tensors, error) {
	var list safetensors.Tensors
	for _, n := range l.Parameters() {
		value, err := ops.Download(n.Value())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name(), err)
		}
		list = append(list, safetensors.Tensor{Name: n.Name(), Value: value})
	}
	return list, nil
}
