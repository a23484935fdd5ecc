package sample

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// SamplerOptions say how a [Sampler] chooses. The zero value always takes the most probable token.
type SamplerOptions struct {
	// Temperature divides the logits: below 1 the probable tokens become more so, above 1 less. 0
	// stands for its limit, always the most probable token, the first of several; nothing else
	// matters then.
	Temperature float64
	// TopK leaves the K most probable tokens to choose from, and those that are as probable as the
	// last of them; 0 means all.
	TopK int
	// TopP leaves the fewest most probable tokens whose probabilities, among those that TopK
	// leaves, sum to at least TopP; 0 means 1, which is all.
	TopP float64
	// MinP leaves tokens that are at least MinP times as probable as the most probable one; 0 means
	// all.
	MinP float64
	// RepetitionPenalty divides the positive logits of tokens that came before, and multiplies the
	// negative ones; 0 means 1.
	RepetitionPenalty float64
	// PresencePenalty is subtracted from the logits of tokens that were chosen before, and
	// FrequencyPenalty as often as they were. The prompt's do not count.
	PresencePenalty, FrequencyPenalty float64
	// NoRepeat is a length of sequences of which none comes twice; 0 means that they may.
	NoRepeat int
	// Seed decides the random numbers.
	Seed uint64
}

// Sampler chooses tokens by their logits: each with its probability, among those that the options
// leave. It computes in float32, as [kernels.ChooseTokens] defines it. The same seed gives the same
// choices for the same logits, on every device. A Sampler is for one text, and not safe for
// concurrent use.
type Sampler struct {
	o       SamplerOptions
	random  *rand.Rand
	drawn   *uint64                // for the next choice, once someone asked for it
	earlier []int                  // all tokens, if NoRepeat looks at them
	seen    []kernels.EarlierToken // those that penalties look at
	at      map[int]int            // where a token is in seen
	list    []kernels.EarlierToken // memory for Choice
}

// NewSampler is a Sampler at the start of its random numbers.
func NewSampler(o SamplerOptions) (*Sampler, error) {
	c := o.choice()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("Sampler: %w", err)
	}
	if o.NoRepeat < 0 {
		return nil, fmt.Errorf("Sampler: no repeat is %d, it needs to be positive, or 0 for none", o.NoRepeat)
	}
	return &Sampler{o: o, random: rand.New(rand.NewPCG(o.Seed, 0)), at: map[int]int{}}, nil
}

func (o *SamplerOptions) choice() kernels.Choice {
	return kernels.Choice{Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, MinP: o.MinP,
		Repetition: o.RepetitionPenalty, Presence: o.PresencePenalty, Frequency: o.FrequencyPenalty}
}

// Follow tells the Sampler the tokens of a prompt, before the first choice.
func (s *Sampler) Follow(prompt []int) {
	for _, id := range prompt {
		s.remember(id, 0)
	}
}

// remember keeps a token that came before, as far as the options look at it.
func (s *Sampler) remember(id int, chosen int32) {
	if s.o.NoRepeat > 0 {
		s.earlier = append(s.earlier, id)
	}
	if !s.penalises() {
		return
	}
	at, found := s.at[id]
	if !found {
		at = len(s.seen)
		s.at[id], s.seen = at, append(s.seen, kernels.EarlierToken{ID: int32(id)})
	}
	s.seen[at].Chosen += chosen
}

func (s *Sampler) penalises() bool {
	return s.o.RepetitionPenalty != 0 && s.o.RepetitionPenalty != 1 || s.o.PresencePenalty != 0 || s.o.FrequencyPenalty != 0
}

// Choice says how the next token is to be chosen, for who chooses where the logits are, as
// [github.com/stheno-ml/stheno/nn.Decoder.Choose] does. It holds until the next call.
// [Sampler.Took] tells the Sampler what was chosen.
func (s *Sampler) Choice(forbidden ...int) kernels.Choice {
	c := s.o.choice()
	s.list = append(s.list[:0], s.seen...)
	for _, id := range append(s.repeats(), forbidden...) {
		if at, found := s.at[id]; found {
			s.list[at].Chosen = kernels.Forbidden
		} else {
			s.list = append(s.list, kernels.EarlierToken{ID: int32(id), Chosen: kernels.Forbidden})
		}
	}
	c.Earlier = s.list
	if s.drawn == nil && c.Temperature != 0 {
		s.drawn = new(s.random.Uint64())
	}
	if s.drawn != nil {
		c.Random = *s.drawn
	}
	return c
}

// Took tells the Sampler which token was chosen.
func (s *Sampler) Took(id int) {
	s.drawn = nil
	s.remember(id, 1)
}

// Next chooses a token: an index of logits. A logit of −∞ is never chosen; NaN and +∞ are errors.
func (s *Sampler) Next(logits []float64) (int, error) {
	if len(logits) == 0 {
		return 0, errors.New("Sampler: logits is empty, it needs at least one")
	}
	chosen, err := choose(s.Choice(), logits)
	if err != nil {
		return 0, fmt.Errorf("Sampler: %w", err)
	}
	s.Took(chosen.ID)
	return chosen.ID, nil
}

// choose makes a choice by logits of the host.
func choose(c kernels.Choice, logits []float64) (chosen kernels.Chosen, err error) {
	settings, random := c.Settings(), []int64{int64(c.Random)}
	earlier := append(make([]int32, 0, 2+2*len(c.Earlier)), 0, int32(len(c.Earlier)))
	for _, e := range c.Earlier {
		earlier = append(earlier, e.ID, e.Chosen)
	}
	ids, logProbs := make([]int64, 1), make([]float32, 1)
	err = cpu.New().ChooseTokens(&kernels.ChooseTokens{
		Logits: kernels.Of(logits, 1, len(logits)), Settings: kernels.Of(settings[:], 1, len(settings)), Random: kernels.Of(random, 1),
		Earlier: kernels.Of(earlier, len(earlier)),
	}, kernels.ChosenTokens{IDs: kernels.Of(ids, 1), LogProbs: kernels.Of(logProbs, 1)})
	if err == nil && ids[0] < 0 {
		err = kernels.ChoiceError(int(ids[0]), len(logits))
	}
	return kernels.Chosen{ID: int(ids[0]), LogProb: float64(logProbs[0])}, err
}

// repeats lists the tokens that would repeat a sequence.
func (s *Sampler) repeats() (list []int) {
	n, earlier := s.o.NoRepeat, s.earlier
	if n == 0 || len(earlier) < n {
		return nil
	}
	last := earlier[len(earlier)-n+1:]
	for at := 0; at+n <= len(earlier); at++ {
		if slices.Equal(earlier[at:at+n-1], last) {
			list = append(list, earlier[at+n-1])
		}
	}
	return list
}
