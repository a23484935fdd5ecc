package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/safetensors"
	"gorgonia.org/tensor"
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
// differs, and changes nothing. Checkpoints that are damaged are passed over and listed in refused; without any that is
// whole the error is checkpoint.ErrNone.
func (l *Loop) Resume() (refused []error, err error) {
	if l.c.Checkpoints == nil {
		return nil, errors.New("Loop: checkpoints is nil, resuming needs the folder that they are in")
	}
	c, refused, err := l.c.Checkpoints.Latest()
	if err != nil {
		return refused, fmt.Errorf("Loop: %w", err)
	}
	if err := l.restore(c); err != nil {
		return refused, fmt.Errorf("Loop: the checkpoint of step %d: %w", c.Step, err)
	}
	l.resumed = true
	return refused, nil
}

func (l *Loop) restore(c checkpoint.Checkpoint) error {
	var s loopState
	if err := json.Unmarshal(c.Meta, &s); err != nil {
		return fmt.Errorf("its state is not a loop's: %w", err)
	}
	if batches := s.Done * l.optimizer.options.Accumulation; s.Batches != batches {
		return fmt.Errorf("it took %d batches for %d steps, this loop would have taken %d", s.Batches, s.Done, batches)
	}
	if s.Done > l.c.Steps {
		return fmt.Errorf("it has %d steps, this loop ends at %d", s.Done, l.c.Steps)
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
	})
	if err != nil {
		return err
	}
	from := c.Weights.Map()
	for _, w := range weights {
		if err := tensor.Copy(w.Value, from[w.Name]); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
	}
	l.done, l.bestStep, l.bestLoss = s.Done, s.BestStep, math.NaN()
	if s.BestLoss != nil {
		l.bestLoss = *s.BestLoss
	}
	return nil
}

// checkpoint writes a checkpoint and tells the hooks.
func (l *Loop) checkpoint() error {
	if l.c.Checkpoints == nil {
		return nil
	}
	return l.save(l.c.Checkpoints.Save)
}

// save writes where to says.
func (l *Loop) save(to func(checkpoint.Checkpoint) (string, error)) error {
	began := time.Now()
	c, err := l.snapshot()
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", l.done, err)
	}
	path, err := to(c)
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", l.done, err)
	}
	for _, h := range l.c.Hooks {
		if h.OnCheckpoint != nil {
			if err := h.OnCheckpoint(Checkpoint{Done: l.done, Path: path, Duration: time.Since(began)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshot is the loop as a checkpoint. Its tensors are the loop's own, to be written before the next step.
func (l *Loop) snapshot() (checkpoint.Checkpoint, error) {
	o := l.optimizer.State()
	s := loopState{
		Done: l.done, Batches: l.done * l.optimizer.options.Accumulation, BestStep: l.bestStep,
		Optimizer: o.Optimizer, Updates: o.Step, Skipped: o.Skipped, SkippedInARow: o.SkippedInARow,
		Schedule: fmt.Sprintf("%T%+v", l.optimizer.options.Schedule, l.optimizer.options.Schedule),
	}
	if !math.IsNaN(l.bestLoss) {
		s.BestLoss = &l.bestLoss
	}
	var err error
	if l.c.Settings != nil {
		if s.Settings, err = json.Marshal(l.c.Settings); err != nil {
			return checkpoint.Checkpoint{}, fmt.Errorf("settings: %w", err)
		}
	}
	c := checkpoint.Checkpoint{Step: l.done, Optimizer: safetensors.Sorted(o.Tensors)}
	if c.Weights, err = l.weights(); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	c.Meta, err = json.Marshal(s)
	return c, err
}

// weights are the parameters' values.
func (l *Loop) weights() (safetensors.Tensors, error) {
	var list safetensors.Tensors
	for _, n := range l.training.parameters {
		value, ok := n.Value().(*tensor.Dense)
		if !ok {
			return nil, fmt.Errorf("%s is a %T, it needs to be a *tensor.Dense", n.Name(), n.Value())
		}
		list = append(list, safetensors.Tensor{Name: n.Name(), Value: value})
	}
	return list, nil
}
