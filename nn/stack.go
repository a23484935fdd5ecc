package nn

import (
	"fmt"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// StackConfig describes a [Stack].
type StackConfig struct {
	Name       string       // prefix of the parameters' names, empty for none
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0
	Compute    tensor.Dtype // of the input: that of the parameters (zero), ops.BFloat16 or ops.Float16

	Layers int
	// Block describes every block: an encoder's sees all, a decoder's is causal, and has Cross if it reads an encoder. Its own Name,
	// DType, Parameters and Compute are not looked at.
	Block BlockConfig
	// Change, if it is not nil, changes the description of block i before the block is made. It must do the same each time.
	Change func(i int, c *BlockConfig)
}

// Stack is blocks one after the other, and a norm behind the last, but with PostNorm, which needs none: the inside of encoders and
// decoders alike, (B, S, Dim) → (B, S, Dim).
//
// Its parts are called blocks.0, blocks.1, ... and norm.
type Stack struct {
	*scope
	blocks []*Block
	last   Layer // nil for none
}

// maxLayers bounds how many blocks are made before anything else can be found to be wrong.
const maxLayers = 1 << 12

// NewStack adds the parameters of a Stack to a graph.
func NewStack(g *gorgonia.ExprGraph, c StackConfig) (*Stack, error) {
	s, err := newScope("Stack", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"layers", c.Layers}); err != nil {
		return nil, err
	}
	if c.Layers > maxLayers {
		return nil, s.errorf("layers is %d, it needs to be at most %d", c.Layers, maxLayers)
	}
	stack := &Stack{scope: s}
	for i := range c.Layers {
		own := c.Block
		if c.Change != nil {
			c.Change(i, &own)
		}
		own.Name, own.DType, own.Parameters, own.Compute = s.child(fmt.Sprintf("blocks.%d", i)), s.dtype, s.store, c.Compute
		b, err := NewBlock(g, own)
		if err != nil {
			return nil, err
		}
		stack.blocks = append(stack.blocks, b)
	}
	if b := c.Block; b.Norms != PostNorm {
		stack.last, err = s.norm("norm", b.Attention.Dim, normKind{b.Epsilon, b.RMSNorm, b.Attention.NoBias, b.NormPlusOne, b.NewNorm})
	}
	return made(stack, err)
}

// Forward applies the blocks and the norm to x.
func (s *Stack) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	return s.ForwardWith(x, BlockInputs{})
}

// ForwardWith is [Stack.Forward] with a context, or with keys that are hidden, in every block.
func (s *Stack) ForwardWith(x *gorgonia.Node, in BlockInputs) (*gorgonia.Node, error) {
	if err := s.isMade(); err != nil {
		return nil, err
	}
	return s.pass(stream{x: x}, in)
}

// pass is ForwardWith of a stream.
func (s *Stack) pass(x stream, in BlockInputs) (*gorgonia.Node, error) {
	for _, b := range s.blocks {
		var err error
		if x, err = b.pass(x, in); err != nil {
			return nil, err
		}
	}
	return x.end(s.last)
}

// NewCaches is an empty cache for each block, for [Stack.ForwardCached].
func (s *Stack) NewCaches(batch, capacity int) ([]*ops.KVCache, error) {
	if err := s.isMade(); err != nil {
		return nil, err
	}
	caches := make([]*ops.KVCache, len(s.blocks))
	for i, b := range s.blocks {
		var err error
		if caches[i], err = b.NewCache(batch, capacity); err != nil {
			return nil, err
		}
	}
	return caches, nil
}

// ForwardCached gives the vector of the last token of x, (B, S, Dim) → (B, Dim), whose tokens follow those in the caches; see
// [Block.ForwardCached].
func (s *Stack) ForwardCached(x *gorgonia.Node, caches []*ops.KVCache, in BlockInputs) (*gorgonia.Node, error) {
	if err := s.isMade(); err != nil {
		return nil, err
	}
	if len(caches) != len(s.blocks) {
		return nil, s.errorf("there are %d caches, it needs one for each of the %d blocks", len(caches), len(s.blocks))
	}
	for i, b := range s.blocks {
		var err error
		if x, err = b.ForwardCached(x, caches[i], in); err != nil {
			return nil, err
		}
	}
	x, err := ops.Select(x, 1, x.Shape()[1]-1)
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	return stream{x: x}.end(s.last)
}

// Parameters lists the parameters of the blocks and the norm.
func (s *Stack) Parameters() gorgonia.Nodes {
	var all gorgonia.Nodes
	for _, b := range s.blocks {
		all = append(all, b.Parameters()...)
	}
	if s.last != nil {
		all = append(all, s.last.Parameters()...)
	}
	return all
}
