package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
)

// EncoderConfig describes an [Encoder]. [BERTConfig] and [ViTConfig] are the usual ones.
type EncoderConfig struct {
	Layers int
	// Block describes every block.
	Block BlockConfig
	// Change, if it is not nil, changes the description of block i before the block is made. It
	// must do the same each time.
	Change func(i int, c *BlockConfig)
	Blocks int // how many blocks there are, which layers share; 0 means Layers, see [StackConfig]

	// Text is what an encoder of texts reads, Patches what one of images reads, Sound what one of
	// sounds reads: one of the three.
	Text    *TextConfig
	Patches *PatchEmbeddingConfig
	Sound   *SoundConfig

	Distances *DistanceConfig // a bias of all attention that goes by distance; nil for none
	// Disentangled makes scores of attention go by distances between tokens, as in DeBERTa; nil for
	// not. The linear layers that make queries and keys have parameters of their own then.
	Disentangled *DisentangledConfig

	Grid          float64 // patches turn queries and keys by row and column, whose frequencies go down to 1/Grid, as in DINOv3; 0 for not
	EmbeddingNorm bool    // a norm follows the embeddings
	Dropout       float64 // of the embeddings
	Heads         EncoderHeads
}

// EncoderHeads are what an [Encoder] has behind its blocks; the zero value is nothing.
type EncoderHeads struct {
	Pooler       bool // adds what Pooled needs
	Classes      int  // adds what Classify needs; 0 for none
	TokenClasses int  // adds what ClassifyTokens needs; 0 for none
	Masked       bool // adds what Predict needs
	PatchMean    bool // Classify reads the mean of the patches' vectors behind the first one

	Dropout          *float64           // of what classifiers read; nil means that of the embeddings
	PoolerActivation kernels.Activation // zero means a tanh
	PoolerDropout    bool               // the pooler reads its vector after dropout
	MaskedActivation kernels.Activation // of the masked head; zero means that of the blocks
	MaskedNoBias     bool               // the linear layer of the masked head has no bias
	MaskedUnbiased   bool               // the masked head adds no bias of its words, there is no predbias
	MaskedUntied     bool               // the masked head has words of its own, the part predtokens
}

// Encoder reads a whole sequence, of which every element sees every other: texts as BERT does, or
// the patches of an image as ViT does. It gives a vector for each element; a pooled vector of the
// first stands for the whole, and heads make classes of it or predictions of masked tokens.
// [NewBERT] and [NewViT] make the usual ones.
//
// Its parts are called blocks.0, blocks.1, ..., norm, embnorm, pooler, classifier, tokenclasses,
// and for masked tokens transform, prednorm, predbias and predtokens. Those of texts are tokens,
// positions, types and project, that of images is embeddings, that of biases distances, those of
// Disentangled places and places.norm.
type Encoder struct {
	layer
	dim      int
	embed    func(x Tensor, in EncoderInputs) Tensor
	prefix   int   // how many vectors stand before those of patches
	embnorm  Layer // nil for none
	drop     *Dropout
	project  Layer // nil for none
	stack    *Stack
	fromLast bool // some blocks have a window, ALiBi or CausalBottomRight, which count from the last key

	heads                    EncoderHeads
	headDrop                 *Dropout    // is drop where that is the same
	pooler, classifier, tags Layer       // nil for none
	masked                   *maskedHead // nil for none
}

// NewEncoder makes an Encoder in a scope.
func NewEncoder(s *Scope, c EncoderConfig) *Encoder { return newEncoder(s, "Encoder", c) }

func newEncoder(s *Scope, kind string, c EncoderConfig) *Encoder {
	e := &Encoder{layer: s.layer(kind), heads: c.Heads, dim: c.Block.Attention.Dim}
	if !e.positive(size{"layers", c.Layers}, size{"heads", c.Block.Attention.Heads}, size{"dim", e.dim}) {
		return e
	}
	if c.Heads.Classes < 0 || c.Heads.TokenClasses < 0 {
		e.failf("classes and token classes are %d and %d, none can be negative", c.Heads.Classes, c.Heads.TokenClasses)
		return e
	}
	norm := c.Block.norm()
	var words *Embedding
	switch {
	case c.Patches == nil && (c.Grid != 0 || c.Heads.PatchMean):
		e.failf("Grid or PatchMean is set, it needs Patches")
	case (c.Text != nil) != (c.Patches == nil && c.Sound == nil) || c.Patches != nil && c.Sound != nil:
		e.failf("it needs one of Text, Patches and Sound")
	case c.Sound != nil:
		e.embed = newSoundEmbedding(e.layer, *c.Sound, e.dim).forward
	case c.Patches != nil:
		patches := *c.Patches
		patches.Dim = e.dim
		embedding := NewPatchEmbedding(s.Sub("embeddings"), patches)
		e.prefix = embedding.prefix()
		e.embed = func(images Tensor, in EncoderInputs) Tensor {
			return embedding.ForwardMasked(images.Cast(e.s.compute), in.Hidden)
		}
		if c.Grid != 0 && c.Block.Attention.Turn != nil {
			e.failf("Grid is set beside Turn of attention, it needs to be alone")
		}
		if c.Grid != 0 && e.nonNegative("grid", c.Grid, "none") {
			c.Block.Attention.Turn = func(h Tensor) Tensor { return embedding.turnByGrid(h, c.Grid) }
		}
	default:
		text := newTextEmbedding(e.layer, *c.Text, e.dim)
		e.embed, words, norm.Dim = text.forward, text.tokens, text.c.Dim
	}
	if !e.isMade() {
		return e
	}
	if c.EmbeddingNorm {
		e.embnorm = e.norm("embnorm", c.Block.NewNorm, norm)
	}
	e.drop = e.dropout("drop", c.Dropout)
	if norm.Dim != e.dim {
		e.project = e.linear("project", nil, LinearConfig{In: norm.Dim, Out: e.dim, Init: c.Block.Init})
	}
	if c.Distances != nil {
		addDistanceBias(s.Sub("distances"), *c.Distances, &c.Block.Attention, true)
	}
	if c.Disentangled != nil {
		c.Block.Attention.places = newDisentangled(s.Sub("places"), *c.Disentangled, c.Block, c.Dropout)
	}
	if !e.isMade() {
		return e
	}
	e.stack = NewStack(s, StackConfig{Layers: c.Layers, Blocks: c.Blocks, Block: c.Block, Change: func(i int, b *BlockConfig) {
		if c.Change != nil {
			c.Change(i, b)
		}
		o := &b.Attention.Options
		e.fromLast = e.fromLast || o.Window != nil || o.ALiBi != nil || o.Causal == kernels.CausalBottomRight
	}})
	e.addHeads(c, norm, words)
	return e
}

// addHeads makes the heads. Norm is that of the embeddings, words what the masked head shares.
func (e *Encoder) addHeads(c EncoderConfig, norm NormConfig, words *Embedding) {
	head := func(part string, out int, activation kernels.Activation) Layer {
		in := e.dim
		if part == "classifier" && e.heads.PatchMean {
			in *= 2
		}
		return e.linear(part, nil, LinearConfig{In: in, Out: out, Activation: activation, Init: c.Block.Init})
	}
	if e.headDrop = e.drop; e.heads.Dropout != nil {
		e.headDrop = e.dropout("headdrop", *e.heads.Dropout)
	}
	if e.heads.Pooler {
		e.pooler = head("pooler", e.dim, e.heads.PoolerActivation)
	}
	if e.heads.Classes > 0 {
		e.classifier = head("classifier", e.heads.Classes, kernels.NoActivation)
	}
	if e.heads.TokenClasses > 0 {
		e.tags = head("tokenclasses", e.heads.TokenClasses, kernels.NoActivation)
	}
	if !e.heads.Masked {
		return
	}
	if words == nil {
		e.failf("Masked is set, it needs Text")
		return
	}
	activation := e.heads.MaskedActivation
	if activation == kernels.NoActivation {
		activation = c.Block.Activation
	}
	transform := e.linear("transform", nil, LinearConfig{
		In: e.dim, Out: norm.Dim, Activation: activation, Init: c.Block.Init, NoBias: e.heads.MaskedNoBias,
	})
	if e.heads.MaskedUntied {
		words = NewEmbedding(e.s.Sub("predtokens"), EmbeddingConfig{Vocab: c.Text.Vocab, Dim: norm.Dim, onlyLogits: true})
	} else {
		words.tie()
	}
	e.masked = &maskedHead{transform: transform, norm: e.norm("prednorm", c.Block.NewNorm, norm), tokens: words}
	if !e.heads.MaskedUnbiased {
		e.masked.bias = e.s.Parameter("predbias", Zero, 1, c.Text.Vocab)
	}
}

// Heads says what the encoder has behind its blocks.
func (e *Encoder) Heads() EncoderHeads { return e.heads }

// EncoderInputs are what an encoder of texts may read besides tokens, (B, S) but for KeyLengths,
// and one of images besides those.
type EncoderInputs struct {
	Types   Tensor // of each token, int, int32 or int64 below Types; none means all 0
	KeyMask Tensor // true where there is a token and no padding; see [AttentionInputs]. None hides nothing

	// KeyLengths is how many tokens each sequence has, (B), which costs less than a KeyMask; see
	// [Encoder.TakesLengths].
	KeyLengths Tensor
	// Positions are the rows of the table of positions, int, int32 or int64. None means what the
	// tokens say, see [TextConfig].
	Positions Tensor
	Hidden    Tensor // of images: 1 for each patch in whose place the mask token stands, 0 for the others, (B, patches) of floats
}

// TakesLengths reports whether KeyLengths may be given: where blocks have windows, ALiBi or
// [kernels.CausalBottomRight], a KeyMask needs to be.
func (e *Encoder) TakesLengths() bool { return !e.fromLast }

// Forward gives a vector for each element of a sequence, (B, S, Dim): of tokens, which are (B, S)
// of int, int32 or int64, or of images, (B, Channels, Height, Width), for which the first vector is
// that of the whole and the others are the patches'.
func (e *Encoder) Forward(x Tensor) Tensor { return e.ForwardWith(x, EncoderInputs{}) }

// ForwardWith is [Encoder.Forward] with types of tokens and a mask of the padding.
func (e *Encoder) ForwardWith(x Tensor, in EncoderInputs) Tensor {
	if !e.given("x", x) {
		return e.none(x)
	}
	if !in.KeyLengths.IsZero() && e.fromLast {
		return e.failf("key lengths are given, and blocks have windows, ALiBi or CausalBottomRight, which would count from the last key: it needs a KeyMask")
	}
	h := e.embed(x, in)
	if e.embnorm != nil {
		h = e.embnorm.Forward(h)
	}
	if h = e.drop.Forward(h); e.project != nil {
		h = e.project.Forward(h)
	}
	inputs := BlockInputs{KeyMask: in.KeyMask, KeyLengths: in.KeyLengths}
	return e.stack.ForwardWith(h, inputs)
}

// Pooled stands for each sequence: the tanh, or another activation, of a linear function of its
// first vector, (B, S, Dim) → (B, Dim).
func (e *Encoder) Pooled(h Tensor) Tensor {
	if e.pooler == nil {
		return e.failf("there is no pooler, the config needs Pooler")
	}
	h = e.first(h)
	if e.heads.PoolerDropout {
		h = e.headDrop.Forward(h)
	}
	if h = e.pooler.Forward(h); e.heads.PoolerActivation == kernels.NoActivation {
		h = h.Tanh()
	}
	return h
}

// first is the vector of each sequence's first element.
func (e *Encoder) first(h Tensor) Tensor {
	if !e.takes("h", h, e.dim) {
		return e.none(h)
	}
	return Pool(h, FirstPool, Tensor{})
}

// Classify gives the logits of each sequence's classes, of what Pooled gives, or of the first
// vector where there is no pooler: (B, S, Dim) → (B, Classes).
func (e *Encoder) Classify(h Tensor) Tensor {
	if e.classifier == nil {
		return e.failf("there is no classifier, the config needs Classes")
	}
	if e.pooler == nil {
		first := e.first(h)
		if e.heads.PatchMean && e.isMade() {
			first = Concat(1, first, h.Slice(1, e.prefix, h.Dim(1)).Mean(1))
		}
		return e.classifier.Forward(first)
	}
	return e.classifier.Forward(e.headDrop.Forward(e.Pooled(h)))
}

// ClassifyTokens gives the logits of each token's classes, such as kinds of names, or the start and
// the end of an answer: (B, S, Dim) → (B, S, TokenClasses).
func (e *Encoder) ClassifyTokens(h Tensor) Tensor {
	if e.tags == nil {
		return e.failf("there are no classes of tokens, the config needs TokenClasses")
	}
	return h.Through(e.headDrop, e.tags)
}

// Predict gives the logits of the token at each place, such as a masked one: (B, S, Dim) → (B, S,
// Vocab). It shares the weights of the embedding, but with MaskedUntied.
func (e *Encoder) Predict(h Tensor) Tensor {
	if e.masked == nil {
		return e.failf("there is no head for masked tokens, the config needs Masked")
	}
	logits := e.masked.tokens.Logits(h.Through(e.masked.transform, e.masked.norm))
	if e.heads.MaskedUnbiased {
		return logits
	}
	return logits.Add(e.masked.bias)
}

// maskedHead predicts masked tokens.
type maskedHead struct {
	transform, norm Layer
	tokens          *Embedding
	bias            Tensor // (1, Vocab)
}

// TextConfig describes what an [Encoder] of texts reads: the sum of a vector for each token, one
// for its position, and one for its type.
type TextConfig struct {
	Vocab   int // how many tokens there are
	Context int // the longest sequence
	Types   int // how many types of tokens there are, such as first and second sentence; 0 for none
	Dim     int // of the vectors; 0 means that of the blocks, else a linear layer makes them as wide

	Tokens    *Embedding   // the vectors of tokens, made by another part of the model; nil for the encoder's own
	Positions PositionKind // what is added for positions; zero means LearnedPositions

	// FirstPosition is the row of the table of positions that the first token has; the table has so
	// many rows more. Where it is not 0, the row before it is that of padding, whose id is that
	// row's number: positions are counted over the other tokens alone. See [ops.TokenPositions].
	FirstPosition int
	CountPadding  bool    // positions are counted over padding too
	NoPositions   bool    // nothing is added for positions
	Scale         float64 // the vectors of tokens are multiplied by it; 0 means 1
}

// textEmbedding adds up the vectors of tokens, positions and types.
type textEmbedding struct {
	layer
	c             TextConfig
	tokens, types *Embedding           // types is nil for none
	positions     *PositionalEmbedding // nil for none
}

// newTextEmbedding makes it of parts of an encoder.
func newTextEmbedding(l layer, c TextConfig, dim int) *textEmbedding {
	if c.Dim == 0 {
		c.Dim = dim
	}
	t := &textEmbedding{layer: l, c: c}
	if !t.positive(size{"vocab", c.Vocab}, size{"context", c.Context}, size{"text dim", c.Dim}) {
		return t
	}
	if !t.nonNegative("scale", c.Scale, "1") {
		return t
	}
	if c.Types < 0 || c.FirstPosition < 0 {
		t.failf("types and first position are %d and %d, none can be negative", c.Types, c.FirstPosition)
		return t
	}
	if t.tokens = c.Tokens; t.tokens == nil {
		t.tokens = NewEmbedding(t.s.Sub("tokens"), EmbeddingConfig{Vocab: c.Vocab, Dim: c.Dim})
	}
	if !c.NoPositions {
		t.positions = NewPositionalEmbedding(t.s.Sub("positions"), PositionalEmbeddingConfig{
			Context: c.Context + c.FirstPosition, Dim: c.Dim, Kind: c.Positions,
		})
	}
	if c.Types > 0 {
		t.types = NewEmbedding(t.s.Sub("types"), EmbeddingConfig{Vocab: c.Types, Dim: c.Dim})
	}
	return t
}

func (t *textEmbedding) forward(tokens Tensor, in EncoderInputs) Tensor {
	switch shape := tokens.Shape(); {
	case len(shape) != 2 || shape[1] > t.c.Context:
		return t.failf("tokens has shape %v, it needs two axes (batch, length), the second of at most %d", []int(shape), t.c.Context)
	case !in.Types.IsZero() && t.types == nil:
		return t.failf("types is given, it needs to be none where Types is 0")
	case !in.Positions.IsZero() && t.positions == nil:
		return t.failf("positions is given, it needs to be none where NoPositions is set")
	}
	h := t.tokens.Forward(tokens)
	if t.c.Scale != 0 {
		h = h.Mul(t.c.Scale)
	}
	if t.positions != nil {
		h = t.positions.ForwardAt(h, t.positionsOf(tokens, in))
	}
	if t.types == nil {
		return h
	}
	if in.Types.IsZero() {
		in.Types = t.ids("types.ids", tokens.Dim(0), tokens.Dim(1), func(int, int) int { return 0 })
	}
	return h.Add(t.types.Forward(in.Types))
}

// positionsOf is the row of the table of positions for each token.
func (t *textEmbedding) positionsOf(tokens Tensor, in EncoderInputs) Tensor {
	switch {
	case !in.Positions.IsZero():
		return in.Positions
	case t.c.FirstPosition == 0 || t.c.CountPadding:
		return t.ids("positions.ids", tokens.Dim(0), tokens.Dim(1), func(_, at int) int { return t.c.FirstPosition + at })
	}
	return t.s.of(ops.TokenPositions(tokens.n, t.c.FirstPosition-1))
}
