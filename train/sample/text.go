package sample

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/kernels"
)

// Tokenizer turns text into tokens and back. Those of package train/tokenizer are.
type Tokenizer interface {
	// Encode gives the tokens of a text.
	Encode(text string) ([]int, error)
	// Bytes gives the part of a text that a token stands for, which need not be whole characters.
	Bytes(id int) ([]byte, error)
	// Size is the number of tokens.
	Size() int
}

// Options say what a text is to be.
type Options struct {
	Sampler SamplerOptions
	// MaxTokens is how many tokens are chosen, at least 1, unless the text ends before.
	MaxTokens int
	// MinTokens is how many tokens are chosen before one of Stop can be.
	MinTokens int
	// Stop are tokens that end the text, and are not a part of it.
	Stop []int
	// StopStrings end the text where one of them begins. What may become one is held back until it
	// is not.
	StopStrings []string
	// Suppress are tokens that are never chosen.
	Suppress []int
	// Start are tokens that stand before those of the prompt, such as one that says where a text
	// begins. An empty prompt needs at least one: a model predicts what follows something.
	Start []int
	// LogProbs asks for the log-probability of each token, and of the TopLogProbs most probable
	// ones in its place.
	LogProbs    bool
	TopLogProbs int
}

// Token is one that was chosen.
type Token struct {
	ID int
	// Text is what became certain of the text by this token. It is empty, or whole characters of
	// UTF-8, unless the model does not write such: what may become a character or a stop string is
	// held back.
	Text string
	// LogProb is the logarithm of the probability that the model gave the token, before
	// temperature, penalties and whatever else Options say, and Top are the most probable tokens,
	// the first of equal ones first. Options.LogProbs asks for both.
	LogProb float64
	Top     []Choice
	// End says why this is the last token; empty if others follow. A token of Options.Stop is given
	// as the last one, and its own text is not in Text.
	End End
}

// Choice is a token that could have been chosen.
type Choice struct {
	ID      int
	LogProb float64
}

// End is why a text ends.
type End string

// A text ends by one of Options.Stop or StopStrings, or by MaxTokens.
const (
	EndStop   End = "stop"
	EndLength End = "length"
)

// Text is a text that is being written, for programs that run the model themselves. Each step gives
// the model the tokens of Next and takes a token by the logits of what follows them:
//
//	for token.End == "" {
//		logits, err := decoder.Logits(text.Next())
//		token, err = text.Take(logits)
//	}
type Text struct {
	t       Tokenizer
	o       Options
	sampler *Sampler
	next    []int
	chosen  int
	held    []byte // of the text, which may become a character or a stop string
}

var errNoTokenizer = errors.New("t is nil, it needs to be a tokenizer")

// NewText is a text behind the tokens of a prompt.
func NewText(t Tokenizer, prompt []int, o Options) (*Text, error) {
	switch {
	case t == nil:
		return nil, errNoTokenizer
	case o.MaxTokens < 1:
		return nil, fmt.Errorf("max tokens is %d, it needs to be at least 1", o.MaxTokens)
	case o.MinTokens < 0:
		return nil, fmt.Errorf("min tokens is %d, it cannot be negative", o.MinTokens)
	case o.TopLogProbs < 0:
		return nil, fmt.Errorf("top log probs is %d, it cannot be negative", o.TopLogProbs)
	case slices.Contains(o.StopStrings, ""):
		return nil, errors.New("a stop string is empty, it needs to have characters")
	}
	sampler, err := NewSampler(o.Sampler)
	if err != nil {
		return nil, err
	}
	next := slices.Concat(o.Start, prompt)
	if len(next) == 0 {
		return nil, errors.New("the prompt is empty, it needs at least one token, or Options.Start to have one")
	}
	sampler.Follow(next)
	return &Text{t: t, o: o, sampler: sampler, next: next}, nil
}

// Next is the tokens that the model is given next: the prompt's, later the last one that was taken.
func (x *Text) Next() []int { return x.next }

var errZeroText = errors.New("Text: it is a zero value, it needs to be what NewText gave")

// Choice says how the token behind those of Next is to be chosen, for decoders that choose, as
// [github.com/stheno-ml/stheno/nn.Decoder.Choose] does. Tokens that the tokenizer does not know,
// which a model may have more of, are never chosen. TakeChosen takes what was chosen. It holds
// until the next call.
func (x *Text) Choice() kernels.Choice {
	if x.t == nil {
		return kernels.Choice{}
	}
	forbidden := x.o.Suppress
	if x.chosen < x.o.MinTokens {
		forbidden = slices.Concat(forbidden, x.o.Stop)
	}
	c := x.sampler.Choice(forbidden...)
	c.Tokens, c.LogProb = x.t.Size(), x.o.LogProbs
	return c
}

// NeedsLogits reports whether a choice is not all that the text needs: the most probable tokens are
// to be listed.
func (x *Text) NeedsLogits() bool { return x.o.LogProbs && x.o.TopLogProbs > 0 }

// Take chooses a token by the logits of what follows those of Next, as Choice says.
func (x *Text) Take(logits []float64) (Token, error) {
	if x.t == nil {
		return Token{}, errZeroText
	}
	if len(logits) == 0 {
		return Token{}, errors.New("logits is empty, it needs at least one")
	}
	c := x.Choice()
	c.LogProb = false // Top needs the same sum
	chosen, err := choose(c, logits)
	if err != nil {
		return Token{}, err
	}
	token, err := x.TakeChosen(chosen)
	if x.o.LogProbs {
		total := logSumExp(logits)
		token.LogProb = logits[token.ID] - total
		token.Top = mostProbableOf(logits[:min(x.t.Size(), len(logits))], x.o.TopLogProbs, total)
	}
	return token, err
}

// TakeChosen takes a token that was chosen as Choice says.
func (x *Text) TakeChosen(c kernels.Chosen) (Token, error) {
	token := Token{ID: c.ID, LogProb: c.LogProb}
	switch {
	case x.t == nil:
		return Token{}, errZeroText
	case c.Err != nil:
		return Token{}, c.Err
	case c.ID < 0 || c.ID >= x.t.Size():
		return Token{}, fmt.Errorf("token %d was chosen, it needs to be from 0 to %d", c.ID, x.t.Size()-1)
	}
	x.sampler.Took(c.ID)
	x.next = []int{token.ID}
	if x.chosen++; x.chosen == x.o.MaxTokens {
		token.End = EndLength
	}
	if slices.Contains(x.o.Stop, token.ID) {
		token.End = EndStop
	} else {
		part, err := x.t.Bytes(token.ID)
		if err != nil {
			return token, err
		}
		var stopped bool
		if token.Text, stopped = x.add(part); stopped {
			token.End = EndStop
		}
	}
	if token.End != "" {
		token.Text += string(x.held)
		x.held = nil
	}
	return token, nil
}

// add adds a part to the text, and gives what is then certain of it, or all that is left of it
// before a stop string.
func (x *Text) add(part []byte) (ready string, stopped bool) {
	x.held = append(x.held, part...)
	end := len(x.held)
	for _, stop := range x.o.StopStrings {
		if at := bytes.Index(x.held, []byte(stop)); at >= 0 && at < end {
			end, stopped = at, true
		}
	}
	if stopped {
		ready, x.held = string(x.held[:end]), nil
		return ready, true
	}
	for _, stop := range x.o.StopStrings {
		for n := min(len(stop)-1, len(x.held)); n > len(x.held)-end; n-- {
			if bytes.HasSuffix(x.held, []byte(stop[:n])) {
				end = len(x.held) - n
			}
		}
	}
	end = min(end, wholeCharacters(x.held))
	ready, x.held = string(x.held[:end]), x.held[end:]
	return ready, false
}

// wholeCharacters is how many bytes of a text are whole characters of UTF-8, or can never become
// such.
func wholeCharacters(text []byte) int {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return i
			}
			break
		}
	}
	return len(text)
}

// logSumExp is the logarithm of what the weights of all tokens sum to.
func logSumExp(logits []float64) float64 {
	if len(logits) == 0 {
		return 0
	}
	largest, sum := slices.Max(logits), 0.0
	for _, x := range logits {
		sum += math.Exp(x - largest)
	}
	return largest + math.Log(sum)
}

// mostProbableOf lists up to n tokens, of which the first is the most probable.
func mostProbableOf(logits []float64, n int, total float64) []Choice {
	var list []Choice
	for id, x := range logits {
		if len(list) == n && (n == 0 || x <= list[n-1].LogProb) {
			continue
		}
		at := len(list)
		for at > 0 && x > list[at-1].LogProb {
			at--
		}
		list = slices.Insert(list, at, Choice{id, x})
		list = list[:min(n, len(list))]
	}
	for i := range list {
		list[i].LogProb -= total
	}
	return list
}
