package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// EncoderConfig describes an [Encoder]. BERT in its smaller size is Vocab 30522, Context 512, Types 2, Layers 12, Heads 12,
// Dim 768, Hidden 3072, Norms PostNorm, EmbeddingNorm, Epsilon 1e-12 and Pooler.
type EncoderConfig struct {
	Name       string       // prefix of the parameters' names, empty for none
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0
	Compute    tensor.Dtype // of what the layers compute: that of the parameters (zero), ops.BFloat16 or ops.Float16

	Vocab   int // how many tokens there are
	Context int // the longest sequence
	Types   int // how many types of tokens there are, such as first and second sentence; 0 for none
	Layers  int
	Heads   int
	Dim     int

	FirstPosition int                // the row of the table of positions that the first token has; the table has so many rows more
	Hidden        int                // of the MLPs; 0 means 4·Dim
	Activation    kernels.Activation // of the MLPs and of the masked head; zero means GELUErf
	Norms         NormPlace          // zero means PreNorm. A norm follows the last block, but with PostNorm
	EmbeddingNorm bool               // a norm follows the embeddings
	Epsilon       float64            // of the norms; 0 means 1e-5
	Dropout       float64            // of the embeddings, the attention weights, what each layer adds, and what is classified

	Pooler  bool // adds what Pooled needs
	Classes int  // adds what Classify needs, the pooler too; 0 for none
	Masked  bool // adds what Predict needs

	// Block, if it is not nil, changes the description of block i before the block is made. It must do the same each time.
	Block func(i int, c *BlockConfig)
}

// Encoder is a model of the shape of BERT: every token sees every other. It gives a vector for each token; a pooled vector of
// the first stands for the whole sequence, and heads make classes of it or predictions of masked tokens.
//
// Its parts are called tokens, positions, types, embnorm, blocks.0, blocks.1, ..., norm, pooler, classifier, and for masked
// tokens transform, prednorm and predbias.
type Encoder struct {
	*scope
	c                  EncoderConfig
	tokens, types      *Embedding
	positions          *PositionalEmbedding
	embnorm            Layer // nil for none
	drop               *Dropout
	stack              *Stack
	pooler, classifier Layer // nil for none
	transform          Layer
	prednorm           Layer
	predbias           *gorgonia.Node
	all                []Layer
}

// NewEncoder adds the parameters of an Encoder to a graph.
func NewEncoder(g *gorgonia.ExprGraph, c EncoderConfig) (*Encoder, error) {
	s, err := newScope("Encoder", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"vocab", c.Vocab}, size{"context", c.Context}, size{"layers", c.Layers}, size{"heads", c.Heads}, size{"dim", c.Dim}); err != nil {
		return nil, err
	}
	if c.Types < 0 || c.Classes < 0 || c.FirstPosition < 0 {
		return nil, s.errorf("types, classes and first position are %d, %d and %d, none can be negative", c.Types, c.Classes, c.FirstPosition)
	}
	if c.Activation == kernels.NoActivation {
		c.Activation = kernels.GELUErf
	}
	if c.Compute, err = s.computeType(c.Compute); err != nil {
		return nil, err
	}
	e := &Encoder{scope: s, c: c}
	return made(e, e.build())
}

func (e *Encoder) build() (err error) {
	c := e.c
	embedding := func(part string, vocab int) (m *Embedding) {
		if err == nil {
			m, err = NewEmbedding(e.g, EmbeddingConfig{
				Name: e.child(part), DType: e.dtype, Parameters: e.store, Compute: c.Compute, Vocab: vocab, Dim: c.Dim,
			})
			e.all = append(e.all, m)
		}
		return m
	}
	norm := func(part string) (n Layer) {
		if err == nil {
			n, err = e.norm(part, c.Dim, normKind{epsilon: c.Epsilon})
			e.all = append(e.all, n)
		}
		return n
	}
	linear := func(part string, out int, act kernels.Activation) (l Layer) {
		if err == nil {
			l, err = e.linear(part, nil, LinearConfig{In: c.Dim, Out: out, Activation: act, Init: Normal(gpt2Std)})
			e.all = append(e.all, l)
		}
		return l
	}
	e.tokens = embedding("tokens", c.Vocab)
	if err == nil {
		e.positions, err = NewPositionalEmbedding(e.g, PositionalEmbeddingConfig{
			Name: e.child("positions"), DType: e.dtype, Parameters: e.store, Context: c.Context + c.FirstPosition, Dim: c.Dim,
		})
		e.all = append(e.all, e.positions)
	}
	if c.Types > 0 {
		e.types = embedding("types", c.Types)
	}
	if c.EmbeddingNorm {
		e.embnorm = norm("embnorm")
	}
	if err == nil {
		e.drop, err = e.dropout("drop", c.Dropout, nil)
	}
	if err == nil {
		err = e.addBlocks()
	}
	if c.Pooler || c.Classes > 0 {
		e.pooler = linear("pooler", c.Dim, kernels.NoActivation)
	}
	if c.Classes > 0 {
		e.classifier = linear("classifier", c.Classes, kernels.NoActivation)
	}
	if c.Masked {
		e.transform = linear("transform", c.Dim, c.Activation)
		e.prednorm = norm("prednorm")
		if err == nil {
			e.predbias, err = e.parameter("predbias", Constant(0), 1, c.Vocab)
		}
	}
	return err
}

func (e *Encoder) addBlocks() (err error) {
	e.stack, err = NewStack(e.g, StackConfig{
		Name: e.name, DType: e.dtype, Parameters: e.store, Compute: e.c.Compute, Layers: e.c.Layers, Change: e.c.Block,
		Block: BlockConfig{
			Attention: MultiHeadAttentionConfig{Dim: e.c.Dim, Heads: e.c.Heads, Options: ops.AttentionOptions{Dropout: e.c.Dropout}},
			Hidden:    e.c.Hidden, Activation: e.c.Activation, Norms: e.c.Norms, Epsilon: e.c.Epsilon, Dropout: e.c.Dropout,
			Init: Normal(gpt2Std),
		},
	})
	e.all = append(e.all, e.stack)
	return err
}

// EncoderInputs are what an encoder may read besides tokens, (B, S) but for KeyLengths.
type EncoderInputs struct {
	Types   *gorgonia.Node // of each token, int, int32 or int64 below Types; nil means all 0
	KeyMask *gorgonia.Node // true where there is a token and no padding; see [AttentionInputs]. Nil hides nothing

	KeyLengths *gorgonia.Node // how many tokens each sequence has, (B), which costs less than a KeyMask; see [AttentionInputs]
}

// Forward gives a vector for each of tokens, which are (B, S) of int, int32 or int64: (B, S, Dim).
func (e *Encoder) Forward(tokens *gorgonia.Node) (*gorgonia.Node, error) {
	return e.ForwardWith(tokens, EncoderInputs{})
}

// ForwardWith is [Encoder.Forward] with types of tokens and a mask of the padding.
func (e *Encoder) ForwardWith(tokens *gorgonia.Node, in EncoderInputs) (*gorgonia.Node, error) {
	if err := e.given("tokens", tokens); err != nil {
		return nil, err
	}
	if tokens.Dims() != 2 || tokens.Shape()[1] > e.c.Context {
		return nil, e.errorf("tokens has shape %v, it needs two axes (batch, length), the second of at most %d", []int(tokens.Shape()), e.c.Context)
	}
	if in.Types != nil && e.types == nil {
		return nil, e.errorf("types is given, it needs to be nil where Types is 0")
	}
	h, err := e.embed(tokens, in.Types)
	if err != nil {
		return nil, err
	}
	return e.stack.ForwardWith(h, BlockInputs{KeyMask: in.KeyMask, KeyLengths: in.KeyLengths})
}

// embed adds up the vectors of tokens, positions and types.
func (e *Encoder) embed(tokens, types *gorgonia.Node) (*gorgonia.Node, error) {
	batch, length := tokens.Shape()[0], tokens.Shape()[1]
	h, err := e.tokens.Forward(tokens)
	if err != nil {
		return nil, err
	}
	positions, err := e.ids("positions.ids", batch, length, func(_, at int) int { return e.c.FirstPosition + at })
	if err != nil {
		return nil, err
	}
	if h, err = e.positions.ForwardAt(h, positions); err != nil {
		return nil, err
	}
	if e.types != nil {
		if types == nil {
			if types, err = e.ids("types.ids", batch, length, func(int, int) int { return 0 }); err != nil {
				return nil, err
			}
		}
		vectors, err := e.types.Forward(types)
		if err != nil {
			return nil, err
		}
		if h, err = ops.Add(h, vectors); err != nil {
			return nil, err
		}
	}
	if e.embnorm != nil {
		if h, err = e.embnorm.Forward(h); err != nil {
			return nil, err
		}
	}
	return e.drop.Forward(h)
}

// Pooled stands for each sequence: the tanh of a linear function of its first token's vector, (B, S, Dim) → (B, Dim).
func (e *Encoder) Pooled(h *gorgonia.Node) (*gorgonia.Node, error) {
	if e.pooler == nil {
		return nil, e.errorf("there is no pooler, the config needs Pooler or Classes")
	}
	if err := e.input("h", h, e.c.Dim); err != nil {
		return nil, err
	}
	if h.Dims() != 3 {
		return nil, e.errorf("h has shape %v, it needs to be what Forward gives", []int(h.Shape()))
	}
	first, err := ops.Select(h, 1, 0)
	if err != nil {
		return nil, e.errorf("%w", err)
	}
	if first, err = e.pooler.Forward(first); err != nil {
		return nil, err
	}
	return ops.SoftCap(first, 1)
}

// Classify gives the logits of each sequence's classes: (B, S, Dim) → (B, Classes).
func (e *Encoder) Classify(h *gorgonia.Node) (*gorgonia.Node, error) {
	if e.classifier == nil {
		return nil, e.errorf("there is no classifier, the config needs Classes")
	}
	pooled, err := e.Pooled(h)
	if err != nil {
		return nil, err
	}
	if pooled, err = e.drop.Forward(pooled); err != nil {
		return nil, err
	}
	return e.classifier.Forward(pooled)
}

// Predict gives the logits of the token at each place, such as a masked one: (B, S, Dim) → (B, S, Vocab). It shares the
// weights of the embedding.
func (e *Encoder) Predict(h *gorgonia.Node) (*gorgonia.Node, error) {
	if e.transform == nil {
		return nil, e.errorf("there is no head for masked tokens, the config needs Masked")
	}
	h, err := Chain(h, e.transform, e.prednorm)
	if err != nil {
		return nil, err
	}
	logits, err := e.tokens.logits(h)
	if err != nil {
		return nil, err
	}
	// The bias for every row is a column of ones times the bias.
	rows := tensor.Shape(h.Shape()[:h.Dims()-1]).TotalSize()
	column, err := e.ones(rows)
	if err != nil {
		return nil, err
	}
	if column, err = gorgonia.Reshape(column, tensor.Shape{rows, 1}); err != nil {
		return nil, e.errorf("%w", err)
	}
	bias, err := ops.MatMul(column, e.predbias, ops.MatMulOptions{})
	if err != nil {
		return nil, err
	}
	if bias, err = gorgonia.Reshape(bias, logits.Shape().Clone()); err != nil {
		return nil, e.errorf("%w", err)
	}
	if bias, err = ops.Cast(bias, logits.Dtype()); err != nil {
		return nil, err
	}
	return ops.Add(logits, bias)
}

// Parameters lists all parameters, in the order of their use.
func (e *Encoder) Parameters() gorgonia.Nodes {
	return append(parametersOf(e.all...), e.scope.Parameters()...)
}

// Summary is a table of the encoder's parameters; see [Summary].
func (e *Encoder) Summary() string { return Summary(e.Parameters()) }
