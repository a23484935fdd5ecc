package train_test

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/watch"
	"gorgonia.org/gorgonia"
)

// BenchmarkLoop is what a step of nanoGPT's CPU shape costs in a Loop with prefetching, progress,
// log files and TensorBoard, beside the machine and the optimiser alone: overhead-% compares the
// medians of turns of 20 steps each.
func BenchmarkLoop(b *testing.B) {
	const rows, length, vocab, turn = 12, 64, 65, 20
	ids := make([]int, 100_000)
	for i := range ids {
		ids[i] = int(word("text", i) % vocab)
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		b.Fatal(err)
	}
	random, err := data.Random(tokens, rows, length, 1)
	if err != nil {
		b.Fatal(err)
	}
	ahead, err := data.Prefetch(random, 0, 2)
	if err != nil {
		b.Fatal(err)
	}
	defer ahead.Close()
	gpt := func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: vocab, Context: length, Layers: 4, Heads: 4, Dim: 128})
	}
	model := func(s *nn.Scope, in train.Inputs) train.Outputs {
		return train.Outputs{Loss: gpt(s).Loss(in.Get("tokens"), in.Get("targets"))}
	}
	options := train.Options{Schedule: train.ConstantRate(1e-3), ClipNorm: 1}

	var ctx context.Context
	var cancel context.CancelFunc
	var loopTimes []float64
	var last time.Time
	folder := b.TempDir()
	done := train.Hook{OnStep: func(s train.Step) error {
		loopTimes = append(loopTimes, time.Since(last).Seconds())
		if last = time.Now(); s.Done%turn == 0 {
			cancel()
		}
		return nil
	}}
	loop, err := train.NewLoop(train.LoopConfig{
		Model: model, Parameters: nn.NewParameters(0), Optimizer: train.AdamW{}, Options: options, Data: ahead, Steps: 1 << 40,
		Hooks: []train.Hook{watch.Progress(io.Discard), watch.OpenJSONLines(filepath.Join(folder, "log.jsonl")),
			watch.OpenCSV(filepath.Join(folder, "log.csv")), watch.TensorBoard(filepath.Join(folder, "tensorboard")), done},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer loop.Close()

	g := gorgonia.NewGraph()
	batch, err := random.Batch(0)
	if err != nil {
		b.Fatal(err)
	}
	s := nn.NewScope(g, nn.NewParameters(0))
	loss := gpt(s).Loss(s.Constant("tokens", batch["tokens"]), s.Constant("targets", batch["targets"])).Node()
	if err := s.Err(); err != nil {
		b.Fatal(err)
	}
	parameters := s.Parameters()
	if _, err := gorgonia.Grad(loss, parameters...); err != nil {
		b.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(parameters...))
	defer machine.Close()
	bare, err := train.NewStepper(parameters, train.AdamW{}, options)
	if err != nil {
		b.Fatal(err)
	}
	var bareTimes []float64
	for b.Loop() {
		for range turn {
			start := time.Now()
			if err := machine.RunAll(); err != nil {
				b.Fatal(err)
			}
			machine.Reset()
			if _, err := bare.Step(); err != nil {
				b.Fatal(err)
			}
			bareTimes = append(bareTimes, time.Since(start).Seconds())
		}
		ctx, cancel = context.WithCancel(context.Background())
		last = time.Now()
		if _, err := loop.Run(ctx); err != nil {
			b.Fatal(err)
		}
		cancel()
	}
	with, without := median(loopTimes), median(bareTimes)
	b.ReportMetric(with*1e3, "ms/step")
	b.ReportMetric(without*1e3, "bare-ms/step")
	b.ReportMetric(100*(with/without-1), "overhead-%")
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkCheckpoint is what a checkpoint costs a training that goes on beside it: turns of 20
// steps of which the first is followed by a checkpoint, beside turns without one. The medians of
// the turns give what a checkpoint costs of a step, and what one every 100 steps costs of the
// training.
func BenchmarkCheckpoint(b *testing.B) {
	const rows, length, vocab, turn = 12, 64, 65, 20
	model := func(s *nn.Scope, in train.Inputs) train.Outputs {
		m := nn.NewGPT(s, nn.GPTConfig{Vocab: vocab, Context: length, Layers: 4, Heads: 4, Dim: 128})
		return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
	}
	ids := make([]int, 100_000)
	for i := range ids {
		ids[i] = int(word("text", i) % vocab)
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		b.Fatal(err)
	}
	random, err := data.Random(tokens, rows, length, 1)
	if err != nil {
		b.Fatal(err)
	}
	folder, err := checkpoint.Open(filepath.Join(b.TempDir(), "checkpoints"), 2)
	if err != nil {
		b.Fatal(err)
	}
	defer folder.Close()
	var turns [2][]float64 // seconds: of those without, and of those that follow a checkpoint
	began := time.Now()
	loop, err := train.NewLoop(train.LoopConfig{
		Model: model, Parameters: nn.NewParameters(0), Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(1e-3), ClipNorm: 1},
		Data: random, Steps: 2 * turn * (b.N + 1), Checkpoints: folder, CheckpointEvery: 2 * turn,
		Hooks: []train.Hook{{OnStep: func(s train.Step) error {
			if s.Done%turn == 0 {
				if n := s.Done / turn; n > 2 { // after the first checkpoint
					turns[n%2] = append(turns[n%2], time.Since(began).Seconds())
				}
				began = time.Now()
			}
			return nil
		}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer loop.Close()
	b.ResetTimer()
	if _, err := loop.Run(context.Background()); err != nil {
		b.Fatal(err)
	}
	without, with := median(turns[0]), median(turns[1])
	cost := with - without // of one checkpoint
	b.ReportMetric(without/turn*1e3, "ms/step")
	b.ReportMetric(100*cost/(without/turn), "%-of-a-step")
	b.ReportMetric(cost/(without/turn), "%-of-100-steps")
}
