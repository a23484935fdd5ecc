package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// author writes text by a model, whose parameters may be trained meanwhile.
type author struct {
	parameters *nn.Parameters
	decoder    *nn.Decoder
	tokenizer  tokenizer.Tokenizer
	before     string // what the model reads before the prompt, which is not shown
	prompt     string
	how        sample.Options
}

// newAuthor makes an author, or nil where the weights are shared out: no process can write by its
// part of them.
func newAuthor(s settings, o options, parameters *nn.Parameters, t tokenizer.Tokenizer) (*author, error) {
	if parameters.IsSharedOut() {
		return nil, nil
	}
	if _, err := t.Encode(o.prompt); err != nil {
		return nil, fmt.Errorf("-sample: %w", err)
	}
	decoder, err := nn.NewDecoder(nn.DecoderConfig{
		Parameters: parameters, Model: func(scope *nn.Scope) nn.CachedModel { return s.gpt(scope, t.Size()) },
	})
	if err != nil {
		return nil, err
	}
	a := &author{parameters: parameters, decoder: decoder, tokenizer: t, prompt: o.prompt, how: sample.Options{
		Sampler:   s.sampler(o),
		MaxTokens: o.length,
	}}
	if !o.sample && s.Data == "" { // Go is easiest to know by a function
		a.before, a.prompt = "\n", "func"
	}
	if a.prompt == "" { // a text begins after a line break
		if a.how.Start, err = t.Encode("\n"); err != nil {
			a.how.Start = []int{0} // one line was all there was to learn from
		}
	}
	return a, nil
}

// largeModel is the number of parameters from which on a model repeats itself at the temperature at
// which a smaller one writes best.
const largeModel = 20e6

// sampler is how tokens are chosen: as flags say, or as suits a model of this size.
func (s settings) sampler(o options) sample.SamplerOptions {
	how := sample.SamplerOptions{Temperature: o.temperature, TopK: o.topK, TopP: o.topP, NoRepeat: o.noRepeat, Seed: s.Seed}
	if s.parameters() < largeModel {
		return how
	}
	if !o.given["temperature"] {
		how.Temperature = 0.9
	}
	if !o.given["top-p"] {
		how.TopP = 0.95
	}
	if !o.given["no-repeat"] {
		how.NoRepeat = 12
	}
	return how
}

// take makes the weights of a checkpoint those that it writes by.
func (a *author) take(c checkpoint.Checkpoint) error {
	return setWeights(a.parameters, c)
}

// setWeights gives parameters the weights of a checkpoint.
func setWeights(p *nn.Parameters, c checkpoint.Checkpoint) error {
	for _, w := range c.Weights {
		if err := p.Set(w.Name, w.Value); err != nil {
			return err
		}
	}
	return nil
}

// write writes the prompt and what the model makes of it. It ends the line whatever ends the text.
func (a *author) write(ctx context.Context, w io.Writer) error {
	if _, err := io.WriteString(w, a.prompt); err != nil {
		return err
	}
	err := sample.Generate(ctx, a.decoder, a.tokenizer, a.before+a.prompt, a.how, sample.Write(w))
	_, endErr := io.WriteString(w, "\n")
	return cmp.Or(err, endErr)
}

// glimpseTokens is how much of its writing a model shows in between.
const glimpseTokens = 120

// glimpse writes a few lines by the model as it is after an evaluation, once for all who ask.
func (a *author) glimpse(ctx context.Context) func(train.Evaluation) (string, error) {
	at, was := -1, ""
	return func(e train.Evaluation) (string, error) {
		if a == nil || e.Done == at {
			return was, nil
		}
		how := a.how
		how.MaxTokens = glimpseTokens
		var text strings.Builder
		text.WriteString(a.prompt)
		err := sample.Generate(ctx, a.decoder, a.tokenizer, a.before+a.prompt, how, sample.Write(&text))
		if ctx.Err() != nil {
			err = nil // a run that is to stop shows what there is
		}
		if err == nil {
			at, was = e.Done, text.String()
		}
		return text.String(), err
	}
}
