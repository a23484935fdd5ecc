package nn

import (
	"math"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// PositionKind is how a model knows where in a sequence a token is. Models that turn queries and
// keys ([ops.RoPEOptions]) or that have slopes (ALiBi of [ops.AttentionOptions]) need none of
// these.
type PositionKind int

const (
	LearnedPositions    PositionKind = iota // a vector for each position, a parameter
	SinusoidalPositions                     // sines and cosines of the position, as in the first transformer
	SinusoidalHalves                        // the same, where all sines come first, as in Marian
)

// PositionalEmbeddingConfig describes a [PositionalEmbedding].
type PositionalEmbeddingConfig struct {
	Context int // the longest sequence
	Dim     int
	Kind    PositionKind
	First   int  // the row of the weight that the first position has, which has so many rows more; 0 but with LearnedPositions
	Init    Init // of the weight of LearnedPositions; nil means Normal(0.02)
}

// PositionalEmbedding adds a vector for each position: (B, S, Dim) → (B, S, Dim), S at most
// Context.
//
// Its parameter is weight, (First + Context, Dim), with LearnedPositions. The vector of
// SinusoidalPositions at position t has sin(t/10000^(2i/Dim)) at 2i and the cosine of the same at
// 2i + 1.
type PositionalEmbedding struct {
	layer
	c      PositionalEmbeddingConfig
	weight *gorgonia.Node // without the rows before the first position's
	whole  *gorgonia.Node // with them; nil where there are none
}

// NewPositionalEmbedding makes a PositionalEmbedding in a scope.
func NewPositionalEmbedding(s *Scope, c PositionalEmbeddingConfig) *PositionalEmbedding {
	p := &PositionalEmbedding{layer: s.layer("PositionalEmbedding"), c: c}
	if !p.positive(size{"context", c.Context}, size{"dim", c.Dim}) {
		return p
	}
	if c.First < 0 || c.First > 0 && c.Kind != LearnedPositions {
		p.failf("first is %d, it needs to be 0, or positive with LearnedPositions", c.First)
		return p
	}
	switch c.Kind {
	case LearnedPositions:
		p.weight = p.parameter("weight", initOr(c.Init, Normal(gpt2Std)), c.First+c.Context, c.Dim)
		if c.First > 0 && p.isMade() {
			rows := p.ids("rows", 1, c.Context, func(_, column int) int { return c.First + column })
			p.whole = p.weight
			p.weight = s.of(ops.Embedding(p.weight, rows.n)).Reshape(c.Context, c.Dim).n
		}
	case SinusoidalPositions, SinusoidalHalves:
		if p.check(checkSize(s.dtype, []int{c.Context, c.Dim})) {
			p.weight = s.constant(s.child("table"), func() *tensor.Dense { return sinusoids(s.dtype, c.Context, c.Dim, c.Kind == SinusoidalHalves) }).n
		}
	default:
		p.failf("kind is %d, it needs to be LearnedPositions, SinusoidalPositions or SinusoidalHalves", c.Kind)
	}
	return p
}

// sinusoids is the table of SinusoidalPositions.
func sinusoids(dtype tensor.Dtype, context, dim int, halves bool) *tensor.Dense {
	i := -1
	return fill(dtype, []int{context, dim}, func() float64 {
		i++
		position, feature := i/dim, i%dim
		if half := (dim + 1) / 2; halves && feature < half {
			feature *= 2
		} else if halves {
			feature = 2*(feature-half) + 1
		}
		angle := float64(position) * math.Pow(10000, -float64(feature/2*2)/float64(dim))
		if feature%2 == 0 {
			return math.Sin(angle)
		}
		return math.Cos(angle)
	})
}

// Forward adds the vectors of positions 0 to S−1 to x, or of those of the rows that this rank
// holds.
func (p *PositionalEmbedding) Forward(x Tensor) Tensor { return p.beside(x).joined() }

// beside is x and the vectors that Forward adds to it.
func (p *PositionalEmbedding) beside(x Tensor) stream {
	if !p.takes("x", x, p.c.Dim) {
		return stream{x: p.none(x)}
	}
	shape := x.Shape()
	if len(shape) != 3 {
		return stream{x: p.failf("x has shape %v, it needs three axes (batch, length, %d)", []int(shape), p.c.Dim)}
	}
	length := shape[1] * p.sharers()
	if length > p.c.Context {
		return stream{x: p.failf("x has %d positions, it needs at most the table's %d", length, p.c.Context)}
	}
	rows, err := ops.HeldRows(p.s.ranks, length)
	if !p.check(err) {
		return stream{x: p.none(x)}
	}
	return p.besideAt(x, p.ids("ids", shape[0], shape[1], func(_, column int) int { return rows[column] }))
}

// ForwardAt adds to x, (B, S, Dim), the vectors of the given positions, (B, S) of int, int32 or
// int64 below Context. They may change from run to run.
func (p *PositionalEmbedding) ForwardAt(x, positions Tensor) Tensor {
	return p.besideAt(x, positions).joined()
}

// besideAt is x and the vectors that ForwardAt adds to it.
func (p *PositionalEmbedding) besideAt(x, positions Tensor) stream {
	if !p.takes("x", x, p.c.Dim) || !p.given("positions", positions) {
		return stream{x: p.none(x)}
	}
	if want := x.Shape()[:len(x.Shape())-1]; !positions.Shape().Eq(want) {
		return stream{x: p.failf("positions has shape %v, it needs one for each of x's tokens: %v", []int(positions.Shape()), []int(want))}
	}
	return stream{x, p.s.of(ops.EmbeddingAs(p.weight, positions.n, x.DType(), p.s.values.frozenRows(p.s.child("weight"))...))}
}

// besideMasked is x and vectors of positions that are counted over the tokens of a mask alone. What
// is no token has the row before that of the first position.
func (p *PositionalEmbedding) besideMasked(x, mask Tensor) stream {
	if !p.takes("x", x, p.c.Dim) || !p.given("key mask", mask) {
		return stream{x: p.none(x)}
	}
	shape := x.Shape()
	switch d := mask.DType(); {
	case p.whole == nil:
		return stream{x: p.failf("first is 0, it needs to be positive where positions are counted over tokens alone")}
	case d != tensor.Int && d != tensor.Int32 && d != tensor.Int64:
		return stream{x: p.failf("key mask is %v, it needs to be int, int32 or int64 where positions are counted by it", d)}
	case len(shape) != 3 || !mask.Shape().Eq(shape[:2]):
		return stream{x: p.failf("key mask has shape %v, it needs one number for each of x's tokens: %v", []int(mask.Shape()), []int(shape[:2]))}
	case shape[1] > p.c.Context || p.sharers() > 1:
		return stream{x: p.failf("x has %d positions of sequences that %d ranks share, it needs at most the table's %d, and one rank", shape[1], p.sharers(), p.c.Context)}
	}
	rows := p.ids("maskedrows", 1, p.c.Context+1, func(_, column int) int { return p.c.First - 1 + column })
	table := p.s.of(ops.Embedding(p.whole, rows.n)).Reshape(p.c.Context+1, p.c.Dim)
	positions := p.s.of(ops.TokenPositions(mask.n, 0))
	if table.failed() || positions.failed() {
		return stream{x: p.none(x)}
	}
	return stream{x, p.s.of(ops.EmbeddingAs(table.n, positions.n, x.DType()))}
}
