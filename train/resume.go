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
	"gorgonia.org/gorgonia"
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
// whole the error is checkpoint.ErrNone. With other ranks every rank resumes, from the checkpoint that rank 0 reads, or with
// SharedFiles of the place all of them together; their number may be another than before, as long as a step takes as many batches.
func (l *Loop) Resume() (refused []error, err error) {
	if l.training == nil {
		return nil, errZeroLoop
	}
	leads := l.ranks().Rank() == 0
	if leads && l.c.Checkpoints == nil {
		return nil, errors.New("Loop: checkpoints is nil, resuming needs the folder that they are in")
	}
	together, err := l.readsTogether()
	if err != nil {
		return nil, fmt.Errorf("Loop: %w", err)
	}
	var c checkpoint.Checkpoint
	if together {
		c, refused, err = l.readTogether()
	} else {
		if leads {
			c, refused, err = l.c.Checkpoints.Latest()
		}
		c, err = l.joinCheckpoint(c, err)
	}
	if err != nil {
		return refused, fmt.Errorf("Loop: %w", err)
	}
	if err := l.restore(c, together); err != nil {
		return refused, fmt.Errorf("Loop: the checkpoint of step %d: %w", c.Step, err)
	}
	l.saved, l.savedTo, l.savedStep = l.done, c.Path, l.done
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
	if err := l.restore(c, false); err != nil {
		return fmt.Errorf("Loop: the checkpoint of step %d: %w", c.Step, err)
	}
	l.saved, l.savedTo, l.savedStep, l.branched = none, c.Path, l.done, true
	return nil
}

// restore goes on from a checkpoint, whose tensors are whole or what this rank has of them.
func (l *Loop) restore(c checkpoint.Checkpoint, parts bool) error {
	var s loopState
	if err := json.Unmarshal(c.Meta, &s); err != nil {
		return fmt.Errorf("its state is not a loop's: %w", err)
	}
	if batches := s.Done * l.batchesOfStep(); s.Batches != batches {
		return fmt.Errorf("it took %d batches for %d steps, this loop would have taken %d", s.Batches, s.Done, batches)
	}
	if s.Done > l.c.Steps {
		return fmt.Errorf("it has %d steps, this loop ends at %d", s.Done, l.c.Steps)
	}
	if drawn := max(s.Masks, 1); drawn != kernels.DropoutVersion && !l.c.NewMasks && l.training.mode().Drops() {
		return fmt.Errorf("its dropout drew masks of version %d, this program draws those of version %d, so it cannot go on "+
			"as if it had never stopped: with NewMasks it goes on from the same weights with other masks", drawn, kernels.DropoutVersion)
	}
	if err := checkpoint.Match(c.Weights, l.wantedWeights(parts)); err != nil {
		return err
	}
	// The state is checked whole before anything is changed.
	err := l.optimizer.setState(State{
		Optimizer: s.Optimizer, Step: s.Updates, Skipped: s.Skipped, SkippedInARow: s.SkippedInARow, Tensors: c.Optimizer.Map(),
		LossScale: s.LossScale, LossScaleGoodSteps: s.GoodSteps,
	}, parts)
	if err != nil {
		return err
	}
	from := c.Weights.Map()
	for _, n := range l.Parameters() {
		value := from[n.Name()]
		if _, ranks := ops.WholeOf(n); ranks != nil && !parts {
			if value, err = ops.PartOf(ranks, value); err != nil {
				return fmt.Errorf("%s: %w", n.Name(), err)
			}
		}
		if err := ops.Assign(n.Value(), value); err != nil {
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

// A checkpoint is a copy of the loop, written where it belongs. From the host what is written are the loop's own tensors, which
// the next step changes. From a device they are copies: they are written beside the steps that follow, one checkpoint at a time.

// writing is a checkpoint that is being written.
type writing struct {
	step    int
	began   time.Time
	to      []target
	paths   []string // of the targets; "" where none could be written
	err     error    // of the first target that failed, after which no other was tried
	hookErr error    // of BeforeCheckpoint
	done    chan struct{}
}

// saver writes a checkpoint, such as checkpoint.Folder.Save.
type saver func(checkpoint.Checkpoint) (path string, err error)

// target is where a checkpoint goes.
type target struct {
	write  saver
	newest bool // Resume looks there
	leaves bool // it is the first of a branch
}

// checkpoint begins to write what is due after the step that is done: the best, the newest, or both from one copy. While steps are
// skipped the newest waits: the weights are those of a checkpoint before, or may be what is wrong, and would take the place of good ones.
func (l *Loop) checkpoint() error {
	due, best := l.checkpointDue(), l.better && (l.c.Checkpoints != nil || l.helps)
	if due && l.skipping && l.done < l.c.Steps {
		due, l.postponed = false, true
	}
	l.better = false
	if due || best || l.writing != nil && l.writing.isDone() {
		if err := l.finish(); err != nil {
			return err
		}
	}
	if !due && !best {
		return nil
	}
	if due {
		l.saved, l.postponed = l.done, false
	}
	if l.helps {
		if best && due && l.shares { // in which each is written anew
			if err := l.help(); err != nil {
				return err
			}
		}
		return l.help()
	}
	var to []target
	if best {
		to = append(to, target{write: l.c.Checkpoints.SaveBest})
	}
	if due {
		to = append(to, l.newest())
		l.branched = false
	}
	l.save(to...)
	if l.c.Place.Device() == nil || l.done == 0 || l.writing.hookErr != nil { // before any step, so that a bad disk is known at once
		return l.finish()
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

// newest is where the newest checkpoint goes.
func (l *Loop) newest() target {
	t, folder := target{newest: true, leaves: l.branched}, l.c.Checkpoints
	switch t.write = folder.Save; {
	case l.skipping:
		t.write = folder.SaveBeside
	case l.branched:
		t.write = func(c checkpoint.Checkpoint) (string, error) {
			path, err := folder.Save(c)
			if err == nil {
				err = folder.RemoveAfter(c.Step)
			}
			return path, err
		}
	}
	return t
}

// keep writes a checkpoint of a run that ends early, unless that was done or has failed already. It removes no other, as
// nobody knows whether this one is any better.
func (l *Loop) keep() error {
	switch {
	case l.c.Checkpoints == nil && !l.helps || l.done == l.saved || l.done == l.failed:
		return nil
	case l.torn:
		return l.noCheckpoint("the update that came after it failed halfway")
	case l.optimizer.isSharded() && l.ranks().Err() != nil:
		what := "the optimizer's state"
		if len(l.isPart) > 0 {
			what = "the weights and of the optimizer's state"
		}
		return l.noCheckpoint(fmt.Sprintf("each rank has a part of %s, and one is gone with its own", what))
	case l.helps && l.ranks().Err() != nil:
		return nil // rank 0 has all that it needs
	case l.helps:
		return l.help()
	}
	l.saved = l.done
	l.save(target{write: l.c.Checkpoints.SaveBeside, newest: true})
	return l.finish()
}

// noCheckpoint says why there is none of the last step, and what is lost with it.
func (l *Loop) noCheckpoint(why string) error {
	lost := "the training goes on from the newest that rank 0 has written"
	switch {
	case l.ranks().Rank() > 0:
	case l.savedTo == "":
		lost = fmt.Sprintf("there is no other, so all %d are lost", l.done)
	default:
		lost = fmt.Sprintf("the newest is %s, so of the %d steps %d are lost", l.savedTo, l.done, l.done-l.savedStep)
	}
	return fmt.Errorf("no checkpoint of step %d: %s; %s", l.done, why, lost)
}

// save begins to write a copy of the loop. Hooks that fail do not keep the checkpoint from being written.
func (l *Loop) save(to ...target) {
	w := &writing{step: l.done, began: time.Now(), to: to, paths: make([]string, len(to)), done: make(chan struct{})}
	w.hookErr = l.audience.tell(func(h *Hook) error {
		if h.BeforeCheckpoint == nil {
			return nil
		}
		return h.BeforeCheckpoint()
	})
	l.writing = w
	inParts := l.inParts()
	c, err := l.snapshot()
	switch {
	case err != nil:
		for w.err = err; inParts && len(to) > 0; to = to[1:] {
			w.err = errors.Join(w.err, l.callOff())
		}
		close(w.done)
	case inParts: // ranks do one thing at a time together
		w.write(c, l.saveParts)
	default:
		go w.write(c, func(c checkpoint.Checkpoint, save saver) (string, error) { return save(c) })
	}
}

// write saves a copy of the loop in all places.
func (w *writing) write(c checkpoint.Checkpoint, by func(checkpoint.Checkpoint, saver) (string, error)) {
	defer close(w.done)
	if w.err = finiteWeights(c.Weights); w.err != nil {
		return
	}
	for i, to := range w.to {
		if w.paths[i], w.err = by(c, to.write); w.err != nil {
			return
		}
	}
}

func (w *writing) isDone() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// finish waits for the checkpoint that is being written, if there is one, and tells the hooks.
func (l *Loop) finish() error {
	w := l.writing
	if l.writing = nil; w == nil {
		return nil
	}
	<-w.done
	for i, to := range w.to {
		switch {
		case w.paths[i] == "":
			l.failed, l.branched = w.step, l.branched || to.leaves
			if to.newest && l.saved == w.step {
				l.saved = none
			}
		case to.newest:
			l.savedTo, l.savedStep = w.paths[i], w.step
		}
	}
	if w.err != nil {
		return errors.Join(w.hookErr, fmt.Errorf("no checkpoint of step %d: %w", w.step, w.err))
	}
	if w.hookErr != nil {
		return w.hookErr
	}
	took := time.Since(w.began)
	for _, path := range w.paths {
		err := l.audience.tell(func(h *Hook) error {
			if h.OnCheckpoint == nil {
				return nil
			}
			return h.OnCheckpoint(Checkpoint{Done: w.step, Path: path, Duration: took})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// snapshot is the loop as a checkpoint. On the host its tensors are the loop's own, to be written before the next step; there are none
// where the ranks write them in parts.
func (l *Loop) snapshot() (checkpoint.Checkpoint, error) {
	state := func() (State, error) { return l.optimizer.giveState(true, l.copies) }
	if l.inParts() {
		state = l.optimizer.counts
	}
	o, err := state()
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	s := loopState{
		Done: l.done, Batches: l.done * l.batchesOfStep(), BestStep: l.bestStep,
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
	return c, nil
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

// weights are the values of all parameters, on the host, also of those that training does not change. Where they are shared out, all ranks
// go through them together.
func (l *Loop) weights() (list safetensors.Tensors, err error) {
	err = l.eachWeight(func(*gorgonia.Node) bool { return true }, func(t safetensors.Tensor) { list = append(list, t) })
	return list, err
}

// wantedWeights are tensors like those of a checkpoint for this loop, or where it has parts of those, of what this rank is to have.
func (l *Loop) wantedWeights(parts bool) (list safetensors.Tensors) {
	for _, n := range l.Parameters() {
		value := n.Value().(*tensor.Dense)
		if l.isPart[n.Name()] && !parts {
			whole, _ := ops.WholeOf(n)
			value = tensor.New(tensor.Of(n.Dtype()), tensor.WithShape(whole.Shape()...))
		}
		list = append(list, safetensors.Tensor{Name: n.Name(), Value: value})
	}
	return list
}
