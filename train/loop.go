package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
)

// Model adds a model to a graph: it gives the loss of predicting targets from tokens, which are (rows, length) of int,
// as a scalar, and the parameters that training changes. A [Loop] calls it once for each of its graphs; a model over
// [nn.Parameters] has the same values in all of them.
type Model func(g *gorgonia.ExprGraph, tokens, targets *gorgonia.Node) (loss *gorgonia.Node, parameters gorgonia.Nodes, err error)

// LoopConfig describes a [Loop].
type LoopConfig struct {
	Model     Model
	Optimizer func(parameters gorgonia.Nodes) (*Optimizer, error)
	// Data are the batches to train on: step n takes batches n·Accumulation and on.
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

	// Checkpoints is where checkpoints go; nil means that none are written. There is one after the last step.
	Checkpoints *checkpoint.Folder
	// CheckpointEvery is the number of steps between checkpoints; 0 means only at the end, and the best.
	CheckpointEvery int
	// Settings are stored in every checkpoint, as JSON: what the program needs to know to build the same Loop again.
	Settings any

	Hooks []Hook
}

// Loop trains a model: it runs steps, evaluates now and then, writes checkpoints, keeps the best, and tells its hooks.
// It belongs to one goroutine.
type Loop struct {
	c         LoopConfig
	optimizer *Optimizer
	training  *graph
	trainEval *graph // evaluates training batches; nil without evaluations
	validEval *graph // evaluates validation batches; nil without
	dirty     bool   // gradients are not zero
	resumed   bool

	done     int // steps
	bestLoss float64
	bestStep int
}

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
	l := &Loop{c: c, bestLoss: math.NaN()}
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
		return errors.New("optimizer is nil, it needs to be a function that makes an optimizer, such as one that calls NewAdamW")
	case c.Data == nil:
		return errors.New("data is nil, it needs to be batches, such as those of data.Random")
	case c.CheckpointEvery > 0 && c.Checkpoints == nil:
		return fmt.Errorf("checkpoint every is %d and checkpoints is nil, it needs a folder", c.CheckpointEvery)
	}
	return firstError(validateLength("steps", c.Steps, 1), validateLength("eval every", c.EvalEvery, 0),
		validateLength("eval batches", c.EvalBatches, 1), validateLength("checkpoint every", c.CheckpointEvery, 0))
}

func (l *Loop) build() (err error) {
	if l.training, err = newGraph(l.c.Model, l.c.Data, true); err != nil {
		return err
	}
	if l.optimizer, err = l.c.Optimizer(l.training.parameters); err != nil {
		return err
	}
	if l.optimizer == nil {
		return errors.New("optimizer gave nil, it needs to give an optimizer")
	}
	if l.c.EvalEvery == 0 {
		return nil
	}
	if l.trainEval, err = l.evaluator(l.c.EvalData); err != nil || l.c.Validation == nil {
		return err
	}
	rows, length := l.c.Validation.Shape()
	if rows == l.trainEval.rows && length == l.trainEval.length {
		l.validEval = l.trainEval
		return nil
	}
	l.validEval, err = l.evaluator(l.c.Validation)
	return err
}

// evaluator builds a graph that only computes losses, over the parameters of the training graph.
func (l *Loop) evaluator(batches data.Batches) (*graph, error) {
	b, err := newGraph(l.c.Model, batches, false)
	if err != nil {
		return nil, err
	}
	b.mode().Evaluate()
	return b, b.shares(l.training)
}

// Close releases the machines that run the graphs.
func (l *Loop) Close() error {
	var errs []error
	for _, b := range []*graph{l.training, l.trainEval, l.validEval} {
		if b != nil {
			errs = append(errs, b.machine.Close())
		}
	}
	return errors.Join(errs...)
}

// Parameters are the parameter nodes of the graph that trains.
func (l *Loop) Parameters() gorgonia.Nodes { return l.training.parameters }

// Optimizer is the optimizer that changes them.
func (l *Loop) Optimizer() *Optimizer { return l.optimizer }

// Done is how many steps are done.
func (l *Loop) Done() int { return l.done }

// Run trains until Steps steps are done. When its context is cancelled it finishes the step, writes a checkpoint and
// returns without an error; Run again, or [Loop.Resume] in another process, goes on from there. The End that hooks get
// is what it returns.
func (l *Loop) Run(ctx context.Context) (End, error) {
	start := time.Now()
	err := l.run(ctx, start)
	end := End{Done: l.done, Steps: l.c.Steps, Err: err, BestLoss: l.bestLoss, BestStep: l.bestStep, Elapsed: time.Since(start)}
	end.Cancelled = err == nil && l.done < l.c.Steps
	for _, h := range l.c.Hooks {
		if h.OnEnd != nil {
			err = errors.Join(err, h.OnEnd(end))
		}
	}
	end.Err = err
	return end, err
}

func (l *Loop) run(ctx context.Context, start time.Time) error {
	if err := l.start(); err != nil {
		return err
	}
	if l.done == 0 {
		if err := l.evaluate(); err != nil {
			return err
		}
	}
	for l.done < l.c.Steps && ctx.Err() == nil {
		if err := l.step(start); err != nil {
			return err
		}
		last := l.done == l.c.Steps
		if last || l.c.EvalEvery > 0 && l.done%l.c.EvalEvery == 0 {
			if err := l.evaluate(); err != nil {
				return err
			}
		}
		if last || ctx.Err() != nil || l.c.CheckpointEvery > 0 && l.done%l.c.CheckpointEvery == 0 {
			if err := l.checkpoint(); err != nil {
				return err
			}
		}
	}
	return nil
}

// start tells the hooks and clears what a run that ended in the middle of a step has left.
func (l *Loop) start() error {
	if l.dirty {
		if err := l.optimizer.ZeroGradients(); err != nil {
			return err
		}
		l.dirty = false
	}
	s := Start{
		Step: l.done, Steps: l.c.Steps, Resumed: l.resumed, Parameters: nn.Count(l.training.parameters),
		TokensPerStep: l.tokensPerStep(),
	}
	for _, h := range l.c.Hooks {
		if h.OnStart != nil {
			if err := h.OnStart(s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Loop) tokensPerStep() int {
	return l.training.rows * l.training.length * l.optimizer.options.Accumulation
}

// step runs the batches of a step and lets the optimizer change the parameters.
func (l *Loop) step(start time.Time) error {
	began := time.Now()
	s := Step{Steps: l.c.Steps, Tokens: l.tokensPerStep()}
	batches := l.optimizer.options.Accumulation
	for i := range batches {
		n := l.done*batches + i
		l.training.mode().Train(uint32(n))
		l.dirty = true
		loss, err := l.training.run(l.c.Data, n)
		if err != nil {
			return fmt.Errorf("step %d: %w", l.done, err)
		}
		s.Loss += loss / float64(batches)
	}
	var err error
	s.Report, err = l.optimizer.Step()
	if err != nil {
		return fmt.Errorf("step %d: %w", l.done, err)
	}
	l.dirty = false
	l.done++
	s.Done, s.Duration, s.Elapsed = l.done, time.Since(began), time.Since(start)
	for _, h := range l.c.Hooks {
		if h.OnStep != nil {
			if err := h.OnStep(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// evaluate computes the mean losses, and keeps the parameters if they are the best.
func (l *Loop) evaluate() error {
	if l.c.EvalEvery == 0 {
		return nil
	}
	began := time.Now()
	e := Evaluation{Done: l.done, Validation: math.NaN()}
	var err error
	if e.Train, err = l.meanLoss(l.trainEval, l.c.EvalData); err != nil {
		return err
	}
	loss := e.Train
	if l.c.Validation != nil {
		if e.Validation, err = l.meanLoss(l.validEval, l.c.Validation); err != nil {
			return err
		}
		loss = e.Validation
	}
	if e.Best = loss < l.bestLoss || math.IsNaN(l.bestLoss) && !math.IsNaN(loss); e.Best {
		l.bestLoss, l.bestStep = loss, l.done
	}
	e.Duration = time.Since(began)
	for _, h := range l.c.Hooks {
		if h.OnEval != nil {
			if err := h.OnEval(e); err != nil {
				return err
			}
		}
	}
	if e.Best && l.c.Checkpoints != nil {
		return l.save(l.c.Checkpoints.SaveBest) // the first time before any step, so that a bad disk is known at once
	}
	return nil
}

// meanLoss takes the batches that belong to the evaluation that is due, so that a resumed run takes the same.
func (l *Loop) meanLoss(b *graph, batches data.Batches) (float64, error) {
	evaluation := (l.done + l.c.EvalEvery - 1) / l.c.EvalEvery
	sum := 0.0
	for i := range l.c.EvalBatches {
		loss, err := b.run(batches, evaluation*l.c.EvalBatches+i)
		if err != nil {
			return 0, fmt.Errorf("evaluation after step %d: %w", l.done, err)
		}
		sum += loss
	}
	return sum / float64(l.c.EvalBatches), nil
}
