package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/watch"
	"gorgonia.org/tensor"
)

// settings is what a run is made from. Checkpoints hold the exported ones, so that -resume needs no other flags.
type settings struct {
	Model, Data           string
	Rank                  int
	Alpha, Dropout        float64
	Targets               string
	Steps, Batch, Context int
	Epochs, Rate          float64
	EvalEvery             int
	Seed                  uint64
	Merge                 bool
	Compute               string

	out, sample, device string
	resume              bool
}

// computeTypes are the types by their names.
var computeTypes = map[string]tensor.Dtype{"float32": tensor.Float32, "bfloat16": ops.BFloat16}

func parse(args []string, screen io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("finetune", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.Model, "model", "", "the model's folder, or hub:NAME or hub:NAME@REVISION")
	f.StringVar(&s.Data, "data", "", "a text, or a .jsonl file of conversations, questions and answers, or texts")
	f.StringVar(&s.out, "out", "finetuned", "the folder that everything goes to")
	f.BoolVar(&s.resume, "resume", false, "go on with the run in -out, with its settings")
	f.IntVar(&s.Rank, "rank", 8, "of the changes to the model's matrices; 0 trains all weights")
	f.Float64Var(&s.Alpha, "alpha", 16, "the changes count alpha/rank times")
	f.Float64Var(&s.Dropout, "dropout", 0.05, "of what goes into the changes, while they are trained")
	f.StringVar(&s.Targets, "targets", "", "matrices to change, such as q_proj,v_proj; all if empty")
	f.Float64Var(&s.Epochs, "epochs", 3, "how often the model sees each document")
	f.IntVar(&s.Steps, "steps", 0, "how many steps to train, in place of -epochs")
	f.IntVar(&s.Batch, "batch", 2, "rows of a step")
	f.IntVar(&s.Context, "context", 512, "tokens of a row; longer documents are cut")
	f.Float64Var(&s.Rate, "rate", 0, "peak of the learning rate; 0 means 2e-4, or 2e-5 with -rank 0")
	f.IntVar(&s.EvalEvery, "eval-every", 50, "steps between evaluations, and between checkpoints")
	f.Uint64Var(&s.Seed, "seed", 1, "of the order of documents and all else that is random")
	f.BoolVar(&s.Merge, "merge", false, "also save the model with the changes in its weights")
	f.StringVar(&s.sample, "sample", "Hello! Who are you?", "what the trained model is to answer, or continue; empty for nothing")
	f.StringVar(&s.device, "device", "auto", "auto, cpu or cuda")
	f.StringVar(&s.Compute, "compute", "", "type of activations: float32 or bfloat16; empty: bfloat16 on a GPU, float32 on a CPU")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(screen, "finetune goes on training a published model, and lets it write.\n\n")
		f.SetOutput(screen)
		f.PrintDefaults()
		return s, err
	case err != nil:
		return s, fmt.Errorf("%w (-help lists the flags)", err)
	}
	if s.Rate == 0 {
		if s.Rate = 2e-4; s.Rank == 0 {
			s.Rate = 2e-5
		}
	}
	switch {
	case f.NArg() > 0:
		return s, fmt.Errorf("%q is not a flag", f.Arg(0))
	case s.resume:
		var others []string
		f.Visit(func(given *flag.Flag) {
			if name := given.Name; name != "resume" && name != "out" && name != "sample" && name != "device" {
				others = append(others, "-"+name)
			}
		})
		if len(others) > 0 {
			return s, fmt.Errorf("%s is given with -resume, which goes on with the settings of the run", strings.Join(others, ", "))
		}
		return s, nil
	case s.Model == "" || s.Data == "":
		return s, errors.New("-model and -data are needed")
	case computeTypes[s.Compute] == (tensor.Dtype{}) && s.Compute != "":
		return s, fmt.Errorf("-compute is %q, it needs to be float32 or bfloat16", s.Compute)
	case s.Rank < 0 || s.Steps < 0 || s.Batch < 1 || s.Context < 2 || s.EvalEvery < 1 || !(s.Epochs > 0):
		return s, errors.New("-rank and -steps cannot be negative, -batch, -eval-every and -epochs need to be positive, -context at least 2")
	}
	if info, err := os.Stat(filepath.Join(s.out, "checkpoints")); err == nil && info.IsDir() {
		return s, fmt.Errorf("-out %s holds a run already: -resume goes on with it, another -out begins a new one", s.out)
	}
	return s, s.absolute()
}

// absolute makes the names of files independent of the folder that the run is resumed from.
func (s *settings) absolute() (err error) {
	if s.Data, err = filepath.Abs(s.Data); err == nil && !strings.HasPrefix(s.Model, "hub:") {
		s.Model, err = filepath.Abs(s.Model)
	}
	return err
}

// readBack takes the settings of the run that is resumed.
func (s *settings) readBack() error {
	folder, err := checkpoint.View(filepath.Join(s.out, "checkpoints"))
	if err != nil {
		return fmt.Errorf("%s holds no run: %w", s.out, err)
	}
	c, _, err := folder.Latest()
	if err != nil {
		return fmt.Errorf("%s: %w", s.out, err)
	}
	return train.ReadSettings(c, s)
}

// downloads shows how much of each file has come.
func downloads(status *watch.Status) func(file string, done, total int64) {
	return func(file string, done, total int64) {
		line := fmt.Sprintf("%s: %.1f of %.1f MB", file, float64(done)/1e6, float64(total)/1e6)
		if done < total {
			status.Show(line)
		} else {
			status.Done(line)
		}
	}
}
