package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/distributed"
	"github.com/stheno-ml/stheno/train/watch/page"
)

// options are what to do, and how to write text. They do not belong to a run.
type options struct {
	out         string
	resume      bool
	best        bool // of the run that is resumed
	newMasks    bool
	sample      bool // prompt was given
	prompt      string
	length      int
	temperature float64
	topK        int
	topP        float64
	noRepeat    int    // tokens
	weights     string // what they are kept in while writing; empty for float32
	export      string // the folder that a model is written to; empty for none
	yes         bool   // to a training of days
	place       train.PlaceConfig
	page        page.Address    // where a browser sees the run; empty for nowhere
	memory      train.Bytes     // of a step, 0 for no limit
	auto        bool            // the preset is chosen by the device
	given       map[string]bool // the flags that were
	explicit    func(*settings) // repeats on other settings what flags said
}

// groups are the flags as help shows them.
var groups = []cli.Group{
	{Title: "where", Flags: []string{"data", "out", "resume", "best", "new-masks", "export"}},
	{Title: "text", Flags: []string{"sample", "length", "temperature", "top-k", "top-p", "no-repeat", "weights"}},
	{Title: "model", Flags: []string{"preset", "recipe", "layers", "heads", "dim", "context", "dropout", "compute"}},
	{Title: "tokens", Flags: []string{"bpe", "vocab", "merges"}},
	{Title: "training", Flags: []string{
		"steps", "batch", "accumulation", "rate", "min-rate", "warmup", "decay-steps", "beta2", "decay", "clip", "go-back", "seed", "yes",
	}},
	{Title: "looking", Flags: []string{"serve", "eval-every", "eval-batches", "checkpoint-every"}},
	{Title: "machines", Flags: []string{"device", "gpus", "share", "shard", "shard-ranks", "lost", "memory"}},
}

// uses are examples for help.
var uses = []string{
	"go run ./examples/transformer                             a minute over Go's own source",
	"go run ./examples/transformer -data mytext.txt            a text of one's own",
	"go run ./examples/transformer -serve                      seen in a browser",
	"go run ./examples/transformer -sample 'func main'         text by the newest run",
	"go run ./examples/transformer -resume -steps 2300         more steps for the newest run",
	"go run ./examples/transformer -export mygpt               the newest run for Python's transformers",
}

// otherNames are names of flags in other programs.
var otherNames = map[string]string{
	"lr": "rate", "learning-rate": "rate", "max-lr": "rate", "min-lr": "min-rate", "epochs": "steps", "max-iters": "steps",
	"iterations": "steps", "batch-size": "batch", "bs": "batch", "n-layer": "layers", "n-layers": "layers", "depth": "layers",
	"n-head": "heads", "n-heads": "heads", "n-embd": "dim", "d-model": "dim", "hidden": "dim", "width": "dim", "block-size": "context",
	"seq-len": "context", "ctx": "context", "file": "data", "input": "data", "text": "data", "dataset": "data", "corpus": "data",
	"prompt": "sample", "generate": "sample", "continue": "resume", "output": "out", "dir": "out", "folder": "out", "wd": "decay",
	"weight-decay": "decay", "grad-clip": "clip", "grad-accum": "accumulation", "temp": "temperature", "tokens": "length",
	"max-tokens": "length", "dtype": "compute", "precision": "compute", "cuda": "device", "gpu": "device", "vocab-size": "bpe",
	"save": "export", "save-pretrained": "export", "warmup-steps": "warmup", "model": "preset", "size": "preset", "random-seed": "seed", "n": "length", "force": "yes", "y": "yes",
}

// speaking are the flags that go with -sample; the others belong to training.
var speaking = []string{"sample", "out", "length", "temperature", "top-k", "top-p", "no-repeat", "weights", "seed", "device"}

// parse reads the flags. Asked for help it writes that, with the defaults of the preset that is
// named.
func parse(args []string, help io.Writer) (settings, options, error) {
	preset := presetOf(args)
	var o options
	if o.auto = preset == auto; o.auto {
		preset = onCPU
	}
	start, known := presets[preset]
	s := start.withDefaults()
	flags := flag.NewFlagSet("transformer", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.String("preset", auto, "sizes to begin with: "+presetNames()+"; auto is "+onGPU+" where there is a GPU, and "+onCPU+" elsewhere")
	flags.StringVar(&o.out, "out", "", "folder for checkpoints, logs and curve (default: a new one in runs; for -resume, -sample and -export the newest there)")
	flags.BoolVar(&o.resume, "resume", false, "go on from the last checkpoint in -out")
	flags.BoolVar(&o.best, "best", false, "with -resume: go on from the best checkpoint in place of the last")
	flags.BoolVar(&o.newMasks, "new-masks", false, "with -resume: go on though an older program drew other dropout masks")
	flags.StringVar(&o.prompt, "sample", "", "write text that begins with this `prompt`, by the best checkpoint in -out, instead of training")
	flags.IntVar(&o.length, "length", 500, "tokens of text to write")
	flags.Float64Var(&o.temperature, "temperature", 0.7, "of the text: 0 takes the likeliest token always; 0.9 by default where a model has 20 million parameters")
	flags.IntVar(&o.topK, "top-k", 0, "take one of the k likeliest tokens, 0 for any")
	flags.Float64Var(&o.topP, "top-p", 0.9, "take one of the likeliest tokens that together have this probability; 0.95 by default where a model has 20 million parameters")
	flags.IntVar(&o.noRepeat, "no-repeat", 0, "write no sequence of so many tokens twice, 0 for any; 12 by default where a model has 20 million parameters")
	flags.StringVar(&o.weights, "weights", "", "with -sample: keep weights in bfloat16 or float16, which a large model writes twice as fast with")
	flags.StringVar(&o.export, "export", "", "write the model of the best checkpoint in -out, and its tokenizer, to this `folder` for Python's transformers, instead of training")
	flags.BoolVar(&o.yes, "yes", false, "train on a CPU even if it takes days")
	flags.Var(&o.page, "serve", "show the run in a browser of this machine, at "+string(page.DefaultAddress)+", or at a `host:port` by -serve=host:port")
	o.place.Flags(flags)
	o.place.LostFlag(flags)
	flags.Var(&o.memory, "memory", "`bytes` that a step may take on each device, such as 24G: parts of the model are computed again where it needs more (default: no limit)")
	register(flags, &s)
	err := cli.Parse(flags, args, otherNames, "data")
	switch {
	case errors.Is(err, flag.ErrHelp):
		about := fmt.Sprintf("transformer trains a small GPT on text, or lets one write. Defaults below are those of -preset %s.\n", preset)
		cli.Help(help, flags, about, uses, groups)
		return s, o, err
	case err != nil:
		return s, o, err
	case !known:
		return s, o, fmt.Errorf("-preset is %q, it needs to be one of %s", preset, presetNames())
	}
	o.given = map[string]bool{}
	flags.Visit(func(f *flag.Flag) { o.given[f.Name] = true })
	o.sample = o.given["sample"]
	o.explicit = func(s *settings) {
		again := flag.NewFlagSet("", flag.ContinueOnError)
		register(again, s)
		flags.Visit(func(f *flag.Flag) {
			if again.Lookup(f.Name) != nil {
				again.Set(f.Name, f.Value.String()) // parsed before, so it cannot fail
			}
		})
	}
	o.place.SharedFiles = o.place.Shard != train.ShardNothing // the folder of a run
	if err := o.validate(o.given); err != nil || o.resume || o.sample || o.export != "" {
		return s, o, err // a run that exists has settings, to be checked when they are known
	}
	s.complete(o.given)
	return s, o, s.validate()
}

func presetNames() string { return strings.Join(append(slices.Sorted(maps.Keys(presets)), auto), ", ") }

// presetOf finds the preset before all else, as it is what the other flags' defaults come from.
func presetOf(args []string) string {
	for i, arg := range args {
		name, value, inOne := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		switch {
		case name != "preset" || !strings.HasPrefix(arg, "-"):
		case inOne:
			return value
		case i+1 < len(args):
			return args[i+1]
		}
	}
	return auto
}

// register makes a flag of each setting, which is its default.
func register(flags *flag.FlagSet, s *settings) {
	flags.StringVar(&s.Data, "data", s.Data, "text `file` to learn from, tokens as a .bin file, or a folder of those that examples/prepare wrote (empty: Go's own source)")
	flags.StringVar(&s.Vocab, "vocab", s.Vocab, "GPT-2's vocab.json `file`, for its tokens instead of characters")
	flags.StringVar(&s.Merges, "merges", s.Merges, "GPT-2's merges.txt `file`")
	flags.IntVar(&s.BPE, "bpe", s.BPE, "learn a byte-pair encoding of so many tokens from the text, instead of characters")
	flags.IntVar(&s.Layers, "layers", s.Layers, "blocks of the model")
	flags.IntVar(&s.Heads, "heads", s.Heads, "attention heads")
	flags.IntVar(&s.Dim, "dim", s.Dim, "channels, a multiple of heads")
	flags.IntVar(&s.Context, "context", s.Context, "how many tokens the model sees")
	flags.Float64Var(&s.Dropout, "dropout", s.Dropout, "probability to drop an activation while training")
	flags.StringVar(&s.Compute, "compute", s.Compute, "type of activations: float32 (or empty), tf32, which is float32 whose products may be less exact, bfloat16, float16 or fp8, which is bfloat16 whose blocks multiply in 8 bits, beside float32 weights")
	flags.Var(&s.Recipe, "recipe", "`changes` of GPT-2's model and training, with commas between them, as recipe.md has them, or speedrun for all")
	flags.IntVar(&s.Batch, "batch", s.Batch, "sequences of a batch")
	flags.IntVar(&s.Accumulation, "accumulation", s.Accumulation, "batches of a step")
	flags.IntVar(&s.Steps, "steps", s.Steps, "steps of the training")
	flags.Float64Var(&s.Rate, "rate", s.Rate, "highest learning rate")
	flags.Float64Var(&s.MinRate, "min-rate", s.MinRate, "learning rate at the end")
	flags.IntVar(&s.Warmup, "warmup", s.Warmup, "steps until the highest learning rate")
	flags.IntVar(&s.DecaySteps, "decay-steps", s.DecaySteps, "steps until the lowest learning rate, 0 for all steps")
	flags.Float64Var(&s.Beta2, "beta2", s.Beta2, "AdamW's second beta")
	flags.Float64Var(&s.Decay, "decay", s.Decay, "weight decay of matrices")
	flags.Float64Var(&s.Clip, "clip", s.Clip, "limit of the gradient's norm, 0 for none")
	flags.IntVar(&s.GoBack, "go-back", s.GoBack, "when the loss spikes go back to a checkpoint and leave the batches out, at most so many times, 0 for never")
	flags.IntVar(&s.EvalEvery, "eval-every", s.EvalEvery, "steps between evaluations")
	flags.IntVar(&s.EvalBatches, "eval-batches", s.EvalBatches, "batches of an evaluation")
	flags.IntVar(&s.CheckpointEvery, "checkpoint-every", s.CheckpointEvery, "steps between checkpoints, 0 for one at the end")
	flags.Uint64Var(&s.Seed, "seed", s.Seed, "of weights, batches and text")
}

func (o options) validate(given map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if o.export != "" && name != "export" && name != "out" {
			return fmt.Errorf("-%s is given with -export, which goes with -out alone", name)
		}
		if o.sample && o.export == "" && !o.resume && !slices.Contains(speaking, name) {
			return fmt.Errorf("-%s belongs to training, -sample goes with -%s", name, strings.Join(speaking[1:], ", -"))
		}
	}
	switch {
	case given["export"] && o.export == "":
		return errors.New("-export is empty, it needs to be a folder")
	case o.resume && given["preset"]:
		return errors.New("-preset is given with -resume, which goes on with the sizes of the run")
	case o.best && !o.resume:
		return errors.New("-best is given without -resume, it says from which checkpoint to go on")
	case o.newMasks && !o.resume:
		return errors.New("-new-masks is given without -resume, it lets an older run go on with other dropout masks")
	case o.weights != "" && !o.sample:
		return errors.New("-weights is given without -sample, weights that are trained are float32")
	case o.weights != "" && o.weights != "bfloat16" && o.weights != "float16":
		return fmt.Errorf("-weights is %q, it needs to be bfloat16 or float16", o.weights)
	case o.length < 1:
		return fmt.Errorf("-length is %d, it needs to be at least 1", o.length)
	case !(o.temperature >= 0) || math.IsInf(o.temperature, 0):
		return fmt.Errorf("-temperature is %v, it needs to be positive, or 0 for the likeliest token always", o.temperature)
	case o.topK < 0:
		return fmt.Errorf("-top-k is %d, it needs to be positive, or 0 for any token", o.topK)
	case o.noRepeat < 0:
		return fmt.Errorf("-no-repeat is %d, it needs to be positive, or 0 for texts that may repeat themselves", o.noRepeat)
	case !(o.topP > 0 && o.topP <= 1):
		return fmt.Errorf("-top-p is %v, it needs to be more than 0 and at most 1", o.topP)
	case o.place.Lost == distributed.LostReplaced && o.out == "" && !o.resume:
		return errors.New("-lost replace is given without -out, by which a process that comes later finds the run")
	case o.resume && o.sample:
		return errors.New("-resume and -sample are both given, it can do one at a time")
	}
	return o.place.Validate()
}
