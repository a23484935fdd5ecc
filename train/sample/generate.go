package sample

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"
)

// Decoder predicts what follows the tokens that it was given. [github.com/stheno-ml/stheno/nn.Decoder] is one.
type Decoder interface {
	// Reset forgets all tokens.
	Reset()
	// Logits takes tokens that follow those before, and gives the logits of the next.
	Logits(tokens []int) ([]float64, error)
}

// Tokenizer turns text into tokens and back. Those of package train/tokenizer are.
type Tokenizer interface {
	// Encode gives the tokens of a text.
	Encode(text string) ([]int, error)
	// Bytes gives the part of a text that a token stands for, which need not be whole characters.
	Bytes(id int) ([]byte, error)
	// Size is the number of tokens.
	Size() int
}

// Options say what [Generate] writes.
type Options struct {
	Sampler SamplerOptions
	// MaxTokens is how many tokens are chosen, at least 1, unless a token of Stop comes first.
	MaxTokens int
	// MinTokens is how many tokens are chosen before one of Stop can be.
	MinTokens int
	// Stop are tokens that end the text, and are not a part of it.
	Stop []int
	// StopStrings end the text where one of them begins. What may become one is held back until it is not.
	StopStrings []string
	// Suppress are tokens that are never chosen.
	Suppress []int
	// Start are tokens that stand before those of the prompt, such as one that says where a text begins. An empty prompt
	// needs at least one: a model predicts what follows something.
	Start []int
}

// Generate continues a prompt and writes the text that follows it, without the prompt, as it comes: bytes of a character
// are held back until it is whole. The decoder is reset first, so the text depends on the arguments alone. Tokens that the
// tokenizer does not know, which a model may have more of, are never chosen.
//
// A cancelled context ends the text; then, as after any error, what was chosen so far has been written.
func Generate(ctx context.Context, d Decoder, t Tokenizer, prompt string, o Options, w io.Writer) error {
	if err := generate(ctx, d, t, prompt, o, w); err != nil {
		return fmt.Errorf("Generate: %w", err)
	}
	return nil
}

func generate(ctx context.Context, d Decoder, t Tokenizer, prompt string, o Options, w io.Writer) (err error) {
	switch {
	case d == nil:
		return errors.New("d is nil, it needs to be a decoder, such as nn.NewDecoder makes")
	case t == nil:
		return errors.New("t is nil, it needs to be a tokenizer")
	case w == nil:
		return errors.New("w is nil, it needs to be a writer")
	}
	if o.MaxTokens < 1 {
		return fmt.Errorf("max tokens is %d, it needs to be at least 1", o.MaxTokens)
	}
	if o.MinTokens < 0 {
		return fmt.Errorf("min tokens is %d, it cannot be negative", o.MinTokens)
	}
	if slices.Contains(o.StopStrings, "") {
		return errors.New("a stop string is empty, it needs to have characters")
	}
	sampler, err := NewSampler(o.Sampler)
	if err != nil {
		return err
	}
	encoded, err := t.Encode(prompt)
	if err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	next := slices.Concat(o.Start, encoded)
	if len(next) == 0 {
		return errors.New("the prompt is empty, it needs at least one token, or Options.Start to have one")
	}

	stopping := &stopStrings{w: w, stops: o.StopStrings}
	text := &wholeCharacters{w: stopping}
	defer func() { err = errors.Join(err, text.flush(), stopping.flush()) }()
	d.Reset()
	earlier := slices.Clone(next)
	for chosen := range o.MaxTokens {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		logits, err := d.Logits(next)
		if err != nil {
			return err
		}
		logits = logits[:min(t.Size(), len(logits))]
		forbid(logits, o.Suppress)
		if chosen < o.MinTokens {
			forbid(logits, o.Stop)
		}
		token, err := sampler.Next(logits, earlier...)
		if err != nil {
			return err
		}
		if slices.Contains(o.Stop, token) {
			return nil
		}
		part, err := t.Bytes(token)
		if err != nil {
			return err
		}
		if err := text.write(part); err != nil || stopping.stopped {
			return err
		}
		next, earlier = []int{token}, append(earlier, token)
	}
	return nil
}

func forbid(logits []float64, tokens []int) {
	for _, id := range tokens {
		if id >= 0 && id < len(logits) {
			logits[id] = math.Inf(-1)
		}
	}
}

// stopStrings writes text up to the first of some strings.
type stopStrings struct {
	w       io.Writer
	stops   []string
	held    []byte // which may be the beginning of one
	stopped bool
}

func (s *stopStrings) Write(part []byte) (int, error) {
	if s.stopped {
		return len(part), nil
	}
	s.held = append(s.held, part...)
	end, hold := len(s.held), 0
	for _, stop := range s.stops {
		if at := bytes.Index(s.held, []byte(stop)); at >= 0 && at < end {
			end, s.stopped = at, true
		}
		for n := min(len(stop)-1, len(s.held)); n > hold; n-- {
			if bytes.HasSuffix(s.held, []byte(stop[:n])) {
				hold = n
			}
		}
	}
	if !s.stopped {
		end -= hold
	}
	ready := s.held[:end]
	s.held = s.held[end:]
	if s.stopped {
		s.held = nil
	}
	if len(ready) == 0 {
		return len(part), nil
	}
	if _, err := s.w.Write(ready); err != nil {
		return 0, err
	}
	return len(part), nil
}

// flush writes what is held back.
func (s *stopStrings) flush() error {
	if len(s.held) == 0 {
		return nil
	}
	_, err := s.w.Write(s.held)
	s.held = nil
	return err
}

// wholeCharacters writes text in whole characters of UTF-8. Bytes that can never become one are written as they are.
type wholeCharacters struct {
	w    io.Writer
	held []byte
}

func (c *wholeCharacters) write(part []byte) error {
	c.held = append(c.held, part...)
	whole := len(c.held)
	for i := len(c.held) - 1; i >= max(0, len(c.held)-utf8.UTFMax); i-- {
		if utf8.RuneStart(c.held[i]) {
			if !utf8.FullRune(c.held[i:]) {
				whole = i
			}
			break
		}
	}
	return c.out(whole)
}

// flush writes what is held back.
func (c *wholeCharacters) flush() error { return c.out(len(c.held)) }

func (c *wholeCharacters) out(n int) error {
	if n == 0 {
		return nil
	}
	ready := c.held[:n]
	c.held = c.held[n:]
	_, err := c.w.Write(ready)
	return err
}
