package train_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/watch"
	"gorgonia.org/tensor"
)

// spoiled is counting, of which some batches break the weights while they are taken: what the loss
// of the next step shows.
type spoiled struct {
	counting
	batches []int
	breaks  func()
}

func (s spoiled) Batch(n int) (data.Batch, error) {
	if slices.Contains(s.batches, n) {
		s.breaks()
	}
	return s.counting.Batch(n)
}

// spoil has a loop break its first weights at some batches, by a factor.
func spoil(c *train.LoopConfig, loop **train.Loop, by float32, batches ...int) {
	c.Data = spoiled{batches: batches, breaks: func() {
		weights := (*loop).Parameters()[0].Value().(*tensor.Dense).Float32s()
		for i := range weights {
			weights[i] *= by
		}
	}}
}

// A spike of the loss, and gradients that are not finite several times, have the training go back
// to the newest good checkpoint and leave out the batches between. The weights are those of a run
// that never had these batches, and the log has each step once.
func TestLoopGoesBack(t *testing.T) {
	for name, c := range map[string]struct {
		by         float32
		batches    []int
		after      int // this step the weights break, before they are saved
		from, left int
		why        string
	}{
		// Two batches make a step. What breaks with the first batch of step 10, number 18, its own
		// loss shows.
		"a spike":                      {by: 300, batches: []int{18}, from: 10, left: 2, why: "the loss of step 10 is "},
		"a checkpoint that is bad":     {by: 300, after: 10, from: 11, left: 3, why: "the loss of step 11 is "},
		"gradients that are no number": {by: float32(math.NaN()), batches: []int{18}, from: 11, left: 3, why: "the gradients of 2 steps in a row are not finite, up to step 11"},
	} {
		t.Run(name, func(t *testing.T) {
			path, to := t.TempDir(), c.from-c.left
			var backs []train.Back
			var loop *train.Loop
			folder := openFolder(t, filepath.Join(path, "checkpoints"), 4)
			loop = countingLoop(t, folder, func(l *train.LoopConfig) {
				l.Model = countingModel(tensor.Float32, 0)
				l.CheckpointEvery, l.Evaluations.Every = 2, 4
				l.GoBack = &train.GoBack{Window: 4, Skips: 2, Spike: 20}
				spoil(l, &loop, c.by, c.batches...)
				l.Hooks = []train.Hook{watch.OpenJSONLines(filepath.Join(path, "log.jsonl")), watch.OpenCSV(filepath.Join(path, "log.csv")), {
					OnBack: func(b train.Back) error { backs = append(backs, b); return nil },
					OnStep: func(s train.Step) error {
						if s.Done == c.after && len(backs) == 0 {
							l.Data.(spoiled).breaks()
						}
						return nil
					},
				}}
			})
			end := runLoop(t, loop, context.Background())
			if len(backs) != 1 || backs[0].From != c.from || backs[0].Done != to || backs[0].LeftOut != c.left || !strings.HasPrefix(backs[0].Why, c.why) {
				t.Fatalf("it went back %+v, want from %d to %d", backs, c.from, to)
			}
			if !slices.Contains(end.Notices, train.Notice(backs[0].String())) {
				t.Errorf("the notices are %q", end.Notices)
			}
			without := countingLoop(t, nil, func(l *train.LoopConfig) {
				l.Model, l.Evaluations.Every = countingModel(tensor.Float32, 0), 0
				l.Data = data.Func(func(n int) (data.Batch, error) {
					if n >= 2*to {
						n += 2 * c.left
					}
					return counting{}.Batch(n)
				})
			})
			runLoop(t, without, context.Background())
			if !slices.Equal(bits(without), bits(loop)) {
				t.Error("the weights differ from those of a run without these batches")
			}

			text, err := os.ReadFile(filepath.Join(path, "log.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			log, err := watch.ReadJSONLines(bytes.NewReader(text))
			if err != nil || len(log.Backs) != 1 || log.Backs[0] != backs[0] {
				t.Fatalf("the log has the backs %v, %v", log.Backs, err)
			}
			if table := readAll(t, filepath.Join(path, "log.csv")); strings.Count(table, "\nstep,") != 20 || strings.Count(table, "\nback,") != 1 {
				t.Errorf("the table is\n%s", table)
			}
			var steps []int
			for _, s := range log.Steps {
				steps = append(steps, s.Done)
			}
			if len(steps) != 20 || !slices.IsSorted(steps) || steps[0] != 1 || bytes.Count(text, []byte(`"event":"step"`)) != 20 {
				t.Errorf("the log has the steps %v", steps)
			}
		})
	}
}

// A training that went back and was stopped at any step ends with the bits of one that was not
// stopped.
func TestLoopGoesBackAndResumes(t *testing.T) {
	start := func(folder *checkpoint.Folder, steps int) *train.Loop {
		var loop *train.Loop
		loop = countingLoop(t, folder, func(l *train.LoopConfig) {
			l.CheckpointEvery, l.GoBack = 2, &train.GoBack{Window: 4, Spike: 20}
			l.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
				if s.Done == steps {
					return errStopped
				}
				return nil
			}}}
			spoil(l, &loop, 300, 18)
		})
		return loop
	}
	straight := start(openFolder(t, t.TempDir(), 4), none)
	runLoop(t, straight, context.Background())
	for _, stop := range []int{9, 11, 13} {
		folder := openFolder(t, t.TempDir(), 4)
		first := start(folder, stop)
		if _, err := first.Run(context.Background()); !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		second := start(folder, none)
		if _, err := second.Resume(); err != nil {
			t.Fatal(err)
		}
		runLoop(t, second, context.Background())
		if !slices.Equal(bits(second), bits(straight)) {
			t.Errorf("stopped after step %d, the weights differ", stop)
		}
	}
}

// A training that a hook stops at a spike, and that is resumed from the checkpoint of this stop,
// goes back beyond the weights that the spike was about.
func TestLoopGoesBackBeyondAStop(t *testing.T) {
	var back *train.Back
	start := func(folder *checkpoint.Folder, stops bool) *train.Loop {
		var loop *train.Loop
		loop = countingLoop(t, folder, func(l *train.LoopConfig) {
			l.CheckpointEvery, l.GoBack = 3, &train.GoBack{Window: 4, Spike: 20}
			spoil(l, &loop, 300)
			breaks := l.Data.(spoiled).breaks
			l.Hooks = []train.Hook{{
				OnBack: func(b train.Back) error { back = &b; return nil },
				OnStep: func(s train.Step) error {
					switch {
					case s.Done == 9 && stops:
						breaks() // before the weights are saved
					case s.Done == 10 && stops:
						return errStopped
					}
					return nil
				},
			}}
		})
		return loop
	}
	folder := openFolder(t, t.TempDir(), 4)
	if _, err := start(folder, true).Run(context.Background()); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	second := start(folder, false)
	if _, err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	runLoop(t, second, context.Background())
	if back == nil || back.From != 11 || back.Done != 6 {
		t.Errorf("it goes back %+v, want from 11 to 6", back)
	}
}

// Losses that are all the same make no spike of one that is hardly larger.
func TestNoSpikeOfSameLosses(t *testing.T) {
	for _, values := range [][2]float32{{1, 1.0000001}, {0, 1e-7}, {-5, -4.99}} {
		loop := countingLoop(t, openFolder(t, t.TempDir(), 4), func(l *train.LoopConfig) {
			l.Model = func(s *nn.Scope, in train.Inputs) train.Outputs {
				x := in.Get("x")
				return train.Outputs{Loss: nn.NewLinear(s, nn.LinearConfig{In: 1, Out: 1}).Forward(x.Mul(0)).Mul(0).Add(x).Mean()}
			}
			l.Options.Accumulation, l.Evaluations = 1, train.Evaluations{}
			l.CheckpointEvery, l.GoBack = 10, &train.GoBack{Window: 4}
			l.Data = data.Func(func(n int) (data.Batch, error) {
				x := values[min(n/10, 1)]
				return data.Batch{"x": tensor.New(tensor.WithShape(1, 1), tensor.WithBacking([]float32{x}))}, nil
			})
		})
		if end := runLoop(t, loop, context.Background()); len(end.Notices) != 0 {
			t.Errorf("%v: it says %q", values, end.Notices)
		}
	}
}

var errStopped = errors.New("stopped")

const none = -1

// A training goes back so many times, and no more; one without a good checkpoint goes on, and says
// so.
func TestLoopGoesBackSoOften(t *testing.T) {
	var loop *train.Loop
	loop = countingLoop(t, openFolder(t, t.TempDir(), 4), func(l *train.LoopConfig) {
		l.CheckpointEvery, l.GoBack = 2, &train.GoBack{Window: 4, Spike: 20, Most: 1}
		spoil(l, &loop, 300, 18, 30)
	})
	if end, err := loop.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "after the training has gone back 1 times") || end.Done < 10 {
		t.Errorf("after step %d: %v", end.Done, err)
	}
	var other *train.Loop
	other = countingLoop(t, openFolder(t, t.TempDir(), 4), func(l *train.LoopConfig) {
		l.CheckpointEvery, l.GoBack = 15, &train.GoBack{Window: 4, Spike: 20}
		spoil(l, &other, 300, 18)
	})
	end, err := other.Run(context.Background())
	if err != nil || end.Done != 20 || !slices.ContainsFunc(end.Notices, func(n train.Notice) bool {
		return strings.Contains(string(n), "there is no checkpoint from before that")
	}) {
		t.Errorf("%v, it says %q", err, end.Notices)
	}
	for want, b := range map[string]train.GoBack{
		"spike is -1": {Spike: -1}, "window is 1": {Window: 1}, "skips is 9": {Skips: 9}, "most is -1": {Most: -1}, "needs a folder": {},
	} {
		c := countingConfig(nil)
		c.GoBack = &b
		if _, err := train.NewLoop(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
