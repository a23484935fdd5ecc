package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
)

// What a training is said to take is what the plan of its graph says, for models and batches of
// many shapes.
func TestMemory(t *testing.T) {
	tokens, err := data.FromInts(make([]int, 3000))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"", "-batch 48", "-context 512", "-layers 1", "-layers 16", "-dim 512", "-dim 768 -heads 12 -batch 2", "-heads 32",
		"-accumulation 4", "-dropout 0.1", "-compute bfloat16 -batch 48", "-compute float16", "-recipe speedrun -batch 48", "-bpe 20000",
	} {
		s, _, err := parse(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		batches, err := data.Random(tokens, s.Batch, s.Context, 1)
		if err != nil {
			t.Fatal(err)
		}
		loop, err := train.NewLoop(train.LoopConfig{
			Model: s.model(int(s.vocabulary())), Parameters: nn.NewParameters(1), Memory: 1 << 50, Data: batches, Optimizer: s.optimizer(),
			Options: train.Options{
				Schedule: s.schedule(), Groups: s.groups(), ClipNorm: s.Clip, Accumulation: s.Accumulation, LossScaling: s.lossScaling(),
			},
			Steps: s.Steps, Evaluations: train.Evaluations{Every: 1, Batches: 1, Data: batches},
		})
		if err != nil {
			t.Fatal(err)
		}
		planned, _ := loop.Memory()
		if err := loop.Close(); err != nil {
			t.Fatal(err)
		}
		const beside = 7e5 // the nodes of a block, which the plan does not count
		guess := s.memory(false) - 12*s.parameters() - beside*float64(s.Layers)
		ratio := guess / float64(planned)
		t.Logf("%q: %v are guessed, %v planned: %.2f", args, train.Bytes(guess), planned, ratio)
		if ratio < 0.93 || ratio > 1.07 {
			t.Errorf("%q: %v are guessed, %v are planned", args, train.Bytes(guess), planned)
		}
	}
}

// Settings that the memory cannot hold are an error of one line before anything is taken. It names
// the flag to blame and a value that fits, which does.
func TestTooLargeForMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	before := machineMemory
	defer func() { machineMemory = before }()
	machineMemory = func() (uint64, bool) { return 8 << 30, true }
	for args, want := range map[string]string{
		"-batch 100000000 -context 8":                 "-batch is 100000000, with which the training takes about ",
		"-batch 2000000":                              "-batch is 2000000, with which the training takes about 5.",
		"-batch 20000 -steps 3 -warmup 0":             "-batch is 20000, with which the training takes about ",
		"-context 1000000":                            "-context is 1000000, with which",
		"-dim 1000000":                                "-dim is 1000000, with which",
		"-layers 1000000000000":                       "-layers is 1000000000000, with which the training takes over a million terabytes of memory",
		"-dim 9000000000 -heads 1 -layers 9000000000": "-layers is 9000000000, with which the training takes over a million terabytes",
		"-heads 100000 -dim 100000":                   "-dim is 100000, with which the training takes about ",
		"-preset gpt2 -batch 4000":                    "-batch is 4000, with which",
		"-batch 1000000 -memory 4G -context 4096 ":    "-batch is 1000000",
		"-accumulation 1000000 -batch 100000":         "-batch is 100000, with which",
	} {
		s, o, err := parse(append(strings.Fields(args), "-yes", "-device", "cpu"), io.Discard)
		if err == nil {
			err = start(t.Context(), s, o)
		}
		if err == nil {
			t.Errorf("%s: it begins", args)
			continue
		}
		t.Log(err)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
		_, fits, found := strings.Cut(err.Error(), " of memory, there is 8G here: ")
		if !found || strings.HasPrefix(fits, "a smaller model fits") {
			continue
		}
		again := append(strings.Fields(args), strings.Fields(strings.TrimSuffix(fits, " fits"))...)
		s, o, err = parse(append(again, "-yes"), io.Discard)
		if err == nil {
			err = s.checkMemory(false, o)
		}
		if err != nil {
			t.Errorf("%s: with %s the error is %v", args, fits, err)
		}
	}
}
