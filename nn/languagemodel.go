package nn

import (
	"cmp"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// LanguageModelConfig describes a [LanguageModel]. [GPTConfig] and [LlamaConfig] are the usual
// ones.
type LanguageModelConfig struct {
	Vocab   int // how many tokens there are
	Context int // the longest sequence; 0 means no limit, where there are no Positions
	Layers  int
	// Block describes every block.
	Block BlockConfig
	// Change, if it is not nil, changes the description of block i before the block is made: its
	// window, its RoPE, where its norms are. It must do the same each time.
	Change func(i int, c *BlockConfig)

	Tokens   *Embedding // the vectors of tokens, made by another part of the model; nil for the model's own
	TokenDim int        // of the vectors of tokens and of what the head reads; 0 means that of the blocks, else linear layers lie between

	Positions      bool            // a vector is added for each position
	PositionKind   PositionKind    // which; zero means LearnedPositions
	Distances      *DistanceConfig // a bias of attention that goes by distance; nil for none
	FirstPosition  int             // the row of the table of positions that the first token has; the table has so many rows more
	SkipPadding    bool            // [LanguageModel.HiddenWith] counts positions over tokens alone, in integers, which takes a FirstPosition
	NoLastNorm     bool            // there is no norm behind the last block
	TiedHead       bool            // the head shares the weights of the embedding
	NoHead         bool            // there is none: the model gives vectors alone
	HeadBias       bool            // a number for each token is added to the logits, the parameter headbias
	Dropout        float64         // of the embeddings
	EmbeddingScale float64         // the embeddings are multiplied by it; 0 means 1
	EmbeddingNorm  bool            // the embeddings, with their positions, are normalised as the blocks' are, by the part embnorm
	LogitScale     float64         // the logits are multiplied by it; 0 means 1
	LogitSoftCap   float64         // bounds the logits to ±LogitSoftCap by a tanh; 0 means none
	BalanceFactor  float64         // of [Scope.BalanceLoss] in Loss, for blocks with [Experts]; 0 means none

	Classes *TextClasses // what Classify needs, in the place of the head for tokens; nil for that
}

// TextClasses describes a head that makes classes of whole texts, or a single number such as a
// reward, of the vector of their last tokens.
type TextClasses struct {
	Count   int
	Padding *int // the token that is padding; nil for none, then a batch is one text
}

// LanguageModel predicts the next token: an embedding, blocks, a norm, and a head that multiplies
// by the embedding or by a matrix of the same shape. [NewGPT] and [NewLlama] make the usual ones.
//
// Its parts are called tokens, positions, blocks.0, blocks.1, ..., norm and head, whose weight is
// (Vocab, Dim) as that of tokens is; in the place of the head is classifier where there are
// Classes. A TokenDim of its own adds project, behind the embedding, and narrow, before the head.
type LanguageModel struct {
	layer
	c         LanguageModelConfig
	tokens    *Embedding
	positions *PositionalEmbedding // nil for none
	drop      *Dropout
	norm      Layer // of the embeddings; nil for none
	project   Layer // of the embeddings, before positions; nil for none
	narrow    Layer // of what the blocks gave; nil for none
	stack     *Stack
	head      *Embedding // is tokens where the weights are tied; nil with a classifier or NoHead
	bias      Tensor     // of the logits, (1, Vocab); none without HeadBias

	classifier Layer // nil for none
}

// NewLanguageModel makes a LanguageModel in a scope.
func NewLanguageModel(s *Scope, c LanguageModelConfig) *LanguageModel {
	return newLanguageModel(s, "LanguageModel", c)
}

func newLanguageModel(s *Scope, kind string, c LanguageModelConfig) *LanguageModel {
	m := &LanguageModel{layer: s.layer(kind), c: c}
	sizes := []size{{"vocab", c.Vocab}, {"context", c.Context}, {"layers", c.Layers}, {"heads", c.Block.Attention.Heads}, {"dim", c.Block.Attention.Dim}}
	if !c.Positions {
		sizes[1] = size{"context", c.Context + 1}
	}
	if !c.Positions && c.Context < 0 {
		m.failf("context is %d, it needs to be positive, or 0 for no limit", c.Context)
	}
	if c.FirstPosition < 0 || c.FirstPosition > 0 && !c.Positions {
		m.failf("first position is %d, it needs to be 0, or positive with Positions", c.FirstPosition)
	}
	if c.SkipPadding && c.FirstPosition == 0 {
		m.failf("first position is 0, it needs to be positive with SkipPadding")
	}
	if c.TokenDim < 0 {
		m.failf("token dim is %d, it needs to be positive, or 0 for that of the blocks", c.TokenDim)
	}
	if !m.positive(sizes...) || !m.nonNegative("embedding scale", c.EmbeddingScale, "none") ||
		!m.nonNegative("logit scale", c.LogitScale, "none") || !m.nonNegative("logit soft cap", c.LogitSoftCap, "none") ||
		!m.nonNegative("balance factor", c.BalanceFactor, "none") {
		return m
	}
	dim := c.Block.Attention.Dim
	if m.tokens = c.Tokens; m.tokens == nil {
		m.tokens = NewEmbedding(s.Sub("tokens"), EmbeddingConfig{Vocab: c.Vocab, Dim: m.tokenDim()})
	}
	if width := m.tokenDim(); width != dim {
		m.project = m.linear("project", c.Block.NewLinear, LinearConfig{In: width, Out: dim, NoBias: true, Init: c.Block.Init})
	}
	if c.Positions {
		m.positions = NewPositionalEmbedding(s.Sub("positions"), PositionalEmbeddingConfig{
			Context: c.Context, Dim: dim, First: c.FirstPosition, Kind: c.PositionKind,
		})
	}
	if c.EmbeddingNorm {
		m.norm = m.layer.norm("embnorm", c.Block.NewNorm, c.Block.norm())
	}
	m.drop = m.dropout("drop", c.Dropout)
	if c.Distances != nil {
		addDistanceBias(s.Sub("distances"), *c.Distances, &c.Block.Attention, false)
	}
	m.stack = NewStack(s, StackConfig{Layers: c.Layers, Block: c.Block, Change: c.Change, NoNorm: c.NoLastNorm})
	if m.project != nil {
		m.narrow = m.linear("narrow", c.Block.NewLinear, LinearConfig{In: dim, Out: m.tokenDim(), NoBias: true, Init: c.Block.Init})
	}
	m.addHead(m.tokenDim())
	return m
}

// tokenDim is the width of the vectors of tokens, and of what the head reads.
func (m *LanguageModel) tokenDim() int { return cmp.Or(m.c.TokenDim, m.c.Block.Attention.Dim) }

// addHead makes the head: for tokens, or for classes.
func (m *LanguageModel) addHead(dim int) {
	if c := m.c.Classes; c != nil {
		if m.positive(size{"classes", c.Count}) {
			m.classifier = m.linear("classifier", nil, LinearConfig{In: dim, Out: c.Count, NoBias: true, Init: m.c.Block.Init})
		}
		return
	}
	if m.c.NoHead {
		return
	}
	if m.head = m.tokens; m.c.TiedHead {
		m.tokens.tie()
	} else {
		m.head = NewEmbedding(m.s.Sub("head"), EmbeddingConfig{Vocab: m.c.Vocab, Dim: dim, onlyLogits: true})
	}
	if m.c.HeadBias {
		m.bias = m.s.Parameter("headbias", Zero, 1, m.c.Vocab)
	}
}

// Forward gives the logits of the token after each of tokens, which are (B, S) of int, int32 or
// int64: (B, S, Vocab).
func (m *LanguageModel) Forward(tokens Tensor) Tensor { return m.logits(m.hidden(tokens)) }

// Hidden gives what the head reads, a vector for each token: (B, S) → (B, S, Dim).
func (m *LanguageModel) Hidden(tokens Tensor) Tensor { return m.hidden(tokens) }

// HiddenWith is [LanguageModel.Hidden] where keyMask, (B, S), is true where there is a token and no
// padding; see [AttentionInputs]. Padding behind a text needs none, as no token sees later ones.
// Positions are counted from the first of a row, padding or not, but with SkipPadding.
func (m *LanguageModel) HiddenWith(tokens, keyMask Tensor) Tensor {
	return m.hiddenWith(tokens, BlockInputs{KeyMask: keyMask})
}

// Classify gives the logits of each text's classes, of the vector of its last token that is not
// padding, which may stand on either side: what Hidden or HiddenWith gave, (B, S, Dim), and the
// same tokens, (B, S) → (B, Classes.Count).
func (m *LanguageModel) Classify(h, tokens Tensor) Tensor {
	if m.c.Classes == nil {
		return m.failf("there is no classifier, the config needs Classes")
	}
	if !m.takes("h", h, m.tokenDim()) || !m.takesTokens(tokens, 2) {
		return m.none(h)
	}
	shape := tokens.Shape()
	switch got := h.Shape(); {
	case len(got) != 3 || !got[:2].Eq(shape):
		return m.failf("h has shape %v, it needs (batch, length, dim) of the tokens, which are %v", []int(got), []int(shape))
	case m.c.Classes.Padding != nil:
		return m.classifier.Forward(m.isLast(tokens).Cast(h.DType()).MatMul(h).Reshape(shape[0], m.tokenDim()))
	case shape[0] > 1:
		return m.failf("tokens has %d texts, it needs 1 where Classes has no Padding", shape[0])
	}
	return m.classifier.Forward(Pool(h, LastPool, Tensor{}))
}

// isLast is 1 at the last token that is not padding and 0 elsewhere, (B, 1, S). Of a row of nothing
// but padding it is 1 at the first. Places that grow where there are tokens and fall where there is
// padding are so far apart that the largest has all of their softmax.
func (m *LanguageModel) isLast(tokens Tensor) Tensor {
	const apart = 1000 // e^-apart is 0 in float64, too
	batch, length := tokens.Dim(0), tokens.Dim(1)
	signs := m.s.constant(m.s.child("padding.signs"), func() *tensor.Dense {
		return denseOf(m.s.dtype, []int{m.c.Vocab, 1}, func(token int) float64 {
			if token == *m.c.Classes.Padding {
				return -1
			}
			return 1
		})
	})
	places := m.s.constant(m.s.child(fmt.Sprintf("places.%d", length)), func() *tensor.Dense {
		return denseOf(m.s.dtype, []int{1, 1, length}, func(at int) float64 { return apart * float64(at+1) })
	})
	if signs.failed() || places.failed() {
		return m.none(tokens)
	}
	order := m.s.of(ops.Embedding(signs.n, tokens.n)).Reshape(batch, 1, length).Mul(places)
	return order.LogSoftmax().Add(1).ReLU()
}

// denseOf is an array of float32 or float64 by a function of its elements' indices.
func denseOf(dtype tensor.Dtype, shape []int, at func(i int) float64) *tensor.Dense {
	value := tensor.New(tensor.WithShape(shape...), tensor.Of(dtype))
	switch data := value.Data().(type) {
	case []float32:
		for i := range data {
			data[i] = float32(at(i))
		}
	case []float64:
		for i := range data {
			data[i] = at(i)
		}
	}
	return value
}

// Packing says which sequences lie end to end in what a model is given.
type Packing struct {
	Ends Tensor // 0 and then where each sequence ends, see [AttentionInputs]
	// Positions are those of the tokens, (total), each counted from the first of its sequence; only
	// a model with learned positions reads them.
	Positions Tensor
}

// ForwardPacked gives the logits of the token after each of tokens, (total), which are sequences
// that see only themselves: (total, Vocab).
func (m *LanguageModel) ForwardPacked(tokens Tensor, p Packing) Tensor {
	return m.logits(m.hiddenPacked(tokens, p))
}

// logits multiplies what the last norm gave by the head.
func (m *LanguageModel) logits(h Tensor) Tensor {
	if !m.given("h", h) {
		return m.none(h)
	}
	if m.head == nil {
		return m.failf("there is no head for tokens, the config needs to be without Classes and NoHead")
	}
	logits := m.head.Logits(h)
	if !m.bias.IsZero() {
		logits = logits.Add(m.bias)
	}
	if m.c.LogitScale != 0 {
		logits = logits.Mul(m.c.LogitScale)
	}
	if m.c.LogitSoftCap == 0 {
		return logits
	}
	return logits.SoftCap(m.c.LogitSoftCap)
}

// Loss is the mean cross-entropy of predicting targets, (B, S), from tokens, (B, S): a scalar that
// [gorgonia.Grad] takes as a cost. It never holds the logits of the whole batch, unless they have a
// bias, a scale or a soft cap, or [Parameters.KeepWeights] is used beside float32, so a graph that
// only trains needs no Forward. A target of IgnoreTarget does not count.
func (m *LanguageModel) Loss(tokens, targets Tensor) Tensor {
	return m.lossOf(m.hidden(tokens), tokens, targets)
}

// LossPacked is [LanguageModel.Loss] of sequences that lie end to end, tokens and targets being
// (total).
func (m *LanguageModel) LossPacked(tokens, targets Tensor, p Packing) Tensor {
	return m.lossOf(m.hiddenPacked(tokens, p), tokens, targets)
}

// lossOf is the mean cross-entropy of targets after what the last norm gave.
func (m *LanguageModel) lossOf(h, tokens, targets Tensor) Tensor {
	if !m.given("h", h) || !m.given("targets", targets) {
		return m.none(h)
	}
	if m.head == nil {
		return m.logits(h) // which fails
	}
	if !targets.Shape().Eq(tokens.Shape()) {
		return m.failf("targets has shape %v, it needs tokens's %v", []int(targets.Shape()), []int(tokens.Shape()))
	}
	loss := m.crossEntropy(h, targets)
	if m.c.BalanceFactor != 0 {
		loss = loss.Add(m.s.BalanceLoss().Mul(m.c.BalanceFactor))
	}
	return loss
}

func (m *LanguageModel) crossEntropy(h, targets Tensor) Tensor {
	if m.c.LogitSoftCap != 0 || m.c.LogitScale != 0 || !m.bias.IsZero() || m.head.keptBeside(h) {
		return m.logits(h).CrossEntropy(targets, ops.CrossEntropyOptions{IgnoreIndex: new(IgnoreTarget)})
	}
	return m.s.of(ops.LinearCrossEntropy(h.n, m.head.weight, targets.n, ops.LinearCrossEntropyOptions{IgnoreIndex: new(IgnoreTarget)}))
}

// IgnoreTarget is the target of a position whose prediction does not count in Loss, such as
// padding.
const IgnoreTarget = -100

// hidden is the model up to its head: (B, S, Dim).
func (m *LanguageModel) hidden(tokens Tensor) Tensor {
	return m.hiddenWith(tokens, BlockInputs{})
}

func (m *LanguageModel) hiddenWith(tokens Tensor, in BlockInputs) Tensor {
	if !m.takesTokens(tokens, 2) {
		return m.none(tokens)
	}
	x := stream{x: m.embed(tokens)}
	switch {
	case m.positions != nil && m.c.SkipPadding && !in.KeyMask.IsZero():
		x = m.positions.besideMasked(x.x, in.KeyMask)
	case m.positions != nil:
		x = m.positions.beside(x.x)
	}
	return m.through(m.placed(x), in)
}

// hiddenPacked is hidden of sequences that lie end to end: (total, Dim).
func (m *LanguageModel) hiddenPacked(tokens Tensor, p Packing) Tensor {
	if !m.takesTokens(tokens, 1) || !m.given("ends", p.Ends) {
		return m.none(tokens)
	}
	x := stream{x: m.embed(tokens)}
	if m.positions != nil {
		x = m.positions.besideAt(x.x, p.Positions)
	}
	return m.through(m.placed(x), BlockInputs{Ends: p.Ends})
}

// through is what dropout and the blocks make of the sum of embeddings.
func (m *LanguageModel) through(x stream, in BlockInputs) Tensor {
	if m.c.Dropout > 0 {
		x = stream{x: m.drop.Forward(x.joined())}
	}
	return m.narrowed(m.stack.pass(x, in))
}

// narrowed is what the head reads of what the blocks gave.
func (m *LanguageModel) narrowed(h Tensor) Tensor {
	if m.narrow == nil {
		return h
	}
	return m.narrow.Forward(h)
}

// Layers is how many blocks the model has.
func (m *LanguageModel) Layers() int { return m.c.Layers }

// AttentionWeights gives the probabilities with which each token, of (B, S), weighs each other in
// the given layer, counted from 0: (B, Heads, S, S), to look at. They have no gradient and take
// memory that grows with the square of the length. Layers behind it are not computed.
func (m *LanguageModel) AttentionWeights(tokens Tensor, layer int) Tensor {
	if !m.takesTokens(tokens, 2) {
		return m.none(tokens)
	}
	if layer < 0 || layer >= m.c.Layers {
		return m.failf("layer is %d, it needs to be at least 0 and less than the model's %d", layer, m.c.Layers)
	}
	x := stream{x: m.embed(tokens)}
	if m.positions != nil {
		x = m.positions.beside(x.x)
	}
	return m.stack.weights(m.placed(x), layer)
}

// embed looks up the vectors of tokens.
func (m *LanguageModel) embed(tokens Tensor) Tensor {
	h := m.tokens.Forward(tokens)
	if m.c.EmbeddingScale != 0 {
		h = h.Mul(m.c.EmbeddingScale)
	}
	if m.project != nil {
		h = m.project.Forward(h)
	}
	return h
}

// placed is the sum of embeddings, normalised if asked.
func (m *LanguageModel) placed(x stream) stream {
	if m.norm == nil {
		return x
	}
	return stream{x: m.norm.Forward(x.joined())}
}

// takesTokens finds what is wrong with tokens, which have two axes, or one if they are packed.
func (m *LanguageModel) takesTokens(tokens Tensor, axes int) bool {
	if !m.given("tokens", tokens) {
		return false
	}
	shape, positions := tokens.Shape(), tokens.Dim(1)*m.sharers()
	switch d := tokens.DType(); {
	case d != tensor.Int && d != tensor.Int32 && d != tensor.Int64:
		m.failf("tokens is %v, it needs to be int, int32 or int64", d)
	case len(shape) != axes:
		m.failf("tokens has shape %v, it needs %s", []int(shape), [...]string{"one axis (total length)", "two axes (batch, length)"}[axes-1])
	case axes == 2 && m.c.Context > 0 && positions > m.c.Context:
		m.failf("tokens has %d positions, it needs at most the context's %d", positions, m.c.Context)
	}
	return m.isMade()
}

// Context is the longest sequence that the model takes, 0 if there is no limit.
func (m *LanguageModel) Context() int { return m.c.Context }

// NewCaches is an empty cache for each block, for [LanguageModel.ForwardCached].
func (m *LanguageModel) NewCaches(batch, capacity int) ([]*ops.KVCache, error) {
	if m.c.Context > 0 && capacity > m.c.Context {
		return nil, m.errorf("capacity is %d, it needs to be at most the context's %d", capacity, m.c.Context)
	}
	if m.stack == nil {
		return nil, errUnmade
	}
	return m.stack.NewCaches(batch, capacity)
}

// ForwardCached gives the logits of the token after the last of tokens, (B, S), which follow those
// in the caches: (B, Vocab). Each run adds the tokens to the caches. Positions, (B, S), are those
// of tokens, counted from the first in the caches; only a model with learned positions reads them.
// Behind the caches of a model whose blocks have Cross are as many memories of the context. A
// [Decoder] is the easy way to all this.
func (m *LanguageModel) ForwardCached(tokens, positions Tensor, caches []*ops.KVCache) Tensor {
	if !m.takesTokens(tokens, 2) {
		return m.none(tokens)
	}
	h := m.embed(tokens)
	if m.positions != nil {
		h = m.positions.ForwardAt(h, positions)
	}
	var in BlockInputs
	if n := m.c.Layers; m.c.Block.Cross && len(caches) == 2*n {
		caches, in.memories = caches[:n], caches[n:]
	}
	return m.logits(m.narrowed(m.stack.ForwardCached(m.placed(stream{x: h}).x, caches, in)))
}

// causal completes the options of a language model's attention.
func causal(o ops.AttentionOptions, dropout float64) ops.AttentionOptions {
	if o.Causal == kernels.NotCausal {
		o.Causal = kernels.CausalBottomRight
	}
	o.Dropout = ops.Drop{P: dropout}
	return o
}
