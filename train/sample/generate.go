package sample

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/stheno-ml/stheno/kernels"
)

// Decoder predicts what follows the tokens that it was given.
// [github.com/stheno-ml/stheno/nn.Decoder] is one.
type Decoder interface {
	// Reset forgets all tokens.
	Reset()
	// Logits takes tokens that follow those before, and gives the logits of the next.
	Logits(tokens []int) ([]float64, error)
}

// chooser is a decoder that chooses tokens where it computes: a [Decoder] or a [BatchDecoder] is
// asked for tokens rather than for logits if it can.
type (
	chooser interface {
		Choose(tokens []int, c kernels.Choice) (kernels.Chosen, error)
	}
	batchChooser interface {
		Choose(tokens [][]int, c []kernels.Choice) ([]kernels.Chosen, error)
	}
)

// Generate continues a prompt and calls each for every token that it chooses, as it comes. The
// decoder is reset first, so the text depends on the arguments alone. [Write] is for who wants
// nothing but the text.
//
// A cancelled context, and an error that each returns, end the text. What its last tokens hold back
// is then lost.
func Generate(ctx context.Context, d Decoder, t Tokenizer, prompt string, o Options, each func(Token) error) error {
	if err := generate(ctx, d, t, prompt, o, each); err != nil {
		return fmt.Errorf("Generate: %w", err)
	}
	return nil
}

// Write writes the text of tokens, for [Generate]. Each write is whole characters of UTF-8, unless
// the model does not write such.
func Write(w io.Writer) func(Token) error {
	if w == nil {
		return nil
	}
	return func(t Token) error {
		if t.Text == "" {
			return nil
		}
		_, err := io.WriteString(w, t.Text)
		return err
	}
}

func generate(ctx context.Context, d Decoder, t Tokenizer, prompt string, o Options, each func(Token) error) error {
	switch {
	case d == nil:
		return errors.New("d is nil, it needs to be a decoder, such as nn.NewDecoder makes")
	case each == nil:
		return errors.New("each is nil, it needs to be a function, such as Write makes of a writer")
	}
	g, err := encoded(t, prompt, o)
	if err != nil {
		return err
	}
	d.Reset()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		token, err := next(d, g)
		if err == nil {
			err = each(token)
		}
		if err != nil || token.End != "" {
			return err
		}
	}
}

// next has a decoder give the next token of a text.
func next(d Decoder, g *Text) (Token, error) {
	if c, chooses := d.(chooser); chooses && !g.NeedsLogits() {
		chosen, err := c.Choose(g.Next(), g.Choice())
		if err != nil {
			return Token{}, err
		}
		return g.TakeChosen(chosen)
	}
	logits, err := d.Logits(g.Next())
	if err != nil {
		return Token{}, err
	}
	return g.Take(logits)
}

// NextOfTexts adds the given tokens to the windows of a decoder and gives a function that takes the
// next token of a text, which may be called for several at once, and needs to be for none. A text
// without tokens rests; texts that are nil do too.
func NextOfTexts(d BatchDecoder, tokens [][]int, texts []*Text) (take func(text int) (Token, error), err error) {
	c, chooses := d.(batchChooser)
	choices := make([]kernels.Choice, len(texts))
	for i, text := range texts {
		if text != nil && len(tokens[i]) > 0 {
			chooses = chooses && !text.NeedsLogits()
			choices[i] = text.Choice()
		}
	}
	if !chooses {
		logits, err := d.Logits(tokens)
		return func(text int) (Token, error) { return texts[text].Take(logits[text]) }, err
	}
	chosen, err := c.Choose(tokens, choices)
	return func(text int) (Token, error) { return texts[text].TakeChosen(chosen[text]) }, err
}

// encoded is a text behind a prompt.
func encoded(t Tokenizer, prompt string, o Options) (*Text, error) {
	if t == nil {
		return nil, errNoTokenizer
	}
	ids, err := t.Encode(prompt)
	if err != nil {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	return NewText(t, ids, o)
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

// GenerateBatch is [Generate] of several prompts, of any lengths. Each is told which of the prompts
// a token follows. A prompt's seed is Options.Sampler.Seed and its number. As many are continued at
// once as the decoder has texts, and when one ends the next takes its place. Each text is the one
// that Generate gives for its prompt and seed, as far as the model's rounding is the same for one
// text and for several.
//
// Package serve is for prompts that come while others are continued.
func GenerateBatch(ctx context.Context, d BatchDecoder, t Tokenizer, prompts []string, o Options, each func(prompt int, t Token) error) error {
	if err := generateBatch(ctx, d, t, prompts, o, each); err != nil {
		return fmt.Errorf("GenerateBatch: %w", err)
	}
	return nil
}

func generateBatch(ctx context.Context, d BatchDecoder, t Tokenizer, prompts []string, o Options, each func(prompt int, t Token) error) error {
	switch {
	case d == nil:
		return errors.New("d is nil, it needs to be a decoder, such as nn.NewBatchDecoder makes")
	case each == nil:
		return errors.New("each is nil, it needs to be a function")
	}
	texts := make([]*Text, len(prompts))
	for i, prompt := range prompts {
		own := o
		own.Sampler.Seed += uint64(i)
		var err error
		if texts[i], err = encoded(t, prompt, own); err != nil {
			return fmt.Errorf("prompt %d: %w", i, err)
		}
	}
	d.Reset()
	const free = -1
	places, waiting := make([]int, d.Batch()), 0 // which text has a place, and the next that needs one
	for i := range places {
		places[i] = free
	}
	for {
		tokens, taking, left := make([][]int, len(places)), make([]*Text, len(places)), false
		for i := range places {
			if places[i] == free && waiting < len(texts) {
				if err := d.Truncate(i, 0); err != nil {
					return err
				}
				places[i] = waiting
				waiting++
			}
			if places[i] != free {
				taking[i], left = texts[places[i]], true
				tokens[i] = taking[i].Next()
			}
		}
		if !left {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		take, err := NextOfTexts(d, tokens, taking)
		if err != nil {
			return err
		}
		for i, prompt := range places {
			if prompt == free {
				continue
			}
			token, err := take(i)
			if err == nil {
				err = each(prompt, token)
			}
			if err != nil {
				return err
			}
			if token.End != "" {
				places[i] = free
			}
		}
	}
}
