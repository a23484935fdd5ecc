package train_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
)

// A training whose losses are not finite in the end does not end well.
func TestDiverged(t *testing.T) {
	loop := countingLoop(t, nil, func(c *train.LoopConfig) {
		c.Steps, c.Evaluations.Every = 6, 0
		c.Optimizer, c.Options.Schedule, c.Options.ClipNorm = train.SGD{}, train.ConstantRate(1e30), 0
	})
	end, err := loop.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "steps are not finite, so the weights are of no use") || end.Done != 6 {
		t.Errorf("after %d steps: %v", end.Done, err)
	}
}

// A training none of whose steps changed the weights does not end well either, however few there
// are. Where a batch is to blame, the error names the place.
func TestNothingChanged(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		x     []float32
		slope bool // that of a square root at 0
		steps int
		want  string
	}{
		{[]float32{1, -2, 3, 1, 2, -1}, true, 3, "no step changed the weights: none of 3 had finite gradients"},
		{[]float32{1, -2, 3, 1, nan, -1}, false, 1, "no step changed the weights: none of 1 had finite gradients; element 4 of x of batch 0 is NaN"},
		{[]float32{1, -2, 3, 1, nan, -1}, false, 4, "none of 4 had finite gradients; element 4 of x of batch 3 is NaN"},
		{[]float32{1, -2, 3, 1, 2, -1}, false, 3, ""},
	} {
		_, err := train.Run(t.Context(), train.LoopConfig{
			Parameters: nn.NewParameters(1), Optimizer: train.SGD{}, Options: train.Options{Schedule: train.ConstantRate(1e-3)}, Steps: c.steps,
			Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
				y := s.Linear("l", in.Get("x"), 9)
				if c.slope {
					y = y.ReLU().Sqrt()
				}
				return train.Outputs{Loss: y.Mean()}
			},
			Data: data.Func(func(int) (data.Batch, error) { return data.Batch{"x": data.Floats(c.x, 2, 3)}, nil }),
		})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), c.want)) {
			t.Errorf("%+v: the error is %v, want %q", c, err, c.want)
		}
	}
}

// ignored is counting without a target that counts.
type ignored struct{}

func (ignored) Batch(n int) (data.Batch, error) {
	b, err := counting{}.Batch(n)
	if err != nil {
		return nil, err
	}
	ids := b["targets"].Data().([]int)
	for i := range ids {
		ids[i] = nn.IgnoreTarget
	}
	return b, nil
}

// Batches that teach nothing are told of, once.
func TestTargetsThatAllAreIgnored(t *testing.T) {
	for _, c := range []struct {
		data data.Batches
		want int
	}{{counting{}, 0}, {ignored{}, 1}} {
		loop := countingLoop(t, nil, func(c0 *train.LoopConfig) { c0.Steps, c0.Evaluations, c0.Data = 3, train.Evaluations{}, c.data })
		if end := runLoop(t, loop, t.Context()); len(end.Notices) != c.want {
			t.Errorf("%T: the notices are %q, want %d", c.data, end.Notices, c.want)
		}
	}
}
