package train_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/tensor"
)

// countingConfig trains the counting model with dropout and two batches a step, so that all that a
// checkpoint has to remember counts.
func countingConfig(folder *checkpoint.Folder) train.LoopConfig {
	return train.LoopConfig{
		Model: countingModel(tensor.Float32, 0.1), Parameters: nn.NewParameters(3),
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.LinearDecay{From: 1e-2, To: 1e-3, Steps: 20}, ClipNorm: 1, Accumulation: 2},
		Data: counting{}, Steps: 20, Evaluations: train.Evaluations{Every: 6, Batches: 2, Validation: counting{}},
		Checkpoints: folder, Settings: map[string]int{"answer": 42},
	}
}

func countingLoop(t *testing.T, folder *checkpoint.Folder, change func(*train.LoopConfig)) *train.Loop {
	t.Helper()
	c := countingConfig(folder)
	if change != nil {
		change(&c)
	}
	loop, err := train.NewLoop(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loop.Close() })
	return loop
}

func openFolder(t *testing.T, path string, keep int) *checkpoint.Folder {
	t.Helper()
	folder, err := checkpoint.Open(path, keep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Close() })
	return folder
}

// reopen opens a folder again, as another process does when the first has ended.
func reopen(t *testing.T, folder *checkpoint.Folder, path string, keep int) *checkpoint.Folder {
	t.Helper()
	if err := folder.Close(); err != nil {
		t.Fatal(err)
	}
	return openFolder(t, path, keep)
}

func runLoop(t *testing.T, loop *train.Loop, ctx context.Context) train.End {
	t.Helper()
	end, err := loop.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// bits are all weights, bit by bit.
func bits(loop *train.Loop) []uint32 {
	var all []uint32
	for _, n := range loop.Parameters() {
		for _, x := range n.Value().Data().([]float32) {
			all = append(all, math.Float32bits(x))
		}
	}
	return all
}

// TestResumeIsBitExact stops runs after some steps and goes on in another loop, as another process
// would.
func TestResumeIsBitExact(t *testing.T) {
	straight := countingLoop(t, nil, nil)
	want := runLoop(t, straight, context.Background())
	for _, stop := range []int{1, 6, 7, 19} {
		path := t.TempDir()
		folder := openFolder(t, path, 2)
		ctx, cancel := context.WithCancel(context.Background())
		first := countingLoop(t, folder, func(c *train.LoopConfig) {
			c.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
				if s.Done == stop {
					cancel()
				}
				return nil
			}}}
		})
		if end := runLoop(t, first, ctx); !end.Cancelled || end.Done != stop {
			t.Fatalf("cancelled in step %d, the run ended with %+v", stop, end)
		}
		second := countingLoop(t, reopen(t, folder, path, 2), nil)
		if refused, err := second.Resume(); err != nil || len(refused) > 0 || second.Done() != stop {
			t.Fatalf("resuming after step %d: %v, refused %v, at step %d", stop, err, refused, second.Done())
		}
		got := runLoop(t, second, context.Background())
		if !slices.Equal(bits(second), bits(straight)) {
			t.Errorf("stopped after step %d, the weights differ from an uninterrupted run's", stop)
		}
		if got.BestLoss != want.BestLoss || got.BestStep != want.BestStep {
			t.Errorf("stopped after step %d, the best loss is %v at %d, uninterrupted %v at %d", stop, got.BestLoss, got.BestStep, want.BestLoss, want.BestStep)
		}
	}
}

// TestRunGoesOn cancels a run and runs the same loop again.
func TestRunGoesOn(t *testing.T) {
	straight, halting := countingLoop(t, nil, nil), countingLoop(t, nil, nil)
	runLoop(t, straight, context.Background())
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if end := runLoop(t, halting, cancelled); !end.Cancelled || end.Done != 0 {
		t.Fatalf("a run whose context is cancelled ended with %+v", end)
	}
	runLoop(t, halting, context.Background())
	if !slices.Equal(bits(halting), bits(straight)) {
		t.Error("the weights differ from an uninterrupted run's")
	}
}

func TestHooksAreToldEverything(t *testing.T) {
	var events []string
	note := func(format string, args ...any) error {
		events = append(events, fmt.Sprintf(format, args...))
		return nil
	}
	loop := countingLoop(t, openFolder(t, t.TempDir(), 1), func(c *train.LoopConfig) {
		c.Steps, c.Evaluations.Every, c.CheckpointEvery, c.Evaluations.Validation = 5, 2, 4, nil
		c.Hooks = []train.Hook{{
			OnStart: func(s train.Start) error { return note("start %d/%d %d tokens", s.Step, s.Steps, s.TokensPerStep) },
			OnStep:  func(s train.Step) error { return note("step %d/%d %d tokens", s.Done, s.Steps, s.Tokens) },
			OnEval: func(e train.Evaluation) error {
				if !math.IsNaN(e.Validation) || !(e.Train > 0) {
					t.Errorf("evaluation %+v, want a training loss and no validation loss", e)
				}
				return note("eval %d", e.Done)
			},
			OnCheckpoint: func(c train.Checkpoint) error { return note("checkpoint %d %s", c.Done, filepath.Base(c.Path)) },
			OnEnd:        func(e train.End) error { return note("end %d %v %v", e.Done, e.Cancelled, e.Err) },
		}, {}}
	})
	runLoop(t, loop, context.Background())
	// The checkpoint of step 4 is written beside the steps that follow, and told of when it is
	// there.
	first, four := slices.Index(events, "eval 4"), slices.Index(events, "checkpoint 4 step-00000004")
	if four < first {
		t.Errorf("the checkpoint of step 4 is event %d, its evaluation is %d", four, first)
	}
	events = slices.DeleteFunc(events, func(e string) bool { return strings.Contains(e, " best") || strings.HasPrefix(e, "checkpoint 4 ") })
	want := []string{"start 0/5 96 tokens", "eval 0", "step 1/5 96 tokens", "step 2/5 96 tokens", "eval 2", "step 3/5 96 tokens",
		"step 4/5 96 tokens", "eval 4", "step 5/5 96 tokens", "eval 5", "checkpoint 5 step-00000005", "end 5 false <nil>"}
	if !slices.Equal(events, want) {
		t.Errorf("hooks were told\n%s\nwant\n%s", strings.Join(events, "\n"), strings.Join(want, "\n"))
	}
}

// TestBestIsKept gives a loop validation data on which it gets worse from some step on.
func TestBestIsKept(t *testing.T) {
	folder := openFolder(t, t.TempDir(), 1)
	var best []int
	smallest := math.Inf(1)
	loop := countingLoop(t, folder, func(c *train.LoopConfig) {
		c.Evaluations.Validation = backwards{}
		c.Hooks = []train.Hook{{OnEval: func(e train.Evaluation) error {
			if e.Best != (e.Validation < smallest) {
				t.Errorf("after step %d a validation loss of %v is best %v, the smallest before is %v", e.Done, e.Validation, e.Best, smallest)
			}
			smallest = min(smallest, e.Validation)
			if e.Best {
				best = append(best, e.Done)
			}
			return nil
		}}}
	})
	end := runLoop(t, loop, context.Background())
	if last := best[len(best)-1]; end.BestStep != last || end.BestLoss != smallest || last == 20 {
		t.Errorf("the end says %v at step %d, the evaluations had %v at %v; the last step must not be best", end.BestLoss, end.BestStep, smallest, best)
	}
	if c, _, err := folder.Best(); err != nil || c.Step != end.BestStep {
		t.Errorf("the best checkpoint is of step %d (%v), want %d", c.Step, err, end.BestStep)
	}
}

// backwards are counting's rows read from their ends.
type backwards struct{ counting }

func (b backwards) Batch(n int) (data.Batch, error) {
	forth, err := b.counting.Batch(n)
	for r := range countRows {
		slices.Reverse(forth["tokens"].Ints()[r*countLength:][:countLength])
		slices.Reverse(forth["targets"].Ints()[r*countLength:][:countLength])
	}
	return data.Batch{"tokens": forth["targets"], "targets": forth["tokens"]}, err
}

func TestHookErrorsEndTheRun(t *testing.T) {
	sentinel := errors.New("the disk is full")
	for name, hook := range map[string]train.Hook{
		"start":      {OnStart: func(train.Start) error { return sentinel }},
		"step":       {OnStep: func(train.Step) error { return sentinel }},
		"eval":       {OnEval: func(train.Evaluation) error { return sentinel }},
		"checkpoint": {OnCheckpoint: func(train.Checkpoint) error { return sentinel }},
		"end":        {OnEnd: func(train.End) error { return sentinel }},
	} {
		ended := false
		loop := countingLoop(t, openFolder(t, t.TempDir(), 1), func(c *train.LoopConfig) {
			c.Hooks = []train.Hook{hook, {OnEnd: func(train.End) error { ended = true; return nil }}}
		})
		if end, err := loop.Run(context.Background()); !errors.Is(err, sentinel) || !errors.Is(end.Err, sentinel) || !ended {
			t.Errorf("an error of On%s: Run gives %v and %v, the other hook's OnEnd was called: %v", name, err, end.Err, ended)
		}
	}
}

func TestDamagedCheckpointsArePassedOver(t *testing.T) {
	path := t.TempDir()
	folder := openFolder(t, path, 3)
	loop := countingLoop(t, folder, func(c *train.LoopConfig) { c.CheckpointEvery = 5 })
	runLoop(t, loop, context.Background())
	want := bits(loop)
	weights := filepath.Join(path, "step-00000020", "model.safetensors")
	content, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(weights, content, 0o644); err != nil {
		t.Fatal(err)
	}
	again := countingLoop(t, reopen(t, folder, path, 3), nil)
	refused, err := again.Resume()
	if err != nil || again.Done() != 15 || len(refused) != 1 || !strings.Contains(refused[0].Error(), "model.safetensors") {
		t.Fatalf("with a flipped bit in the last checkpoint: at step %d, refused %v, %v", again.Done(), refused, err)
	}
	runLoop(t, again, context.Background())
	if !slices.Equal(bits(again), want) {
		t.Error("from the checkpoint before, the weights differ from an uninterrupted run's")
	}
}

func TestResumeRefusesAnotherModel(t *testing.T) {
	folder := openFolder(t, t.TempDir(), 1)
	runLoop(t, countingLoop(t, folder, nil), context.Background())
	for name, c := range map[string]struct {
		change func(*train.LoopConfig)
		want   string
	}{
		"a wider model": {func(c *train.LoopConfig) {
			c.Model = func(s *nn.Scope, in train.Inputs) train.Outputs {
				m := nn.NewGPT(s, nn.GPTConfig{Vocab: countVocab, Context: countLength, Layers: 2, Heads: 3, Dim: 27})
				return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
			}
			c.Evaluations.Every = 0
		}, "tokens.weight"},
		"another optimiser": {func(c *train.LoopConfig) {
			c.Optimizer, c.Options = train.SGD{}, train.Options{Schedule: train.ConstantRate(1), Accumulation: 2}
		}, `"AdamW"`},
		"fewer batches a step": {func(c *train.LoopConfig) { c.Options = countingOptions }, "40 batches"},
		"fewer steps":          {func(c *train.LoopConfig) { c.Steps = 19 }, "this loop ends at 19"},
	} {
		loop := countingLoop(t, folder, c.change)
		before := bits(loop)
		if _, err := loop.Resume(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
		if !slices.Equal(bits(loop), before) || loop.Done() != 0 {
			t.Errorf("%s: the refused checkpoint changed the loop", name)
		}
	}
	empty := countingLoop(t, openFolder(t, t.TempDir(), 1), nil)
	if _, err := empty.Resume(); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("an empty folder: error %v, want ErrNone", err)
	}
	if _, err := countingLoop(t, nil, nil).Resume(); err == nil {
		t.Error("without a folder: no error")
	}
}

// A checkpoint of before masks were numbered resumes where nothing is dropped, and otherwise only
// on request.
func TestResumeWithOtherMasks(t *testing.T) {
	slow.Race(t)
	without := func(c *train.LoopConfig) { c.Model = countingModel(tensor.Float32, 0) }
	for name, c := range map[string]struct {
		change func(*train.LoopConfig)
		allow  bool
		want   string // in the error
	}{
		"dropout":                   {nil, false, "AllowNewMasks"},
		"dropout and AllowNewMasks": {nil, true, ""},
		"nothing to be dropped":     {without, false, ""},
	} {
		folder := openFolder(t, t.TempDir(), 1)
		first := countingLoop(t, folder, c.change)
		runLoop(t, first, context.Background())
		old, _, err := folder.Latest()
		if err != nil {
			t.Fatal(err)
		}
		var meta map[string]any
		if err := json.Unmarshal(old.Meta, &meta); err != nil {
			t.Fatal(err)
		}
		if meta["masks"] != float64(kernels.DropoutVersion) {
			t.Errorf("%s: the checkpoint says masks %v, it needs to say %d", name, meta["masks"], kernels.DropoutVersion)
		}
		delete(meta, "masks")
		if old.Meta, err = json.Marshal(meta); err != nil {
			t.Fatal(err)
		}
		if _, err := folder.Save(old); err != nil {
			t.Fatal(err)
		}
		loop := countingLoop(t, folder, c.change)
		if c.allow {
			loop.AllowNewMasks()
		}
		before := bits(loop)
		_, err = loop.Resume()
		switch {
		case c.want == "" && (err != nil || loop.Done() != first.Done() || !slices.Equal(bits(loop), bits(first))):
			t.Errorf("%s: at step %d with error %v", name, loop.Done(), err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || loop.Done() != 0 || !slices.Equal(bits(loop), before)):
			t.Errorf("%s: at step %d with error %v, want one with %q", name, loop.Done(), err, c.want)
		}
	}
}

func TestSettingsComeBack(t *testing.T) {
	folder := openFolder(t, t.TempDir(), 1)
	runLoop(t, countingLoop(t, folder, nil), context.Background())
	c, _, err := folder.Latest()
	if err != nil {
		t.Fatal(err)
	}
	var settings map[string]int
	if err := train.ReadSettings(c, &settings); err != nil || settings["answer"] != 42 {
		t.Errorf("settings are %v, %v", settings, err)
	}
	var wrong []string
	if err := train.ReadSettings(c, &wrong); err == nil {
		t.Error("settings of another type: no error")
	}
}

// TestGradientsDoNotPileUp ends a run between the batches of a step and goes on: the batches that
// were run are run again.
func TestGradientsDoNotPileUp(t *testing.T) {
	straight := countingLoop(t, nil, nil)
	runLoop(t, straight, context.Background())
	flaky := &failing{at: 7}
	loop := countingLoop(t, nil, func(c *train.LoopConfig) { c.Data, c.Evaluations.Data = flaky, counting{} })
	if _, err := loop.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "step 3: batch 7") {
		t.Fatalf("a batch that cannot be had: error %v, want one that names step 3 and batch 7", err)
	}
	runLoop(t, loop, context.Background())
	if !slices.Equal(bits(loop), bits(straight)) {
		t.Error("the weights differ from those of a run without an error")
	}
}

// failing is counting whose batch cannot be had the first time.
type failing struct {
	counting
	at     int
	failed bool
}

func (f *failing) Batch(n int) (data.Batch, error) {
	if n == f.at && !f.failed {
		f.failed = true
		return nil, errors.New("the network is down")
	}
	return f.counting.Batch(n)
}

func TestLoopRefusesBadConfigs(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*train.LoopConfig)
		want   string
	}{
		"no model":     {func(c *train.LoopConfig) { c.Model = nil }, "model is nil"},
		"no optimizer": {func(c *train.LoopConfig) { c.Optimizer = nil }, "optimizer is nil"},
		"no data":      {func(c *train.LoopConfig) { c.Data = nil }, "data is nil"},
		"no steps":     {func(c *train.LoopConfig) { c.Steps = 0 }, "steps is 0"},
		"eval":         {func(c *train.LoopConfig) { c.Evaluations.Every = -1 }, "evaluations every is -1"},
		"eval batches": {func(c *train.LoopConfig) { c.Evaluations.Batches = -1 }, "evaluations batches is -1"},
		"checkpoints":  {func(c *train.LoopConfig) { c.CheckpointEvery = 3 }, "checkpoints is nil"},
		"parameters of its own": {func(c *train.LoopConfig) {
			inner, n := c.Model, 0
			c.Model = func(s *nn.Scope, in train.Inputs) train.Outputs {
				if n++; n > 1 {
					s.Parameter("more", nn.Zero, 1)
				}
				return inner(s, in)
			}
		}, "they need to be the same"},
		"no parameters": {func(c *train.LoopConfig) { c.Parameters = nil }, "parameters is nil"},
		"all frozen":    {func(c *train.LoopConfig) { c.Parameters.Freeze(func(string) bool { return true }) }, "all frozen"},
		"a missing array": {func(c *train.LoopConfig) {
			c.Model = func(s *nn.Scope, in train.Inputs) train.Outputs { return train.Outputs{Loss: in.Get("image").Mean()} }
		}, `loop_test.go:`},
		"a missing array's name": {func(c *train.LoopConfig) {
			c.Model = func(s *nn.Scope, in train.Inputs) train.Outputs { return train.Outputs{Loss: in.Get("image").Mean()} }
		}, `the batch has no array "image", it has ["targets" "tokens"]`},
		"a model that fails": {func(c *train.LoopConfig) {
			c.Model = func(s *nn.Scope, _ train.Inputs) train.Outputs {
				return train.Outputs{Loss: s.Fail(errors.New("no such model"))}
			}
		}, "no such model"},
		"no loss": {func(c *train.LoopConfig) {
			c.Model = func(*nn.Scope, train.Inputs) train.Outputs { return train.Outputs{} }
		}, "no loss"},
		"a loss that is no scalar": {func(c *train.LoopConfig) {
			c.Model = func(s *nn.Scope, in train.Inputs) train.Outputs {
				return train.Outputs{Loss: s.Linear("l", s.Embedding("e", in.Get("tokens"), countVocab, 2), 1)}
			}
		}, "scalar"},
		"an optimizer of nonsense": {func(c *train.LoopConfig) { c.Optimizer = train.AdamW{Beta1: 2} }, "beta1 is 2"},
		"no schedule":              {func(c *train.LoopConfig) { c.Options.Schedule = nil }, "schedule is nil"},
	} {
		config := train.LoopConfig{
			Model: countingModel(tensor.Float32, 0), Parameters: nn.NewParameters(3), Optimizer: countingOptimizer, Options: countingOptions, Data: counting{}, Steps: 2, Evaluations: train.Evaluations{Every: 1},
		}
		c.change(&config)
		loop, err := train.NewLoop(config)
		if err == nil {
			loop.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), "Loop: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one of Loop with %q", name, err, c.want)
		}
	}
}

// TestLoopTakesAPrefetcher trains on batches that are made ahead.
func TestLoopTakesAPrefetcher(t *testing.T) {
	straight := countingLoop(t, nil, nil)
	runLoop(t, straight, context.Background())
	ahead, err := data.Prefetch(counting{}, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer ahead.Close()
	loop := countingLoop(t, nil, func(c *train.LoopConfig) { c.Data, c.Evaluations.Data = ahead, counting{} })
	runLoop(t, loop, context.Background())
	if !slices.Equal(bits(loop), bits(straight)) {
		t.Error("the weights differ from those without prefetching")
	}
}
