package train

import (
	"errors"
	"fmt"
	"time"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/gorgonia"
)

// saver writes the checkpoints of a loop, when they are due.
//
// A checkpoint is a copy of the loop, written where it belongs beside the steps that follow, one
// checkpoint at a time. From a device the copy is taken at once. The host's own values are copied
// beside the next step too, which changes them at its end and waits for that.
type saver struct {
	loop     *Loop
	duty     duty
	together bool       // all ranks write, each its own files
	copies   hostCopies // what is written is made of these

	writing   *writing // the checkpoint that is being written beside steps
	newest    saved    // that the loop can be resumed from
	begun     int      // the step of the last one that was begun, and did not fail
	failed    int      // the step of which none could be written
	best      bool     // the last evaluation was the best, and its weights are not kept yet
	postponed bool     // one was due while steps were skipped
	branched  bool     // the loop goes on from a checkpoint that is not the newest
}

// saved is a checkpoint that was written.
type saved struct {
	step int
	path string // "" for none
}

// duty is what a process does for checkpoints.
type duty int

const (
	noDuty      duty = iota
	writes           // it writes them
	contributes      // rank 0 writes them, and needs what this rank holds
)

func newSaver(l *Loop) *saver {
	return &saver{loop: l, copies: hostCopies{}, begun: none, failed: none}
}

// validate finds what checkpoints would fail of, and decides what this process does for them, as
// far as it knows.
func (s *saver) validate() error {
	c := s.loop.c
	if s.loop.ranks.Rank() == 0 {
		switch {
		case c.Checkpoints != nil:
			s.duty = writes
		case c.CheckpointEvery > 0:
			return fmt.Errorf("checkpoint every is %d and checkpoints is nil, it needs a folder", c.CheckpointEvery)
		}
	}
	if _, err := s.settings(); err != nil || s.duty != writes {
		return err
	}
	return c.Checkpoints.CheckWritable()
}

// join learns from rank 0 what this rank does.
func (s *saver) join() error {
	asked, together := s.duty == writes, s.loop.c.Place.sharedFiles
	if err := s.loop.ranks.decide(&asked, &together); err != nil {
		return err
	}
	s.together = together
	if s.loop.ranks.Renewed() { // all are to agree on what is due
		if err := s.loop.ranks.decide(&s.best, &s.postponed, &s.branched); err != nil {
			return err
		}
		steps := []int64{int64(s.begun), int64(s.failed)}
		if err := s.loop.ranks.Broadcast(0, kernels.Of(steps, 2)); err != nil {
			return err
		}
		s.begun, s.failed = int(steps[0]), int(steps[1])
	}
	if s.loop.ranks.Rank() == 0 {
		return nil
	}
	if s.duty = noDuty; asked && (together || s.loop.stepper.isSharded()) {
		s.duty = contributes
	}
	return nil
}

// target is where a checkpoint goes.
type target struct {
	write  write
	newest bool // Resume looks there
	leaves bool // it is the first of a branch
}

// write writes a checkpoint, such as checkpoint.Folder.Save.
type write func(checkpoint.Checkpoint) (path string, err error)

// writing is a checkpoint that is being written.
type writing struct {
	step    int
	began   time.Time
	to      []target
	paths   []string      // of the targets; "" where none could be written
	err     error         // of the first target that failed, after which no other was tried
	hookErr error         // of BeforeCheckpoint
	copies  hostCopies    // where the loop's own values are copied to, nil for copies
	copied  chan struct{} // closed when these may change
	done    chan struct{}
}

// saveDue begins to write what is due after the step that is done: the best, the newest, or both
// from one copy. While steps are skipped the newest waits: the weights are those of a checkpoint
// before, or may be what is wrong, and would take the place of good ones.
func (s *saver) saveDue() error {
	l := s.loop
	due, best := s.due(), s.best && s.duty != noDuty
	if due && l.weights == weightsDoubtful && l.done < l.c.Steps {
		due, s.postponed = false, true
	}
	s.best = false
	if due || best || s.writing != nil && s.writing.isDone() {
		if err := s.finish(); err != nil {
			return err
		}
	}
	if !due && !best {
		return nil
	}
	if due {
		s.begun, s.postponed = l.done, false
	}
	if s.duty == contributes {
		if best && due && s.together { // in which each is written anew
			if err := s.contribute(); err != nil {
				return err
			}
		}
		return s.contribute()
	}
	var to []target
	if best {
		to = append(to, target{write: l.c.Checkpoints.SaveBest})
	}
	if due {
		to = append(to, s.target())
		s.branched = false
	}
	s.save(to...)
	// Before the first step it is waited for, so that a bad disk is known at once.
	if l.done == 0 || s.writing.hookErr != nil {
		return s.finish()
	}
	return nil
}

// due reports whether a checkpoint is to be written after the step that is done.
func (s *saver) due() bool {
	l := s.loop
	if s.duty == noDuty || l.done == s.begun {
		return false
	}
	if l.done == 0 { // where what a rank has dies with it, there is something to begin again from
		return l.stepper.isSharded() && l.ranks.Lost() != distributed.LostEnds
	}
	return l.done >= l.c.Steps || s.postponed || l.c.CheckpointEvery > 0 && l.done%l.c.CheckpointEvery == 0
}

// target is where the newest checkpoint goes.
func (s *saver) target() target {
	t, folder := target{newest: true, leaves: s.branched}, s.loop.c.Checkpoints
	switch t.write = folder.Save; {
	case s.loop.weights == weightsDoubtful:
		t.write = folder.SaveBeside
	case s.branched:
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

// saveLast writes a checkpoint of a run that ends early, unless that was done or has failed
// already. It removes no other, as nobody knows whether this one is any better.
func (s *saver) saveLast() error {
	l := s.loop
	switch {
	case s.duty == noDuty || l.done == s.begun || l.done == s.failed:
		return nil
	case l.weights == weightsUpdating:
		return s.noCheckpoint("the update that came after it failed halfway")
	case l.stepper.isSharded() && l.ranks.Err() != nil:
		what := "the optimizer's state"
		if l.ranks.shardWeights {
			what = "the weights and of the optimizer's state"
		}
		return s.noCheckpoint(fmt.Sprintf("each rank has a part of %s, and one is gone with its own", what))
	case s.duty == contributes && l.ranks.Err() != nil:
		return nil // rank 0 has all that it needs
	case s.duty == contributes:
		return s.contribute()
	}
	s.begun = l.done
	s.save(target{write: l.c.Checkpoints.SaveBeside, newest: true})
	return s.finish()
}

// noCheckpoint says why there is none of the last step, and what is lost with it.
func (s *saver) noCheckpoint(why string) error {
	lost, done := "the training goes on from the newest that rank 0 has written", s.loop.done
	switch {
	case s.loop.ranks.Rank() > 0:
	case s.newest.path == "":
		lost = fmt.Sprintf("there is no other, so all %d are lost", done)
	default:
		lost = fmt.Sprintf("the newest is %s, so of the %d steps %d are lost", s.newest.path, done, done-s.newest.step)
	}
	return fmt.Errorf("no checkpoint of step %d: %s; %s", done, why, lost)
}

// save begins to write a copy of the loop. Hooks that fail do not keep the checkpoint from being
// written.
func (s *saver) save(to ...target) {
	w := &writing{step: s.loop.done, began: time.Now(), to: to, paths: make([]string, len(to)), copied: make(chan struct{}), done: make(chan struct{})}
	w.hookErr = s.loop.audience.each(func(h *Hook) error {
		if h.BeforeCheckpoint == nil {
			return nil
		}
		return h.BeforeCheckpoint()
	})
	s.writing = w
	inParts := s.inParts()
	if !inParts && s.loop.c.Place.Device() == nil {
		w.copies = s.copies
	}
	c, err := s.snapshot(inParts)
	switch {
	case err != nil:
		for w.err = err; inParts && len(to) > 0; to = to[1:] {
			w.err = errors.Join(w.err, s.callOff())
		}
		close(w.copied)
		close(w.done)
	case inParts: // ranks do one thing at a time together
		w.write(c, s.writeTogether)
	default:
		go w.write(c, func(c checkpoint.Checkpoint, write write) (string, error) { return write(c) })
	}
}

// waitForCopy waits until the loop's values may change.
func (s *saver) waitForCopy() {
	if s.writing != nil {
		<-s.writing.copied
	}
}

// write saves a copy of the loop in all places.
func (w *writing) write(c checkpoint.Checkpoint, by func(checkpoint.Checkpoint, write) (string, error)) {
	defer close(w.done)
	defer guard.Catch(&w.err, "writing it")
	w.takeCopy(c)
	if w.err = finiteWeights(c.Weights); w.err != nil {
		return
	}
	for i, to := range w.to {
		if w.paths[i], w.err = by(c, to.write); w.err != nil {
			return
		}
	}
}

// takeCopy replaces the loop's own values by copies.
func (w *writing) takeCopy(c checkpoint.Checkpoint) {
	defer close(w.copied)
	if w.copies != nil {
		w.copies.take(c.Weights)
		w.copies.take(c.Optimizer)
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
func (s *saver) finish() error {
	w := s.writing
	if s.writing = nil; w == nil {
		return nil
	}
	<-w.done
	for i, to := range w.to {
		switch {
		case w.paths[i] == "":
			s.failed, s.branched = w.step, s.branched || to.leaves
			if to.newest && s.begun == w.step {
				s.begun = none
			}
		case to.newest:
			s.newest = saved{w.step, w.paths[i]}
		}
	}
	if w.err != nil {
		return errors.Join(w.hookErr, fmt.Errorf("no checkpoint of step %d: %w", w.step, w.err))
	}
	if w.hookErr != nil {
		return w.hookErr
	}
	took := time.Since(w.began)
	for i, path := range w.paths {
		written := Checkpoint{Done: w.step, Path: path, Best: !w.to[i].newest, Duration: took}
		err := tell(s.loop.audience, written, func(h *Hook) func(Checkpoint) error { return h.OnCheckpoint })
		if err != nil {
			return err
		}
	}
	return nil
}

// contribute is another rank's part in a checkpoint of rank 0: it writes its files, or gives what
// it holds.
func (s *saver) contribute() error {
	if s.together {
		return s.writeOwnFiles()
	}
	if _, err := s.loop.stepper.giveState(false, s.copies); err != nil {
		return err
	}
	return s.eachWeight(func(*gorgonia.Node) bool { return false }, nil)
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
