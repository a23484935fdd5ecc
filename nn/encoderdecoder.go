package nn

import (
	"cmp"

	"github.com/stheno-ml/stheno/ops"
)

// EncoderDecoderConfig describes an [EncoderDecoder].
type EncoderDecoderConfig struct {
	Encoder EncoderConfig
	// Decoder is a language model, whose blocks get Cross.
	Decoder LanguageModelConfig
	// Shared says that both look up tokens in one table, the part tokens.
	Shared bool
}

// EncoderDecoder predicts the next token of a text from those before it and from a source that an
// encoder has read as a whole: a text in another language, or a sound. T5, BART, Marian and Whisper
// are such.
//
// Its parts are called encoder, which is an [Encoder], decoder, which is a [LanguageModel], and
// with Shared tokens. A [Decoder] runs it: Read gives it a source.
type EncoderDecoder struct {
	layer
	encoder *Encoder
	decoder *LanguageModel
	source  int // the longest
}

// NewEncoderDecoder makes an EncoderDecoder in a scope.
func NewEncoderDecoder(s *Scope, c EncoderDecoderConfig) *EncoderDecoder {
	m := &EncoderDecoder{layer: s.layer("EncoderDecoder")}
	if c.Shared {
		if c.Encoder.Text == nil || c.Encoder.Text.Vocab != c.Decoder.Vocab {
			m.failf("Shared is set, it needs an encoder of texts with the decoder's vocabulary of %d", c.Decoder.Vocab)
			return m
		}
		text := *c.Encoder.Text
		dim := cmp.Or(c.Decoder.TokenDim, c.Decoder.Block.Attention.Dim)
		if of := cmp.Or(text.Dim, c.Encoder.Block.Attention.Dim); of != dim {
			m.failf("Shared is set and tokens of the encoder have %d features, it needs the %d of the decoder", of, dim)
			return m
		}
		tokens := NewEmbedding(s.Sub("tokens"), EmbeddingConfig{Vocab: c.Decoder.Vocab, Dim: dim})
		text.Tokens, c.Decoder.Tokens, c.Encoder.Text = tokens, tokens, &text
	}
	switch e := c.Encoder; {
	case e.Text != nil:
		m.source = e.Text.Context
	case e.Sound != nil:
		m.source = e.Sound.Context
	}
	m.encoder = newEncoder(s.Sub("encoder"), "Encoder", c.Encoder)
	c.Decoder.Block.Cross, c.Decoder.Block.ContextDim = true, c.Encoder.Block.Attention.Dim
	m.decoder = newLanguageModel(s.Sub("decoder"), "LanguageModel", c.Decoder)
	return m
}

// Encode reads sources, as [Encoder.ForwardWith] does: (B, Sk, Dim).
func (m *EncoderDecoder) Encode(source Tensor, in EncoderInputs) Tensor {
	if m.encoder == nil {
		return m.failf("it has no encoder, it needs to be what NewEncoderDecoder gave")
	}
	return m.encoder.ForwardWith(source, in)
}

// DecodeInputs are what Decode and Loss read beside tokens.
type DecodeInputs struct {
	Context     Tensor // what Encode gave
	ContextMask Tensor // true where the source has no padding, (B, Sk); none hides nothing
	KeyMask     Tensor // of the tokens, (B, S); padding behind them needs none
}

func (m *EncoderDecoder) hidden(tokens Tensor, in DecodeInputs) Tensor {
	if m.decoder == nil {
		return m.failf("it has no decoder, it needs to be what NewEncoderDecoder gave")
	}
	return m.decoder.hiddenWith(tokens, BlockInputs{Context: in.Context, ContextMask: in.ContextMask, KeyMask: in.KeyMask})
}

// Decode gives the logits of the token after each of tokens, (B, S) → (B, S, Vocab).
func (m *EncoderDecoder) Decode(tokens Tensor, in DecodeInputs) Tensor {
	h := m.hidden(tokens, in)
	if m.decoder == nil {
		return h
	}
	return m.decoder.logits(h)
}

// Loss is the mean cross-entropy of predicting targets, (B, S), from tokens, (B, S), and the
// context; see [LanguageModel.Loss].
func (m *EncoderDecoder) Loss(tokens, targets Tensor, in DecodeInputs) Tensor {
	h := m.hidden(tokens, in)
	if m.decoder == nil {
		return h
	}
	return m.decoder.lossOf(h, tokens, targets)
}

// Context is the longest text that the model writes, 0 if there is no limit.
func (m *EncoderDecoder) Context() int {
	if m.decoder == nil {
		return 0
	}
	return m.decoder.Context()
}

// SourceContext is the longest source that the model reads, in vectors of its encoder.
func (m *EncoderDecoder) SourceContext() int { return m.source }

// NewCaches is an empty cache for each block of the decoder.
func (m *EncoderDecoder) NewCaches(batch, capacity int) ([]*ops.KVCache, error) {
	if m.decoder == nil {
		return nil, errUnmade
	}
	return m.decoder.NewCaches(batch, capacity)
}

// NewMemories is an empty cache for what each block of the decoder reads of a source.
func (m *EncoderDecoder) NewMemories(batch, capacity int) ([]*ops.KVCache, error) {
	if m.decoder == nil || m.decoder.stack == nil {
		return nil, errUnmade
	}
	return m.decoder.stack.NewMemories(batch, capacity)
}

// Memorise gives what the blocks of the decoder read of a source: the keys and values of the first,
// of the second, and so on, (B, heads, Sk, size of a head) each.
func (m *EncoderDecoder) Memorise(source Tensor) []Tensor {
	context := m.Encode(source, EncoderInputs{})
	if m.decoder == nil || m.decoder.stack == nil || !m.isMade() {
		return nil
	}
	return m.decoder.stack.Memorise(context)
}

// ForwardCached is [LanguageModel.ForwardCached], where behind the caches stand the memories.
func (m *EncoderDecoder) ForwardCached(tokens, positions Tensor, caches []*ops.KVCache) Tensor {
	if m.decoder == nil {
		return m.failf("it has no decoder, it needs to be what NewEncoderDecoder gave")
	}
	return m.decoder.ForwardCached(tokens, positions, caches)
}
