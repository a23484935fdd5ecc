package pretrained

import (
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
)

// The decoders of this file are encoders: their tokens see those behind them too.

// sighted are the families, by model_type, that may be so by the field is_causal.
var sighted = []string{"llama", "mistral", "qwen2", "qwen3"}

// sees reads whether attention sees all tokens.
func (d *decoder) sees(c *config) {
	const name = "is_causal"
	value, given := c.fields[name]
	c.read[name] = true
	if !given || string(value) == "true" {
		return
	}
	if family := c.string("model_type", ""); !slices.Contains(sighted, family) || d.Classes != nil {
		c.fail("field is_causal is %.40s, only true is supported for a %s, or one with a head for classes", value, family)
	}
	d.both = c
}

// encoder makes an encoder of the decoder.
func (d *decoder) encoder(a *architecture) *architecture {
	if given := d.both.strings("architectures"); len(given) > 0 && strings.HasSuffix(given[0], bare) {
		a.trim()
	}
	d.encode(a, func(window int) int { return window })
	return a
}

// encode makes an encoder without a head of the decoder. With reach, a layer that has a window sees
// as far on either side.
func (d *decoder) encode(a *architecture, reach func(window int) int) {
	change := d.Change
	d.Change = func(i int, b *nn.BlockConfig) {
		change(i, b)
		b.Attention.Options.Causal = kernels.NotCausal
		if b.Attention.Options.Window != nil {
			far := reach(d.windows[i])
			b.Attention.Options.Window = &kernels.Window{Left: far, Right: far}
		}
	}
	e := nn.EncoderConfig{
		Layers: d.Layers, Block: d.Block, Change: d.Change,
		Text: &nn.TextConfig{Vocab: d.Vocab, Context: d.Context, NoPositions: true, Scale: d.EmbeddingScale},
	}
	head := d.names.head + "."
	a.links = slices.DeleteFunc(a.links, func(l link) bool { return strings.HasPrefix(l.theirs, head) })
	a.decoder, a.repeats = nil, nil
	a.build = func(s *nn.Scope) any { return nn.NewEncoder(s, e) }
}

// trim takes the prefix away from the tensors' names, as transformers writes a model without a
// head.
func (a *architecture) trim() {
	for i := range a.links {
		a.links[i].theirs = strings.TrimPrefix(a.links[i].theirs, a.prefix)
	}
}

// encodeGemma makes an encoder of a Gemma 3 whose tokens see those behind them too, as
// EmbeddingGemma's.
func (d *decoder) encodeGemma(c *config, a *architecture) {
	if given := c.strings("architectures"); len(given) > 0 && given[0] != "Gemma3TextModel" {
		c.fail("field use_bidirectional_attention is true and field architectures is %q, it needs to be Gemma3TextModel", given[0])
	}
	if !d.TiedHead {
		c.fail("field tie_word_embeddings is false, a model whose attention sees all tokens has no head")
	}
	a.trim()
	d.encode(a, func(window int) int { return window / 2 })
}
