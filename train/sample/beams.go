package sample

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// BeamDecoder is what Beams needs of a model: nn.BatchDecoder is one.
type BeamDecoder interface {
	Batch() int
	Logits(tokens [][]int) ([][]float64, error)
	Fork(to, from, n int) error
	Truncate(text, n int) error
}

// BeamOptions are the options of [Beams].
type BeamOptions struct {
	MaxTokens int // how many tokens are written at most
	End       int // the token that a text ends with, negative for none
	// LengthPenalty is the power of a text's length that its log-probability is divided by: 0
	// favours short texts, 1 the mean of a token, and more than that long ones.
	LengthPenalty float64
}

// Beams looks for the most probable text that follows the tokens of begin: as many texts as the
// decoder's batch go on side by side, and after each token the best of all continuations stay. It
// gives the tokens behind begin, with End if the text has it. A decoder that reads a source needs
// to have it for each text.
func Beams(d BeamDecoder, begin []int, o BeamOptions) ([]int, error) {
	switch {
	case d == nil || d.Batch() < 1:
		return nil, errors.New("sample: Beams: there is no decoder")
	case len(begin) == 0:
		return nil, errors.New("sample: Beams: begin is empty, it needs at least one token")
	case o.MaxTokens < 1:
		return nil, fmt.Errorf("sample: Beams: max tokens is %d, it needs to be positive", o.MaxTokens)
	case math.IsNaN(o.LengthPenalty) || math.IsInf(o.LengthPenalty, 0):
		return nil, fmt.Errorf("sample: Beams: length penalty is %v, it needs to be finite", o.LengthPenalty)
	}
	s := &search{d: d, o: o, begin: begin}
	for !s.done() {
		if err := s.step(); err != nil {
			return nil, fmt.Errorf("sample: Beams: %w", err)
		}
	}
	return s.ended[0].tokens, nil
}

// beam is a text, and the logarithm of its probability.
type beam struct {
	tokens []int
	log    float64
	score  float64 // of one that has ended
	from   int     // the text that it goes on from
}

type search struct {
	d     BeamDecoder
	o     BeamOptions
	begin []int
	begun bool
	beams []beam // one for each text
	ended []beam // the best first, at most as many
}

// score is what texts that end are compared by.
func (s *search) score(b beam) float64 {
	return b.log / math.Pow(float64(len(b.tokens)), s.o.LengthPenalty)
}

// done reports whether no text can become better than those that have ended.
func (s *search) done() bool {
	if !s.begun {
		return false
	}
	if len(s.beams[0].tokens) >= s.o.MaxTokens {
		return true
	}
	n, best := s.d.Batch(), math.Inf(-1)
	for _, b := range s.beams {
		best = max(best, s.score(b))
	}
	return len(s.ended) == n && best <= s.ended[n-1].score
}

// step writes a token of each text.
func (s *search) step() error {
	n := s.d.Batch()
	next := make([][]int, n)
	for i := range next {
		if !s.begun {
			next[i] = s.begin
			if err := s.d.Truncate(i, 0); err != nil {
				return err
			}
			continue
		}
		next[i] = s.beams[i].tokens[len(s.beams[i].tokens)-1:]
	}
	if !s.begun {
		s.beams = make([]beam, 1) // all texts are one
	}
	logits, err := s.d.Logits(next)
	if err != nil {
		return err
	}
	s.begun = true
	var all []beam
	for i, b := range s.beams {
		if err := usable(logits[i]); err != nil {
			return err
		}
		all = append(all, continuations(b, i, logits[i], 2*n)...)
	}
	slices.SortStableFunc(all, func(a, b beam) int { return cmp.Compare(b.log, a.log) })
	return s.choose(all)
}

// usable returns why no token follows by logits, as a Sampler does.
func usable(logits []float64) error {
	possible := false
	for id, x := range logits {
		if math.IsNaN(x) || math.IsInf(x, 1) {
			return kernels.ChoiceError(-1-id, len(logits))
		}
		possible = possible || !math.IsInf(x, -1)
	}
	if !possible {
		return kernels.ChoiceError(-1-len(logits), len(logits))
	}
	return nil
}

// continuations are the most probable ways to go on from a text.
func continuations(b beam, from int, logits []float64, most int) []beam {
	largest, sum := slices.Max(logits), 0.0
	for _, x := range logits {
		sum += math.Exp(x - largest)
	}
	normal := largest + math.Log(sum)
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(logits[j], logits[i]) })
	list := make([]beam, min(most, len(order)))
	for i := range list {
		list[i] = beam{tokens: append(slices.Clip(b.tokens), order[i]), log: b.log + logits[order[i]] - normal, from: from}
	}
	return list
}

// choose keeps the best of all, ended and not, and gives each text of the decoder one to go on
// with.
func (s *search) choose(all []beam) error {
	n := s.d.Batch()
	var kept []beam
	for rank, b := range all {
		last := len(b.tokens) == s.o.MaxTokens
		if isEnd := b.tokens[len(b.tokens)-1] == s.o.End; isEnd || last {
			if b.score = s.score(b); rank < n {
				s.ended = append(s.ended, b)
			}
			if isEnd {
				continue
			}
		}
		if kept = append(kept, b); len(kept) == n {
			break
		}
	}
	slices.SortStableFunc(s.ended, func(a, b beam) int { return cmp.Compare(b.score, a.score) })
	s.ended = s.ended[:min(n, len(s.ended))]
	if len(kept) < n {
		return fmt.Errorf("there are %d ways to go on, it needs %d: fewer texts, or a larger vocabulary", len(kept), n)
	}
	return s.place(kept)
}

// place gives each text one of the beams: the first that goes on from a text stays in its place,
// the others take those of texts that nothing goes on from.
func (s *search) place(kept []beam) error {
	n := len(kept)
	placed, taken := make([]beam, n), make([]bool, n)
	var others []beam
	for _, b := range kept {
		if taken[b.from] {
			others = append(others, b)
			continue
		}
		placed[b.from], taken[b.from] = b, true
	}
	length := len(s.begin) + len(kept[0].tokens) - 1
	for i := range placed {
		if !taken[i] {
			placed[i], others = others[0], others[1:]
			if err := s.d.Fork(i, placed[i].from, length); err != nil {
				return err
			}
		}
	}
	s.beams = placed
	return nil
}
