// Transformer trains a small GPT on text, shows how it learns, and lets it write. Without flags it learns from Go's own
// source for about a minute and then writes something like Go:
//
//	go run ./examples/transformer
//
// It is also the tutorial: this file is what a training program needs, from top to bottom. settings.go has the flags,
// corpus.go finds the text, author.go writes, run.go is the folder that results go to, stop.go listens to signals, ranks.go is for
// several GPUs: -gpus 8 trains on those of this machine, and torchrun, Slurm, Kubernetes or Open MPI start the program on many machines.
// With -share 2 every two of them hold half of each sequence, and with -shard weights each holds its part of the model.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/watch"
	"gorgonia.org/gorgonia"
)

func main() {
	s, o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "transformer:", err)
		os.Exit(2)
	}
	// Nearly all memory is weights and activations, which live as long as the run: collecting early costs nothing.
	debug.SetGCPercent(25)
	do := learn
	switch {
	case o.sample:
		do = speak
	case o.gpus > 0 && os.Getenv("RANK") == "":
		do = func(ctx context.Context, _ settings, o options) error { return launch(ctx, o.gpus) }
	}
	ctx := context.Background()
	if err := do(ctx, s, o); err != nil {
		fmt.Fprintln(os.Stderr, "transformer:", err)
		os.Exit(1)
	}
}

// learn trains a model and lets it write.
func learn(ctx context.Context, s settings, o options) (err error) {
	// Several processes may train one model, each on a GPU of its own. They do the same, but only rank 0 tells of it and writes it down.
	ranks, err := joinRanks(ctx, o)
	if err != nil {
		return err
	}
	defer func() { leaveRanks(ranks, err) }()
	leads := ranks.Rank() == 0

	// A run is a folder with everything that comes of the training. One that is resumed has settings already.
	r, err := findRun(&s, o)
	if err != nil {
		return err
	}
	if err := s.absolute(); err != nil {
		return err
	}

	// Text becomes tokens, most of them to train on and some to see whether the model learns or memorises.
	corpus, err := loadCorpus(&s)
	if err != nil {
		return err
	}
	defer corpus.Close()
	trainingBatches, evalBatches, validationBatches, err := corpus.batches(s)
	if err != nil {
		return err
	}

	// Where a sequence is too long for one GPU, every few of the processes share a batch. Otherwise each has its own.
	sharers, err := shareSequences(ranks, o, &trainingBatches, &evalBatches, &validationBatches)
	if err != nil {
		return err
	}
	if leads {
		if err := r.open(o.resume); err != nil {
			return err
		}
		defer r.checkpoints.Close()
		if err := r.keepTokenizer(corpus.tokenizer); err != nil {
			return err
		}
	}

	// Every graph that is made of the model has these parameters: one trains them, one evaluates, one writes text.
	device, place, err := openDevice(o.device, ranks)
	if err != nil {
		return err
	}
	parameters, err := newParameters(s.Seed, device)
	if err != nil {
		return err
	}
	if o.shard == shardWeights {
		if err := parameters.ShareOut(ranks); err != nil {
			return err
		}
	}
	vocab := corpus.tokenizer.Size()
	model := func(g *gorgonia.ExprGraph, in train.Inputs) (train.Outputs, error) {
		config := s.gpt(vocab, parameters)
		config.Attention.Ranks = sharers
		gpt, err := nn.NewGPT(g, config)
		if err != nil {
			return train.Outputs{}, err
		}
		if s.Compute == "tf32" {
			if err := ops.ModeOf(g).AllowPrecision(kernels.PrecisionTF32); err != nil {
				return train.Outputs{}, err
			}
		}
		loss, err := gpt.Loss(in["tokens"], in["targets"])
		return train.Outputs{Loss: loss, Parameters: gpt.Parameters()}, err
	}

	// Ctrl-C ends the training, after a checkpoint; a second one ends the program. Up to here there is nothing to lose.
	ctx, stop := untilSignalled(ctx)
	defer stop()

	// The author writes by the parameters as they are at the moment, where rank 0 has them whole.
	var author *author
	glimpse := func(train.Evaluation) (string, error) { return "", nil }
	if !parameters.IsSharedOut() {
		if author, err = newAuthor(s, o, parameters, corpus.tokenizer); err != nil {
			return err
		}
		glimpse = func(train.Evaluation) (string, error) { return author.glimpse(ctx) }
	}

	// The loop ties it together.
	loop, err := train.NewLoop(train.LoopConfig{
		Model:      model,
		Device:     device,
		Data:       trainingBatches,
		EvalData:   evalBatches,
		Validation: validationBatches,
		Optimizer: func(parameters gorgonia.Nodes) (*train.Optimizer, error) {
			return train.NewAdamW(parameters, train.AdamWConfig{
				Beta2: s.Beta2, WeightDecay: s.Decay,
				Options: train.Options{
					Schedule: train.WarmupCosine{Peak: s.Rate, Min: s.MinRate, Warmup: s.Warmup, Steps: s.decaySteps()},
					Groups:   []train.Group{{Match: train.Vectors, NoDecay: true}},
					ClipNorm: s.Clip, Accumulation: s.Accumulation, LossScaling: s.lossScaling(),
					Ranks: ranks, ShardState: o.shard != "",
				},
			})
		},
		Steps: s.Steps, EvalEvery: s.EvalEvery, EvalBatches: s.EvalBatches,
		Checkpoints: r.checkpoints, CheckpointEvery: s.CheckpointEvery, CheckpointParts: o.shard != "", Settings: s, NewMasks: o.newMasks,
		Hooks: []train.Hook{ // of rank 0
			watch.Progress(os.Stderr, glimpse),
			watch.OpenJSONLines(r.file("log.jsonl")),
			watch.TensorBoard(r.file("tensorboard")),
		},
	})
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := r.resume(loop, o); err != nil {
		return err
	}
	if !leads {
		_, err := loop.Run(ctx)
		return err
	}
	count := nn.Count(loop.Parameters())
	fmt.Printf("A GPT of %d layers × %d channels, %.2f million parameters.\n", s.Layers, s.Dim, float64(count)/1e6)
	fmt.Printf("It learns from %s:\n%.2f million tokens of %d kinds.\n", corpus.origin, float64(corpus.size())/1e6, vocab)
	switch {
	case sharers.Size() > 1:
		place = fmt.Sprintf("%d ranks with a batch for every %d, this one on %s", ranks.Size(), sharers.Size(), place)
	case ranks.Size() > 1:
		place = fmt.Sprintf("%d ranks with a batch each, this one on %s", ranks.Size(), place)
	}
	fmt.Printf("It computes on %s.\nEverything goes to %s.\n", place, r.folder)
	if cost := s.cost(count); device == nil && cost > time.Hour {
		fmt.Printf("On a CPU like this one it takes about %v; -preset cpu takes about a minute.\n", cost.Round(time.Hour))
	}
	end, err := loop.Run(ctx)
	for _, n := range end.Notices {
		fmt.Println("Notice:", n)
	}
	if drawErr := r.drawCurve(); err == nil {
		err = drawErr // after an error that ended the run, another of the same disk tells nothing new
	}
	if err != nil {
		return err
	}
	if end.Cancelled {
		fmt.Printf("Stopped after step %d. To go on: go run ./examples/transformer -resume -out %s\n", end.Done, r.folder)
		return nil
	}

	// What has it learnt?
	more := fmt.Sprintf("go run ./examples/transformer -out %s -sample PROMPT", r.folder)
	if author == nil {
		fmt.Printf("\nIn %s: loss.png is the loss curve, checkpoints the model.\nText by it: %s\n", r.folder, more)
		return nil
	}
	fmt.Println()
	text, err := os.Create(r.file("sample.txt"))
	if err != nil {
		return err
	}
	defer text.Close()
	if err := author.write(ctx, io.MultiWriter(screen(), text)); err != nil {
		return err
	}
	fmt.Printf("\nIn %s: loss.png is the loss curve, sample.txt this text,\ncheckpoints the model.\n", r.folder)
	fmt.Printf("More text: %s\n", more)
	return text.Close()
}

// cost is about how long all steps take on this machine's CPU. A step costs six products and sums a parameter and token;
// twenty thousand million of them a second are what a core does of a small model, one with another.
func (s settings) cost(parameters int) time.Duration {
	const perCore = 20e9
	tokens := float64(s.Batch) * float64(s.Context) * float64(s.Accumulation) * float64(s.Steps)
	seconds := 6 * float64(parameters) * tokens / (perCore * float64(runtime.GOMAXPROCS(0)))
	return time.Duration(min(seconds, math.MaxInt64/1e9) * 1e9)
}

// gpt is the shape that nanoGPT has: no biases, and an exact GELU.
func (s settings) gpt(vocab int, parameters *nn.Parameters) nn.GPTConfig {
	return nn.GPTConfig{
		Parameters: parameters, Vocab: vocab, Context: s.Context, Layers: s.Layers, Heads: s.Heads, Dim: s.Dim,
		Dropout: s.Dropout, NoBias: true, Activation: kernels.GELUErf, Compute: computeTypes[s.Compute],
	}
}

// lossScaling is for float16, whose range is too small for gradients as they are.
func (s settings) lossScaling() *train.LossScaling {
	if computeTypes[s.Compute] != ops.Float16 {
		return nil
	}
	return &train.LossScaling{}
}
