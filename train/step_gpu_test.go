//go:build gpu

package train

import (
	"context"
	"errors"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
)

// This file times whole steps on the first GPU, as bench/gpu/step.py does those of PyTorch.

var (
	timedSteps = flag.Int("steps", 40, "steps of a benchmark; the first quarter is not timed")
	unrecorded = flag.Bool("unrecorded", false, "queue the kernels of each step one by one, none before the last step is done")
)

// gpt is a GPT in bfloat16 with GPT-2's vocabulary, rounded up.
func gpt(layers, heads, dim, context, rows int) training {
	return training{rows: rows, model: nn.GPTConfig{
		Compute: ops.BFloat16, Vocab: 50304, Context: context, Layers: layers, Heads: heads, Dim: dim,
	}}
}

// BenchmarkStepOnTheDevice is a step of training: forward, backward, clipping at 1, AdamW.
func BenchmarkStepOnTheDevice(b *testing.B) {
	characters := training{rows: 64, model: nn.GPTConfig{
		Compute: ops.BFloat16, Vocab: 65, Context: 256, Layers: 6, Heads: 6, Dim: 384, Dropout: 0.2, NoBias: true, Activation: kernels.GELUErf,
	}}
	llama := training{rows: 4, model: nn.GPTConfig{Vocab: 32000, Context: 2048}, llama: &nn.LlamaConfig{
		Compute: ops.BFloat16, Vocab: 32000, Context: 2048, Layers: 22, Heads: 32, KVHeads: 4, Dim: 2048, Hidden: 5632,
	}}
	for _, c := range []struct {
		name string
		training
	}{
		{"GPT2-124M", gpt(12, 12, 768, 1024, 32)},
		{"GPT2-350M", gpt(24, 16, 1024, 1024, 16)},
		{"Llama-1B", llama}, // TinyLlama's shape
		{"characters", characters},
		{"128k-tokens", gpt(12, 12, 768, 128<<10, 1)},
	} {
		b.Run(c.name, func(b *testing.B) { c.measure(b) })
	}
}

// measure times the steps, and how long the host takes to queue one.
func (c training) measure(b *testing.B) {
	c.device, c.steps = gpu(b), *timedSteps
	var took, queueing []time.Duration
	l := c.loop(b, Hook{OnStep: func(s Step) error {
		took = append(took, s.Duration)
		return nil
	}})
	l.audience = newAudience(l.c.Hooks)
	if *unrecorded {
		l.training.unrecorded = errors.New("not wanted")
		l.toldWhy = true
	}
	for b.Loop() {
		for range *timedSteps {
			begin := time.Now()
			q, err := l.queue(context.Background(), begin)
			if err != nil {
				b.Fatal(err)
			}
			queueing = append(queueing, time.Since(begin))
			if *unrecorded {
				l.queued, q = q, nil
			}
			if err := l.settle(); err != nil {
				b.Fatal(err)
			}
			l.queued = q
		}
		if err := l.settle(); err != nil {
			b.Fatal(err)
		}
	}
	if !*unrecorded && l.training.last.recording == nil {
		b.Fatalf("the steps were not recorded: %v", l.training.unrecorded)
	}
	raw, err := cuda.Default()
	if err != nil {
		b.Fatal(err)
	}
	step := median(took[len(took)/4:])
	b.ReportMetric(float64(c.rows*c.model.Context)/step.Seconds(), "tokens/s")
	b.ReportMetric(step.Seconds()*1e3, "ms/step")
	b.ReportMetric(median(queueing[len(queueing)/4:]).Seconds()*1e3, "ms-queueing/step")
	b.ReportMetric(float64(raw.Memory().Peak)/(1<<30), "GiB-peak")
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}
