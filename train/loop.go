package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/gorgonia"
)

// Model makes a model of a batch in a scope. A [Loop] calls it once for each shape of batches that
// it trains on, and once for each that it evaluates; its parameters have the same values in all of
// these graphs. What goes wrong is the scope's error, which the Loop reports.
type Model func(s *nn.Scope, in Inputs) Outputs

// Outputs is what a model gives.
type Outputs struct {
	Loss    nn.Tensor // what training makes smaller, a scalar
	Metrics []Metric  // to look at beside the loss
}

// LoopConfig describes a [Loop].
type LoopConfig struct {
	Model Model
	// Parameters are the values that the model's layers have, where the Place is: see
	// [Place.NewParameters]. Those that are frozen are not trained. Checkpoints hold all, or with a
	// LoRA the changes alone.
	Parameters *nn.Parameters
	// Optimizer says what a step does to the parameters: AdamW, SGD, Lion, or one of the program's
	// own.
	Optimizer Optimizer
	// Options are the schedule of the learning rate, which is needed, clipping, accumulation and
	// more.
	Options Options
	// Place is where the model computes, and with which other ranks; nil means on the host, alone.
	Place *Place
	// Memory is how many bytes a step may take on this rank's device: parameters, gradients, the
	// optimiser's state, activations and the graphs of evaluations. Where it needs more, the parts
	// of blocks that cost the least time are computed again for their gradients, which changes no
	// bit. NewLoop's error says the least where even that is not enough. Batches of other shapes
	// than the first, what kernels of a GPU allocate for themselves, and the program's own memory
	// come on top. 0 means no limit but the host's memory, beyond which a step there is an error of
	// NewLoop.
	Memory Bytes
	// Data are the batches to train on: step n takes batches n·Accumulation and on, and with other
	// ranks n·Accumulation·Size and on, of which each rank takes every Size-th; ranks that share
	// sequences count as one. There may be batches of several shapes, for each of which the loop
	// has a graph, over the same parameters and with the same optimiser.
	Data data.Batches
	// Steps is how many steps the training has in all, those before a resumption included.
	Steps int

	Evaluations Evaluations

	// Checkpoints is where checkpoints go; nil means that none are written. Of several ranks, rank
	// 0 alone has them. There is one after the last step, and one whatever else ends the run, as
	// long as the weights are good. From a device they are copied to the host and then written
	// beside the steps that follow, one at a time; an error of that ends the run as soon as it is
	// known.
	Checkpoints *checkpoint.Folder
	// CheckpointEvery is the number of steps between checkpoints; 0 means only at the end, and the
	// best.
	CheckpointEvery int
	// Settings are stored in every checkpoint, as JSON: what the program needs to know to build the
	// same Loop again.
	Settings any

	// GoBack has the training go back to a checkpoint when its loss spikes; nil means never.
	GoBack *GoBack

	// Hooks are told what happens, in their order. With other ranks only rank 0's are, and only
	// rank 0 writes checkpoints.
	Hooks []Hook
}

// Loop trains a model: it takes steps, evaluates now and then, writes checkpoints, keeps the best,
// and tells its hooks. It belongs to one goroutine.
type Loop struct {
	c        LoopConfig
	stepper  *Stepper
	ranks    ranks
	saver    *saver
	audience *audience

	training *graph              // for batches of the shape of the first
	graphs   map[graphKey]*graph // for batches of all shapes that came, training among them

	progress
	health
	survival
	reports
	course   course
	memory   memory
	slowest  slowest // of the ranks
	newMasks bool    // AllowNewMasks was called
}

// reports is how far the reports of steps were read.
type reports struct {
	queued   *queuedStep   // on a device, the step whose report was not read yet
	unread   []*queuedStep // the steps whose reports could not be read, since a rank was lost
	reported time.Time     // when the last report was read
}

// graphKey is the shape of batches, by data.Batch.String, and what is done with them.
type graphKey struct {
	shape    string
	training bool
}

// progress is how far a training has come.
type progress struct {
	done      int // steps
	evaluated int // the step of the last evaluation
	bestLoss  float64
	bestStep  int
	resumed   bool
}

// health is what is known of the weights.
type health struct {
	weights  weightState
	badSteps int // steps in a row whose loss was not finite, the last one among them
}

// weightState says what the weights are good for.
type weightState int

const (
	weightsGood     weightState = iota
	weightsDoubtful             // the last step was skipped, and they may be why its gradients were not finite
	weightsUpdating             // an update has begun. If it fails they are lost: neither the old nor the new
)

// errCancelled ends a run whose context was cancelled.
var errCancelled = errors.New("cancelled")

// errZeroLoop is the error of a Loop that NewLoop did not make.
var errZeroLoop = errors.New("the loop is a zero value, it needs to come from NewLoop")

// none is the number of no step.
const none = -1

// NewLoop builds the graphs of a training, and stops short of its first step. Close releases them.
func NewLoop(c LoopConfig) (*Loop, error) {
	c.Evaluations = c.Evaluations.withDefaults(c.Data)
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("Loop: %w", err)
	}
	for _, batches := range []*data.Batches{&c.Data, &c.Evaluations.Data, &c.Evaluations.Validation} {
		*batches = rowsOf(*batches, c.Place.SequenceRanks())
	}
	l := &Loop{c: c, graphs: map[graphKey]*graph{}, progress: progress{evaluated: none, bestLoss: math.NaN()}}
	l.saver = newSaver(l)
	if err := l.build(); err != nil {
		l.Close()
		return nil, fmt.Errorf("Loop: %w", err)
	}
	return l, nil
}

func (c LoopConfig) validate() error {
	switch {
	case c.Model == nil:
		return errors.New("model is nil, it needs to be a function that makes a model in a scope")
	case c.Parameters == nil:
		return errors.New("parameters is nil, it needs to be those of the model, such as nn.NewParameters(1)")
	case c.Optimizer == nil:
		return errors.New("optimizer is nil, it needs to be one, such as AdamW{}")
	case c.Data == nil:
		return errors.New("data is nil, it needs to be batches, such as those of data.Random")
	case c.Memory < 0:
		return fmt.Errorf("memory is %d bytes, it needs to be positive, or 0 for no limit", c.Memory)
	case c.Memory > 0 && c.Place.SequenceRanks().Size() > 1:
		return errors.New("memory is set and ranks share sequences, whose transfers it cannot estimate")
	}
	return firstError(c.GoBack.validate(c), validateLength("steps", c.Steps, 1), validateLength("evaluations every", c.Evaluations.Every, 0),
		validateLength("evaluations batches", c.Evaluations.Batches, 1), validateLength("checkpoint every", c.CheckpointEvery, 0))
}

func (l *Loop) build() (err error) {
	if l.training, err = l.first("data", l.c.Data, true); err != nil {
		return err
	}
	if l.stepper, err = l.c.Place.NewStepper(l.training.trained, l.c.Optimizer, l.c.Options); err != nil {
		return err
	}
	if err := l.stepper.attach(l.training.g, l.training.trained); err != nil {
		return err
	}
	if l.ranks, err = newRanks(l.c.Place, l.Parameters()); err != nil {
		return err
	}
	if err := firstError(l.checkCounts(), l.saver.validate()); err != nil {
		return err
	}
	e := l.c.Evaluations
	if e.Every == 0 {
		return nil
	}
	if _, err := l.first("evaluations data", e.Data, false); err != nil || e.Validation == nil {
		return err
	}
	_, err = l.first("evaluations validation", e.Validation, false)
	return err
}

// first builds the graph of the first of some batches, so that what is wrong with it is known
// before the first step.
func (l *Loop) first(name string, batches data.Batches, training bool) (*graph, error) {
	b, err := batchOf(batches, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: batch 0: %w", name, err)
	}
	t, err := l.graph(b, training)
	if err != nil {
		return nil, fmt.Errorf("%s: batch 0: %w", name, err)
	}
	return t, nil
}

// manyShapes is how many graphs of a kind are built in silence.
const manyShapes = 32

// graph returns the graph that trains or evaluates batches like b. It is built for the first of
// them.
func (l *Loop) graph(b data.Batch, training bool) (*graph, error) {
	key := graphKey{b.String(), training}
	if t := l.graphs[key]; t != nil {
		return t, nil
	}
	var again []string
	if training && l.c.Memory > 0 {
		var err error
		if again, err = l.regions(b); err != nil {
			return nil, err
		}
	}
	t, err := newGraph(l.c, b, training, again)
	if err != nil {
		return nil, err
	}
	if l.training != nil {
		err = t.shares(l.training)
	}
	if err == nil && training && l.stepper != nil {
		err = l.stepper.attach(t.g, t.trained)
	}
	if err != nil {
		return nil, errors.Join(err, t.machine.Close())
	}
	l.graphs[key] = t
	alike := 0
	for other := range l.graphs {
		if other.training == training {
			alike++
		}
	}
	if alike == manyShapes+1 {
		err = l.audience.notice(Notice(fmt.Sprintf("there are batches of more than %d shapes, and each shape has a graph of its own: "+
			"sequences of similar length, padded to the same, take fewer", manyShapes)))
	}
	return t, err
}

// sequenceRanks are how many ranks take the same batches.
func (l *Loop) sequenceRanks() int { return l.c.Place.SequenceRanks().Size() }

// batchesOfStep is how many batches of the data a step takes, each of which has a number for each
// rank that shares it.
func (l *Loop) batchesOfStep() int { return l.stepper.batchesOfStep() / l.sequenceRanks() }

// checkCounts makes sure that all batches have a number.
func (l *Loop) checkCounts() error {
	c := l.c
	if batches := l.stepper.batchesOfStep(); c.Steps > math.MaxInt/batches {
		return fmt.Errorf("steps is %d of %d batches each, that is more than can be counted", c.Steps, batches)
	}
	if e := c.Evaluations; e.Every > 0 && c.Steps/e.Every > math.MaxInt/l.sequenceRanks()/e.Batches-2 {
		return fmt.Errorf("evaluations batches is %d for each %d of %d steps, that is more than can be counted", e.Batches, e.Every, c.Steps)
	}
	return nil
}

// Close releases the machines that run the graphs.
func (l *Loop) Close() error { return closeAll(l.graphs) }

func closeAll(graphs map[graphKey]*graph) error {
	var errs []error
	for _, t := range graphs {
		errs = append(errs, t.machine.Close())
	}
	return errors.Join(errs...)
}

// Parameters are the model's parameters, nodes of a graph that trains. Of some of them a rank may
// hold a shard ([ShardWeights]).
func (l *Loop) Parameters() gorgonia.Nodes {
	if l.training == nil {
		return nil
	}
	return l.training.parameters
}

// Stepper is what changes them.
func (l *Loop) Stepper() *Stepper { return l.stepper }

// Done is how many steps are done.
func (l *Loop) Done() int { return l.done }

// Run trains until Steps steps are done. When its context is cancelled it finishes the batch,
// writes a checkpoint and returns without an error; Run again, or [Loop.Resume] in another process,
// goes on from there. The End that hooks get is what it returns.
func (l *Loop) Run(ctx context.Context) (End, error) {
	if l.training == nil {
		return End{Err: errZeroLoop}, errZeroLoop
	}
	l.through = false
	start := time.Now()
	hooks := l.c.Hooks
	if l.ranks.Rank() != 0 {
		hooks = nil
	}
	l.audience = newAudience(hooks)
	stop := l.audience.onCancel(ctx, l.c.Checkpoints != nil)
	defer l.audience.onCompile()()
	err := l.run(ctx, start)
	for l.survives(ctx, err) {
		if renewErr := l.renew(ctx, err); renewErr != nil {
			if err = renewErr; l.through { // and the others have what they need of this rank
				err = nil
			}
			break
		}
		err = l.run(ctx, start)
	}
	cancelled, together := errors.Is(err, errCancelled), errors.As(err, new(stopped))
	if err != nil && !cancelled && !together {
		l.ranks.Abort(err)
	}
	if cancelled {
		err = nil
	}
	err = errors.Join(err, l.report(), l.saver.finish())
	if cancelled || err != nil && l.done > 0 {
		err = errors.Join(err, l.saver.saveLast())
	}
	stop()
	end := End{
		Done: l.done, Steps: l.c.Steps, Cancelled: cancelled && err == nil, Err: err, BestLoss: l.bestLoss, BestStep: l.bestStep,
		Elapsed: time.Since(start), Checkpoint: l.saver.newest.path,
	}
	err = errors.Join(err, l.audience.end(end))
	end.Err, end.Notices = err, l.audience.notices
	return end, err
}

func (l *Loop) run(ctx context.Context, start time.Time) error {
	if err := l.start(); err != nil {
		return err
	}
	for {
		if l.evaluationDue() {
			if err := l.evaluate(ctx); err != nil {
				return err
			}
		}
		if err := l.saver.saveDue(); err != nil {
			return err
		}
		if l.done >= l.c.Steps {
			return l.endTogether()
		}
		if err := l.step(ctx, start); err != nil {
			return err
		}
	}
}

// endTogether ends the run. Where a lost rank would be replaced, the others wait until none needs
// them any more.
func (l *Loop) endTogether() error {
	if err := l.diverged(); err != nil || l.ranks.Lost() == distributed.LostEnds {
		return err
	}
	if err := l.saver.finish(); err != nil {
		return err
	}
	l.through = true
	return l.ranks.Barrier()
}

// start gives all ranks the weights of rank 0, clears what a run that ended in the middle of a step
// has left, and tells the hooks.
func (l *Loop) start() error {
	for key, t := range l.graphs {
		if !key.training || t.last.runs+t.others.runs == 0 {
			continue
		}
		if err := errors.Join(l.stepper.Use(t.trained), l.stepper.ZeroGradients()); err != nil {
			return err
		}
	}
	if err := l.joinRanks(); err != nil {
		return err
	}
	if l.begun = true; l.audience.started {
		return l.tellRenewed()
	}
	l.audience.started = true
	n := l.stepper.batch(l.done+l.course.LeftOut, 0)
	b, err := batchOf(l.c.Data, n)
	if err != nil {
		return fmt.Errorf("step %d: batch %d: %w", l.done, n, err)
	}
	examples, tokens := b.Size()
	err = l.tellStart(Start{
		Step: l.done, Steps: l.c.Steps, Resumed: l.resumed, Evaluated: l.evaluated == l.done, Parameters: nn.Count(l.Parameters()), Trained: nn.Count(l.training.trained),
		ExamplesPerStep: examples * l.batchesOfStep(), TokensPerStep: tokens * l.stepper.batchesOfStep(),
		Metrics: metricNames(l.training.outputs.Metrics), Survives: l.ranks.Lost() == distributed.LostReplaced,
	})
	if unused := l.training.unused; err == nil && len(unused) > 0 {
		err = l.audience.noticeOnce(Notice(fmt.Sprintf("the loss does not use %d of the %d parameters that are trained, such as %s: "+
			"their gradients are zero, Freeze leaves them out", len(unused), len(l.training.trained), unused[0].Name())))
	}
	if e := l.c.Evaluations; err == nil && e.Every == 0 && e.Validation != nil {
		err = l.audience.noticeOnce("evaluations have batches to validate on and Every is 0: there are none")
	}
	if outside := l.training.outside; err == nil && len(outside) > 0 {
		err = l.audience.noticeOnce(Notice(fmt.Sprintf("%s of shape %v was made outside of the model's scope and is not trained: "+
			"Scope.Parameter makes what is, Scope.Constant what stays as it is", outside[0].Name(), []int(outside[0].Shape()))))
	}
	return err
}

// joinRanks connects the ranks' devices, brings all ranks to the same step with the same weights,
// and asks rank 0 what it does about checkpoints.
func (l *Loop) joinRanks() error {
	if l.ranks.alone() && !l.ranks.Renewed() {
		return nil
	}
	if err := l.ranks.connect(l.c.Place); err != nil {
		return err
	}
	if l.ranks.Renewed() {
		goesOn, err := l.takeOver()
		if err != nil {
			return err
		}
		if goesOn {
			return l.saver.join()
		}
	}
	if err := l.shareWeights(); err != nil {
		return err
	}
	return l.saver.join()
}

// shareWeights gives all ranks the weights of rank 0.
func (l *Loop) shareWeights() error {
	var values []kernels.Tensor
	for _, n := range l.Parameters() {
		if isShard(n) {
			continue
		}
		value, err := viewOf(n.Value(), n.Dtype(), n.Shape())
		if err != nil {
			return fmt.Errorf("the value of %s %w", n.Name(), err)
		}
		values = append(values, value)
	}
	return l.ranks.Broadcast(0, values...)
}

// tellBatch tells how far a step or an evaluation has come.
func (l *Loop) tellBatch(b Batch) error {
	return tell(l.audience, b, func(h *Hook) func(Batch) error { return h.OnBatch })
}
