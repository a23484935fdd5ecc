package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/watch"
	"github.com/stheno-ml/stheno/train/watch/page"
	"gorgonia.org/tensor"
)

// settings is what a run is made from. Checkpoints hold the exported ones, so that -resume needs no
// other flags.
type settings struct {
	Model, Data           string
	Rank                  int
	Alpha, Dropout        float64
	Targets               string
	DoRA                  bool
	Steps, Batch, Context int
	Epochs, Rate          float64
	EvalEvery             int
	Seed                  uint64
	Merge                 bool
	Compute, Weights      string
	Samples               prompts

	out, device string
	page        page.Address // where a browser sees the run; empty for nowhere
	memory      train.Bytes
	resume      bool
	given       map[string]bool // flags
}

// prompts are what the model is to answer or continue: nil for some of the data that it is not
// trained on, one that is empty for none.
type prompts []string

func (p *prompts) String() string { return strings.Join(*p, ", ") }

func (p *prompts) Set(prompt string) error {
	*p = append(*p, prompt)
	return nil
}

// groups are the flags as help shows them.
var groups = []cli.Group{
	{Title: "what", Flags: []string{"model", "data", "out", "resume", "sample"}},
	{Title: "what is trained", Flags: []string{"rank", "alpha", "dropout", "targets", "dora", "merge"}},
	{Title: "training", Flags: []string{"epochs", "steps", "batch", "context", "rate", "seed"}},
	{Title: "looking", Flags: []string{"serve", "eval-every"}},
	{Title: "machine", Flags: []string{"device", "memory", "compute", "weights"}},
}

// uses are examples for help.
var uses = []string{
	"go run ./examples/finetune -model hub:HuggingFaceTB/SmolLM2-135M-Instruct -data chats.jsonl",
	"go run ./examples/finetune -model gpt2 -data notes.txt -sample 'The weather'",
	"go run ./examples/finetune -model gpt2 -data notes.txt -rank 0 -out whole",
	"go run ./examples/finetune -model llama -data chats.jsonl -weights nf4",
	"go run ./examples/finetune -resume",
}

// otherNames are names of flags in other programs.
var otherNames = map[string]string{
	"lr": "rate", "learning-rate": "rate", "batch-size": "batch", "per-device-train-batch-size": "batch", "max-steps": "steps",
	"num-train-epochs": "epochs", "max-length": "context", "max-seq-length": "context", "seq-len": "context", "lora-r": "rank", "r": "rank",
	"lora-alpha": "alpha", "lora-dropout": "dropout", "target-modules": "targets", "output-dir": "out", "output": "out",
	"model-name-or-path": "model", "model-name": "model", "dataset": "data", "train-file": "data", "file": "data", "prompt": "sample",
	"dtype": "compute", "gpu": "device", "continue": "resume", "quantization": "weights", "load-in-4bit": "weights", "load-in-8bit": "weights",
}

// computeTypes are the types by their names.
var computeTypes = map[string]tensor.Dtype{"float32": tensor.Float32, "bfloat16": ops.BFloat16}

// weightTypes are the types that weights can be kept in, by their names.
var weightTypes = map[string]tensor.Dtype{
	"float32": tensor.Float32, "bfloat16": ops.BFloat16, "float16": ops.Float16, "int8": ops.Int8, "int4": ops.Int4, "nf4": ops.NF4,
}

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
	f.BoolVar(&s.DoRA, "dora", false, "train directions and lengths of columns apart (DoRA), which takes longer the fewer tokens a step has")
	f.Float64Var(&s.Epochs, "epochs", 3, "how often the model sees each document")
	f.IntVar(&s.Steps, "steps", 0, "how many steps to train, in place of -epochs")
	f.IntVar(&s.Batch, "batch", 2, "rows of a step")
	f.IntVar(&s.Context, "context", 512, "tokens of a row; longer documents are cut")
	f.Float64Var(&s.Rate, "rate", 0, "peak of the learning rate; 0 means 2e-4, or 2e-5 with -rank 0")
	f.IntVar(&s.EvalEvery, "eval-every", 50, "steps between evaluations, and between checkpoints")
	f.Uint64Var(&s.Seed, "seed", 1, "of the order of documents and all else that is random")
	f.BoolVar(&s.Merge, "merge", false, "also save the model with the changes in its weights")
	f.Var(&s.Samples, "sample", "a `prompt` that the model is to answer, or continue, before the training and after it; may be given several times; "+
		"empty for none (default: three of the documents that it is not trained on)")
	f.Var(&s.page, "serve", "show the run in a browser of this machine, at "+string(page.DefaultAddress)+", or at a `host:port` by -serve=host:port")
	f.StringVar(&s.device, "device", "auto", "auto, cpu or cuda")
	f.Var(&s.memory, "memory", "`bytes` that a step may take, such as 24G: parts of the model are computed again where it needs more (default: no limit)")
	f.StringVar(&s.Compute, "compute", "", "type of activations: float32 or bfloat16; empty: bfloat16 on a GPU, float32 on a CPU")
	f.StringVar(&s.Weights, "weights", "", "what weights beside the changes are kept in: "+strings.Join(slices.Sorted(maps.Keys(weightTypes)), ", ")+
		"; nf4 is QLoRA's; empty: as -compute on a GPU, float32 on a CPU")
	f.Usage = func() {}
	if err := cli.Parse(f, args, otherNames, "data"); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			cli.Help(screen, f, "finetune goes on training a published model, and lets it write.\n", uses, groups)
		}
		return s, err
	}
	s.given = map[string]bool{}
	f.Visit(func(given *flag.Flag) { s.given[given.Name] = true })
	if s.Rate == 0 {
		if s.Rate = 2e-4; s.Rank == 0 {
			s.Rate = 2e-5
		}
	}
	switch {
	case s.resume:
		var others []string
		f.Visit(func(given *flag.Flag) {
			if !slices.Contains([]string{"resume", "out", "sample", "device", "serve", "memory"}, given.Name) {
				others = append(others, "-"+given.Name)
			}
		})
		if len(others) > 0 {
			verb := "is"
			if len(others) > 1 {
				verb = "are"
			}
			return s, fmt.Errorf("%s %s given with -resume, which goes on with the settings of the run", strings.Join(others, ", "), verb)
		}
		return s, nil
	case s.Model == "":
		return s, errors.New("-model is needed: a model's folder, or hub:NAME, such as hub:HuggingFaceTB/SmolLM2-135M-Instruct")
	case s.Data == "":
		return s, errors.New("-data is needed: a text, or a .jsonl file with a conversation, a question and its answer, or a text on each line")
	}
	if s.given["steps"] && s.given["epochs"] {
		return s, errors.New("-steps is given with -epochs, each says how long to train: it can be one of them")
	}
	if err := cmp.Or(s.checkTypes(), s.checkNumbers()); err != nil {
		return s, err
	}
	if info, err := os.Stat(s.out); err == nil && !info.IsDir() {
		return s, fmt.Errorf("-out %s is a file, it needs to be a folder", s.out)
	}
	if s.hasCheckpoints() {
		return s, fmt.Errorf("-out %s holds a run already: -resume goes on with it, another -out begins a new one", s.out)
	}
	return s, s.absolute()
}

// keepsLess reports whether weights are asked to be kept in less than float32.
func (s settings) keepsLess() bool { return s.Weights != "" && s.Weights != "float32" }

// openCheckpoints opens the folders of checkpoints in -out. Nothing stays of a new run that never
// started once they are closed.
func (s settings) openCheckpoints() (folders *checkpoint.Folder, closeFolders func(started bool), err error) {
	_, err = os.Stat(s.out)
	isNew := errors.Is(err, fs.ErrNotExist)
	if folders, err = checkpoint.Open(filepath.Join(s.out, "checkpoints"), 2); err != nil {
		return nil, nil, fmt.Errorf("-out: %w", err)
	}
	return folders, func(started bool) {
		folders.Close()
		if isNew && !started {
			os.RemoveAll(s.out)
		}
	}, nil
}

// hasCheckpoints reports whether a run has begun in -out.
func (s settings) hasCheckpoints() bool {
	entries, err := os.ReadDir(filepath.Join(s.out, "checkpoints"))
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "step-") || strings.HasPrefix(e.Name(), "best-")
	})
}

// checkTypes refuses types that are none, and those in which a training of this kind cannot keep
// weights.
func (s settings) checkTypes() error {
	switch {
	case computeTypes[s.Compute] == (tensor.Dtype{}) && s.Compute != "":
		return fmt.Errorf("-compute is %q, it needs to be float32 or bfloat16", s.Compute)
	case weightTypes[s.Weights] == (tensor.Dtype{}) && s.Weights != "":
		return fmt.Errorf("-weights is %q, it needs to be one of %s", s.Weights, strings.Join(slices.Sorted(maps.Keys(weightTypes)), ", "))
	case s.keepsLess() && s.Rank == 0:
		return fmt.Errorf("-rank 0 trains all weights, they cannot be kept in %s", s.Weights)
	case s.keepsLess() && s.DoRA:
		return fmt.Errorf("-dora needs whole weights, they cannot be kept in %s", s.Weights)
	case s.keepsLess() && s.Merge:
		return fmt.Errorf("-merge adds the changes to whole weights, they cannot be kept in %s", s.Weights)
	case s.Merge && s.Rank == 0:
		return errors.New("-merge adds changes to the weights, of which -rank 0 makes none: it trains the weights, which are saved as a model")
	case s.DoRA && s.Rank == 0:
		return errors.New("-dora changes matrices by a low rank, it needs a -rank of at least 1")
	}
	return nil
}

// checkNumbers refuses numbers that no run can have.
func (s settings) checkNumbers() error {
	for _, n := range []struct {
		flag         string
		value, least int
	}{{"rank", s.Rank, 0}, {"steps", s.Steps, 0}, {"batch", s.Batch, 1}, {"context", s.Context, 2}, {"eval-every", s.EvalEvery, 1}} {
		if n.value < n.least {
			return fmt.Errorf("-%s is %d, it needs to be at least %d", n.flag, n.value, n.least)
		}
	}
	if s.Batch > math.MaxInt32/s.Context {
		return fmt.Errorf("-batch is %d and -context is %d, their product needs to be at most %d", s.Batch, s.Context, math.MaxInt32)
	}
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	switch {
	case !(s.Epochs > 0) || !finite(s.Epochs):
		return fmt.Errorf("-epochs is %v, it needs to be positive", s.Epochs)
	case !(s.Rate > 0) || !finite(s.Rate):
		return fmt.Errorf("-rate is %v, it needs to be positive, or 0 for 2e-4, or 2e-5 with -rank 0", s.Rate)
	case !(s.Alpha > 0) || !finite(s.Alpha):
		return fmt.Errorf("-alpha is %v, it needs to be positive", s.Alpha)
	case !(s.Dropout >= 0 && s.Dropout < 1):
		return fmt.Errorf("-dropout is %v, it needs to be at least 0 and less than 1", s.Dropout)
	}
	return nil
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
	if errors.Is(err, checkpoint.ErrNone) { // a run that ended early has no other
		c, _, err = folder.Best()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.out, err)
	}
	samples := s.Samples
	s.Samples = nil
	if err = train.ReadSettings(c, s); err == nil && s.Model == "" {
		err = fmt.Errorf("-out %s holds a run of another program: it names no model", s.out)
	}
	if s.given["sample"] {
		s.Samples = samples
	}
	return err
}

// fitContext makes sure that the model was made for rows of -context tokens. A default gives way.
func (s *settings) fitContext(folder string) error {
	content, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err != nil {
		return err
	}
	var config struct {
		Longest int `json:"max_position_embeddings"`
		GPT2    int `json:"n_positions"`
	}
	if json.Unmarshal(content, &config) != nil {
		return nil // what is wrong with it, loading says
	}
	longest := max(config.Longest, config.GPT2)
	if longest < 2 || s.Context <= longest {
		return nil
	}
	if s.given["context"] {
		return fmt.Errorf("-context is %d, the model in %s was made for at most %d tokens", s.Context, folder, longest)
	}
	s.Context = longest
	return nil
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
