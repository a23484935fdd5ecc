// Transformer trains a small GPT on text, shows how it learns, and lets it write. Without flags it learns from Go's own
// source for about a minute and then writes something like Go:
//
//	go run ./examples/transformer
//
// It is also the tutorial: this file is what a training program needs, from top to bottom. settings.go has the flags,
// corpus.go finds the text, author.go writes, run.go is the folder that results go to.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
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
	// Ctrl-C ends the training after its step and a checkpoint; a second one ends the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	do := learn
	if o.sample {
		do = speak
	}
	if err := do(ctx, s, o); err != nil {
		fmt.Fprintln(os.Stderr, "transformer:", err)
		os.Exit(1)
	}
}

// learn trains a model and lets it write.
func learn(ctx context.Context, s settings, o options) error {
	// The run is a folder with everything that comes of the training. A resumed run has settings already.
	r, err := openRun(&s, o)
	if err != nil {
		return err
	}

	defer r.checkpoints.Close()

	// Text becomes tokens, most of them to train on and some to see whether the model learns or memorises.
	corpus, err := loadCorpus(&s)
	if err != nil {
		return err
	}
	defer corpus.tokens.Close()
	if err := r.setTokenizer(corpus.tokenizer); err != nil {
		return err
	}
	training, validation, err := corpus.tokens.Split(0.9)
	if err != nil {
		return err
	}
	batches := func(tokens *data.Tokens, seed uint64) data.Batches {
		b, batchErr := data.Random(tokens, s.Batch, s.Context, s.Seed+seed)
		if batchErr != nil && err == nil {
			err = fmt.Errorf("%s is too short: %w", corpus.origin, batchErr)
		}
		return b
	}
	trainingBatches, evalBatches, validationBatches := batches(training, 0), batches(training, 1), batches(validation, 2)
	if err != nil {
		return err
	}

	// Every graph that is made of the model has these parameters: one trains them, one evaluates, one writes text.
	parameters := nn.NewParameters(s.Seed)
	vocab := corpus.tokenizer.Size()
	model := func(g *gorgonia.ExprGraph, tokens, targets *gorgonia.Node) (*gorgonia.Node, gorgonia.Nodes, error) {
		gpt, err := nn.NewGPT(g, s.gpt(vocab, parameters))
		if err != nil {
			return nil, nil, err
		}
		loss, err := gpt.Loss(tokens, targets)
		return loss, gpt.Parameters(), err
	}

	// The author writes by the parameters as they are at the moment.
	author, err := newAuthor(s, o, parameters, corpus.tokenizer)
	if err != nil {
		return err
	}
	glimpse := func(train.Evaluation) (string, error) { return author.glimpse(ctx) }

	// The loop ties it together.
	loop, err := train.NewLoop(train.LoopConfig{
		Model:      model,
		Data:       trainingBatches,
		EvalData:   evalBatches,
		Validation: validationBatches,
		Optimizer: func(parameters gorgonia.Nodes) (*train.Optimizer, error) {
			return train.NewAdamW(parameters, train.AdamWConfig{
				Beta2: s.Beta2, WeightDecay: s.Decay,
				Options: train.Options{
					Schedule: train.WarmupCosine{Peak: s.Rate, Min: s.MinRate, Warmup: s.Warmup, Steps: s.decaySteps()},
					Groups:   []train.Group{{Match: train.Vectors, NoDecay: true}},
					ClipNorm: s.Clip, Accumulation: s.Accumulation,
				},
			})
		},
		Steps: s.Steps, EvalEvery: s.EvalEvery, EvalBatches: s.EvalBatches,
		Checkpoints: r.checkpoints, CheckpointEvery: s.CheckpointEvery, Settings: s,
		Hooks: []train.Hook{
			watch.Progress(os.Stderr, glimpse),
			watch.OpenJSONLines(r.file("log.jsonl")),
			watch.TensorBoard(r.file("tensorboard")),
		},
	})
	if err != nil {
		return err
	}
	defer loop.Close()
	if o.resume {
		refused, err := loop.Resume()
		for _, damaged := range refused {
			fmt.Println("passed over:", damaged)
		}
		if err != nil {
			return err
		}
	}
	fmt.Printf("A GPT of %d layers × %d channels, %.2f million parameters, learns from %s: %.2f million tokens of %d kinds.\n",
		s.Layers, s.Dim, float64(nn.Count(loop.Parameters()))/1e6, corpus.origin, float64(corpus.tokens.Len())/1e6, vocab)
	fmt.Printf("Everything goes to %s.\n", r.folder)
	end, err := loop.Run(ctx)
	if err := errors.Join(err, r.drawCurve()); err != nil {
		return err
	}
	if end.Cancelled {
		fmt.Printf("Stopped after step %d. -resume -out %s goes on.\n", end.Done, r.folder)
		return nil
	}

	// What has it learnt?
	fmt.Println()
	text, err := os.Create(r.file("sample.txt"))
	if err != nil {
		return err
	}
	defer text.Close()
	if err := author.write(ctx, io.MultiWriter(os.Stdout, text)); err != nil {
		return err
	}
	fmt.Printf("\nIn %s: loss.png is the loss curve, sample.txt this text, checkpoints the model.\n", r.folder)
	fmt.Printf("More text: go run ./examples/transformer -out %s -sample PROMPT\n", r.folder)
	return text.Close()
}

// gpt is the shape that nanoGPT has: no biases, and an exact GELU.
func (s settings) gpt(vocab int, parameters *nn.Parameters) nn.GPTConfig {
	return nn.GPTConfig{
		Parameters: parameters, Vocab: vocab, Context: s.Context, Layers: s.Layers, Heads: s.Heads, Dim: s.Dim,
		Dropout: s.Dropout, NoBias: true, Activation: kernels.GELUErf,
	}
}
