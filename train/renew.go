package train

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/distributed"
)

// This file is a training that survives the loss of ranks (PlaceConfig.Lost).
//
// An operation fails in all ranks that are left. Each keeps what it has, and they come together
// again, with a new process or with fewer. All build their graphs and their optimiser anew, over
// the same values, as the number of ranks may be another. Then one that has everything gives it to
// all: rank 0, whose hooks know how far it is, or else one that is as far as any. A rank changes
// its weights when the gradients of all are there, and nothing that they depend on travels after
// that: those that are left are at most one step apart, and each is at the end of one. On a device
// steps were queued. Their sums end with the network, and the device makes no step of such sums.
//
// What no rank has as a whole any more, such as shards of which some are lost, comes from the
// newest checkpoint.

// survival is what a loop keeps for the case that a rank is lost.
type survival struct {
	begun     bool         // it has had all that the training needs
	later     func() error // resumes, where Resume came when others were at work already
	last      *Step        // that was told of
	inherited *Step        // the last of the rank 0 whose place this process has taken
	held      *holding     // what this rank had when another was lost, until all have come to the same
	why       string       // a rank was lost, until people are told
	through   bool         // nothing is left to do but to end together
	emptied   bool         // the optimiser was built again and has no state yet
	fruitless int          // losses since the last step
}

// holding is a whole training.
type holding struct {
	checkpoint.Checkpoint
	last *Step
}

// mostFruitless is how many times ranks may be lost with no step between them.
const mostFruitless = 20

// survives reports whether the training goes on after an error.
func (l *Loop) survives(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && errors.Is(err, distributed.ErrLost) && l.ranks.Lost() != distributed.LostEnds
}

// renew makes the loop ready to go on with the ranks that come together, after an error by which
// it has lost one.
func (l *Loop) renew(ctx context.Context, lost error) error {
	if l.fruitless++; l.fruitless > mostFruitless {
		return fmt.Errorf("ranks were lost %d times with no step between them: %w", mostFruitless, lost)
	}
	if err := l.saver.finish(); err != nil && !errors.Is(err, distributed.ErrLost) {
		return err
	}
	if err := l.settle(); err != nil {
		return err
	}
	if err := l.hold(); err != nil {
		return err
	}
	l.queued, l.unread = nil, nil
	batches, cause := l.stepper.batchesOfStep(), l.ranks.Err()
	if err := l.ranks.Renew(ctx, func(size int) bool { return batches%size == 0 }); err != nil {
		return err
	}
	l.c.Options.Accumulation = batches / l.ranks.Size()
	l.why = strings.TrimPrefix(cause.Error(), "distributed: ")
	return l.rebuild()
}

// rebuild builds the graphs and the optimiser again. What was there goes once that has worked.
func (l *Loop) rebuild() error {
	graphs, training, stepper := l.graphs, l.training, l.stepper
	l.graphs, l.training, l.stepper = map[graphKey]*graph{}, nil, nil
	if err := l.build(); err != nil {
		l.Close()
		l.graphs, l.training, l.stepper = graphs, training, stepper
		return err
	}
	l.emptied = true
	return closeAll(graphs)
}

// settle finds out what became of the steps that a device had queued when a rank was lost. It makes
// those whose gradients had come from all ranks, and abandons the others. Nobody knows the losses
// of the lost rank any more, so the loss of such a step is the mean over this rank's batches.
func (l *Loop) settle() error {
	steps := l.unread
	if l.queued != nil {
		steps = append(steps, l.queued)
	}
	if l.c.Place.Device() == nil || len(steps) == 0 || l.stepper.isSharded() || l.stepper.changing {
		return nil
	}
	l.weights = weightsUpdating
	weights := weightsGood
	for _, q := range steps {
		s := q.step
		var err error
		switch s.Report, err = q.report.Report(); {
		case errors.Is(err, errAbandoned): // and so are those behind it
			continue
		case err != nil:
			return nil
		}
		sums, err := l.ownLosses(q, q.scalars)
		if err != nil {
			return nil
		}
		s.Loss = sums.loss / float64(len(q.scalars))
		s.Metrics = figures(l.training.outputs.Metrics, sums.means, scalarMetric)
		weights = weightsAfter(s)
		l.count(q, &s)
		if err := tell(l.audience, s, func(h *Hook) func(Step) error { return h.OnStep }); err != nil {
			return err
		}
	}
	l.weights = weights
	return nil
}

// hold keeps what this rank has, if it is whole and at the end of a step. On the host these are the
// values themselves, which nothing changes until all are given others.
func (l *Loop) hold() error {
	knows := l.begun || l.resumed
	if l.held != nil || l.emptied || !knows || l.weights == weightsUpdating || l.stepper.isSharded() {
		return nil
	}
	c, err := l.saver.snapshot(false)
	if err == nil {
		l.held = &holding{c, l.last}
	}
	return err
}

// standing is what a rank says of itself.
type standing struct {
	begun, whole bool
	done         int
}

// standings are those of all ranks.
func (l *Loop) standings() ([]standing, error) {
	const each = 3
	numbers := make([]float64, each*l.ranks.Size())
	own := numbers[each*l.ranks.Rank():]
	if l.begun || l.resumed {
		own[0] = 1
	}
	if l.held != nil {
		own[1], own[2] = 1, float64(l.done)
	}
	err := l.ranks.Sum(kernels.Of(numbers, len(numbers)))
	all := make([]standing, l.ranks.Size())
	for rank := range all {
		n := numbers[each*rank:]
		all[rank] = standing{n[0] == 1, n[1] == 1, int(n[2])}
	}
	return all, err
}

// giver is the rank whose training all go on with, none if nobody has a whole one.
func giver(all []standing) int {
	from := none
	for rank, s := range all {
		if s.whole && (from == none || from > 0 && s.done > all[from].done) {
			from = rank
		}
	}
	return from
}

// takeOver brings all ranks of a group that was renewed to the same step. It reports whether there
// is anything to go on with: otherwise the training begins.
func (l *Loop) takeOver() (goesOn bool, err error) {
	if err := l.hold(); err != nil {
		return false, err
	}
	all, err := l.standings()
	if err != nil {
		return false, err
	}
	begun := false
	for _, s := range all {
		begun = begun || s.begun
	}
	from, was := giver(all), l.done
	switch {
	case from != none:
		err = l.takeFrom(from, !all[0].whole)
	case begun:
		if _, err = l.resumeNewest(); errors.Is(err, checkpoint.ErrNone) {
			err = fmt.Errorf("no rank has the whole training any more: %w", err)
		}
		l.last = nil
	default: // nobody has begun
		if l.emptied = false; l.later != nil {
			err = l.later()
		}
		return false, err
	}
	if err != nil {
		return false, err // and what was held is still all that there is, since another may have been lost
	}
	l.held = nil
	if l.begun && l.done < was {
		err = l.audience.back(Back{From: was, Done: l.done, Why: "a rank is lost, and what it had is in checkpoints alone"})
	}
	return err == nil, err
}

// takeFrom gives all ranks what one has.
func (l *Loop) takeFrom(from int, newLeader bool) error {
	var mine holding
	if l.ranks.Rank() == from {
		mine = *l.held
	}
	c, err := l.saver.receive(from, mine.Checkpoint, nil)
	if err != nil {
		return err
	}
	text := ""
	if mine.last != nil {
		var written bytes.Buffer
		if err := gob.NewEncoder(&written).Encode(mine.last); err != nil {
			return err
		}
		text = written.String()
	}
	if text, err = l.ranks.share(from, text); err != nil {
		return err
	}
	newest := l.saver.newest
	if err := l.restore(c, false); err != nil {
		return err
	}
	if l.last = nil; text != "" {
		l.last = &Step{}
		if err := gob.NewDecoder(strings.NewReader(text)).Decode(l.last); err != nil {
			return fmt.Errorf("the last step of rank %d: %w", from, err)
		}
	}
	if !l.begun {
		l.inherited = l.last
	}
	if l.saver.newest = newest; newLeader { // nobody knows what the hooks of the rank that is gone were told
		l.evaluated = none
	}
	return nil
}

// tellStart tells the hooks where the run begins. Those of a rank 0 that has taken the place of
// another are told of the last step, which the other's may not have written down.
func (l *Loop) tellStart(s Start) error {
	last := l.inherited
	if l.inherited = nil; last != nil {
		s.Step, s.Evaluated = last.Done-1, true
	}
	err := tell(l.audience, s, func(h *Hook) func(Start) error { return h.OnStart })
	if err != nil || last == nil {
		return err
	}
	return tell(l.audience, *last, func(h *Hook) func(Step) error { return h.OnStep })
}

// tellRenewed tells people that a rank was lost, and that the training goes on.
func (l *Loop) tellRenewed() error {
	why := l.why
	if l.why = ""; why == "" {
		return nil
	}
	return l.audience.notice(Notice(fmt.Sprintf("%s; %d ranks go on after step %d", why, l.ranks.Size(), l.done)))
}
