package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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
// leave. The same seed gives the same choices for the same logits. A Sampler is for one text, and
// not safe for concurrent use.
type Sampler struct {
	o       SamplerOptions
	random  *rand.Rand
	earlier []int       // all tokens, if NoRepeat looks at them
	seen    map[int]int // how often a token was chosen, if a penalty looks at it; 0 for those of the prompt
	tokens  []candidate // memory for Next
	logits  []float64   // likewise
}

// candidate is a token that may be chosen, and its probability but for a factor that all have.
type candidate struct {
	id            int
	logit, weight float64
}

// NewSampler is a Sampler at the start of its random numbers.
func NewSampler(o SamplerOptions) (*Sampler, error) {
	switch {
	case !(o.Temperature >= 0) || math.IsInf(o.Temperature, 0):
		return nil, fmt.Errorf("Sampler: temperature is %v, it needs to be positive, or 0 for the most probable token", o.Temperature)
	case o.TopK < 0:
		return nil, fmt.Errorf("Sampler: top k is %d, it needs to be positive, or 0 for all tokens", o.TopK)
	case !(o.TopP >= 0 && o.TopP <= 1):
		return nil, fmt.Errorf("Sampler: top p is %v, it needs to be in (0, 1], or 0 for 1", o.TopP)
	case !(o.MinP >= 0 && o.MinP <= 1):
		return nil, fmt.Errorf("Sampler: min p is %v, it needs to be from 0 to 1", o.MinP)
	case !(o.RepetitionPenalty >= 0) || math.IsInf(o.RepetitionPenalty, 0):
		return nil, fmt.Errorf("Sampler: repetition penalty is %v, it needs to be positive, or 0 for none", o.RepetitionPenalty)
	case math.IsNaN(o.PresencePenalty) || math.IsInf(o.PresencePenalty, 0):
		return nil, fmt.Errorf("Sampler: presence penalty is %v, it needs to be finite", o.PresencePenalty)
	case math.IsNaN(o.FrequencyPenalty) || math.IsInf(o.FrequencyPenalty, 0):
		return nil, fmt.Errorf("Sampler: frequency penalty is %v, it needs to be finite", o.FrequencyPenalty)
	case o.NoRepeat < 0:
		return nil, fmt.Errorf("Sampler: no repeat is %d, it needs to be positive, or 0 for none", o.NoRepeat)
	}
	return &Sampler{o: o, random: rand.New(rand.NewPCG(o.Seed, 0))}, nil
}

// Follow tells the Sampler the tokens of a prompt, before the first choice.
func (s *Sampler) Follow(prompt []int) {
	for _, id := range prompt {
		s.remember(id, 0)
	}
}

// remember keeps a token that came before, as far as the options look at it.
func (s *Sampler) remember(id, chosen int) {
	if s.o.NoRepeat > 0 {
		s.earlier = append(s.earlier, id)
	}
	if s.penalises() {
		if s.seen == nil {
			s.seen = map[int]int{}
		}
		s.seen[id] += chosen
	}
}

func (s *Sampler) penalises() bool {
	return s.o.RepetitionPenalty != 0 && s.o.RepetitionPenalty != 1 || s.o.PresencePenalty != 0 || s.o.FrequencyPenalty != 0
}

// Next chooses a token: an index of logits. A logit of −∞ is never chosen; NaN and +∞ are errors.
func (s *Sampler) Next(logits []float64) (int, error) {
	if len(s.seen) > 0 || len(s.earlier) > 0 {
		s.logits = append(s.logits[:0], logits...)
		logits = s.logits
		s.penalise(logits)
		s.forbidRepeats(logits)
	}
	chosen, err := mostProbable(logits)
	if err != nil {
		return 0, fmt.Errorf("Sampler: %w", err)
	}
	if s.o.Temperature != 0 {
		chosen = s.draw(s.left(logits, logits[chosen]))
	}
	s.remember(chosen, 1)
	return chosen, nil
}

// penalise changes the logits of tokens that came before, each once.
func (s *Sampler) penalise(logits []float64) {
	for id, chosen := range s.seen {
		if id < 0 || id >= len(logits) {
			continue
		}
		switch penalty := s.o.RepetitionPenalty; {
		case penalty == 0:
		case logits[id] > 0:
			logits[id] /= penalty
		default:
			logits[id] *= penalty
		}
		if chosen > 0 {
			logits[id] -= s.o.PresencePenalty + float64(chosen)*s.o.FrequencyPenalty
		}
	}
}

// forbidRepeats forbids the tokens that would repeat a sequence.
func (s *Sampler) forbidRepeats(logits []float64) {
	n, earlier := s.o.NoRepeat, s.earlier
	if n == 0 || len(earlier) < n {
		return
	}
	last := earlier[len(earlier)-n+1:]
	for at := 0; at+n <= len(earlier); at++ {
		if next := earlier[at+n-1]; slices.Equal(earlier[at:at+n-1], last) && next >= 0 && next < len(logits) {
			logits[next] = math.Inf(-1)
		}
	}
}

// mostProbable checks the logits and finds the first of the largest.
func mostProbable(logits []float64) (int, error) {
	if len(logits) == 0 {
		return 0, errors.New("logits is empty, it needs at least one")
	}
	best := 0
	for id, x := range logits {
		if math.IsNaN(x) || math.IsInf(x, 1) {
			return 0, fmt.Errorf("the logit of token %d is %v, it needs to be finite or -Inf", id, x)
		}
		if x > logits[best] {
			best = id
		}
	}
	if math.IsInf(logits[best], -1) {
		return 0, errors.New("all logits are -Inf, at least one needs to be finite")
	}
	return best, nil
}

// left lists the tokens that the options leave. Weights are relative to that of the largest logit,
// which is 1, so that none overflows.
func (s *Sampler) left(logits []float64, largest float64) []candidate {
	all := s.tokens[:0]
	for id, x := range logits {
		all = append(all, candidate{id, x, math.Exp((x - largest) / s.o.Temperature)})
	}
	s.tokens = all
	if k := s.o.TopK; k > 0 && k < len(all) {
		all = withEqual(s.tokens, mostUntil(all, func(n int, _ float64) bool { return n == k }))
	}
	if p := s.o.TopP; p > 0 && p < 1 {
		enough := p * total(all)
		all = mostUntil(all, func(_ int, sum float64) bool { return sum >= enough })
	}
	if least := s.o.MinP; least > 0 {
		// The largest weight is 1, and left whatever the other options are.
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.weight < least })
	}
	return all
}

// draw chooses one of the tokens.
func (s *Sampler) draw(from []candidate) int {
	rest := s.random.Float64() * total(from)
	chosen := from[0].id
	for _, c := range from {
		if c.weight == 0 {
			continue
		}
		// Where rounding leaves a rest after the last token, the last that has a probability is
		// chosen.
		chosen = c.id
		if rest -= c.weight; rest < 0 {
			break
		}
	}
	return chosen
}

func total(list []candidate) float64 {
	sum := 0.0
	for _, c := range list {
		sum += c.weight
	}
	return sum
}

// mostUntil takes the most probable of a list of tokens, one after another, until done, which is
// told how many were taken and what their weights sum to. It reorders the list, of which the result
// is the end, and does not sort what it leaves.
func mostUntil(list []candidate, done func(n int, sum float64) bool) []candidate {
	for i := len(list)/2 - 1; i >= 0; i-- {
		sink(list, i)
	}
	heap, sum := list, 0.0
	for len(heap) > 0 {
		last := len(heap) - 1
		heap[0], heap[last] = heap[last], heap[0]
		sum += heap[last].weight
		if heap = heap[:last]; done(len(list)-last, sum) {
			break
		}
		sink(heap, 0)
	}
	return list[len(heap):]
}

// withEqual adds to the most probable of a list, which are its end, those that are as probable as the
// last of them.
func withEqual(list, most []candidate) []candidate {
	begin := len(list) - len(most)
	last := most[0].logit
	for i := begin - 1; i >= 0; i-- {
		if list[i].logit == last {
			begin--
			list[i], list[begin] = list[begin], list[i]
		}
	}
	return list[begin:]
}

// sink restores the order of a heap, whose largest element is first, below element i.
func sink(heap []candidate, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if right := child + 1; right < len(heap) && heap[right].before(heap[child]) {
			child = right
		}
		if !heap[child].before(heap[i]) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// before orders tokens by probability, the first of equal ones first. Logits tell apart what
// weights round to equal.
func (c candidate) before(other candidate) bool {
	return c.logit > other.logit || c.logit == other.logit && c.id < other.id
}
