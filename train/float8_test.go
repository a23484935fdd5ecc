package train_test

import (
	"context"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"gorgonia.org/tensor"
)

// A model whose blocks multiply in 8 bits learns as it does in float32.
func TestTrainingInFloat8(t *testing.T) {
	slow.Race(t)
	losses := func(compute tensor.Dtype, precision kernels.Precision) (list []float64) {
		loop := countingLoop(t, nil, func(c *train.LoopConfig) {
			c.Model = func(s *nn.Scope, in train.Inputs) train.Outputs {
				if err := ops.ModeOf(s.Graph()).AllowPrecision(precision); err != nil {
					return train.Outputs{Loss: s.Fail(err)}
				}
				m := nn.NewGPT(s.Compute(compute), nn.GPTConfig{Vocab: countVocab, Context: countLength, Layers: 2, Heads: 3, Dim: 24})
				return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
			}
			c.Optimizer, c.Options = train.AdamW{}, train.Options{Schedule: train.ConstantRate(1e-2), ClipNorm: 1}
			c.Steps = 60
			c.Hooks = append(c.Hooks, train.Hook{OnStep: func(s train.Step) error {
				list = append(list, s.Loss)
				return nil
			}})
		})
		runLoop(t, loop, context.Background())
		return list
	}
	want := losses(tensor.Float32, kernels.PrecisionAuto)
	if first, last := want[0], want[len(want)-1]; !(last < first/2) {
		t.Fatalf("the losses in float32 go from %v to %v: nothing is learnt", first, last)
	}
	for _, compute := range []tensor.Dtype{tensor.Float32, ops.BFloat16} {
		got := losses(compute, kernels.PrecisionFloat8)
		off := 0.0
		for i, x := range got {
			off += math.Abs(x-want[i]) / want[i] / float64(len(want))
		}
		t.Logf("%v: the losses go from %v to %v, on average %.2g from float32's", compute, got[0], got[len(got)-1], off)
		if !(off > 1e-5 && off < 0.03) {
			t.Errorf("%v: the losses are %v, in float32 %v", compute, got, want)
		}
	}
}
