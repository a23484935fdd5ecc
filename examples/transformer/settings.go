package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"gorgonia.org/tensor"
)

// settings is everything that a run is made from. Checkpoints hold it, so that a run can be resumed
// without flags.
type settings struct {
	Data          string // a text, tokens or a folder of shards, empty for Go source
	GoSource      int    // bytes of Go source to learn from, 0 for corpusBytes
	Vocab, Merges string // files of GPT-2's tokenizer, empty for characters
	BPE           int    // tokens of one that is learnt from the text, 0 for none

	Layers, Heads, Dim, Context int
	Dropout                     float64
	Compute                     string // empty for float32
	Recipe                      recipe // empty for GPT-2's

	Batch, Accumulation, Steps int
	Rate, MinRate              float64
	Warmup, DecaySteps         int // DecaySteps 0 means Steps
	Beta2, Decay, Clip         float64
	GoBack                     int // times

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
	// what two cores learn in about a minute
	"minute": {Layers: 4, Heads: 4, Dim: 128, Context: 64, Batch: 12, BPE: 1024, Steps: 1150, Rate: 6e-3, Warmup: 100, Recipe: speedrunByAdamW,
		EvalEvery: 500, CheckpointEvery: 500},
	// the same by Muon too, which takes longer a step there
	"speedrun": {Layers: 4, Heads: 4, Dim: 128, Context: 64, Batch: 12, BPE: 1024, Steps: 800, Rate: 6e-3, Warmup: 100, Recipe: speedrun,
		EvalEvery: 500, CheckpointEvery: 500},
	// what an H100 learns in about a minute
	"minute-gpu": {Layers: 12, Heads: 12, Dim: 768, Context: 512, Batch: 64, BPE: 4096, GoSource: 32 << 20, Steps: 640, Rate: 3e-3, Warmup: 50,
		Dropout: 0.1, Beta2: 0.95, Recipe: speedrun, Compute: "bfloat16", EvalEvery: 320, CheckpointEvery: 640},
	// what a GPU learns of a few megabytes before it knows them by heart
	"small-gpu": {Layers: 6, Heads: 6, Dim: 384, Context: 256, Batch: 64, BPE: 2048, GoSource: 32 << 20, Steps: 600, Rate: 3e-3, Warmup: 50,
		Dropout: 0.2, Beta2: 0.95, Recipe: speedrunByAdamW, Compute: "bfloat16", EvalEvery: 100, CheckpointEvery: 500},
	// what nanoGPT trains on a laptop: characters, for about a minute
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
var computeTypes = map[string]tensor.Dtype{"": tensor.Float32, "float32": tensor.Float32, "tf32": tensor.Float32, "bfloat16": ops.BFloat16, "float16": ops.Float16, "fp8": ops.BFloat16}

// config is the shape that nanoGPT has, no biases and an exact GELU, with the changes of the
// recipe.
func (s settings) config(vocab int) nn.LanguageModelConfig {
	c := nn.GPTConfig{
		Vocab: vocab, Context: s.Context, Layers: s.Layers, Heads: s.Heads, Dim: s.Dim,
		Dropout: s.Dropout, NoBias: true, Activation: kernels.GELUErf,
	}.Model()
	s.Recipe.change(&c)
	return c
}

// gpt is the model.
func (s settings) gpt(scope *nn.Scope, vocab int) *nn.LanguageModel {
	return nn.NewLanguageModel(scope.Compute(computeTypes[s.Compute]), s.config(vocab))
}

// precision is how exact products need to be.
func (s settings) precision() kernels.Precision {
	switch s.Compute {
	case "tf32":
		return kernels.PrecisionTF32
	case "fp8":
		return kernels.PrecisionFloat8
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

// goBack is when a training goes back by itself, nil for never.
func (s settings) goBack() *train.GoBack {
	if s.GoBack == 0 {
		return nil
	}
	return &train.GoBack{Most: s.GoBack}
}

// holdsTokens tells that -data is tokens already and not a text.
func (s settings) holdsTokens() bool {
	info, err := os.Stat(s.Data)
	return strings.HasSuffix(s.Data, ".bin") || err == nil && info.IsDir()
}

// parameters is about how many numbers the model has.
func (s settings) parameters() float64 {
	layers, dim := float64(s.Layers), float64(s.Dim)
	return 12*layers*dim*dim + (s.vocabulary()+float64(s.Context))*dim
}

// auto is the preset that is chosen by where the run computes, and on a GPU by how much text there
// is: a large model knows little text by heart before it has learnt to write.
const (
	auto, onCPU, onGPU, onGPUOfLittle = "auto", "minute", "minute-gpu", "small-gpu"

	littleText  = 12 << 20 // bytes; minute-gpu sees as many tokens as 70 MB have
	leastForGPU = 400 << 10

	// A small model reads little text so often at most, in at least so many steps.
	timesRead, leastSteps, bytesOfToken = 10, 100, 3
)

// fitting are the settings for the place where the run computes, and what to say of them where auto
// has chosen. What takes days there is refused.
func (s settings) fitting(place *train.Place, o options) (settings, string, error) {
	s, choice, err := s.choose(place.Device() != nil, o)
	if err != nil {
		return s, "", err
	}
	if !o.resume { // the settings of a run are not known yet
		err = s.checkMemory(place.Device() != nil, o)
	}
	if err == nil {
		err = s.checkCost(place, o)
	}
	return s, choice, err
}

// choose chooses for auto.
func (s settings) choose(onDevice bool, o options) (settings, string, error) {
	if !o.auto || o.resume {
		return s, "", nil
	}
	take := func(preset string) {
		s = presets[preset].withDefaults()
		o.explicit(&s)
	}
	if !onDevice {
		take(onCPU)
		s.complete(o.given)
		return s, fmt.Sprintf("-preset auto is %s: there is no GPU.", onCPU), s.validate()
	}
	take(onGPU)
	bytes, err := s.amount()
	if err != nil {
		return s, "", err
	}
	chosen, why := onGPU, "there is a GPU"
	if bytes < littleText {
		chosen, why = onGPUOfLittle, fmt.Sprintf("there is a GPU, and a large model would soon know %.1f MB of text by heart", float64(bytes)/1e6)
	}
	if bytes < leastForGPU {
		chosen = onCPU
	}
	take(chosen)
	if chosen == onGPUOfLittle && !o.given["steps"] {
		s.Steps = min(s.Steps, max(leastSteps, timesRead*bytes/bytesOfToken/int(s.tokensOfStep())))
	}
	s.complete(o.given)
	return s, fmt.Sprintf("-preset auto is %s: %s.", chosen, why), s.validate()
}

// complete adapts what no flag said to what flags did.
func (s *settings) complete(given map[string]bool) {
	if !given["bpe"] && (s.Vocab != "" || s.holdsTokens()) {
		s.BPE = 0 // the tokens are others already
	}
	if !given["warmup"] && s.Warmup >= s.decaySteps() {
		s.Warmup = s.decaySteps() / warmupShare // so that few steps need no second flag
	}
}

// leastBPE is how many tokens a byte-pair encoding has at least.
const leastBPE = 257

// warmupShare is the part of a short training that warms up.
const warmupShare = 10

// checkCost refuses to begin what takes days on a CPU.
func (s settings) checkCost(place *train.Place, o options) error {
	cost := s.cost(s.parameters())
	if place.Device() != nil || o.yes || o.resume || cost < 48*time.Hour {
		return nil
	}
	return fmt.Errorf("%.0f million parameters and -steps %d of %.0f tokens would take about %s on a CPU like this one: "+
		"-yes begins all the same, -preset minute takes about one", s.parameters()/1e6, s.Steps, s.tokensOfStep(), spell(cost))
}

// spell is a long time in words.
func spell(d time.Duration) string {
	const day, year = 24 * time.Hour, 8766 * time.Hour
	switch {
	case d >= 2*year:
		return fmt.Sprintf("%.0f years", d.Hours()/year.Hours())
	case d >= 2*day:
		return fmt.Sprintf("%.0f days", d.Hours()/day.Hours())
	}
	return fmt.Sprintf("%.0f hours", d.Hours())
}

// tokensOfStep is how many tokens one process learns from in a step.
func (s settings) tokensOfStep() float64 {
	return float64(s.Batch) * float64(s.Context) * float64(s.Accumulation)
}

// cost is about how long all steps take on this machine's CPU. A step costs six products and sums a
// parameter and token; twenty thousand million of them a second are what a core does of a small
// model, one with another.
func (s settings) cost(parameters float64) time.Duration {
	const perCore = 20e9
	tokens := s.tokensOfStep() * float64(s.Steps)
	seconds := 6 * parameters * tokens / (perCore * float64(runtime.GOMAXPROCS(0)))
	return time.Duration(min(seconds, math.MaxInt64/1e9) * 1e9)
}

func (s settings) validate() error {
	if err := s.Recipe.validate(); err != nil {
		return err
	}
	if _, ok := computeTypes[s.Compute]; !ok {
		return fmt.Errorf("-compute is %q, it needs to be float32, tf32, bfloat16, float16 or fp8", s.Compute)
	}
	for _, z := range []struct {
		name         string
		value, least int
	}{
		{"layers", s.Layers, 1}, {"heads", s.Heads, 1}, {"dim", s.Dim, 1}, {"context", s.Context, 1}, {"batch", s.Batch, 1},
		{"accumulation", s.Accumulation, 1}, {"steps", s.Steps, 1}, {"warmup", s.Warmup, 0},
		{"decay-steps", s.DecaySteps, 0}, {"eval-every", s.EvalEvery, 1},
		{"eval-batches", s.EvalBatches, 1}, {"checkpoint-every", s.CheckpointEvery, 0}, {"go-back", s.GoBack, 0},
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
	case s.GoBack > 0 && s.CheckpointEvery == 0:
		return fmt.Errorf("-go-back is %d, it needs checkpoints to go back to: -checkpoint-every", s.GoBack)
	case s.MinRate > s.Rate:
		return fmt.Errorf("-min-rate is %v, it needs to be at most -rate %v, from which the learning rate falls to it", s.MinRate, s.Rate)
	case s.Dim%s.Heads != 0:
		return fmt.Errorf("-dim is %d, it needs to be a multiple of -heads %d", s.Dim, s.Heads)
	case s.Warmup >= s.decaySteps():
		return fmt.Errorf("-warmup is %d, it needs to be less than the %d steps that the learning rate takes to decay", s.Warmup, s.decaySteps())
	case (s.Vocab == "") != (s.Merges == ""):
		return errors.New("only one of -vocab and -merges is given, GPT-2's tokens need both")
	case s.Batch > math.MaxInt32/s.Context:
		return fmt.Errorf("-batch is %d and -context is %d, their product needs to be at most %d", s.Batch, s.Context, math.MaxInt32)
	case s.BPE != 0 && s.BPE < leastBPE:
		return fmt.Errorf("-bpe is %d, it needs to be at least 257: the bytes and a token that ends a text", s.BPE)
	case s.BPE != 0 && s.Vocab != "":
		return errors.New("-bpe is given with -vocab, there can be one tokenizer")
	case strings.HasSuffix(s.Data, ".bin") && s.Vocab == "":
		return fmt.Errorf("-data %s holds tokens, which need -vocab and -merges to be read as text", s.Data)
	}
	return nil
}
