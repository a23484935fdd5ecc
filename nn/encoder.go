package nn

import (
	"github.com/stheno-ml/stheno/kernels"
)

// Encoder reads a whole sequence, of which every element sees every other: texts as BERT does, or
// the patches of an image as ViT does. It gives a vector for each element; a pooled vector of the
// first stands for the whole, and heads make classes of it or predictions of masked tokens.
// [NewBERT] and [NewViT] make one.
type Encoder struct {
	layer
	dim                int
	embed              func(x Tensor, in EncoderInputs) Tensor
	drop               *Dropout
	stack              *Stack
	pooler, classifier Layer       // nil for none
	masked             *maskedHead // nil for none
}

// body makes what all encoders have.
func (e *Encoder) body(stack StackConfig) {
	e.dim = stack.Block.Attention.Dim
	e.drop = e.dropout("drop", stack.Block.Dropout)
	e.stack = NewStack(e.s, stack)
}

// head makes a linear layer behind the stack.
func (e *Encoder) head(part string, out int, init Init, activation kernels.Activation) Layer {
	return NewLinear(e.s.Sub(part), LinearConfig{In: e.dim, Out: out, Activation: activation, Init: init})
}

// EncoderInputs are what a BERT may read besides tokens, (B, S) but for KeyLengths.
type EncoderInputs struct {
	Types   Tensor // of each token, int, int32 or int64 below Types; none means all 0
	KeyMask Tensor // true where there is a token and no padding; see [AttentionInputs]. None hides nothing

	KeyLengths Tensor // how many tokens each sequence has, (B), which costs less than a KeyMask; see [AttentionInputs]
}

// Forward gives a vector for each element of a sequence, (B, S, Dim): of tokens, which are (B, S)
// of int, int32 or int64, or of images, (B, Channels, Height, Width), for which the first vector is
// that of the whole and the others are the patches'.
func (e *Encoder) Forward(x Tensor) Tensor { return e.ForwardWith(x, EncoderInputs{}) }

// ForwardWith is [Encoder.Forward] with types of tokens and a mask of the padding.
func (e *Encoder) ForwardWith(x Tensor, in EncoderInputs) Tensor {
	if !e.given("x", x) {
		return e.none(x)
	}
	h := e.drop.Forward(e.embed(x, in))
	return e.stack.ForwardWith(h, BlockInputs{KeyMask: in.KeyMask, KeyLengths: in.KeyLengths})
}

// Pooled stands for each sequence: the tanh of a linear function of its first vector, (B, S, Dim) →
// (B, Dim).
func (e *Encoder) Pooled(h Tensor) Tensor {
	if e.pooler == nil {
		return e.failf("there is no pooler, the config needs Pooler")
	}
	return e.pooler.Forward(e.first(h)).Tanh()
}

// first is the vector of each sequence's first element.
func (e *Encoder) first(h Tensor) Tensor {
	if !e.takes("h", h, e.dim) {
		return e.none(h)
	}
	return Pool(h, FirstPool, Tensor{})
}

// Classify gives the logits of each sequence's classes: (B, S, Dim) → (B, Classes).
func (e *Encoder) Classify(h Tensor) Tensor {
	if e.classifier == nil {
		return e.failf("there is no classifier, the config needs Classes")
	}
	if e.pooler == nil {
		return e.classifier.Forward(e.first(h))
	}
	return e.classifier.Forward(e.drop.Forward(e.Pooled(h)))
}

// Predict gives the logits of the token at each place, such as a masked one: (B, S, Dim) → (B, S,
// Vocab). It shares the weights of the embedding.
func (e *Encoder) Predict(h Tensor) Tensor {
	if e.masked == nil {
		return e.failf("there is no head for masked tokens, the config needs Masked")
	}
	logits := e.masked.tokens.Logits(h.Through(e.masked.transform, e.masked.norm))
	return logits.Add(e.masked.bias)
}

// maskedHead predicts masked tokens.
type maskedHead struct {
	transform, norm Layer
	tokens          *Embedding
	bias            Tensor // (1, Vocab)
}
