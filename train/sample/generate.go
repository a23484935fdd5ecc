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

// Decoder predicts what follows the tokens that it was given.
// [github.com/stheno-ml/stheno/nn.Decoder] is one.
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
	// StopStrings end the text where one of them begins. What may become one is held back until it
	// is not.
	StopStrings []string
	// Suppress are tokens that are never chosen.
	Suppress []int
	// Start are tokens that stand before those of the prompt, such as one that says where a text
	// begins. An empty prompt needs at least one: a model predicts what follows something.
	Start []int
}

// Generate continues a prompt and writes the text that follows it, without the prompt, as it comes:
// bytes of a character are held back until it is whole. The decoder is reset first, so the text
// depends on the arguments alone. Tokens that the tokenizer does not know, which a model may have
// more of, are never chosen.
//
// A cancelled context ends the text; then, as after any error, what was chosen so far has been
// written.
func Generate(ctx context.Context, d Decoder, t Tokenizer, prompt string, o Options, w io.Writer) error {
	if err := generate(ctx, d, t, prompt, o, w); err != nil {
		return fmt.Errorf("Generate: %w", err)
	}
	return nil
}

func generate(ctx context.Context, d Decoder, t Tokenizer, prompt string, o Options, w io.Writer) (err error) {
	if d == nil {
		return errors.New("d is nil, it needs to be a decoder, such as nn.NewDecoder makes")
	}
	g, err := newText(t, prompt, o, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.end()) }()
	d.Reset()
	for ended := false; !ended; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		logits, err := d.Logits(g.next)
		if err != nil {
			return err
		}
		if ended, err = g.take(logits); err != nil {
			return err
		}
	}
	return nil
}

// BatchDecoder predicts what follows several texts. [github.com/stheno-ml/stheno/nn.BatchDecoder]
// is one.
type BatchDecoder interface {
	// Batch is how many texts there are.
	Batch() int
	// Reset forgets all tokens.
	Reset()
	// Truncate forgets all tokens of one text but the first n.
	Truncate(text, n int) error
	// Logits takes tokens that follow those of each text, and gives the logits of the next of those
	// that got any.
	Logits(tokens [][]int) ([][]float64, error)
}

// GenerateBatch is [Generate] of several prompts, of any lengths, each with a writer of its own
// and, counted from Options.Sampler.Seed on, a seed of its own. As many are continued at once as
// the decoder has texts, and when one ends the next takes its place. Each text is the one that
// Generate gives for its prompt and seed, as far as the model's rounding is the same for one text
// and for several.
//
// A cancelled context ends all texts. An error that a writer gives ends them, too.
func GenerateBatch(ctx context.Context, d BatchDecoder, t Tokenizer, prompts []string, o Options, w []io.Writer) error {
	if err := generateBatch(ctx, d, t, prompts, o, w); err != nil {
		return fmt.Errorf("GenerateBatch: %w", err)
	}
	return nil
}

func generateBatch(ctx context.Context, d BatchDecoder, t Tokenizer, prompts []string, o Options, w []io.Writer) (err error) {
	if d == nil {
		return errors.New("d is nil, it needs to be a decoder, such as nn.NewBatchDecoder makes")
	}
	if len(w) != len(prompts) {
		return fmt.Errorf("there are %d writers, it needs one for each of the %d prompts", len(w), len(prompts))
	}
	var waiting []*text
	for i, prompt := range prompts {
		own := o
		own.Sampler.Seed += uint64(i)
		g, err := newText(t, prompt, own, w[i])
		if err != nil {
			return fmt.Errorf("prompt %d: %w", i, err)
		}
		waiting = append(waiting, g)
	}
	all := waiting
	defer func() {
		for _, g := range all {
			err = errors.Join(err, g.end())
		}
	}()
	d.Reset()
	for places := make([]*text, d.Batch()); ; {
		tokens, left := make([][]int, len(places)), false
		for i := range places {
			if places[i] == nil && len(waiting) > 0 {
				if err := d.Truncate(i, 0); err != nil {
					return err
				}
				places[i], waiting = waiting[0], waiting[1:]
			}
			if places[i] != nil {
				tokens[i], left = places[i].next, true
			}
		}
		if !left {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		logits, err := d.Logits(tokens)
		if err != nil {
			return err
		}
		for i, g := range places {
			if g == nil {
				continue
			}
			ended, err := g.take(logits[i])
			if err != nil {
				return err
			}
			if ended {
				if err := g.end(); err != nil {
					return err
				}
				places[i] = nil
			}
		}
	}
}

// text is one that is being written.
type text struct {
	t        Tokenizer
	o        Options
	sampler  *Sampler
	next     []int // what the decoder is given next
	earlier  []int // all tokens, the prompt's too
	chosen   int
	whole    *wholeCharacters
	stopping *stopStrings
}

func newText(t Tokenizer, prompt string, o Options, w io.Writer) (*text, error) {
	switch {
	case t == nil:
		return nil, errors.New("t is nil, it needs to be a tokenizer")
	case w == nil:
		return nil, errors.New("w is nil, it needs to be a writer")
	case o.MaxTokens < 1:
		return nil, fmt.Errorf("max tokens is %d, it needs to be at least 1", o.MaxTokens)
	case o.MinTokens < 0:
		return nil, fmt.Errorf("min tokens is %d, it cannot be negative", o.MinTokens)
	case slices.Contains(o.StopStrings, ""):
		return nil, errors.New("a stop string is empty, it needs to have characters")
	}
	sampler, err := NewSampler(o.Sampler)
	if err != nil {
		return nil, err
	}
	encoded, err := t.Encode(prompt)
	if err != nil {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	next := slices.Concat(o.Start, encoded)
	if len(next) == 0 {
		return nil, errors.New("the prompt is empty, it needs at least one token, or Options.Start to have one")
	}
	stopping := &stopStrings{w: w, stops: o.StopStrings}
	return &text{t: t, o: o, sampler: sampler, next: next, earlier: slices.Clone(next), stopping: stopping, whole: &wholeCharacters{w: stopping}}, nil
}

// take chooses a token by the logits of what comes next and writes its part of the text, unless it
// ends that.
func (g *text) take(logits []float64) (ended bool, err error) {
	logits = logits[:min(g.t.Size(), len(logits))]
	forbid(logits, g.o.Suppress)
	if g.chosen < g.o.MinTokens {
		forbid(logits, g.o.Stop)
	}
	token, err := g.sampler.Next(logits, g.earlier...)
	if err != nil || slices.Contains(g.o.Stop, token) {
		return true, err
	}
	part, err := g.t.Bytes(token)
	if err != nil {
		return true, err
	}
	if err := g.whole.write(part); err != nil {
		return true, err
	}
	g.chosen++
	g.next, g.earlier = []int{token}, append(g.earlier, token)
	return g.stopping.stopped || g.chosen == g.o.MaxTokens, nil
}

// end writes what was held back.
func (g *text) end() error { return errors.Join(g.whole.flush(), g.stopping.flush()) }

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

// wholeCharacters writes text in whole characters of UTF-8. Bytes that can never become one are
// written as they are.
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
