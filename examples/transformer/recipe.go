package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
)

// recipe is what a run changes of GPT-2's model and of how that is trained: names of changes, with
// commas between them. recipe.md beside this file says what each of them gains.
type recipe string

// speedrun is all changes. The preset of a GPU that learns of little text leaves Muon out.
const (
	speedrunByAdamW recipe = "linear,embed,rotary,qknorm,rms,relu2,zero"
	speedrun               = "muon," + speedrunByAdamW
)

// changes are what speed runs of nanoGPT have proved, by name. Those without a function change the
// training, below.
var changes = map[string]func(c *nn.LanguageModelConfig){
	"muon":   nil, // trains the matrices of blocks
	"linear": nil, // the rate stays, and then falls to zero in a straight line
	"embed": func(c *nn.LanguageModelConfig) { // embeddings with a norm and a rate of their own, which are not the head
		c.EmbeddingNorm, c.TiedHead = true, false
	},
	"rotary": func(c *nn.LanguageModelConfig) { c.Positions, c.Block.Attention.RoPE = false, &ops.RoPEOptions{} },
	"qknorm": func(c *nn.LanguageModelConfig) { c.Block.Attention.QKNorm = true },
	"rms":    func(c *nn.LanguageModelConfig) { c.Block.RMSNorm = true },
	"relu2":  func(c *nn.LanguageModelConfig) { c.Block.Activation = kernels.ReLUSquared },
	"zero":   func(c *nn.LanguageModelConfig) { c.Block.ProjInit = nn.Zero }, // what adds to the residual stream
}

// names are the changes of the recipe.
func (r recipe) names() []string {
	return strings.FieldsFunc(string(r), func(c rune) bool { return c == ',' })
}

// has reports whether a change is part of the recipe.
func (r recipe) has(name string) bool { return slices.Contains(r.names(), name) }

// Set is what the flag does: speedrun stands for all changes that there are now.
func (r *recipe) Set(text string) error {
	if *r = recipe(text); text == "speedrun" {
		*r = speedrun
	}
	return nil
}

func (r *recipe) String() string { return string(*r) }

func (r recipe) validate() error {
	for _, name := range r.names() {
		if _, known := changes[name]; !known {
			return fmt.Errorf("-recipe has %q, it needs to be speedrun, or some of %s", name, speedrun)
		}
	}
	return nil
}

// change makes of GPT-2's model that of the recipe.
func (r recipe) change(c *nn.LanguageModelConfig) {
	for _, name := range r.names() {
		if change := changes[name]; change != nil {
			change(c)
		}
	}
}

// optimizer trains what no group trains otherwise.
func (s settings) optimizer() train.Optimizer {
	if s.Recipe.has("muon") {
		return train.Muon{MatchAdamW: true, WeightDecay: s.Decay}
	}
	return s.adam()
}

func (s settings) adam() train.AdamW { return train.AdamW{Beta2: s.Beta2, WeightDecay: s.Decay} }

// groups are what is trained otherwise.
func (s settings) groups() []train.Group {
	groups := []train.Group{{Match: train.Vectors, Optimizer: s.adam(), NoDecay: true}}
	tables := []string{"tokens.*"}
	if !s.Recipe.has("rotary") {
		tables = append(tables, "positions.*")
	}
	switch {
	case s.Recipe.has("embed"):
		return append(groups,
			train.Group{Match: train.Named(tables...), Optimizer: s.adam(), NoDecay: true, LearningRateScale: embeddingRate},
			train.Group{Match: train.Named("head.*"), Optimizer: s.adam()})
	case s.Recipe.has("muon"):
		return append(groups, train.Group{Match: train.Named(tables...), Optimizer: s.adam()})
	}
	return groups
}

// embeddingRate is how often the learning rate embeddings have that are normalised: a token is
// seldom there.
const embeddingRate = 3

// schedule is that of the learning rate.
func (s settings) schedule() train.Schedule {
	steps := s.decaySteps()
	if !s.Recipe.has("linear") {
		return train.WarmupCosine{Peak: s.Rate, Min: s.MinRate, Warmup: s.Warmup, Steps: steps}
	}
	decay := max(1, min(steps*3/5, steps-s.Warmup))
	return train.WarmupStableDecay{Peak: s.Rate, Warmup: s.Warmup, Stable: steps - s.Warmup - decay, Decay: decay}
}
