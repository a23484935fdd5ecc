// Transformer trains a small GPT on text, shows how it learns, and lets it write. Without flags it
// learns from Go's own source for about a minute and then writes something like Go:
//
//	go run ./examples/transformer
//
// It is also the tutorial: this file is what a training program needs, from top to bottom.
// flags.go and settings.go are what one can ask for, corpus.go finds the text, author.go writes,
// run.go is the folder that results go to, end.go tells what came of it, export.go writes a model
// for transformers, memory.go knows what one takes, stop.go listens to signals.
//
// It runs on a CPU, a GPU, which trains a larger one in its minute, or several: -gpus 8 trains on
// those of this machine, and torchrun, Slurm, Kubernetes or Open MPI start it on many. With -share
// 2 every two GPUs share a sequence. With -shard weights all share the model, or with -shard-ranks
// 8 every eight, those of a machine, so that each eight have the whole. With -lost replace a dead
// process is started again with what the others have; with -lost fewer they go on without it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
)

func main() {
	s, o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "transformer:", err)
		os.Exit(2)
	}
	// Nearly all memory is weights and activations, which live as long as the run: collecting early
	// costs nothing.
	debug.SetGCPercent(25)
	if err := start(context.Background(), s, o); err != nil {
		fmt.Fprintln(os.Stderr, "transformer:", cli.Failure(err))
		os.Exit(1)
	}
}

// start does what the flags say where they say it: on a CPU or a GPU, or on several, each with a
// process of this program.
func start(ctx context.Context, s settings, o options) error {
	return o.place.Run(ctx, func(ctx context.Context, place *train.Place) error {
		if o.sample || o.export != "" {
			return use(ctx, place, s, o)
		}
		return learn(ctx, place, s, o)
	})
}

// learn trains a model and lets it write.
func learn(ctx context.Context, place *train.Place, s settings, o options) error {
	s, choice, err := s.fitting(place, o)
	if err != nil {
		return err
	}
	// A run is a folder with everything that comes of the training, and the text that it learns
	// from: tokens, most of them to train on and some to see whether the model learns or memorises.
	// One that is resumed has settings already.
	r, err := openRun(place, &s, o)
	if err != nil {
		return err
	}
	defer r.close()

	// Every graph that is made of the model has these parameters: one trains them, one evaluates,
	// one writes text.
	parameters, err := place.NewParameters(s.Seed)
	if err != nil {
		return err
	}
	writer, err := newAuthor(s, o, parameters, r.text.tokenizer)
	if err != nil {
		return err
	}

	// Ctrl-C ends the training, after a checkpoint; a second one ends the program. Up to here there
	// is nothing to lose.
	ctx, stop := untilSignalled(ctx)
	defer stop()

	// The loop ties it together: it takes steps, evaluates, and writes checkpoints, from which a
	// resumed run goes on.
	loop, err := train.NewLoop(train.LoopConfig{
		Place: place, Memory: o.memory,
		Model: s.model(r.text.tokenizer.Size()), Parameters: parameters,
		Data:      r.text.training,
		Optimizer: s.optimizer(),
		Options: train.Options{
			Schedule: s.schedule(), Groups: s.groups(),
			ClipNorm: s.Clip, Accumulation: s.Accumulation, LossScaling: s.lossScaling(),
		},
		Steps: s.Steps,
		Evaluations: train.Evaluations{
			Every: s.EvalEvery, Batches: s.EvalBatches, Data: r.text.evaluated, Validation: r.text.validation,
		},
		Checkpoints: r.checkpoints, CheckpointEvery: s.CheckpointEvery, Settings: s, GoBack: s.goBack(),
		Hooks: r.hooks(s, o, parameters, writer.glimpse(ctx)), // they show how it goes
	})
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := r.resume(loop, o); err != nil {
		return err
	}
	r.announce(choice, s, loop)
	end, err := loop.Run(ctx)
	return r.conclude(ctx, end, err, writer)
}

// model is the GPT and its loss.
func (s settings) model(vocab int) train.Model {
	return func(scope *nn.Scope, in train.Inputs) train.Outputs {
		if err := ops.ModeOf(scope.Graph()).AllowPrecision(s.precision()); err != nil {
			return train.Outputs{Loss: scope.Fail(err)}
		}
		return train.Outputs{Loss: s.gpt(scope, vocab).Loss(in.Get("tokens"), in.Get("targets"))}
	}
}
