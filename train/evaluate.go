package train

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/train/data"
)

// Evaluations says when a [Loop] evaluates, and on what. Its zero value is never.
type Evaluations struct {
	// Every is the number of steps between evaluations; there is one before the first step and one
	// after the last too. 0 means none at all.
	Every int
	// Batches is how many batches an evaluation takes the mean loss of; 0 means 20. Each evaluation
	// has new ones.
	Batches int
	// Data are the training batches that evaluations look at; nil means those of the Loop, from
	// their start.
	Data data.Batches
	// Validation are batches that are never trained on; nil means that there are none.
	Validation data.Batches
}

func (e Evaluations) withDefaults(training data.Batches) Evaluations {
	if e.Batches == 0 {
		e.Batches = 20
	}
	if e.Data == nil {
		e.Data = training
	}
	return e
}

// evaluationDue reports whether the weights as they are now are to be evaluated.
func (l *Loop) evaluationDue() bool {
	every := l.c.Evaluations.Every
	return every > 0 && l.evaluated != l.done && (l.done%every == 0 || l.done == l.c.Steps)
}

// evaluate computes the mean losses and the metrics, and keeps the parameters if they are the best.
func (l *Loop) evaluate(ctx context.Context) error {
	began := time.Now()
	c := l.c.Evaluations
	e := Evaluation{Done: l.done, Validation: math.NaN()}
	progress := Batch{Done: l.done, Evaluation: true, Batches: c.Batches}
	if c.Validation != nil {
		progress.Batches *= 2
	}
	if err := l.withEvaluated(func() (err error) {
		if e.Train, e.TrainMetrics, err = l.evaluateOn(ctx, c.Data, &progress); err != nil || c.Validation == nil {
			return err
		}
		e.Validation, e.ValidationMetrics, err = l.evaluateOn(ctx, c.Validation, &progress)
		return err
	}); err != nil {
		return err
	}
	loss := e.Train
	if c.Validation != nil {
		loss = e.Validation
	}
	finite := !math.IsNaN(loss) && !math.IsInf(loss, 0)
	again := loss == l.bestLoss && l.done == l.bestStep // by a rank 0 that has taken the place of one that is lost
	if e.Best = finite && (again || !(loss >= l.bestLoss)); e.Best {
		l.bestLoss, l.bestStep = loss, l.done
	}
	l.evaluated = l.done
	e.Duration = time.Since(began)
	err := tell(l.audience, e, func(h *Hook) func(Evaluation) error { return h.OnEval })
	l.saver.best = err == nil && e.Best
	return err
}

// withEvaluated calls a function while the parameters have the values that are to be evaluated.
func (l *Loop) withEvaluated(do func() error) error {
	if a := l.c.Options.Average; a == nil || !a.Evaluate {
		return do()
	}
	return l.stepper.WithAverage(do)
}

// evaluateOn returns the mean loss and the metrics of the batches that belong to the evaluation
// that is due, so that a resumed run takes the same. A device computes each batch while the next
// one is queued.
func (l *Loop) evaluateOn(ctx context.Context, batches data.Batches, progress *Batch) (loss float64, metrics map[string]float64, err error) {
	wrap := func(err error) error { return fmt.Errorf("evaluation after step %d: %w", l.done, err) }
	evaluation := (l.done + l.c.Evaluations.Every - 1) / l.c.Evaluations.Every
	means := make([]mean, len(l.training.outputs.Metrics))
	read := func() error { return nil }
	count := l.c.Evaluations.Batches * l.sequenceRanks() // of losses: each rank that shares a batch has one
	size, runs := l.ranks.Size(), count
	if l.ranks.shardWeights { // so ranks without a last batch of their own run another's in vain
		runs = (count + size - 1) / size * size
	}
	for i := l.ranks.Rank(); i < runs; i += size {
		if ctx.Err() != nil && size == 1 {
			return 0, nil, errCancelled
		}
		n := evaluation*count + min(i, count-1)
		t, weight, scalars, err := l.evaluateBatch(batches, n)
		if err == nil {
			err = read()
		}
		read = func() error {
			if l.ranks.shardWeights {
				if err := l.ranks.meet(); err != nil {
					return err
				}
			}
			values, err := numbers(scalars)
			if err != nil || i >= count {
				return err
			}
			loss += values[0] * weight
			return t.measure(means, values)
		}
		if err == nil && slices.ContainsFunc(t.outputs.Metrics, valueMetric) {
			// The metric looks at values that the next run overwrites.
			err, read = read(), func() error { return nil }
		}
		if err != nil {
			return 0, nil, wrap(fmt.Errorf("batch %d: %w", n, err))
		}
		progress.Batch = min(progress.Batch+size/l.sequenceRanks(), progress.Batches)
		if err := l.tellBatch(*progress); err != nil {
			return 0, nil, err
		}
	}
	if err := read(); err != nil {
		return 0, nil, wrap(err)
	}
	if err := l.ranks.addUp(&loss, means); err != nil {
		return 0, nil, wrap(err)
	}
	return loss / float64(count), figures(l.training.outputs.Metrics, means, anyMetric), nil
}

// evaluateBatch asks for the scalars of a batch, the loss first, and returns how much that counts.
func (l *Loop) evaluateBatch(batches data.Batches, n int) (*graph, float64, []kernels.Number, error) {
	b, weight, err := weighed(batches, n)
	if err != nil {
		return nil, weight, nil, err
	}
	t, err := l.graph(b, false)
	if err != nil {
		return nil, weight, nil, err
	}
	scalars, err := t.run(b, &t.last, t.compute)
	return t, weight, scalars, err
}
