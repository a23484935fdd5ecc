package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
)

// Model adds a model of a batch to a graph. A [Loop] calls it once for each shape of batches that it trains on, and once for each
// that it evaluates; a model over [nn.Parameters] has the same values in all of these graphs.
type Model func(g *gorgonia.ExprGraph, in Inputs) (Outputs, error)

// Inputs are the arrays of a batch as nodes, by name: tokens and targets in batches of package data that are cut from tokens.
type Inputs map[string]*gorgonia.Node

// Outputs is what a model gives.
type Outputs struct {
	Loss *gorgonia.Node // what training makes smaller, a scalar
	// Parameters are those of the model, such as what [nn.Parameters.Nodes] lists. Checkpoints hold all of them.
	Parameters gorgonia.Nodes
	// Trained are those of the parameters that training changes, such as what [nn.Parameters.Trainable] lists; nil means all.
	Trained gorgonia.Nodes
	Metrics []Metric // to look at beside the loss
}

// LoopConfig describes a [Loop].
type LoopConfig struct {
	Model Model
	// Optimizer says what a step does to the parameters: AdamW, SGD, Lion, or one of the program's own.
	Optimizer Optimizer
	// Options are the schedule of the learning rate, which is needed, clipping, accumulation and more.
	Options Options
	// Place is where the model computes, and with which other ranks; nil means on the host, alone. The parameters need to be
	// there, see [Place.NewParameters].
	Place *Place
	// Data are the batches to train on: step n takes batches n·Accumulation and on, and with other ranks n·Accumulation·Size and on, of
	// which each rank takes every Size-th; ranks that share sequences count as one. There may be batches of several
	// shapes, for each of which the loop has a graph, over the same parameters and with the same optimiser.
	Data data.Batches
	// Steps is how many steps the training has in all, those before a resumption included.
	Steps int

	// EvalEvery is the number of steps between evaluations; there is one before the first step and one after the last
	// too. 0 means none at all.
	EvalEvery int
	// EvalBatches is how many batches an evaluation takes the mean loss of; 0 means 20. Each evaluation has new ones.
	EvalBatches int
	// EvalData are the training batches that evaluations look at; nil means Data, from its start.
	EvalData data.Batches
	// Validation are batches that are never trained on; nil means that there are none.
	Validation data.Batches

	// Checkpoints is where checkpoints go; nil means that none are written. Of several ranks, rank 0 alone has them. There is one after
	// the last step, and one whatever else ends the run, as long as the weights are good. From a device they are copied to the host and
	// then written beside the steps that follow, one at a time; an error of that ends the run as soon as it is known.
	Checkpoints *checkpoint.Folder
	// CheckpointEvery is the number of steps between checkpoints; 0 means only at the end, and the best.
	CheckpointEvery int
	// NewMasks lets Resume go on from a checkpoint of a program whose dropout drew other masks for the same seeds.
	NewMasks bool
	// Settings are stored in every checkpoint, as JSON: what the program needs to know to build the same Loop again.
	Settings any

	// Hooks are told what happens, in their order. With other ranks only rank 0's are, and only rank 0 writes checkpoints.
	Hooks []Hook
}

// Loop trains a model: it runs steps, evaluates now and then, writes checkpoints, keeps the best, and tells its hooks.
// It belongs to one goroutine.
type Loop struct {
	c         LoopConfig
	optimizer *Stepper
	training  *graph            // for batches of the shape of the first
	trainers  map[string]*graph // for batches of all shapes that came, training's among them, by data.Batch.String
	judges    map[string]*graph // graphs that evaluate
	audience  *audience

	queued  *queuedStep // on a device, the step whose report was not read yet
	settled time.Time   // when the last report was read
	why     error       // the last step was not recorded
	toldWhy bool

	done      int // steps
	evaluated int // the step of the last evaluation
	bestLoss  float64
	bestStep  int

	isPart map[string]bool // the parameters of which other ranks have the rest

	dirty    bool // gradients are not zero
	torn     bool // an update of the weights has failed halfway
	shares   bool // rank 0 wants checkpoints that all ranks write
	helps    bool // rank 0 writes checkpoints, and needs this rank's part
	skipping bool // the last step was skipped, since a gradient was not finite
	resumed  bool
	branched bool // from a checkpoint that is not the newest

	better    bool       // the last evaluation was the best, and its weights are not kept yet
	writing   *writing   // the checkpoint that is being written beside steps
	copies    hostCopies // of what is on a device, for checkpoints
	saved     int        // the step of the newest checkpoint
	savedTo   string     // where the newest one is that the loop can be resumed from
	savedStep int        // of that one
	failed    int        // the step of which none could be written
	postponed bool       // one was due while steps were skipped
}

// errCancelled ends a run whose context was cancelled.
var errCancelled = errors.New("cancelled")

// errZeroLoop is the error of a Loop that NewLoop did not make.
var errZeroLoop = errors.New("the loop is a zero value, it needs to come from NewLoop")

// none is the number of no step.
const none = -1

const defaultEvalBatches = 20

// NewLoop builds the graphs of a training, and stops short of its first step. Close releases them.
func NewLoop(c LoopConfig) (*Loop, error) {
	if c.EvalBatches == 0 {
		c.EvalBatches = defaultEvalBatches
	}
	if c.EvalData == nil {
		c.EvalData = c.Data
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("Loop: %w", err)
	}
	for _, batches := range []*data.Batches{&c.Data, &c.EvalData, &c.Validation} {
		*batches = rowsOf(*batches, c.Place.SequenceRanks())
	}
	l := &Loop{c: c, bestLoss: math.NaN(), evaluated: none, saved: none, failed: none, copies: hostCopies{}, trainers: map[string]*graph{}, judges: map[string]*graph{}}
	if err := l.build(); err != nil {
		l.Close()
		return nil, fmt.Errorf("Loop: %w", err)
	}
	return l, nil
}

func (c LoopConfig) validate() error {
	switch {
	case c.Model == nil:
		return errors.New("model is nil, it needs to be a function that adds a model to a graph")
	case c.Optimizer == nil:
		return errors.New("optimizer is nil, it needs to be one, such as AdamW{}")
	case c.Data == nil:
		return errors.New("data is nil, it needs to be batches, such as those of data.Random")
	}
	return firstError(validateLength("steps", c.Steps, 1), validateLength("eval every", c.EvalEvery, 0),
		validateLength("eval batches", c.EvalBatches, 1), validateLength("checkpoint every", c.CheckpointEvery, 0))
}

func (l *Loop) build() (err error) {
	if l.training, err = l.first("data", l.c.Data, true); err != nil {
		return err
	}
	if l.optimizer, err = l.c.Place.NewStepper(l.training.trained, l.c.Optimizer, l.c.Options); err != nil {
		return err
	}
	if err := l.prepare(l.training); err != nil {
		return err
	}
	l.isPart = map[string]bool{}
	for _, n := range l.Parameters() {
		_, holders := ops.WholeOf(n)
		if err := checkHolders(n, holders, l.ranks()); err != nil {
			return err
		}
		if holders != nil {
			l.isPart[n.Name()] = true
		}
	}
	if l.c.CheckpointEvery > 0 && l.c.Checkpoints == nil && l.ranks().Rank() == 0 {
		return fmt.Errorf("checkpoint every is %d and checkpoints is nil, it needs a folder", l.c.CheckpointEvery)
	}
	if err := l.checkCounts(); err != nil {
		return err
	}
	if _, err := l.settings(); err != nil {
		return err
	}
	if l.c.Checkpoints != nil {
		if err := l.c.Checkpoints.CheckWritable(); err != nil {
			return err
		}
	}
	if l.c.EvalEvery == 0 {
		return nil
	}
	if _, err := l.first("eval data", l.c.EvalData, false); err != nil || l.c.Validation == nil {
		return err
	}
	_, err = l.first("validation", l.c.Validation, false)
	return err
}

// first builds the graph of the first of some batches, so that what is wrong with it is known before the first step.
func (l *Loop) first(name string, batches data.Batches, training bool) (*graph, error) {
	b, err := batches.Batch(0)
	if err != nil {
		return nil, fmt.Errorf("%s: batch 0: %w", name, err)
	}
	t, err := l.graph(b, training)
	if err != nil {
		return nil, fmt.Errorf("%s: batch 0: %w", name, err)
	}
	return t, nil
}

// graph returns the graph that trains or evaluates batches like b. It is built for the first of them.
func (l *Loop) graph(b data.Batch, training bool) (*graph, error) {
	graphs, key := l.judges, b.String()
	if training {
		graphs = l.trainers
	}
	if t := graphs[key]; t != nil {
		return t, nil
	}
	t, err := newGraph(l.c.Model, b, l.c.Place, training)
	if err != nil {
		return nil, err
	}
	if l.training != nil {
		if err := t.shares(l.training); err != nil {
			return nil, errors.Join(err, t.machine.Close())
		}
	}
	if training && l.optimizer != nil {
		if err := l.prepare(t); err != nil {
			return nil, errors.Join(err, t.machine.Close())
		}
	}
	if training {
		t.others.then, t.last.then = func() error { return l.accumulate(t) }, func() error { return l.update(t) }
	}
	if graphs[key] = t; len(graphs) == manyShapes+1 {
		err = l.audience.notice(Notice(fmt.Sprintf("there are batches of more than %d shapes, and each shape has a graph of its own: "+
			"sequences of similar length, padded to the same, take fewer", manyShapes)))
	}
	return t, err
}

// prepare scales the loss of a graph that trains, and on a device has its gradients travel while others are computed.
func (l *Loop) prepare(t *graph) error {
	if sharers := l.c.Place.SequenceRanks(); l.c.Place.Device() != nil && !l.optimizer.hasParts && (sharers.Size() == 1 || sharers == l.ranks()) {
		l.optimizer.joinEarly(t.trained) // where those who share are a part of all, or weights are shared out, others travel first
	}
	if o := l.optimizer; l.c.Place.Device() != nil && o.hasParts && o.options.Accumulation == 1 {
		ops.DeferSums(t.trained, func() bool { return o.ends })
	}
	return l.optimizer.ScaleLoss(t.g)
}

// manyShapes is how many graphs are built in silence.
const manyShapes = 32

// checkCounts makes sure that all batches have a number.
func (l *Loop) checkCounts() error {
	c := l.c
	if batches := l.optimizer.batchesOfStep(); c.Steps > math.MaxInt/batches {
		return fmt.Errorf("steps is %d of %d batches each, that is more than can be counted", c.Steps, batches)
	}
	if c.EvalEvery > 0 && c.Steps/c.EvalEvery > math.MaxInt/l.sharers()/c.EvalBatches-2 {
		return fmt.Errorf("eval batches is %d for each %d of %d steps, that is more than can be counted", c.EvalBatches, c.EvalEvery, c.Steps)
	}
	return nil
}

// Close releases the machines that run the graphs.
func (l *Loop) Close() error {
	var errs []error
	for _, graphs := range []map[string]*graph{l.trainers, l.judges} {
		for _, t := range graphs {
			errs = append(errs, t.machine.Close())
		}
	}
	return errors.Join(errs...)
}

// Parameters are the model's parameters, nodes of a graph that trains. Where they are shared out over ranks, some of their values are
// parts ([ops.WholeOf]).
func (l *Loop) Parameters() gorgonia.Nodes {
	if l.training == nil {
		return nil
	}
	return l.training.outputs.Parameters
}

// Stepper is what changes them.
func (l *Loop) Stepper() *Stepper { return l.optimizer }

// Done is how many steps are done.
func (l *Loop) Done() int { return l.done }

// Run trains until Steps steps are done. When its context is cancelled it finishes the batch, writes a checkpoint and
// returns without an error; Run again, or [Loop.Resume] in another process, goes on from there. The End that hooks get
// is what it returns.
func (l *Loop) Run(ctx context.Context) (End, error) {
	if l.training == nil {
		return End{Err: errZeroLoop}, errZeroLoop
	}
	start := time.Now()
	hooks := l.c.Hooks
	if l.ranks().Rank() != 0 {
		hooks = nil
	}
	l.audience = newAudience(hooks)
	stop := l.audience.onCancel(ctx, l.c.Checkpoints != nil)
	defer l.audience.onCompile()()
	err := l.run(ctx, start)
	cancelled, together := errors.Is(err, errCancelled), errors.As(err, new(stopped))
	if err != nil && !cancelled && !together {
		l.ranks().Abort(err)
	}
	if cancelled {
		err = nil
	}
	err = errors.Join(err, l.settle(), l.finish())
	if cancelled || err != nil && l.done > 0 {
		err = errors.Join(err, l.keep())
	}
	stop()
	end := End{
		Done: l.done, Steps: l.c.Steps, Cancelled: cancelled && err == nil, Err: err, BestLoss: l.bestLoss, BestStep: l.bestStep,
		Elapsed: time.Since(start), Checkpoint: l.savedTo,
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
		if err := l.checkpoint(); err != nil {
			return err
		}
		if l.done >= l.c.Steps {
			return nil
		}
		if err := l.step(ctx, start); err != nil {
			return err
		}
	}
}

// start tells the hooks and clears what a run that ended in the middle of a step has left.
func (l *Loop) start() error {
	if l.dirty {
		for _, t := range l.trainers {
			if t.last.runs+t.others.runs == 0 {
				continue
			}
			if err := errors.Join(l.optimizer.Use(t.trained), l.optimizer.ZeroGradients()); err != nil {
				return err
			}
		}
		l.dirty = false
	}
	if err := l.share(); err != nil {
		return err
	}
	n := l.optimizer.batch(l.done, 0)
	b, err := l.c.Data.Batch(n)
	if err != nil {
		return fmt.Errorf("step %d: batch %d: %w", l.done, n, err)
	}
	examples, tokens := b.Size()
	s := Start{
		Step: l.done, Steps: l.c.Steps, Resumed: l.resumed, Parameters: nn.Count(l.Parameters()), Trained: nn.Count(l.training.trained),
		ExamplesPerStep: examples * l.batchesOfStep(), TokensPerStep: tokens * l.optimizer.batchesOfStep(),
		Metrics: metricNames(l.training.outputs.Metrics),
	}
	return l.audience.tell(func(h *Hook) error {
		if h.OnStart == nil {
			return nil
		}
		return h.OnStart(s)
	})
}

// queuedStep is a step that was asked for.
type queuedStep struct {
	step    Step
	scalars [][]kernels.Number // of each batch, the loss first
	report  *PendingReport
	began   time.Time
	start   time.Time // of the run
}

// step runs the batches of a step and lets the optimiser change the parameters. On a device, which computes on its own, the
// report of a step is read once the next one is queued, unless something that looks at the weights comes between them.
func (l *Loop) step(ctx context.Context, start time.Time) error {
	next, err := l.queue(ctx, start)
	if err != nil {
		return err
	}
	if err := l.settle(); err != nil {
		return err
	}
	l.queued = next
	if after := l.done + 1; l.c.Place.Device() == nil || l.skipping || l.postponed || after >= l.c.Steps ||
		l.c.EvalEvery > 0 && after%l.c.EvalEvery == 0 || l.c.CheckpointEvery > 0 && after%l.c.CheckpointEvery == 0 {
		return l.settle()
	}
	return nil
}

// queue asks for a step.
func (l *Loop) queue(ctx context.Context, start time.Time) (*queuedStep, error) {
	q := &queuedStep{step: Step{Steps: l.c.Steps}, began: time.Now(), start: start}
	batches, number := l.optimizer.options.Accumulation, l.done
	if l.queued != nil {
		number++
	}
	for i := range batches {
		n := l.optimizer.batch(number, i)
		t, b, err := l.fetch(n)
		if err != nil {
			err = fmt.Errorf("step %d: batch %d: %w", number, n, err)
		}
		if err := l.goOn(ctx, err); err != nil {
			return nil, err
		}
		if err := l.train(q, t, b, n, i == batches-1); err != nil {
			return nil, fmt.Errorf("step %d: batch %d: %w", number, n, err)
		}
		if batches > 1 {
			if err := l.tellBatch(Batch{Done: l.done, Batch: i + 1, Batches: batches}); err != nil {
				return nil, err
			}
		}
	}
	var err error
	if q.report, err = l.optimizer.ask(); err != nil {
		return nil, fmt.Errorf("step %d: %w", number, err)
	}
	return q, nil
}

// fetch returns batch n of the data and the graph that trains it.
func (l *Loop) fetch(n int) (*graph, data.Batch, error) {
	b, err := l.c.Data.Batch(n)
	if err != nil {
		return nil, b, err
	}
	t, err := l.graph(b, true)
	return t, b, err
}

// train runs batch n, the last of a step or not.
func (l *Loop) train(q *queuedStep, t *graph, b data.Batch, n int, last bool) error {
	t.mode().Train(uint32(n / l.sharers())) // ranks that share a batch drop what one process drops of it
	l.dirty = true
	run := &t.others
	if last {
		run = &t.last
		if err := l.optimizer.prepare(); err != nil {
			return err
		}
	}
	l.optimizer.beginRun(last)
	scalars, err := t.run(b, run)
	if err != nil {
		return err
	}
	examples, tokens := b.Size()
	q.step.Examples += examples * l.ranks().Size() / l.sharers()
	q.step.Tokens += tokens * l.ranks().Size()
	q.scalars, l.why = append(q.scalars, scalars), t.unrecorded
	return nil
}

// accumulate adds the gradients that the last run of a graph computed to those of the step.
func (l *Loop) accumulate(t *graph) error {
	if err := l.optimizer.Use(t.trained); err != nil {
		return err
	}
	return l.optimizer.Accumulate()
}

// update changes the parameters by the gradients of the step.
func (l *Loop) update(t *graph) error {
	if err := l.optimizer.Use(t.trained); err != nil {
		return err
	}
	l.torn = true
	err := l.optimizer.update(t.recording)
	l.torn = err != nil
	return err
}

// settle waits for the step that is queued, and tells of it.
func (l *Loop) settle() error {
	q := l.queued
	if l.queued = nil; q == nil {
		return nil
	}
	s, torn := q.step, l.torn
	if err := l.meet(); err != nil {
		return fmt.Errorf("step %d: %w", l.done, err)
	}
	metrics := l.training.outputs.Metrics
	means := make([]mean, len(metrics))
	for _, list := range q.scalars {
		values, err := numbers(list)
		if err != nil {
			return fmt.Errorf("step %d: %w", l.done, err)
		}
		s.Loss += values[0]
		for i, m := range metrics {
			if scalarMetric(m) {
				means[i].add(values[1], 1)
				values = values[1:]
			}
		}
	}
	if err := l.joinMeans(&s.Loss, means); err != nil {
		return fmt.Errorf("step %d: %w", l.done, err)
	}
	l.torn = torn
	s.Loss /= float64(len(q.scalars) * l.ranks().Size())
	s.Metrics = figures(metrics, means, scalarMetric)
	var err error
	if s.Report, err = q.report.Report(); err != nil {
		return fmt.Errorf("step %d: %w", l.done, err)
	}
	l.dirty, l.skipping = false, s.Report.Skipped
	l.done++
	began := q.began
	if l.settled.After(began) {
		began = l.settled
	}
	l.settled = time.Now()
	s.Done, s.Duration, s.Elapsed = l.done, l.settled.Sub(began), l.settled.Sub(q.start)
	if why := l.why; why != nil && !l.toldWhy {
		l.toldWhy = true
		if err := l.audience.notice(Notice(fmt.Sprintf("steps are queued kernel by kernel, which is right and a little slower: %v", why))); err != nil {
			return err
		}
	}
	return l.audience.tell(func(h *Hook) error {
		if h.OnStep == nil {
			return nil
		}
		return h.OnStep(s)
	})
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

func (l *Loop) tellBatch(b Batch) error {
	return l.audience.tell(func(h *Hook) error {
		if h.OnBatch == nil {
			return nil
		}
		return h.OnBatch(b)
	})
}

// evaluationDue reports whether the weights as they are now are to be evaluated.
func (l *Loop) evaluationDue() bool {
	return l.c.EvalEvery > 0 && l.evaluated != l.done && (l.done%l.c.EvalEvery == 0 || l.done == l.c.Steps)
}

// evaluate computes the mean losses and the metrics, and keeps the parameters if they are the best.
func (l *Loop) evaluate(ctx context.Context) error {
	began := time.Now()
	e := Evaluation{Done: l.done, Validation: math.NaN()}
	progress := Batch{Done: l.done, Evaluation: true, Batches: l.c.EvalBatches}
	if l.c.Validation != nil {
		progress.Batches *= 2
	}
	var err error
	if e.Train, e.TrainMetrics, err = l.judge(ctx, l.c.EvalData, &progress); err != nil {
		return err
	}
	loss := e.Train
	if l.c.Validation != nil {
		if e.Validation, e.ValidationMetrics, err = l.judge(ctx, l.c.Validation, &progress); err != nil {
			return err
		}
		loss = e.Validation
	}
	finite := !math.IsNaN(loss) && !math.IsInf(loss, 0)
	if e.Best = finite && !(loss >= l.bestLoss); e.Best {
		l.bestLoss, l.bestStep = loss, l.done
	}
	l.evaluated = l.done
	e.Duration = time.Since(began)
	err = l.audience.tell(func(h *Hook) error {
		if h.OnEval == nil {
			return nil
		}
		return h.OnEval(e)
	})
	l.better = err == nil && e.Best
	return err
}

// judge returns the mean loss and the metrics of the batches that belong to the evaluation that is due, so that a resumed run takes
// the same. A device computes each batch while the next one is queued.
func (l *Loop) judge(ctx context.Context, batches data.Batches, progress *Batch) (loss float64, metrics map[string]float64, err error) {
	evaluation := (l.done + l.c.EvalEvery - 1) / l.c.EvalEvery
	means := make([]mean, len(l.training.outputs.Metrics))
	read := func() error { return nil }
	count := l.c.EvalBatches * l.sharers() // of the losses, one for each rank that shares a batch
	size, runs := l.ranks().Size(), count
	if len(l.isPart) > 0 { // all ranks run together, so those without a last batch of their own run another's in vain
		runs = (count + size - 1) / size * size
	}
	for i := l.ranks().Rank(); i < runs; i += size {
		if ctx.Err() != nil && size == 1 {
			return 0, nil, errCancelled
		}
		n := evaluation*count + min(i, count-1)
		t, scalars, err := l.judgeBatch(batches, n)
		if err == nil {
			err = read()
		}
		read = func() error {
			if err := l.meetToJudge(); err != nil {
				return err
			}
			values, err := numbers(scalars)
			if err != nil || i >= count {
				return err
			}
			loss += values[0]
			return t.measure(means, values)
		}
		if err == nil && slices.ContainsFunc(t.outputs.Metrics, valueMetric) {
			err, read = read(), func() error { return nil } // before the next run writes over what the metric looks at
		}
		if err != nil {
			return 0, nil, fmt.Errorf("evaluation after step %d: batch %d: %w", l.done, n, err)
		}
		progress.Batch = min(progress.Batch+size/l.sharers(), progress.Batches)
		if err := l.tellBatch(*progress); err != nil {
			return 0, nil, err
		}
	}
	if err := read(); err != nil {
		return 0, nil, fmt.Errorf("evaluation after step %d: %w", l.done, err)
	}
	if err := l.joinMeans(&loss, means); err != nil {
		return 0, nil, fmt.Errorf("evaluation after step %d: %w", l.done, err)
	}
	return loss / float64(count), figures(l.training.outputs.Metrics, means, anyMetric), nil
}

// judgeBatch asks for the scalars of a batch, the loss first.
func (l *Loop) judgeBatch(batches data.Batches, n int) (*graph, []kernels.Number, error) {
	b, err := batches.Batch(n)
	if err != nil {
		return nil, nil, err
	}
	t, err := l.graph(b, false)
	if err != nil {
		return nil, nil, err
	}
	scalars, err := t.run(b, &t.last)
	return t, scalars, err
}
