package train_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"gorgonia.org/tensor"
)

// signum is an optimiser of a program's own: a step goes along the sign of a momentum, which
// shrinks where gradients do not agree (v is the mean of their squares), as Adafactor and Lion do
// in their ways.
type signum struct{ beta, decay float64 }

func (signum) Name() string                  { return "signum" }
func (signum) State() []string               { return []string{"m", "v"} }
func (signum) Validate(kernels.DType) error  { return nil }
func (s signum) Update(u train.Update) error { return u.EachOnHost(s.step) }

func (s signum) step(p train.Parameter) error {
	switch w := p.Weights.Data().(type) {
	case []float32:
		signumStep(s, p, w, p.Gradient.Float32s(), p.State[0].Float32s(), p.State[1].Float32s())
	case []float64:
		signumStep(s, p, w, p.Gradient.Float64s(), p.State[0].Float64s(), p.State[1].Float64s())
	}
	return nil
}

func signumStep[T float32 | float64](s signum, p train.Parameter, w, g, m, v []T) {
	beta, rate, decay := T(s.beta), T(p.LearningRate), T(p.LearningRate*p.WeightDecay*s.decay)
	for i := range w {
		m[i] = beta*m[i] + (1-beta)*g[i]
		v[i] = beta*v[i] + (1-beta)*g[i]*g[i]
		w[i] -= decay*w[i] + rate*m[i]/(T(math.Sqrt(float64(v[i])))+1e-8)
	}
}

// ownConfig is countingConfig with signum.
func ownConfig(c *train.LoopConfig) {
	c.Optimizer = signum{beta: 0.9, decay: 0.1}
	c.Options = train.Options{
		Schedule: train.LinearDecay{From: 1e-2, To: 1e-3, Steps: 20}, ClipNorm: 1, Accumulation: 2,
		Groups: []train.Group{{Match: train.Vectors, NoDecay: true}},
	}
}

// An optimiser of a program's own trains, reports, writes checkpoints, and goes on from one with
// the same bits.
func TestOwnOptimizer(t *testing.T) {
	path := t.TempDir()
	var losses []float64
	var norms int
	straight := countingLoop(t, nil, func(c *train.LoopConfig) {
		ownConfig(c)
		c.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
			losses = append(losses, s.Loss)
			if s.GradientNorm > 0 && s.Clipped == (s.GradientNorm > 1) && s.LearningRate > 0 && s.Step == s.Done {
				norms++
			}
			return nil
		}}}
	})
	runLoop(t, straight, context.Background())
	if !(losses[19] < losses[0]-0.5) || norms != 20 {
		t.Errorf("the losses are %v, %d of 20 reports are whole", losses, norms)
	}
	folder := openFolder(t, path, 2)
	ctx, cancel := context.WithCancel(context.Background())
	runLoop(t, countingLoop(t, folder, func(c *train.LoopConfig) {
		ownConfig(c)
		c.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
			if s.Done == 7 {
				cancel()
			}
			return nil
		}}}
	}), ctx)
	folder = reopen(t, folder, path, 2)
	saved, _, err := folder.Latest()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"m.tokens.weight", "v.tokens.weight"} {
		if saved.Optimizer.Map()[name] == nil {
			t.Errorf("the checkpoint has no %s", name)
		}
	}
	second := countingLoop(t, folder, ownConfig)
	if _, err := second.Resume(); err != nil || second.Done() != 7 {
		t.Fatalf("resumed at step %d: %v", second.Done(), err)
	}
	runLoop(t, second, context.Background())
	if !slices.Equal(bits(second), bits(straight)) {
		t.Error("resumed, the weights differ from an uninterrupted run's")
	}
	if _, err := countingLoop(t, folder, nil).Resume(); err == nil || !strings.Contains(err.Error(), `the state is of "signum", it needs to be of "AdamW"`) {
		t.Errorf("AdamW goes on from a checkpoint of signum: %v", err)
	}
}

// Ranks train with an optimiser of a program's own, whose state they share, as one process does.
func TestOwnOptimizerOnRanks(t *testing.T) {
	own := func(_ int, c *train.LoopConfig) {
		accumulation := c.Options.Accumulation
		ownConfig(c)
		c.Options.Accumulation = accumulation
	}
	one, errs := together{size: 1, accumulation: 3, dtype: tensor.Float32, change: own}.train(t)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	three, errs := together{size: 3, accumulation: 1, shard: true, dtype: tensor.Float32, change: own}.train(t)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(one[0].weights, three[2].weights) {
		t.Error("the weights of three ranks differ from those of one process")
	}
}

// A step that is skipped, and one whose optimiser fails, change nothing that a checkpoint would
// keep.
func TestOwnOptimizerFails(t *testing.T) {
	fault := errors.New("no square root")
	steps := 0
	folder := openFolder(t, t.TempDir(), 2)
	loop := countingLoop(t, folder, func(c *train.LoopConfig) {
		c.Optimizer, c.Evaluations.Every = failingOptimizer{&steps, fault}, 0
	})
	end, err := loop.Run(context.Background())
	if !errors.Is(err, fault) || !strings.Contains(err.Error(), "no checkpoint of step 2: the update that came after it failed halfway") {
		t.Errorf("the run ended with %v", err)
	}
	if _, _, err := folder.Latest(); !errors.Is(err, checkpoint.ErrNone) || end.Checkpoint != "" {
		t.Errorf("there is a checkpoint, %s (%v)", end.Checkpoint, err)
	}
}

// failingOptimizer fails in the third step.
type failingOptimizer struct {
	steps *int
	fault error
}

func (failingOptimizer) Name() string                 { return "failing" }
func (failingOptimizer) State() []string              { return nil }
func (failingOptimizer) Validate(kernels.DType) error { return nil }

func (f failingOptimizer) Update(train.Update) error {
	if *f.steps++; *f.steps == 3 {
		return f.fault
	}
	return nil
}
