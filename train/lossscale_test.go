package train_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"gorgonia.org/tensor"
)

// scalingLoop trains the counting model in a compute type.
func scalingLoop(t *testing.T, compute tensor.Dtype, scaling *train.LossScaling, change func(*train.LoopConfig)) *train.Loop {
	t.Helper()
	return countingLoop(t, nil, func(c *train.LoopConfig) {
		c.Model = func(s *nn.Scope, in train.Inputs) train.Outputs {
			m := nn.NewGPT(s.Compute(compute), nn.GPTConfig{Vocab: countVocab, Context: countLength, Layers: 2, Heads: 3, Dim: 24, Dropout: 0.1})
			return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
		}
		c.Optimizer, c.Options = train.AdamW{}, train.Options{Schedule: train.ConstantRate(1e-2), ClipNorm: 1, Accumulation: 2, LossScaling: scaling}
		if change != nil {
			change(c)
		}
	})
}

// A loss scale changes no bit of a training in float32, while it grows step after step.
func TestLossScalingKeepsBits(t *testing.T) {
	plain, scaled := scalingLoop(t, tensor.Float32, nil, nil), scalingLoop(t, tensor.Float32, &train.LossScaling{Initial: 256, Interval: 3}, nil)
	runLoop(t, plain, context.Background())
	runLoop(t, scaled, context.Background())
	if !slices.Equal(bits(plain), bits(scaled)) {
		t.Error("the weights differ from those without a loss scale")
	}
	s, err := scaled.Stepper().State()
	if err != nil {
		t.Fatal(err)
	}
	if s.LossScale != 256*math.Pow(2, 6) || s.LossScaleGoodSteps != 2 {
		t.Errorf("after 20 steps the scale is %v, for %d steps, it needs to be %d for 2", s.LossScale, s.LossScaleGoodSteps, 256<<6)
	}
}

// In float16 a scale that is too large is halved until the steps' gradients are finite, and the
// model learns as in float32.
func TestLossScalingInFloat16(t *testing.T) {
	slow.Race(t)
	var losses [2][]float64
	for i, compute := range []tensor.Dtype{tensor.Float32, ops.Float16} {
		skipped := 0
		loop := scalingLoop(t, compute, &train.LossScaling{Initial: 1 << 24}, func(c *train.LoopConfig) {
			c.Steps = 60
			c.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
				if s.Report.Skipped {
					skipped++
				} else {
					losses[i] = append(losses[i], s.Loss)
				}
				return nil
			}}}
		})
		runLoop(t, loop, context.Background())
		s, err := loop.Stepper().State()
		if err != nil {
			t.Fatal(err)
		}
		if narrow := compute == ops.Float16; (skipped > 0) != narrow || s.LossScale != math.Ldexp(1, 24-skipped) {
			t.Errorf("%v: %d steps were skipped, and the scale is %v", compute, skipped, s.LossScale)
		}
	}
	last := func(list []float64) float64 { return list[len(list)-1] }
	if !(math.Abs(last(losses[1])-last(losses[0])) < 0.15 && last(losses[1]) < losses[1][0]/2) {
		t.Errorf("float16's losses go from %v to %v, float32's to %v", losses[1][0], last(losses[1]), last(losses[0]))
	}
}

// A resumed training has the scale that it had.
func TestLossScalingIsResumed(t *testing.T) {
	slow.Race(t)
	scaling := &train.LossScaling{Initial: 1 << 24, Interval: 4}
	straight := scalingLoop(t, ops.Float16, scaling, nil)
	runLoop(t, straight, context.Background())
	path := t.TempDir()
	folder := openFolder(t, path, 2)
	ctx, cancel := context.WithCancel(context.Background())
	runLoop(t, scalingLoop(t, ops.Float16, scaling, func(c *train.LoopConfig) {
		c.Checkpoints = folder
		c.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
			if s.Done == 11 {
				cancel()
			}
			return nil
		}}}
	}), ctx)
	folder = reopen(t, folder, path, 2)
	second := scalingLoop(t, ops.Float16, scaling, func(c *train.LoopConfig) { c.Checkpoints = folder })
	if _, err := second.Resume(); err != nil || second.Done() != 11 {
		t.Fatalf("resumed at step %d: %v", second.Done(), err)
	}
	runLoop(t, second, context.Background())
	if !slices.Equal(bits(second), bits(straight)) {
		t.Error("the weights differ from an uninterrupted run's")
	}
}
