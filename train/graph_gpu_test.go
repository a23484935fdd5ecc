//go:build gpu

package train

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gpu is the first GPU. Tests are skipped where there is none.
func gpu(t testing.TB) *ops.Device {
	t.Helper()
	if ops.Devices() == 0 {
		t.Skip("this machine has no GPU")
	}
	d, err := ops.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// training is a language model on tokens that have something to learn.
type training struct {
	device       *ops.Device
	model        nn.GPTConfig
	llama        *nn.LlamaConfig // in place of model, whose Vocab and Context are this one's too
	rows, steps  int
	accumulation int
	prepare      func(*Loop)
}

func (c training) loop(t testing.TB, hook Hook) *Loop {
	t.Helper()
	ids := make([]int, max(1<<16, 2*c.model.Context+2))
	for i := range ids {
		ids[i] = (i*i/7 + i/3) % c.model.Vocab
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		t.Fatal(err)
	}
	batches, err := data.Random(tokens, c.rows, c.model.Context, 1)
	if err != nil {
		t.Fatal(err)
	}
	parameters := nn.NewParameters(3)
	if c.device != nil {
		if err := parameters.MoveTo(c.device); err != nil {
			t.Fatal(err)
		}
	}
	l, err := NewLoop(LoopConfig{
		Device: c.device, Data: batches, Steps: c.steps, Hooks: []Hook{hook},
		Model: func(g *gorgonia.ExprGraph, in Inputs) (Outputs, error) {
			var m interface {
				Loss(tokens, targets *gorgonia.Node) (*gorgonia.Node, error)
				Parameters() gorgonia.Nodes
			}
			var err error
			if c.llama != nil {
				config := *c.llama
				config.Parameters = parameters
				m, err = nn.NewLlama(g, config)
			} else {
				config := c.model
				config.Parameters = parameters
				m, err = nn.NewGPT(g, config)
			}
			if err != nil {
				return Outputs{}, err
			}
			loss, err := m.Loss(in["tokens"], in["targets"])
			return Outputs{Loss: loss, Parameters: m.Parameters()}, err
		},
		Optimizer: func(parameters gorgonia.Nodes) (*Optimizer, error) {
			return NewAdamW(parameters, AdamWConfig{WeightDecay: 0.1, Options: Options{Schedule: ConstantRate(1e-3), ClipNorm: 1, Accumulation: c.accumulation}})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.prepare != nil {
		c.prepare(l)
	}
	return l
}

// losses are those of all steps, and the weights afterwards.
func (c training) losses(t testing.TB) (losses []float64, weights [][]float32, l *Loop) {
	t.Helper()
	l = c.loop(t, Hook{OnStep: func(s Step) error {
		losses = append(losses, s.Loss)
		return nil
	}})
	if _, err := l.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, n := range l.Parameters() {
		v, err := ops.Download(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, slices.Clone(v.Float32s()))
	}
	return losses, weights, l
}

// A training on the device has the losses of one on the host, in float32 and in 16 bits; recorded steps have the bits of those
// that are not.
func TestTrainingOnTheDevice(t *testing.T) {
	d := gpu(t)
	config := nn.GPTConfig{Vocab: 67, Context: 64, Layers: 2, Heads: 4, Dim: 64}
	for _, accumulation := range []int{1, 3} {
		base := training{model: config, rows: 4, steps: 40, accumulation: accumulation}
		want, _, _ := base.losses(t)
		if !(want[len(want)-1] < want[0]-0.2) {
			t.Fatalf("the losses on the host go from %v to %v: nothing is learnt", want[0], want[len(want)-1])
		}
		for compute, bound := range map[tensor.Dtype]float64{tensor.Float32: 1e-4, ops.BFloat16: 1e-2} {
			c := base
			c.device, c.model.Compute = d, compute
			recorded, weights, l := c.losses(t)
			if l.training.last.recording == nil {
				t.Errorf("%v: the steps were not recorded: %v", compute, l.training.unrecorded)
			}
			worst := 0.0
			for i := range want {
				worst = max(worst, math.Abs(recorded[i]-want[i])/want[i])
			}
			t.Logf("%v, %d runs a step: losses from %.4f to %.4f, at most %.2g from the host's", compute, accumulation, recorded[0], recorded[len(recorded)-1], worst)
			if !(worst <= bound) {
				t.Errorf("%v, %d runs a step: the losses are %v, on the host %v", compute, accumulation, recorded, want)
			}
			c.prepare = func(l *Loop) { l.training.unrecorded = errors.New("not wanted") }
			plain, plainWeights, _ := c.losses(t)
			if !slices.Equal(plain, recorded) || !slices.EqualFunc(weights, plainWeights, slices.Equal) {
				t.Errorf("%v, %d runs a step: unrecorded losses are %v, recorded ones %v", compute, accumulation, plain, recorded)
			}
		}
	}
}

// Dropout has the host's masks in every step, and a training with it has the same bits recorded and unrecorded.
func TestDropoutOnTheDevice(t *testing.T) {
	d := gpu(t)
	for _, accumulation := range []int{1, 2} {
		base := training{model: nn.GPTConfig{Vocab: 67, Context: 64, Layers: 2, Heads: 4, Dim: 64, Dropout: 0.2}, rows: 4, steps: 12, accumulation: accumulation}
		want, _, _ := base.losses(t)
		for _, compute := range []tensor.Dtype{tensor.Float32, ops.BFloat16} {
			c := base
			c.device, c.model.Compute = d, compute
			recorded, weights, l := c.losses(t)
			if l.training.last.recording == nil {
				t.Errorf("%v: the steps were not recorded: %v", compute, l.training.unrecorded)
			}
			for i := range want {
				if bound := map[tensor.Dtype]float64{tensor.Float32: 1e-4, ops.BFloat16: 1e-2}[compute]; !(math.Abs(recorded[i]-want[i]) <= bound*want[i]) {
					t.Fatalf("%v, %d runs a step: the losses are %v, on the host %v", compute, accumulation, recorded, want)
				}
			}
			c.prepare = func(l *Loop) { l.training.unrecorded = errors.New("not wanted") }
			plain, plainWeights, _ := c.losses(t)
			if !slices.Equal(plain, recorded) || !slices.EqualFunc(weights, plainWeights, slices.Equal) {
				t.Errorf("%v, %d runs a step: unrecorded losses are %v, recorded ones %v", compute, accumulation, plain, recorded)
			}
		}
	}
}
