package train_test

import (
	"context"
	"errors"
	"fmt"
	"github.com/stheno-ml/stheno/nn"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The tests of this file end runs in every way but by killing them, and look at what is left.

// latest is the newest checkpoint of a folder, which must be whole.
func latest(t *testing.T, folder *checkpoint.Folder) checkpoint.Checkpoint {
	t.Helper()
	c, refused, err := folder.Latest()
	if err != nil || len(refused) > 0 {
		t.Fatal(err, refused)
	}
	return c
}

// TestWhateverEndsARunLeavesACheckpoint has a hook fail in step 8, at which no checkpoint is due,
// and resumes the run.
func TestWhateverEndsARunLeavesACheckpoint(t *testing.T) {
	straight := countingLoop(t, nil, nil)
	runLoop(t, straight, context.Background())
	sentinel := errors.New("the disk is full")
	for name, hook := range map[string]train.Hook{
		"step":              {OnStep: func(s train.Step) error { return failAt(s.Done == 8, sentinel) }},
		"batch":             {OnBatch: func(b train.Batch) error { return failAt(b.Done == 8 && !b.Evaluation, sentinel) }},
		"before checkpoint": {OnStep: func(s train.Step) error { return failAt(s.Done == 8, sentinel) }, BeforeCheckpoint: func() error { return sentinel }},
	} {
		t.Run(name, func(t *testing.T) {
			folder := openFolder(t, t.TempDir(), 2)
			loop := countingLoop(t, folder, func(c *train.LoopConfig) {
				c.Evaluations.Every = 0
				c.Hooks = []train.Hook{hook}
			})
			end, err := loop.Run(context.Background())
			if !errors.Is(err, sentinel) || end.Cancelled {
				t.Fatalf("the run ended with %+v, %v", end, err)
			}
			if c := latest(t, folder); c.Step != 8 || end.Checkpoint != c.Path {
				t.Fatalf("the newest checkpoint is %s, the end says %s, want that of step 8", c.Path, end.Checkpoint)
			}
			second := countingLoop(t, folder, func(c *train.LoopConfig) { c.Evaluations.Every = 0 })
			if _, err := second.Resume(); err != nil {
				t.Fatal(err)
			}
			runLoop(t, second, context.Background())
			if !slices.Equal(bits(second), bits(straight)) {
				t.Error("resumed, the weights differ from an uninterrupted run's")
			}
		})
	}
}

func failAt(now bool, err error) error {
	if now {
		return err
	}
	return nil
}

// TestDisplaysAreNotNeeded lets a display fail in each of its functions: the run goes on, the
// others are told once.
func TestDisplaysAreNotNeeded(t *testing.T) {
	straight := countingLoop(t, nil, nil)
	runLoop(t, straight, context.Background())
	broken := errors.New("broken pipe")
	for name, hook := range map[string]train.Hook{
		"start":             {OnStart: func(train.Start) error { return broken }},
		"batch":             {OnBatch: func(train.Batch) error { return broken }},
		"step":              {OnStep: func(train.Step) error { return broken }},
		"eval":              {OnEval: func(train.Evaluation) error { return broken }},
		"before checkpoint": {BeforeCheckpoint: func() error { return broken }},
		"checkpoint":        {OnCheckpoint: func(train.Checkpoint) error { return broken }},
	} {
		hook.Display = true
		hook.OnNotice = func(n train.Notice) error { t.Errorf("%s: the dropped display was told %q", name, n); return nil }
		var told []train.Notice
		loop := countingLoop(t, openFolder(t, t.TempDir(), 1), func(c *train.LoopConfig) {
			c.Hooks = []train.Hook{hook, {OnNotice: func(n train.Notice) error { told = append(told, n); return nil }}}
		})
		end := runLoop(t, loop, context.Background())
		if !slices.Equal(bits(loop), bits(straight)) {
			t.Errorf("%s: the weights differ from those of a run without a display", name)
		}
		if len(told) != 1 || !strings.Contains(string(told[0]), "broken pipe") || !slices.Equal(end.Notices, told) {
			t.Errorf("%s: the notices are %q, the end has %q, want one of the broken pipe", name, told, end.Notices)
		}
	}
}

// TestNoticesDoNotEndTheRun returns them, wrapped, from a hook that is no display.
func TestNoticesDoNotEndTheRun(t *testing.T) {
	var told []train.Notice
	notes := train.Hook{OnNotice: func(n train.Notice) error { told = append(told, n); return nil }}
	loop := countingLoop(t, nil, func(c *train.LoopConfig) {
		c.Hooks = []train.Hook{notes, {OnStart: func(train.Start) error { return fmt.Errorf("log: %w", train.Notice("it was cut short")) }}}
	})
	if end := runLoop(t, loop, context.Background()); end.Done != 20 || !slices.Equal(told, []train.Notice{"log: it was cut short"}) {
		t.Errorf("%d steps done, told %q", end.Done, told)
	}
}

// TestWhatCannotBeStoredIsSaidAtOnce gives loops settings and folders that no save would take.
func TestWhatCannotBeStoredIsSaidAtOnce(t *testing.T) {
	closed := openFolder(t, t.TempDir(), 1)
	closed.Close()
	view, err := checkpoint.View(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*train.LoopConfig){
		"settings cannot be stored": func(c *train.LoopConfig) { c.Settings = map[string]any{"rate": math.NaN()} },
		"the folder is closed":      func(c *train.LoopConfig) { c.Checkpoints = closed },
		"opened with View":          func(c *train.LoopConfig) { c.Checkpoints = view },
		"more than can be counted":  func(c *train.LoopConfig) { c.Steps = math.MaxInt - 1 },
		"evaluations batches":       func(c *train.LoopConfig) { c.Evaluations.Batches = math.MaxInt / 2 },
	} {
		config := countingConfig(nil)
		change(&config)
		loop, err := train.NewLoop(config)
		if err == nil {
			loop.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestCancelIsSeenWithinAStepAndAnEvaluation cancels after a batch of either and resumes: nothing
// is different.
func TestCancelIsSeenWithinAStepAndAnEvaluation(t *testing.T) {
	type evaluation struct {
		done              int
		train, validation float64
		best              bool
	}
	evaluations := func(to *[]evaluation) train.Hook {
		return train.Hook{OnEval: func(e train.Evaluation) error {
			*to = append(*to, evaluation{e.Done, e.Train, e.Validation, e.Best})
			return nil
		}}
	}
	var want []evaluation
	straight := countingLoop(t, nil, func(c *train.LoopConfig) { c.Hooks = []train.Hook{evaluations(&want)} })
	runLoop(t, straight, context.Background())
	for _, stop := range []train.Batch{
		{Done: 0, Evaluation: true, Batch: 1, Batches: 4}, {Done: 0, Batch: 1, Batches: 2}, {Done: 7, Batch: 1, Batches: 2},
		{Done: 12, Evaluation: true, Batch: 3, Batches: 4}, {Done: 20, Evaluation: true, Batch: 1, Batches: 4},
	} {
		t.Run(fmt.Sprintf("%+v", stop), func(t *testing.T) {
			var got []evaluation
			reason := errors.New("a signal")
			ctx, cancel := context.WithCancelCause(context.Background())
			told := make(chan train.Cancel, 1)
			folder := openFolder(t, t.TempDir(), 2)
			first := countingLoop(t, folder, func(c *train.LoopConfig) {
				c.Hooks = []train.Hook{evaluations(&got), {
					OnBatch: func(b train.Batch) error {
						if b == stop {
							cancel(reason)
							if c := <-told; c.Reason != reason || !c.Checkpoint { // told while the batch's hook still runs
								t.Errorf("told %+v", c)
							}
						}
						return nil
					},
					OnCancel: func(c train.Cancel) { told <- c },
				}}
			})
			if end := runLoop(t, first, ctx); !end.Cancelled || end.Done != stop.Done {
				t.Fatalf("the run ended with %+v", end)
			}
			if c := latest(t, folder); c.Step != stop.Done {
				t.Fatalf("the newest checkpoint is of step %d, want %d", c.Step, stop.Done)
			}
			second := countingLoop(t, folder, func(c *train.LoopConfig) { c.Hooks = []train.Hook{evaluations(&got)} })
			if _, err := second.Resume(); err != nil {
				t.Fatal(err)
			}
			runLoop(t, second, context.Background())
			if !slices.Equal(bits(second), bits(straight)) {
				t.Error("resumed, the weights differ from an uninterrupted run's")
			}
			if !slices.Equal(got, want) {
				t.Errorf("the evaluations are\n%v\nuninterrupted\n%v", got, want)
			}
		})
	}
}

// TestSkippedStepsCostNoCheckpoint breaks the weights after step 5 and mends them after step 7.
// Until then the one checkpoint that is kept is that of step 4, or of step 2 while that of step 4
// is being written.
func TestSkippedStepsCostNoCheckpoint(t *testing.T) {
	folder := openFolder(t, t.TempDir(), 1)
	var steps []int
	var first []float32
	var good float32
	loop := countingLoop(t, folder, func(c *train.LoopConfig) {
		c.Steps, c.CheckpointEvery, c.Evaluations.Every = 9, 2, 0
		c.Hooks = []train.Hook{{
			OnStep: func(s train.Step) error {
				if s.Skipped != (s.Done > 5 && s.Done <= 7) {
					t.Errorf("step %d is skipped: %v", s.Done, s.Skipped)
				}
				if s.Done == 5 {
					good, first[0] = first[0], float32(math.Inf(1))
				}
				if s.Skipped && slices.Max(stepsOf(t, folder)) > 4 {
					t.Errorf("after step %d the folder has %v", s.Done, stepsOf(t, folder))
				}
				if s.Done == 7 {
					first[0] = good
				}
				return nil
			},
			OnCheckpoint: func(c train.Checkpoint) error {
				steps = append(steps, c.Done)
				return nil
			},
		}}
	})
	first = loop.Parameters()[0].Value().Data().([]float32)
	runLoop(t, loop, context.Background())
	if want := []int{2, 4, 8, 9}; !slices.Equal(steps, want) { // that of step 6 comes late
		t.Errorf("checkpoints were written after steps %v, want %v", steps, want)
	}
}

func stepsOf(t *testing.T, folder *checkpoint.Folder) []int {
	t.Helper()
	steps, err := folder.Steps()
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// TestLostWeightsAreNoCheckpoint breaks the weights for good: the run ends with an error, the good
// checkpoints stay.
func TestLostWeightsAreNoCheckpoint(t *testing.T) {
	for name, cancelled := range map[string]bool{"until steps in a row are too many": false, "cancelled": true} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		folder := openFolder(t, t.TempDir(), 2)
		var first []float32
		loop := countingLoop(t, folder, func(c *train.LoopConfig) {
			c.Steps, c.CheckpointEvery, c.Evaluations.Every = 100, 2, 0
			c.Hooks = []train.Hook{{
				OnCheckpoint: func(c train.Checkpoint) error {
					if c.Done == 4 {
						first[0] = float32(math.NaN())
					}
					return nil
				},
				OnStep: func(s train.Step) error {
					if s.Done == 6 && cancelled {
						cancel()
					}
					return nil
				},
			}}
		})
		first = loop.Parameters()[0].Value().Data().([]float32)
		end, err := loop.Run(ctx)
		if err == nil || !strings.Contains(err.Error(), loop.Parameters()[0].Name()+" holds a NaN") || end.Cancelled {
			t.Errorf("%s: the run ended with %+v, %v", name, end, err)
		}
		if c := latest(t, folder); c.Step != 4 || !slices.Equal(stepsOf(t, folder), []int{2, 4}) || end.Checkpoint != c.Path {
			t.Errorf("%s: the folder has %v, the end says %q", name, stepsOf(t, folder), end.Checkpoint)
		}
	}
}

// TestCancelledBeforeTheFirstStep has what was promised: a checkpoint, or an end that says that
// there is none.
func TestCancelledBeforeTheFirstStep(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if end := runLoop(t, countingLoop(t, nil, nil), cancelled); !end.Cancelled || end.Checkpoint != "" {
		t.Errorf("without a folder the end is %+v", end)
	}
	folder := openFolder(t, t.TempDir(), 2)
	end := runLoop(t, countingLoop(t, folder, nil), cancelled)
	if c := latest(t, folder); !end.Cancelled || c.Step != 0 || end.Checkpoint != c.Path {
		t.Errorf("the end is %+v", end)
	}
	straight, second := countingLoop(t, nil, nil), countingLoop(t, folder, nil)
	if _, err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	if want, got := runLoop(t, straight, context.Background()), runLoop(t, second, context.Background()); got.BestLoss != want.BestLoss {
		t.Errorf("resumed, the best loss is %v, uninterrupted %v", got.BestLoss, want.BestLoss)
	}
	if !slices.Equal(bits(second), bits(straight)) {
		t.Error("resumed, the weights differ from an uninterrupted run's")
	}
}

// TestResumeFromTheBest goes back to it: the steps after it come again, and no checkpoint of before
// stays in their way.
func TestResumeFromTheBest(t *testing.T) {
	folder := openFolder(t, t.TempDir(), 5)
	loop := countingLoop(t, folder, func(c *train.LoopConfig) { c.CheckpointEvery, c.Evaluations.Validation = 5, backwards{} })
	end := runLoop(t, loop, context.Background())
	if end.BestStep == 20 {
		t.Fatal("the last step is the best, the test needs another")
	}
	c, _, err := folder.Best()
	if err != nil {
		t.Fatal(err)
	}
	again := countingLoop(t, folder, func(c *train.LoopConfig) {
		c.CheckpointEvery, c.Evaluations.Validation = 1, backwards{}
		c.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
			if s.Done == end.BestStep+3 && slices.Max(stepsOf(t, folder)) > end.BestStep+2 {
				t.Errorf("before the checkpoint of step %d the folder has %v", s.Done, stepsOf(t, folder))
			}
			return nil
		}}}
	})
	if err := again.ResumeFrom(c); err != nil || again.Done() != end.BestStep {
		t.Fatalf("at step %d, %v", again.Done(), err)
	}
	runLoop(t, again, context.Background())
	if !slices.Equal(bits(again), bits(loop)) {
		t.Error("the weights differ from those that the best was taken from")
	}
}

// TestLoopRefusesNonsense has values that NewLoop did not make, and models whose parts belong
// elsewhere.
func TestLoopRefusesNonsense(t *testing.T) {
	var zero train.Loop
	if _, err := zero.Run(context.Background()); err == nil {
		t.Error("a zero loop runs")
	}
	if zero.ResumeFrom(checkpoint.Checkpoint{}) == nil || zero.Close() != nil || zero.Parameters() != nil {
		t.Error("a zero loop has something")
	}
	for want, batch := range map[string]data.Batch{
		"no arrays":     {},
		"tokens is nil": {"tokens": nil},
		"x has shape [2 3] and strides [1 2]": {"x": func() *tensor.Dense {
			t := tensor.New(tensor.WithShape(3, 2), tensor.WithBacking(make([]float32, 6)))
			if err := t.T(); err != nil {
				panic(err)
			}
			return t
		}()},
	} {
		config := countingConfig(nil)
		config.Data = data.Func(func(int) (data.Batch, error) { return batch, nil })
		if _, err := train.NewLoop(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a batch of %v: error %v, want one with %q", batch, err, want)
		}
	}
	transposed := tensor.New(tensor.WithShape(3, 2), tensor.WithBacking(make([]float32, 6)))
	if err := transposed.T(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(s *nn.Scope, out *train.Outputs){
		"a loss of another graph": func(_ *nn.Scope, out *train.Outputs) {
			out.Loss = nn.NewScope(gorgonia.NewGraph(), nil).Parameter("foreign", nil, 2, 3).Sum()
		},
		"mine of shape [2 3] with strides [1 2]": func(s *nn.Scope, _ *train.Outputs) { s.Parameter("mine", nil, 2, 3) },
	} {
		config := countingConfig(nil)
		if err := config.Parameters.Set("mine", transposed); err != nil {
			t.Fatal(err)
		}
		model := config.Model
		config.Model = func(s *nn.Scope, in train.Inputs) train.Outputs {
			out := model(s, in)
			change(s, &out)
			return out
		}
		l, err := train.NewLoop(config)
		if err == nil {
			l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
