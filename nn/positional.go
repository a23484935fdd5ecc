package nn

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// PositionKind is how a model knows where in a sequence a token is. Models that turn queries and keys ([ops.RoPEOptions]) or that
// have slopes (ALiBi of [ops.AttentionOptions]) need none of these.
type PositionKind int

const (
	LearnedPositions    PositionKind = iota // a vector for each position, a parameter
	SinusoidalPositions                     // sines and cosines of the position, as in the first transformer
)

// PositionalEmbeddingConfig describes a [PositionalEmbedding].
type PositionalEmbeddingConfig struct {
	Name       string       // prefix of the parameter's name
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0

	Context int // the longest sequence
	Dim     int
	Kind    PositionKind
	Init    Init // of the weight of LearnedPositions; nil means Normal(0.02)
	// Ranks says that x is the rows that this rank holds of a sequence, see [ops.AttentionOptions].
	Ranks kernels.Ranks
}

// PositionalEmbedding adds a vector for each position: (B, S, Dim) → (B, S, Dim), S at most Context.
//
// Its parameter is weight, (Context, Dim), with LearnedPositions. The vector of SinusoidalPositions at position t has
// sin(t/10000^(2i/Dim)) at 2i and the cosine of the same at 2i + 1.
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
	c.Ranks = ranksOr(c.Ranks, s.g)
	p := &PositionalEmbedding{scope: s, c: c}
	switch c.Kind {
	case LearnedPositions:
		p.weight, err = s.parameter("weight", initOr(c.Init, Normal(gpt2Std)), c.Context, c.Dim)
	case SinusoidalPositions:
		if err := checkSize(s.dtype, []int{c.Context, c.Dim}); err != nil {
			return nil, s.errorf("table: %w", err)
		}
		p.weight, err = s.constant("table", sinusoids(s.dtype, c.Context, c.Dim))
	default:
		err = s.errorf("kind is %d, it needs to be LearnedPositions or SinusoidalPositions", c.Kind)
	}
	return made(p, err)
}

// sinusoids is the table of SinusoidalPositions.
func sinusoids(dtype tensor.Dtype, context, dim int) *tensor.Dense {
	i := -1
	return fill(dtype, []int{context, dim}, func() float64 {
		i++
		position, feature := i/dim, i%dim
		angle := float64(position) * math.Pow(10000, -float64(feature/2*2)/float64(dim))
		if feature%2 == 0 {
			return math.Sin(angle)
		}
		return math.Cos(angle)
	})
}

// Forward adds the vectors of positions 0 to S−1 to x, or of those of the rows that this rank holds.
func (p *PositionalEmbedding) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := p.beside(x)
	if err != nil {
		return nil, err
	}
	return s.joined()
}

// beside is x and the vectors that Forward adds to it.
func (p *PositionalEmbedding) beside(x *gorgonia.Node) (s stream, err error) {
	if err := p.input("x", x, p.c.Dim); err != nil {
		return s, err
	}
	shape := x.Shape()
	if len(shape) != 3 {
		return s, p.errorf("x has shape %v, it needs three axes (batch, length, %d)", []int(shape), p.c.Dim)
	}
	batch, length := shape[0], shape[1]
	if whole := length * sizeOf(p.c.Ranks); whole > p.c.Context {
		return s, p.errorf("x has %d positions, it needs at most the table's %d", whole, p.c.Context)
	}
	rows, err := ops.HeldRows(p.c.Ranks, length*sizeOf(p.c.Ranks))
	if err != nil {
		return s, p.errorf("%w", err)
	}
	ids, err := p.ids("ids", batch, length, func(_, column int) int { return rows[column] })
	if err != nil {
		return s, err
	}
	return p.besideAt(x, ids)
}

// ranksOr are the ranks that a config names, or those that share all sequences of the graph.
func ranksOr(named kernels.Ranks, g *gorgonia.ExprGraph) kernels.Ranks {
	if named == nil {
		return ops.ModeOf(g).SequenceRanks()
	}
	return named
}

// sizeOf is how many ranks share a sequence.
func sizeOf(ranks kernels.Ranks) int {
	if ranks == nil {
		return 1
	}
	return max(1, ranks.Size())
}

// ForwardAt adds to x, (B, S, Dim), the vectors of the given positions, (B, S) of int, int32 or int64 below Context. They
// may change from run to run.
func (p *PositionalEmbedding) ForwardAt(x, positions *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := p.besideAt(x, positions)
	if err != nil {
		return nil, err
	}
	return s.joined()
}

// besideAt is x and the vectors that ForwardAt adds to it.
func (p *PositionalEmbedding) besideAt(x, positions *gorgonia.Node) (s stream, err error) {
	if err := p.input("x", x, p.c.Dim); err != nil {
		return s, err
	}
	if positions == nil {
		return s, p.errorf("positions is nil, it needs to be a node")
	}
	if want := x.Shape()[:x.Dims()-1]; !positions.Shape().Eq(want) {
		return s, p.errorf("positions has shape %v, it needs one for each of x's tokens: %v", []int(positions.Shape()), []int(want))
	}
	vectors, err := ops.EmbeddingAs(p.weight, positions, x.Dtype())
	return stream{x, vectors}, err
}

// ids is an input of the graph that holds a number for each place. One serves all calls of its shape.
func (s *scope) ids(what string, rows, columns int, at func(row, column int) int) (*gorgonia.Node, error) {
	name := fmt.Sprintf("%s.%dx%d", what, rows, columns)
	if found := s.g.ByName(s.child(name)); len(found) > 0 {
		return found[0], nil
	}
	data := make([]int, rows*columns)
	for i := range data {
		data[i] = at(i/columns, i%columns)
	}
	return s.constant(name, tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(data)))
}

// constant is an input of the graph with a value that stays, where the parameters live.
func (s *scope) constant(part string, value *tensor.Dense) (*gorgonia.Node, error) {
	value, err := s.store.placed(value)
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	return gorgonia.NewTensor(s.g, value.Dtype(), value.Dims(), gorgonia.WithShape(value.Shape()...), gorgonia.WithName(s.child(part)), gorgonia.WithValue(value)), nil
}
