package nn

import (
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// PatchEmbeddingConfig describes a [PatchEmbedding].
type PatchEmbeddingConfig struct {
	Name       string       // prefix of the parameters' names
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0

	Channels, Height, Width int // of the images
	Patch                   int // the height and width of a patch, a divisor of those of the images
	Dim                     int
	ClassToken              bool                // a vector of its own comes before those of the patches
	NoPositions             bool                // nothing is added for positions
	Positions               PositionKind        // what is added; zero means LearnedPositions
	Init                    Init                // of the patches' weight; nil means FanIn
	NewLinear               Maker[LinearConfig] // makes what the patches go through; nil means NewLinear
}

// PatchEmbedding makes a sequence of vectors of images, as a vision transformer reads them: (B, Channels, Height, Width) →
// (B, S, Dim), one for each patch, row by row, after a linear layer, and its position added.
//
// Its parts are called patches and positions, the parameter of the class token is class.
type PatchEmbedding struct {
	*scope
	c         PatchEmbeddingConfig
	patches   Layer
	positions *PositionalEmbedding // nil for none
	class     *gorgonia.Node       // (1, Dim), nil for none
}

// NewPatchEmbedding adds the parameters of a PatchEmbedding to a graph.
func NewPatchEmbedding(g *gorgonia.ExprGraph, c PatchEmbeddingConfig) (*PatchEmbedding, error) {
	s, err := newScope("PatchEmbedding", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"channels", c.Channels}, size{"height", c.Height}, size{"width", c.Width}, size{"patch", c.Patch}, size{"dim", c.Dim}); err != nil {
		return nil, err
	}
	if c.Height%c.Patch != 0 || c.Width%c.Patch != 0 {
		return nil, s.errorf("patch is %d, it needs to divide the images' height and width, which are %d and %d", c.Patch, c.Height, c.Width)
	}
	p := &PatchEmbedding{scope: s, c: c}
	if p.patches, err = s.linear("patches", c.NewLinear, LinearConfig{In: c.Channels * c.Patch * c.Patch, Out: c.Dim, Init: c.Init}); err != nil {
		return nil, err
	}
	if c.ClassToken {
		if p.class, err = s.parameter("class", Normal(gpt2Std), 1, c.Dim); err != nil {
			return nil, err
		}
	}
	if !c.NoPositions {
		p.positions, err = NewPositionalEmbedding(g, PositionalEmbeddingConfig{
			Name: s.child("positions"), DType: s.dtype, Parameters: s.store, Context: p.Len(), Dim: c.Dim, Kind: c.Positions,
		})
	}
	return made(p, err)
}

// Len is the length of the sequences that it makes.
func (p *PatchEmbedding) Len() int {
	if p.isMade() != nil {
		return 0
	}
	n := p.c.Height / p.c.Patch * (p.c.Width / p.c.Patch)
	if p.c.ClassToken {
		n++
	}
	return n
}

// Forward makes sequences of images.
func (p *PatchEmbedding) Forward(images *gorgonia.Node) (*gorgonia.Node, error) {
	c := p.c
	if err := p.input("images", images, c.Width); err != nil {
		return nil, err
	}
	shape := images.Shape()
	if want := (tensor.Shape{shape[0], c.Channels, c.Height, c.Width}); !shape.Eq(want) {
		return nil, p.errorf("images has shape %v, it needs (batch, %d, %d, %d)", []int(shape), c.Channels, c.Height, c.Width)
	}
	rows, columns := c.Height/c.Patch, c.Width/c.Patch
	x, err := gorgonia.Reshape(images, tensor.Shape{shape[0], c.Channels, rows, c.Patch, columns, c.Patch})
	if err != nil {
		return nil, p.errorf("%w", err)
	}
	if x, err = ops.Permute(x, 0, 2, 4, 1, 3, 5); err != nil {
		return nil, p.errorf("%w", err)
	}
	if x, err = gorgonia.Reshape(x, tensor.Shape{shape[0], rows * columns, c.Channels * c.Patch * c.Patch}); err != nil {
		return nil, p.errorf("%w", err)
	}
	if x, err = p.patches.Forward(x); err != nil {
		return nil, err
	}
	if p.class != nil {
		zeros, err := p.ids("class.ids", shape[0], 1, func(int, int) int { return 0 })
		if err != nil {
			return nil, err
		}
		class, err := ops.EmbeddingAs(p.class, zeros, x.Dtype())
		if err != nil {
			return nil, err
		}
		if x, err = ops.Concat(1, class, x); err != nil {
			return nil, err
		}
	}
	if p.positions == nil {
		return x, nil
	}
	return p.positions.Forward(x)
}

// Parameters lists the parameters, in the order of their use.
func (p *PatchEmbedding) Parameters() gorgonia.Nodes {
	all := append(parametersOf(p.patches), p.scope.Parameters()...)
	if p.positions != nil {
		all = append(all, p.positions.Parameters()...)
	}
	return all
}
