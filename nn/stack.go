package nn

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/ops"
)

// StackConfig describes a [Stack].
type StackConfig struct {
	Layers int
	// Block describes every block: an encoder's sees all, a decoder's is causal, and has Cross if
	// it reads an encoder.
	Block BlockConfig
	// Change, if it is not nil, changes the description of block i before the block is made. It
	// must do the same each time.
	Change func(i int, c *BlockConfig)
	NoNorm bool // there is no norm behind the last block
	// Blocks is how many blocks there are: a divisor of Layers, or 0 for Layers. With fewer, as in
	// ALBERT, each is applied Layers/Blocks times in a row.
	Blocks int
}

// Stack is blocks one after the other, and a norm behind the last, but with NoNorm or PostNorm,
// which needs none: the inside of encoders and decoders alike, (B, S, Dim) → (B, S, Dim).
//
// Blocks that have neither Init nor ProjInit begin what they add to x as [FanIn] divided by
// √(2·Layers), but with PostNorm, so that x is about as large behind few blocks and many.
//
// Its parts are called blocks.0, blocks.1, ... and norm.
type Stack struct {
	layer
	blocks []*Block
	last   Layer // nil for none
}

// maxLayers bounds how many blocks are made before anything else can be found to be wrong.
const maxLayers = 1 << 12

// NewStack makes a Stack in a scope.
func NewStack(s *Scope, c StackConfig) *Stack {
	stack := &Stack{layer: s.layer("Stack")}
	if !stack.positive(size{"layers", c.Layers}) {
		return stack
	}
	if c.Layers > maxLayers {
		stack.failf("layers is %d, it needs to be at most %d", c.Layers, maxLayers)
		return stack
	}
	if c.Blocks == 0 {
		c.Blocks = c.Layers
	}
	if c.Blocks < 0 || c.Layers%c.Blocks != 0 {
		stack.failf("blocks is %d, it needs to be a divisor of layers, which is %d", c.Blocks, c.Layers)
		return stack
	}
	for i := 0; i < c.Blocks && stack.isMade(); i++ {
		own := c.Block
		if c.Change != nil {
			c.Change(i, &own)
		}
		if own.Init == nil && own.ProjInit == nil && own.Norms != PostNorm {
			own.ProjInit = ofDepth(c.Layers)
		}
		b := NewBlock(s.Sub(fmt.Sprintf("blocks.%d", i)), own)
		b.repeated = c.Blocks < c.Layers
		stack.blocks = append(stack.blocks, slices.Repeat([]*Block{b}, c.Layers/c.Blocks)...)
	}
	if c.Block.Norms != PostNorm && !c.NoNorm {
		stack.last = stack.norm("norm", c.Block.NewNorm, c.Block.norm())
	}
	return stack
}

// Forward applies the blocks and the norm to x.
func (s *Stack) Forward(x Tensor) Tensor { return s.ForwardWith(x, BlockInputs{}) }

// ForwardWith is [Stack.Forward] with a context, or with keys that are hidden, in every block.
func (s *Stack) ForwardWith(x Tensor, in BlockInputs) Tensor { return s.pass(stream{x: x}, in) }

// pass is ForwardWith of a stream.
func (s *Stack) pass(x stream, in BlockInputs) Tensor {
	if !s.given("x", x.x) {
		return s.none(x.x)
	}
	for _, b := range s.blocks {
		x = b.pass(x, in)
	}
	return x.end(s.last)
}

// weights are the attention's of a block.
func (s *Stack) weights(x stream, at int) (weights Tensor) {
	for _, b := range s.blocks[:at] {
		x = b.pass(x, BlockInputs{})
	}
	b := s.blocks[at]
	attention, ok := b.attn.(interface {
		ForwardWithWeights(x Tensor, in AttentionInputs) (out, weights Tensor)
	})
	if !ok {
		return b.failf("the attention is a %T, for its weights it needs the method ForwardWithWeights", b.attn)
	}
	b.forward(x, BlockInputs{}, func(x Tensor) (out Tensor) {
		out, weights = attention.ForwardWithWeights(x, AttentionInputs{})
		return out
	})
	return weights
}

// NewCaches is an empty cache for each block, for [Stack.ForwardCached].
func (s *Stack) NewCaches(batch, capacity int) ([]*ops.KVCache, error) {
	if s.s == nil {
		return nil, errUnmade
	}
	if s.s.err != nil {
		return nil, s.s.err
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

// NewMemories is an empty cache for what each block's cross-attention reads of a context.
func (s *Stack) NewMemories(batch, capacity int) ([]*ops.KVCache, error) {
	if s.s == nil {
		return nil, errUnmade
	}
	memories := make([]*ops.KVCache, len(s.blocks))
	for i, b := range s.blocks {
		cross, err := b.remembers()
		if err == nil {
			memories[i], err = cross.NewMemory(batch, capacity)
		}
		if err != nil {
			return nil, err
		}
	}
	return memories, nil
}

// Memorise gives what each block's cross-attention reads of a context: keys and values, one after
// the other.
func (s *Stack) Memorise(context Tensor) []Tensor {
	var list []Tensor
	for _, b := range s.blocks {
		cross, err := b.remembers()
		if err != nil {
			s.s.Fail(err)
			return nil
		}
		k, v := cross.Memorise(context)
		list = append(list, k, v)
	}
	return list
}

// ForwardCached gives the vector of the last token of x, (B, S, Dim) → (B, Dim), whose tokens
// follow those in the caches; see [Block.ForwardCached].
func (s *Stack) ForwardCached(x Tensor, caches []*ops.KVCache, in BlockInputs) Tensor {
	if !s.given("x", x) {
		return s.none(x)
	}
	if len(caches) != len(s.blocks) {
		return s.failf("there are %d caches, it needs one for each of the %d blocks", len(caches), len(s.blocks))
	}
	for i, b := range s.blocks {
		if in.memories != nil {
			in.memory = in.memories[i]
		}
		x = b.ForwardCached(x, caches[i], in)
	}
	if x.Dim(1) == 1 { // nothing is copied, and nothing stands between the blocks and the head
		return stream{x: x.Reshape(x.Dim(0), x.Dim(2))}.end(s.last)
	}
	return stream{x: x.Select(1, -1)}.end(s.last)
}
