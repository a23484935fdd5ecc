package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/train/data"
)

// A step, in the order of this file:
//
//	step      queue this step, report the one before
//	queue     for each batch: feed, run
//	work      forward, backward, then accumulate; or after the last batch reduce and update
//	report    wait for losses and norm, tell the hooks

// queuedStep is a step that was asked for.
type queuedStep struct {
	step       Step
	scalars    [][]kernels.Number // of each batch, the loss first
	weights    []float64          // of each batch's loss, in the mean over the ranks
	sums       *lossSums          // of all batches and ranks, once they are known
	report     *PendingReport
	unrecorded error // why its last run was not recorded
	told       error // of OnBatch after its last batch, when the step is made
	began      time.Time
	start      time.Time // of the run
}

// lossSums are the sum of a step's losses, and what metrics' means are of.
type lossSums struct {
	loss  float64
	means []mean
}

// step takes one step: batches are fed to graphs and run, gradients are added up and reduced, the
// parameters updated, and all of it reported. On a device, which computes by itself, the report of
// a step is read once the next one is queued, unless something that looks at the weights comes
// between them.
func (l *Loop) step(ctx context.Context, start time.Time) error {
	next, err := l.queue(ctx, start)
	if err != nil {
		return err
	}
	wentBack := l.course.WentBack
	if err := l.report(); err != nil {
		l.unread = append(l.unread, next)
		return errors.Join(err, next.told)
	}
	if l.course.WentBack > wentBack { // the queued step belongs to the course that is left
		_, err := l.readStep(next)
		l.badSteps = 0
		return errors.Join(err, next.told)
	}
	if l.queued = next; l.c.Place.Device() == nil || l.looksAtWeights(l.done+1) {
		err = l.report()
	}
	return errors.Join(err, next.told)
}

// queue asks for a step.
func (l *Loop) queue(ctx context.Context, start time.Time) (*queuedStep, error) {
	q := &queuedStep{step: Step{Steps: l.c.Steps}, began: time.Now(), start: start}
	batches, number := l.stepper.options.Accumulation, l.done
	if l.queued != nil {
		number++
	}
	for i := range batches {
		n := l.stepper.batch(number+l.course.LeftOut, i)
		t, b, weight, err := l.feed(n)
		if err != nil {
			err = fmt.Errorf("step %d: batch %d: %w", number, n, err)
		}
		if err := l.ranks.agree(ctx, err); err != nil {
			return nil, err
		}
		q.weights = append(q.weights, weight)
		if err := l.runBatch(q, t, b, n, i == batches-1); err != nil {
			return nil, fmt.Errorf("step %d: batch %d: %w", number, n, err)
		}
		if batches > 1 {
			err := l.tellBatch(Batch{Done: l.done, Batch: i + 1, Batches: batches})
			if q.told = err; err != nil && i < batches-1 {
				return nil, err
			}
		}
	}
	q.step.Waited = l.ranks.waiting.take()
	var err error
	if q.report, err = l.stepper.ask(); err != nil {
		return nil, fmt.Errorf("step %d: %w", number, err)
	}
	return q, nil
}

// feed returns batch n of the data, how much its loss counts, and the graph that trains it.
func (l *Loop) feed(n int) (*graph, data.Batch, float64, error) {
	b, weight, err := weighed(l.c.Data, n)
	if err != nil {
		return nil, b, weight, err
	}
	if count, known := teaching(b); known && count == 0 && weight != 0 {
		err := l.audience.noticeOnce("there are batches whose targets are all negative, which means that none counts: their loss is 0 and they teach nothing")
		if err != nil {
			return nil, b, weight, err
		}
	}
	t, err := l.graph(b, true)
	if err == nil {
		err = t.setWeight(weight)
	}
	return t, b, weight, err
}

// runBatch runs batch n, the last of a step or not, and asks for its losses.
func (l *Loop) runBatch(q *queuedStep, t *graph, b data.Batch, n int, last bool) error {
	t.mode().Train(uint32(n / l.sequenceRanks())) // ranks that share a batch share its masks
	run := &t.others
	if last {
		run = &t.last
		if err := l.stepper.prepare(); err != nil {
			return err
		}
	}
	scalars, err := t.run(b, run, func() error { return l.work(q, t, last) })
	if err != nil {
		return err
	}
	examples, tokens := b.Size()
	q.step.Examples += examples * l.ranks.Size() / l.sequenceRanks()
	q.step.Tokens += tokens * l.ranks.Size()
	q.scalars, q.unrecorded = append(q.scalars, scalars), t.unrecorded
	return nil
}

// work is what the device does for a batch, and what is recorded of it: forward and backward; then
// the gradients are added to those of the step, or after the last batch reduced over the ranks, and
// the parameters updated by them.
//
// On the host the losses of all ranks are added up before that. Then nothing travels after the
// update, and whoever has made it has all of the step.
func (l *Loop) work(q *queuedStep, t *graph, last bool) error {
	l.stepper.beginRun(last)
	if err := t.compute(); err != nil {
		return err
	}
	if err := l.stepper.Use(t.trained); err != nil {
		return err
	}
	if !last {
		return l.stepper.Accumulate()
	}
	if l.c.Place.Device() == nil && !l.ranks.alone() {
		now, err := t.ask(nil)
		if err != nil {
			return err
		}
		if err := l.sumLosses(q, append(slices.Clip(q.scalars), now)); err != nil {
			return err
		}
	}
	l.saver.waitForCopy()
	before := l.weights
	l.weights = weightsUpdating
	if err := l.stepper.update(t.recording); err != nil {
		if !l.stepper.changing {
			l.weights = before
		}
		return err
	}
	if l.weights = before; before == weightsUpdating { // by a recording that failed, which changed none
		l.weights = weightsGood
	}
	return nil
}

// looksAtWeights reports whether the step after which so many are done needs to be over before the
// next one begins.
func (l *Loop) looksAtWeights(done int) bool {
	due := func(every int) bool { return every > 0 && done%every == 0 }
	return l.weights == weightsDoubtful || l.saver.postponed || done >= l.c.Steps || due(l.c.Evaluations.Every) || due(l.c.CheckpointEvery)
}

// report waits for the step that is queued, and tells of it.
func (l *Loop) report() error {
	q := l.queued
	if l.queued = nil; q == nil {
		return nil
	}
	s, err := l.readStep(q)
	if err != nil {
		l.unread = append(l.unread, q)
		return fmt.Errorf("step %d: %w", l.done, err)
	}
	if l.weights != weightsUpdating { // by the step after this one
		l.weights = weightsAfter(s)
	}
	l.count(q, &s)
	if q.unrecorded != nil {
		why := Notice(fmt.Sprintf("steps are queued kernel by kernel, which is right and a little slower: %v", q.unrecorded))
		if err := l.audience.noticeOnce(why); err != nil {
			return err
		}
	}
	why := l.judge(s)
	if err := tell(l.audience, s, func(h *Hook) func(Step) error { return h.OnStep }); err != nil {
		return err
	}
	if text := l.slowest.see(s.Duration, s.Waited); text != "" {
		if err := l.audience.notice(Notice(text)); err != nil {
			return err
		}
	}
	return l.goBackIfDue(why)
}

// weightsAfter says what the weights are good for after a step.
func weightsAfter(s Step) weightState {
	if s.Report.Skipped {
		return weightsDoubtful
	}
	return weightsGood
}

// count takes a step for done.
func (l *Loop) count(q *queuedStep, s *Step) {
	l.done++
	began := q.began
	if l.reported.After(began) {
		began = l.reported
	}
	l.reported = time.Now()
	s.Done, s.Duration, s.Elapsed = l.done, l.reported.Sub(began), l.reported.Sub(q.start)
	l.last, l.fruitless = s, 0
}

// readStep waits for the numbers of a step. Until it is known that the gradients of all ranks have
// come, the weights count as being updated.
func (l *Loop) readStep(q *queuedStep) (s Step, err error) {
	before := l.weights
	if !l.ranks.alone() && l.ranks.onDevices {
		l.weights = weightsUpdating
	}
	if err := l.ranks.meet(); err != nil {
		return s, err
	}
	s = q.step
	if q.sums == nil {
		if err := l.sumLosses(q, q.scalars); err != nil {
			return s, err
		}
	}
	l.weights = before
	s.Loss = q.sums.loss / float64(len(q.scalars)*l.ranks.Size())
	l.badSteps++
	if !math.IsNaN(s.Loss) && !math.IsInf(s.Loss, 0) {
		l.badSteps = 0
	}
	s.Metrics = figures(l.training.outputs.Metrics, q.sums.means, scalarMetric)
	s.Report, err = q.report.Report()
	if cause := l.ranks.Err(); errors.Is(err, errAbandoned) && cause != nil {
		err = cause // it names the rank
	}
	return s, err
}

// sumLosses adds up what the batches of a step gave, over all ranks.
func (l *Loop) sumLosses(q *queuedStep, scalars [][]kernels.Number) error {
	sums, err := l.ownLosses(q, scalars)
	if err != nil {
		return err
	}
	if err := l.ranks.addUp(&sums.loss, sums.means); err != nil {
		return err
	}
	q.sums = &sums
	return nil
}

// ownLosses adds up what the batches of a step gave in this rank.
func (l *Loop) ownLosses(q *queuedStep, scalars [][]kernels.Number) (lossSums, error) {
	metrics := l.training.outputs.Metrics
	sums := lossSums{means: make([]mean, len(metrics))}
	for batch, list := range scalars {
		values, err := numbers(list)
		if err != nil {
			return sums, err
		}
		sums.loss += values[0] * q.weights[batch]
		for i, m := range metrics {
			if scalarMetric(m) {
				sums.means[i].add(values[1], 1)
				values = values[1:]
			}
		}
	}
	return sums, nil
}

// numbers waits for some numbers.
func numbers(list []kernels.Number) ([]float64, error) {
	values := make([]float64, len(list))
	for i, number := range list {
		var err error
		if values[i], err = number.Float64(); err != nil {
			return nil, err
		}
	}
	return values, nil
}
