//go:build gpu

package train

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// Losses of 200 steps of LoRA, the means of ten steps each: in bfloat16 beside weights of 16 bits
// within 0.2% of those in float32, beside weights of four bits within 1% of those beside 16 bits.
// They are 0.05% and 0.3% apart, on a host too. At a rate of 1e-2 any two roundings are 0.5 to 0.9%
// apart, in float32 too, and nothing could be told by their distance.
func TestFineTuningLossesOnTheDevice(t *testing.T) {
	c := training{device: gpu(t), rows: 8, steps: 200, lora: 8, noise: 8, model: nn.GPTConfig{Vocab: 64, Context: 64},
		llama:  &nn.LlamaConfig{Vocab: 64, Context: 64, Layers: 2, Heads: 4, KVHeads: 2, Dim: 256, Hidden: 704},
		change: func(l *LoopConfig) { l.Options.Schedule = ConstantRate(3e-3) }}
	means := func(kept, compute tensor.Dtype) (means []float64) {
		c.kept, c.compute = kept, compute
		losses, _, _ := c.losses(t)
		for n := 0; n < len(losses); n += 10 {
			sum := 0.0
			for _, loss := range losses[n : n+10] {
				sum += loss
			}
			means = append(means, sum/10)
		}
		return means
	}
	exact := means(tensor.Dtype{}, tensor.Float32)
	if last := exact[len(exact)-1]; !(last < exact[0]-0.5) {
		t.Fatalf("the losses in float32 are %v: nothing is learnt", exact)
	}
	half := means(ops.BFloat16, ops.BFloat16)
	for _, other := range []struct {
		name      string
		got, want []float64
		bound     float64
	}{{"bfloat16 beside float32", half, exact, 0.002}, {"NF4 beside bfloat16", means(ops.NF4, ops.BFloat16), half, 0.01}} {
		worst := 0.0
		for n, want := range other.want {
			worst = max(worst, math.Abs(other.got[n]/want-1))
		}
		t.Logf("%s: from %.4f to %.4f, at most %.2g apart", other.name, other.got[0], other.got[len(other.got)-1], worst)
		if !(worst <= other.bound) {
			t.Errorf("%s: the losses are %v, and %v", other.name, other.got, other.want)
		}
	}
}
