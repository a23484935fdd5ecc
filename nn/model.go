package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// model is what GPT and Llama have in common: a language model made of an embedding, blocks, a norm, and a head that
// multiplies by the embedding or by a matrix of the same shape.
type model struct {
	*scope
	compute   tensor.Dtype
	context   int // the longest sequence, 0 without limit
	ranks     kernels.Ranks
	tokens    *Embedding
	positions *PositionalEmbedding // nil for none
	drop      *Dropout
	stack     *Stack
	head      *Embedding // is tokens where the weights are tied
	scale     float64    // of the embeddings; 0 for 1
	softCap   float64    // of the logits; 0 for none
}

// addBlocks adds blocks of one description, which change, if it is not nil, makes another for some of them, and a norm.
func (m *model) addBlocks(layers int, c BlockConfig, change func(i int, c *BlockConfig)) (err error) {
	m.stack, err = NewStack(m.g, StackConfig{
		Name: m.name, DType: m.dtype, Parameters: m.store, Compute: m.compute, Layers: layers, Block: c, Change: change,
	})
	return err
}

// embedding adds an embedding of the vocabulary.
func (m *model) embedding(part string, vocab, dim int) (*Embedding, error) {
	return NewEmbedding(m.g, EmbeddingConfig{
		Name: m.child(part), DType: m.dtype, Parameters: m.store, Compute: m.compute, Vocab: vocab, Dim: dim,
	})
}

// Forward gives the logits of the token after each of tokens, which are (B, S) of int, int32 or int64:
// (B, S, Vocab).
func (m *model) Forward(tokens *gorgonia.Node) (*gorgonia.Node, error) {
	h, err := m.hidden(tokens)
	if err != nil {
		return nil, err
	}
	return m.logits(h)
}

// Packing says which sequences lie end to end in what a model is given.
type Packing struct {
	Ends *gorgonia.Node // 0 and then where each sequence ends, see [AttentionInputs]
	// Positions are those of the tokens, (total), each counted from the first of its sequence; only a model with learned
	// positions reads them.
	Positions *gorgonia.Node
}

// ForwardPacked gives the logits of the token after each of tokens, (total), which are sequences that see only themselves:
// (total, Vocab).
func (m *model) ForwardPacked(tokens *gorgonia.Node, p Packing) (*gorgonia.Node, error) {
	h, err := m.hiddenPacked(tokens, p)
	if err != nil {
		return nil, err
	}
	return m.logits(h)
}

// logits multiplies what the last norm gave by the head.
func (m *model) logits(h *gorgonia.Node) (*gorgonia.Node, error) {
	logits, err := m.head.logits(h)
	if err != nil || m.softCap == 0 {
		return logits, err
	}
	return ops.SoftCap(logits, m.softCap)
}

// Loss is the mean cross-entropy of predicting targets, (B, S), from tokens, (B, S): a scalar that [gorgonia.Grad] takes
// as a cost. It never holds the logits of the whole batch, unless they have a soft cap or [Parameters.KeepWeights] is used
// beside float32, so a graph that only trains needs no Forward. A target of IgnoreTarget does not count.
func (m *model) Loss(tokens, targets *gorgonia.Node) (*gorgonia.Node, error) {
	h, err := m.hidden(tokens)
	if err != nil {
		return nil, err
	}
	return m.lossOf(h, tokens, targets)
}

// LossPacked is [GPT.Loss] of sequences that lie end to end, tokens and targets being (total).
func (m *model) LossPacked(tokens, targets *gorgonia.Node, p Packing) (*gorgonia.Node, error) {
	h, err := m.hiddenPacked(tokens, p)
	if err != nil {
		return nil, err
	}
	return m.lossOf(h, tokens, targets)
}

// lossOf is the mean cross-entropy of targets after what the last norm gave.
func (m *model) lossOf(h, tokens, targets *gorgonia.Node) (*gorgonia.Node, error) {
	if targets == nil {
		return nil, m.errorf("targets is nil, it needs to be a node")
	}
	if !targets.Shape().Eq(tokens.Shape()) {
		return nil, m.errorf("targets has shape %v, it needs tokens's %v", []int(targets.Shape()), []int(tokens.Shape()))
	}
	ignore := IgnoreTarget
	if m.softCap != 0 || isHalf(m.head.weight.Dtype()) && h.Dtype() == tensor.Float32 {
		logits, err := m.logits(h)
		if err != nil {
			return nil, err
		}
		return ops.SoftmaxCrossEntropy(logits, targets, ops.CrossEntropyOptions{IgnoreIndex: &ignore})
	}
	return ops.LinearCrossEntropy(h, m.head.weight, targets, ops.LinearCrossEntropyOptions{IgnoreIndex: &ignore})
}

// IgnoreTarget is the target of a position whose prediction does not count in Loss, such as padding.
const IgnoreTarget = -100

// hidden is the model up to its head: (B, S, Dim).
func (m *model) hidden(tokens *gorgonia.Node) (*gorgonia.Node, error) {
	if err := m.check(tokens, 2); err != nil {
		return nil, err
	}
	h, err := m.embed(tokens)
	if err != nil {
		return nil, err
	}
	x := stream{x: h}
	if m.positions != nil {
		if x, err = m.positions.beside(h); err != nil {
			return nil, err
		}
	}
	return m.through(x, BlockInputs{})
}

// through is what dropout and the blocks make of the sum of embeddings.
func (m *model) through(x stream, in BlockInputs) (*gorgonia.Node, error) {
	if err := m.stack.isMade(); err != nil {
		return nil, err
	}
	if m.drop.p > 0 {
		h, err := x.joined()
		if err == nil {
			h, err = m.drop.Forward(h)
		}
		if err != nil {
			return nil, err
		}
		x = stream{x: h}
	}
	return m.stack.pass(x, in)
}

// hiddenPacked is hidden of sequences that lie end to end: (total, Dim).
func (m *model) hiddenPacked(tokens *gorgonia.Node, p Packing) (*gorgonia.Node, error) {
	if err := m.check(tokens, 1); err != nil {
		return nil, err
	}
	if p.Ends == nil {
		return nil, m.errorf("ends is nil, it needs to be a node")
	}
	h, err := m.embed(tokens)
	if err != nil {
		return nil, err
	}
	x := stream{x: h}
	if m.positions != nil {
		if x, err = m.positions.besideAt(h, p.Positions); err != nil {
			return nil, err
		}
	}
	return m.through(x, BlockInputs{Ends: p.Ends})
}

// embed looks up the vectors of tokens.
func (m *model) embed(tokens *gorgonia.Node) (*gorgonia.Node, error) {
	h, err := m.tokens.Forward(tokens)
	if err != nil || m.scale == 0 {
		return h, err
	}
	return ops.Scale(h, m.scale)
}

// check finds what is wrong with tokens, which have two axes, or one if they are packed.
func (m *model) check(tokens *gorgonia.Node, axes int) error {
	if err := m.given("tokens", tokens); err != nil {
		return err
	}
	if d := tokens.Dtype(); d != tensor.Int && d != tensor.Int32 && d != tensor.Int64 {
		return m.errorf("tokens is %v, it needs to be int, int32 or int64", d)
	}
	shape := tokens.Shape()
	if len(shape) != axes {
		return m.errorf("tokens has shape %v, it needs %s", []int(shape), [...]string{"one axis (total length)", "two axes (batch, length)"}[axes-1])
	}
	if axes == 2 && m.context > 0 && shape[1]*sizeOf(m.ranks) > m.context {
		return m.errorf("tokens has %d positions, it needs at most the context's %d", shape[1]*sizeOf(m.ranks), m.context)
	}
	return nil
}

// Context is the longest sequence that the model takes, 0 if there is no limit.
func (m *model) Context() int { return m.context }

// NewCaches is an empty cache for each block, for [GPT.ForwardCached].
func (m *model) NewCaches(batch, capacity int) ([]*ops.KVCache, error) {
	if err := m.isMade(); err != nil {
		return nil, err
	}
	if m.context > 0 && capacity > m.context {
		return nil, m.errorf("capacity is %d, it needs to be at most the context's %d", capacity, m.context)
	}
	return m.stack.NewCaches(batch, capacity)
}

// ForwardCached gives the logits of the token after the last of tokens, (B, S), which follow those in the caches:
// (B, Vocab). Each run adds the tokens to the caches. Positions, (B, S), are those of tokens, counted from the first in
// the caches; only a model with learned positions reads them. A [Decoder] is the easy way to all this.
func (m *model) ForwardCached(tokens, positions *gorgonia.Node, caches []*ops.KVCache) (*gorgonia.Node, error) {
	if err := m.check(tokens, 2); err != nil {
		return nil, err
	}
	h, err := m.embed(tokens)
	if err != nil {
		return nil, err
	}
	if m.positions != nil {
		if h, err = m.positions.ForwardAt(h, positions); err != nil {
			return nil, err
		}
	}
	if h, err = m.stack.ForwardCached(h, caches, BlockInputs{}); err != nil {
		return nil, err
	}
	return m.logits(h)
}

// Parameters lists all parameters, in the order of their use.
func (m *model) Parameters() gorgonia.Nodes {
	if m.isMade() != nil {
		return nil
	}
	all := m.tokens.Parameters()
	if m.positions != nil {
		all = append(all, m.positions.Parameters()...)
	}
	all = append(all, m.stack.Parameters()...)
	if m.head != m.tokens {
		all = append(all, m.head.Parameters()...)
	}
	return all
}

// Summary is a table of the model's parameters; see [Summary].
func (m *model) Summary() string { return Summary(m.Parameters()) }
