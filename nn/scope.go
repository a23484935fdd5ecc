package nn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Scope is where a model is made: a graph, the [Parameters] whose values its layers have, a prefix
// of their names, and the types that they compute in. What has parameters is made in a scope, so
// that nothing is ever trained or saved in part.
//
// A scope keeps the first error, with the line of the model where it happened. What comes after it
// does nothing, so a model is written without looking at errors, and whoever asked for it asks Err
// once. A Loop of package train does that itself.
//
// A Scope belongs to one goroutine.
type Scope struct {
	*making
	name           string
	dtype, compute tensor.Dtype  // of parameters, and of what is computed
	ranks          kernels.Ranks // that share sequences; nil for none
}

// making is what all scopes of a graph share.
type making struct {
	g          *gorgonia.ExprGraph
	values     *Parameters
	parameters gorgonia.Nodes // in the order in which they were made
	constants  gorgonia.Nodes // inputs that no gradient changes
	routed     []routed       // what routers of experts have decided
	err        error
}

// NewScope begins a model in a graph, over parameters; nil stands for new ones, from seed 0.
func NewScope(g *gorgonia.ExprGraph, p *Parameters) *Scope {
	if p == nil {
		p = NewParameters(0)
	}
	s := &Scope{making: &making{g: g, values: p}, dtype: tensor.Float32, compute: tensor.Float32}
	if g == nil {
		s.fail(errors.New("Scope: g is nil, it needs to be a graph"))
	}
	return s
}

// Sub is the scope of a part of the model. Names of parameters made there begin with the part's, as
// in blocks.3.attn.qkv.weight; an empty name adds nothing.
func (s *Scope) Sub(name string) *Scope {
	if s == nil {
		return nil
	}
	part := *s
	part.name = s.child(name)
	return &part
}

// child is the name of a part.
func (s *Scope) child(part string) string {
	if s.name == "" || part == "" {
		return s.name + part
	}
	return s.name + "." + part
}

// DType is the same scope with parameters of another type, float64 in place of float32, in which
// layers then compute too. The zero value stands for float32.
func (s *Scope) DType(d tensor.Dtype) *Scope {
	if s == nil {
		return nil
	}
	d, err := dtypeOr32(d)
	if err != nil {
		s.fail(fmt.Errorf("Scope: dtype %w", err))
	}
	other := *s
	other.dtype, other.compute = d, d
	return &other
}

// Compute is the same scope where models compute in ops.BFloat16 or ops.Float16 beside parameters,
// sums and losses of float32. The zero value, as the type of the parameters, stands for that.
// Float16 needs a loss scale, which package train has.
func (s *Scope) Compute(d tensor.Dtype) *Scope {
	if s == nil {
		return nil
	}
	if d == (tensor.Dtype{}) {
		d = s.dtype
	}
	if d != s.dtype && (s.dtype != tensor.Float32 || !isHalf(d)) {
		s.fail(fmt.Errorf("Scope: compute is %v, beside parameters of %v it needs to be %v, or BFloat16 or Float16 beside float32",
			d, s.dtype, s.dtype))
	}
	other := *s
	other.compute = d
	return &other
}

// ShareSequences is the same scope where several ranks share each sequence. What is computed there
// are the rows that this rank holds of sequences ([ops.HeldRows]); attention, positions and dropout
// are those of the whole. A Loop whose place shares sequences does this.
func (s *Scope) ShareSequences(ranks kernels.Ranks) *Scope {
	if s == nil {
		return nil
	}
	other := *s
	other.ranks = ranks
	return &other
}

// Name is the prefix of the scope's names, empty for a model's own scope.
func (s *Scope) Name() string {
	if s == nil {
		return ""
	}
	return s.name
}

// Graph is the graph that the model is made in.
func (s *Scope) Graph() *gorgonia.ExprGraph {
	if s == nil {
		return nil
	}
	return s.g
}

// Values are where the values of the scope's parameters are.
func (s *Scope) Values() *Parameters {
	if s == nil {
		return nil
	}
	return s.values
}

// Others lists the inputs of the graph that are neither parameters nor constants of its scope, such
// as the arrays of a batch, and weights that were made without the scope, which nothing trains.
func (s *Scope) Others() gorgonia.Nodes {
	if s == nil || s.g == nil {
		return nil
	}
	var others gorgonia.Nodes
	for _, n := range s.g.AllNodes() {
		if n.IsVar() && !slices.Contains(s.parameters, n) && !slices.Contains(s.constants, n) {
			others = append(others, n)
		}
	}
	return others
}

// Parameters lists the parameters that were made in this scope and in those of its parts, in that
// order.
func (s *Scope) Parameters() gorgonia.Nodes {
	if s == nil {
		return nil
	}
	var list gorgonia.Nodes
	for _, n := range s.parameters {
		if s.name == "" || strings.HasPrefix(n.Name(), s.name+".") {
			list = append(list, n)
		}
	}
	return list
}

// Trainable lists those of [Scope.Parameters] that are not frozen; see [Parameters.Freeze]. Weights
// in 16 bits are none of them.
func (s *Scope) Trainable() gorgonia.Nodes {
	if s == nil {
		return nil
	}
	return slices.DeleteFunc(s.Parameters(), func(n *gorgonia.Node) bool { return !s.values.isTrained(n) })
}

// Err is the first error, after the line of the model that it happened in.
func (s *Scope) Err() error {
	if s == nil {
		return errUnmade
	}
	return s.err
}

// Fail makes an error the scope's, as what is wrong with the inputs of a layer of one's own. It
// counts if it is the first. The result is for the layer to return.
func (s *Scope) Fail(err error) Tensor {
	if s == nil {
		return Tensor{}
	}
	s.fail(err)
	return Tensor{in: s.making}
}

// fail keeps the first error.
func (m *making) fail(err error) {
	if m.err == nil {
		m.err = err
		if at := guard.Line("nn", "nn/pretrained", "train"); at != "" { // of the model
			m.err = fmt.Errorf("%s: %w", at, err)
		}
	}
}

// Tensor takes what an op gives: a node of the graph, or an error, which becomes the scope's.
func (s *Scope) Tensor(n *gorgonia.Node, err error) Tensor {
	if s == nil {
		return Tensor{}
	}
	return s.of(n, err)
}

func (m *making) of(n *gorgonia.Node, err error) Tensor {
	switch {
	case m.err != nil:
	case err != nil:
		m.fail(err)
	case n == nil:
		m.fail(errors.New("the node is nil, it needs to be one of the graph"))
	case n.Type() == nil:
		m.fail(errors.New("the node is a zero node, it needs to be one of the graph"))
	case n.Graph() != nil && n.Graph() != m.g:
		m.fail(fmt.Errorf("%s belongs to another graph than the scope", n.Name()))
	default:
		return Tensor{in: m, n: n}
	}
	return Tensor{in: m}
}

// Constant is an input with a value that stays, where the parameters are. Its name is unique in the
// scope.
func (s *Scope) Constant(name string, value *tensor.Dense) Tensor {
	if s == nil {
		return Tensor{}
	}
	if value == nil {
		return s.Fail(fmt.Errorf("Constant: %s is nil, it needs to be an array", s.child(name)))
	}
	return s.constant(s.child(name), func() *tensor.Dense { return value })
}

// constant is the input of that name, made if there is none.
func (m *making) constant(name string, make func() *tensor.Dense) Tensor {
	if m.err != nil {
		return Tensor{in: m}
	}
	if found := m.g.ByName(name); len(found) > 0 {
		return m.of(found[0], nil)
	}
	value, err := m.values.placed(make())
	if err != nil {
		return m.of(nil, fmt.Errorf("constant %s: %w", name, err))
	}
	n := gorgonia.NewTensor(m.g, value.Dtype(), value.Dims(), gorgonia.WithShape(value.Shape()...),
		gorgonia.WithName(name), gorgonia.WithValue(value))
	m.constants = append(m.constants, n)
	return m.of(n, nil)
}

// full is an input of equal elements. One serves the whole graph.
func (m *making) full(x float64, dtype tensor.Dtype, shape ...int) Tensor {
	return m.constant(fmt.Sprintf("full.%v.%v.%v", x, dtype, shape), func() *tensor.Dense {
		if !isHalf(dtype) {
			return filled(x, dtype, shape)
		}
		v, err := ops.Converted(filled(x, tensor.Float32, shape), dtype)
		if err != nil {
			m.fail(err)
			return filled(x, tensor.Float32, shape)
		}
		return v
	})
}

// Parameter makes a parameter of a layer of one's own. A nil init means [FanIn].
func (s *Scope) Parameter(name string, init Init, shape ...int) Tensor {
	switch {
	case s == nil:
		return Tensor{}
	case name == "":
		return s.Fail(errors.New("Parameter: name is empty, it needs to be one that no other parameter of the scope has"))
	case len(shape) == 0 || slices.Min(shape) < 1:
		return s.Fail(fmt.Errorf("Parameter: %s has shape %v, it needs at least one axis, and none that is empty", s.child(name), shape))
	}
	l := s.layer("Parameter")
	return s.of(l.parameter(name, initOr(init, FanIn), slices.Clone(shape)...), nil)
}

// Linear is x·W + b for a weight of (x's last axis, out) and a bias; see [Linear]. Options are an
// [Init] of the weight, or [NoBias].
func (s *Scope) Linear(name string, x Tensor, out int, options ...LinearOption) Tensor {
	c := LinearConfig{In: x.Dim(-1), Out: out}
	for _, o := range options {
		if o != nil {
			o.change(&c)
		}
	}
	return NewLinear(s.Sub(name), c).Forward(x)
}

// LinearOption is what [Scope.Linear] may be told: an [Init], or [NoBias].
type LinearOption interface{ change(c *LinearConfig) }

func (init Init) change(c *LinearConfig) { c.Init = init }

// NoBias leaves out the bias of [Scope.Linear].
var NoBias LinearOption = noBias{}

type noBias struct{}

func (noBias) change(c *LinearConfig) { c.NoBias = true }

// Embedding is a vector of dim features for each id from 0 to vocab−1; see [Embedding].
func (s *Scope) Embedding(name string, ids Tensor, vocab, dim int, init ...Init) Tensor {
	return NewEmbedding(s.Sub(name), EmbeddingConfig{Vocab: vocab, Dim: dim, Init: first(init)}).Forward(ids)
}

// Positions adds a learned vector for each position of x, (B, S, Dim), whose S is the longest
// sequence; see [PositionalEmbedding]. They begin as small as embeddings of words do. Beside what a
// linear layer gives, Normal(0.5) lets a model learn several times sooner where things are.
func (s *Scope) Positions(name string, x Tensor, init ...Init) Tensor {
	return NewPositionalEmbedding(s.Sub(name), PositionalEmbeddingConfig{Context: x.Dim(1), Dim: x.Dim(-1), Init: first(init)}).Forward(x)
}

// Patches is the patches of images, (B, Channels, Height, Width), as vectors of dim features; see
// [PatchEmbedding].
func (s *Scope) Patches(name string, images Tensor, patch, dim int) Tensor {
	return NewPatchEmbedding(s.Sub(name), PatchEmbeddingConfig{
		Channels: images.Dim(1), Height: images.Dim(2), Width: images.Dim(3), Patch: patch, Dim: dim,
	}).Forward(images)
}

// Conv1d is a convolution of x, (B, S, C), to out channels; see [Conv].
func (s *Scope) Conv1d(name string, x Tensor, out int, window ops.Sliding) Tensor {
	return NewConv(s.Sub(name), ConvConfig{In: x.Dim(-1), Out: out, Windows: []ops.Sliding{window}}).Forward(x)
}

// Conv2d is a convolution of images with their channels last, (B, Height, Width, C), to out
// channels, by one window along both axes; see [Conv].
func (s *Scope) Conv2d(name string, x Tensor, out int, window ops.Sliding) Tensor {
	return NewConv(s.Sub(name), ConvConfig{In: x.Dim(-1), Out: out, Windows: []ops.Sliding{window, window}}).Forward(x)
}

// LayerNorm normalises, scales and shifts each row of x; see [Norm]. [Tensor.LayerNorm] has no
// parameters.
func (s *Scope) LayerNorm(name string, x Tensor) Tensor {
	return NewNorm(s.Sub(name), NormConfig{Dim: x.Dim(-1)}).Forward(x)
}

// RMSNorm divides each row of x by its root mean square, and scales it; see [Norm].
func (s *Scope) RMSNorm(name string, x Tensor) Tensor {
	return NewNorm(s.Sub(name), NormConfig{Dim: x.Dim(-1), RMS: true}).Forward(x)
}

// Dropout drops elements of x with probability p while the graph trains; see [Dropout]. The name
// decides which.
func (s *Scope) Dropout(name string, x Tensor, p float64) Tensor {
	return NewDropout(s.Sub(name), p).Forward(x)
}

// MLP is two linear layers with an activation between them; see [MLP]. A config may say more than
// x's Dim.
func (s *Scope) MLP(name string, x Tensor, config ...MLPConfig) Tensor {
	c := first(config)
	c.Dim = cmp.Or(c.Dim, x.Dim(-1))
	return NewMLP(s.Sub(name), c).Forward(x)
}

// Attention is self-attention of x, (B, S, Dim), with heads of Dim/heads features; see
// [MultiHeadAttention]. Options say whether it is causal, has a window, and so on.
func (s *Scope) Attention(name string, x Tensor, heads int, options ...ops.AttentionOptions) Tensor {
	return NewMultiHeadAttention(s.Sub(name), MultiHeadAttentionConfig{Dim: x.Dim(-1), Heads: heads, Options: first(options)}).Forward(x)
}

// CrossAttention has queries of x, and keys and values of a context, (B, Sk, any features); see
// [MultiHeadAttention].
func (s *Scope) CrossAttention(name string, x, context Tensor, heads int, options ...ops.AttentionOptions) Tensor {
	return NewMultiHeadAttention(s.Sub(name), MultiHeadAttentionConfig{
		Dim: x.Dim(-1), Heads: heads, Cross: true, ContextDim: context.Dim(-1), Options: first(options),
	}).ForwardWith(x, AttentionInputs{Context: context})
}

// Block is a layer of a transformer, of x's Dim; see [Block].
func (s *Scope) Block(name string, x Tensor, c BlockConfig) Tensor {
	c.Attention.Dim = cmp.Or(c.Attention.Dim, x.Dim(-1))
	return NewBlock(s.Sub(name), c).Forward(x)
}

// Stack is as many blocks of x's Dim, and a norm; see [Stack].
func (s *Scope) Stack(name string, x Tensor, layers int, c BlockConfig) Tensor {
	c.Attention.Dim = cmp.Or(c.Attention.Dim, x.Dim(-1))
	return NewStack(s.Sub(name), StackConfig{Layers: layers, Block: c}).Forward(x)
}

// first is the first of what may be left out.
func first[T any](list []T) (one T) {
	if len(list) > 0 {
		one = list[0]
	}
	return one
}
