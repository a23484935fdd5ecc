package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"gorgonia.org/tensor"
)

// settings is everything that a run is made from. Checkpoints hold it, so that a run can be resumed without flags.
type settings struct {
	Data          string // a text, tokens or a folder of shards, empty for Go source
	Vocab, Merges string // files of GPT-2's tokenizer, empty for characters
	BPE           int    // tokens of one that is learnt from the text, 0 for none

	Layers, Heads, Dim, Context int
	Dropout                     float64
	Compute                     string // empty for float32

	Batch, Accumulation, Steps int
	Rate, MinRate              float64
	Warmup, DecaySteps         int // DecaySteps 0 means Steps
	Beta2, Decay, Clip         float64

	EvalEvery, EvalBatches, CheckpointEvery int
	Seed                                    uint64

	Fingerprint string // of the tokens, once they are known
}

// absolute makes the names of files independent of the folder that the run is resumed from.
func (s *settings) absolute() error {
	for _, path := range []*string{&s.Data, &s.Vocab, &s.Merges} {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

// decaySteps is the step at which the learning rate is lowest.
func (s settings) decaySteps() int {
	if s.DecaySteps > 0 {
		return s.DecaySteps
	}
	return s.Steps
}

// presets are sizes to begin with.
var presets = map[string]settings{
	// some seconds, to see that everything works
	"tiny": {Layers: 2, Heads: 2, Dim: 64, Context: 32, Batch: 8, Steps: 300, Rate: 3e-3, MinRate: 3e-4, Warmup: 20,
		EvalEvery: 100, CheckpointEvery: 100},
	// what nanoGPT trains on a laptop, for about a minute
	"cpu": {Layers: 4, Heads: 4, Dim: 128, Context: 64, Batch: 12, Steps: 1500, Rate: 1e-3, MinRate: 1e-4, Warmup: 100,
		EvalEvery: 250, CheckpointEvery: 250},
	// what nanoGPT trains on a GPU
	"gpu": {Layers: 6, Heads: 6, Dim: 384, Context: 256, Batch: 64, Steps: 5000, Rate: 1e-3, MinRate: 1e-4, Warmup: 100,
		Dropout: 0.2, Compute: "bfloat16", EvalEvery: 250, EvalBatches: 200, CheckpointEvery: 250},
	// GPT-2 in its smallest size
	"gpt2": {Layers: 12, Heads: 12, Dim: 768, Context: 1024, Batch: 12, Accumulation: 40, Steps: 600000, Rate: 6e-4, MinRate: 6e-5,
		Warmup: 2000, Beta2: 0.95, Compute: "bfloat16", EvalEvery: 1000, EvalBatches: 200, CheckpointEvery: 1000},
}

// common is what presets have that do not say otherwise.
var common = settings{Accumulation: 1, Beta2: 0.99, Decay: 0.1, Clip: 1, EvalBatches: 20, Seed: 1337}

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
	weights     string // what they are kept in while writing; empty for float32
	place       train.PlaceConfig
	explicit    func(*settings) // repeats on other settings what flags said
}

// ordinary is the preset of those who name none.
const ordinary = "cpu"

// speaking are the flags that go with -sample; the others belong to training.
var speaking = []string{"sample", "out", "length", "temperature", "top-k", "top-p", "weights", "seed", "device"}

// parse reads the flags. Asked for help it writes that, with the defaults of the preset that is named.
func parse(args []string, help io.Writer) (settings, options, error) {
	preset := presetOf(args)
	start, known := presets[preset]
	s := start.withDefaults()
	var o options
	flags := flag.NewFlagSet("transformer", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.String("preset", ordinary, "sizes to begin with: "+presetNames())
	flags.StringVar(&o.out, "out", "", "folder for checkpoints, logs and curve (default: a new one in runs; for -resume and -sample the newest there)")
	flags.BoolVar(&o.resume, "resume", false, "go on from the last checkpoint in -out")
	flags.BoolVar(&o.best, "best", false, "with -resume: go on from the best checkpoint in place of the last")
	flags.BoolVar(&o.newMasks, "new-masks", false, "with -resume: go on though an older program drew other dropout masks")
	flags.StringVar(&o.prompt, "sample", "", "write text that begins with this `prompt`, by the best checkpoint in -out, instead of training")
	flags.IntVar(&o.length, "length", 500, "tokens of text to write")
	flags.Float64Var(&o.temperature, "temperature", 0.8, "of the text: 0 takes the likeliest token always")
	flags.IntVar(&o.topK, "top-k", 0, "take one of the k likeliest tokens, 0 for any")
	flags.Float64Var(&o.topP, "top-p", 1, "take one of the likeliest tokens that together have this probability")
	flags.StringVar(&o.weights, "weights", "", "with -sample: keep weights in bfloat16 or float16, which a large model writes twice as fast with")
	o.place.Flags(flags)
	register(flags, &s)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(help, "transformer trains a small GPT, or lets one write. Defaults are those of -preset %s.\n\n", preset)
		flags.SetOutput(help)
		flags.PrintDefaults()
		return s, o, err
	case err != nil:
		return s, o, fmt.Errorf("%w (-help lists the flags)", err)
	case flags.NArg() > 0:
		return s, o, fmt.Errorf("argument %q is no flag (-help lists them)", flags.Arg(0))
	case !known:
		return s, o, fmt.Errorf("-preset is %q, it needs to be one of %s", preset, presetNames())
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	o.sample = given["sample"]
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
	if err := o.validate(given); err != nil || o.resume || o.sample {
		return s, o, err // a run that exists has settings, to be checked when they are known
	}
	if !given["warmup"] && s.Warmup >= s.decaySteps() {
		s.Warmup = s.decaySteps() / warmupShare // so that few steps need no second flag
	}
	return s, o, s.validate()
}

// warmupShare is the part of a short training that warms up.
const warmupShare = 10

func presetNames() string { return strings.Join(slices.Sorted(maps.Keys(presets)), ", ") }

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
	return ordinary
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
	flags.StringVar(&s.Compute, "compute", s.Compute, "type of activations: float32 (or empty), tf32, which is float32 whose products may be less exact, bfloat16 or float16, beside float32 weights")
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
	flags.IntVar(&s.EvalEvery, "eval-every", s.EvalEvery, "steps between evaluations")
	flags.IntVar(&s.EvalBatches, "eval-batches", s.EvalBatches, "batches of an evaluation")
	flags.IntVar(&s.CheckpointEvery, "checkpoint-every", s.CheckpointEvery, "steps between checkpoints, 0 for one at the end")
	flags.Uint64Var(&s.Seed, "seed", s.Seed, "of weights, batches and text")
}

// withDefaults fills in what a preset leaves to common.
func (s settings) withDefaults() settings {
	for _, z := range []struct{ value, common *int }{{&s.Accumulation, &common.Accumulation}, {&s.EvalBatches, &common.EvalBatches}} {
		if *z.value == 0 {
			*z.value = *z.common
		}
	}
	if s.Beta2 == 0 {
		s.Beta2 = common.Beta2
	}
	s.Decay, s.Clip, s.Seed = common.Decay, common.Clip, common.Seed
	return s
}

// computeTypes are the types of activations by name.
var computeTypes = map[string]tensor.Dtype{"": tensor.Float32, "float32": tensor.Float32, "tf32": tensor.Float32, "bfloat16": ops.BFloat16, "float16": ops.Float16}

// gpt is the shape that nanoGPT has: no biases, and an exact GELU.
func (s settings) gpt(scope *nn.Scope, vocab int) *nn.LanguageModel {
	return nn.NewGPT(scope.Compute(computeTypes[s.Compute]), nn.GPTConfig{
		Vocab: vocab, Context: s.Context, Layers: s.Layers, Heads: s.Heads, Dim: s.Dim,
		Dropout: s.Dropout, NoBias: true, Activation: kernels.GELUErf,
	})
}

// precision is how exact products of float32 need to be.
func (s settings) precision() kernels.Precision {
	if s.Compute == "tf32" {
		return kernels.PrecisionTF32
	}
	return kernels.PrecisionAuto
}

// lossScaling is for float16, whose range is too small for gradients as they are.
func (s settings) lossScaling() *train.LossScaling {
	if computeTypes[s.Compute] != ops.Float16 {
		return nil
	}
	return &train.LossScaling{}
}

// cost is about how long all steps take on this machine's CPU. A step costs six products and sums a parameter and token;
// twenty thousand million of them a second are what a core does of a small model, one with another.
func (s settings) cost(parameters int) time.Duration {
	const perCore = 20e9
	tokens := float64(s.Batch) * float64(s.Context) * float64(s.Accumulation) * float64(s.Steps)
	seconds := 6 * float64(parameters) * tokens / (perCore * float64(runtime.GOMAXPROCS(0)))
	return time.Duration(min(seconds, math.MaxInt64/1e9) * 1e9)
}

func (s settings) validate() error {
	if _, ok := computeTypes[s.Compute]; !ok {
		return fmt.Errorf("-compute is %q, it needs to be float32, tf32, bfloat16 or float16", s.Compute)
	}
	for _, z := range []struct {
		name         string
		value, least int
	}{
		{"layers", s.Layers, 1}, {"heads", s.Heads, 1}, {"dim", s.Dim, 1}, {"context", s.Context, 1}, {"batch", s.Batch, 1},
		{"accumulation", s.Accumulation, 1}, {"steps", s.Steps, 1}, {"warmup", s.Warmup, 0},
		{"decay-steps", s.DecaySteps, 0}, {"eval-every", s.EvalEvery, 1},
		{"eval-batches", s.EvalBatches, 1}, {"checkpoint-every", s.CheckpointEvery, 0},
	} {
		if z.value < z.least {
			return fmt.Errorf("-%s is %d, it needs to be at least %d", z.name, z.value, z.least)
		}
	}
	for _, z := range []struct {
		name  string
		value float64
	}{{"rate", s.Rate}, {"min-rate", s.MinRate}, {"decay", s.Decay}, {"clip", s.Clip}} {
		if !(z.value >= 0) || math.IsInf(z.value, 0) {
			return fmt.Errorf("-%s is %v, it needs to be a number and not negative", z.name, z.value)
		}
	}
	for _, z := range []struct {
		name  string
		value float64
	}{{"dropout", s.Dropout}, {"beta2", s.Beta2}} {
		if !(z.value >= 0 && z.value < 1) {
			return fmt.Errorf("-%s is %v, it needs to be at least 0 and less than 1", z.name, z.value)
		}
	}
	switch {
	case s.Dim%s.Heads != 0:
		return fmt.Errorf("-dim is %d, it needs to be a multiple of -heads %d", s.Dim, s.Heads)
	case s.Warmup >= s.decaySteps():
		return fmt.Errorf("-warmup is %d, it needs to be less than the %d steps that the learning rate takes to decay", s.Warmup, s.decaySteps())
	case (s.Vocab == "") != (s.Merges == ""):
		return errors.New("only one of -vocab and -merges is given, GPT-2's tokens need both")
	case s.BPE != 0 && s.BPE < 257:
		return fmt.Errorf("-bpe is %d, it needs to be at least 257: the bytes and a token that ends a text", s.BPE)
	case s.BPE != 0 && s.Vocab != "":
		return errors.New("-bpe is given with -vocab, there can be one tokenizer")
	case strings.HasSuffix(s.Data, ".bin") && s.Vocab == "":
		return fmt.Errorf("-data %s holds tokens, which need -vocab and -merges to be read as text", s.Data)
	}
	return nil
}

func (o options) validate(given map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if o.sample && !o.resume && !slices.Contains(speaking, name) {
			return fmt.Errorf("-%s belongs to training, -sample goes with -%s", name, strings.Join(speaking[1:], ", -"))
		}
	}
	switch {
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
	case !(o.topP > 0 && o.topP <= 1):
		return fmt.Errorf("-top-p is %v, it needs to be more than 0 and at most 1", o.topP)
	case o.resume && o.sample:
		return errors.New("-resume and -sample are both given, it can do one at a time")
	}
	return o.place.Validate()
}
