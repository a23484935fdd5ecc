package train_test

import (
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
