package nn

import (
	"fmt"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// PositionalEmbeddingConfig describes a [PositionalEmbedding].
type PositionalEmbeddingConfig struct {
	Name       string       // prefix of the parameter's name
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0

	Context int // the longest sequence
	Dim     int
	Std     float64 // standard deviation of the weight's first values; 0 means 0.02
}

// PositionalEmbedding adds a learned vector for each position: (B, S, Dim) → (B, S, Dim), S at most Context.
//
// Its parameter is weight, (Context, Dim).
type PositionalEmbedding struct {
	*scope
	c      PositionalEmbeddingConfig
	weight *gorgonia.Node
}

// NewPositionalEmbedding adds the parameter of a PositionalEmbedding to a graph.
func NewPositionalEmbedding(g *gorgonia.ExprGraph, c PositionalEmbeddingConfig) (*PositionalEmbedding, error) {
	s, err := newScope("PositionalEmbedding", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"context", c.Context}, size{"dim", c.Dim}); err != nil {
		return nil, err
	}
	init, err := s.normal(c.Std)
	if err != nil {
		return nil, err
	}
	p := &PositionalEmbedding{scope: s, c: c}
	p.weight, err = s.parameter("weight", init, c.Context, c.Dim)
	return made(p, err)
}

// Forward adds the vectors of positions 0 to S−1 to x.
func (p *PositionalEmbedding) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := p.input("x", x, p.c.Dim); err != nil {
		return nil, err
	}
	shape := x.Shape()
	if len(shape) != 3 {
		return nil, p.errorf("x has shape %v, it needs three axes (batch, length, %d)", []int(shape), p.c.Dim)
	}
	batch, length := shape[0], shape[1]
	if length > p.c.Context {
		return nil, p.errorf("x has %d positions, the table has %d", length, p.c.Context)
	}
	ids, err := p.ids(batch, length)
	if err != nil {
		return nil, err
	}
	return p.ForwardAt(x, ids)
}

// ForwardAt adds to x, (B, S, Dim), the vectors of the given positions, (B, S) of int, int32 or int64 below Context. They
// may change from run to run.
func (p *PositionalEmbedding) ForwardAt(x, positions *gorgonia.Node) (*gorgonia.Node, error) {
	if err := p.input("x", x, p.c.Dim); err != nil {
		return nil, err
	}
	if positions == nil {
		return nil, p.errorf("positions is nil, it needs to be a node")
	}
	if want := x.Shape()[:x.Dims()-1]; !positions.Shape().Eq(want) {
		return nil, p.errorf("positions has shape %v, it needs one for each of x's tokens: %v", []int(positions.Shape()), []int(want))
	}
	vectors, err := ops.Embedding(p.weight, positions)
	if err != nil {
		return nil, err
	}
	if vectors, err = ops.Cast(vectors, x.Dtype()); err != nil {
		return nil, err
	}
	return ops.Add(x, vectors)
}

// ids is an input of the graph that holds the position of each token. One serves all calls of its shape.
func (p *PositionalEmbedding) ids(batch, length int) (*gorgonia.Node, error) {
	name := p.child(fmt.Sprintf("ids.%dx%d", batch, length))
	if found := p.g.ByName(name); len(found) > 0 {
		return found[0], nil
	}
	data := make([]int, batch*length)
	for i := range data {
		data[i] = i % length
	}
	value, err := p.store.placed(tensor.New(tensor.WithShape(batch, length), tensor.WithBacking(data)))
	if err != nil {
		return nil, p.errorf("%w", err)
	}
	return gorgonia.NewTensor(p.g, value.Dtype(), 2, gorgonia.WithShape(batch, length), gorgonia.WithName(name), gorgonia.WithValue(value)), nil
}
