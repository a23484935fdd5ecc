package nn

import (
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// PatchEmbeddingConfig describes a [PatchEmbedding].
type PatchEmbeddingConfig struct {
	Channels, Height, Width int // of the images
	Patch                   int // the height and width of a patch, a divisor of those of the images
	Dim                     int
	ClassToken              bool                // a vector of its own comes before those of the patches
	NoPositions             bool                // nothing is added for positions
	Positions               PositionKind        // what is added; zero means LearnedPositions
	Init                    Init                // of the patches' weight; nil means FanIn
	NewLinear               Maker[LinearConfig] // makes what the patches go through; nil means NewLinear
}

// PatchEmbedding makes a sequence of vectors of images, as a vision transformer reads them: (B,
// Channels, Height, Width) → (B, S, Dim), one for each patch, row by row, after a linear layer, and
// its position added.
//
// Its parts are called patches and positions, the parameter of the class token is class.
type PatchEmbedding struct {
	layer
	c         PatchEmbeddingConfig
	patches   Layer
	positions *PositionalEmbedding // nil for none
	class     *gorgonia.Node       // (1, Dim), nil for none
}

// patchPositionStd is how positions of patches begin. Patches come out of a FanIn layer about as large
// as pixels are, beside which positions of words, 0.02, drown: a model learns late where things are.
const patchPositionStd = 0.5

// NewPatchEmbedding makes a PatchEmbedding in a scope.
func NewPatchEmbedding(s *Scope, c PatchEmbeddingConfig) *PatchEmbedding {
	p := &PatchEmbedding{layer: s.layer("PatchEmbedding"), c: c}
	if !p.positive(size{"channels", c.Channels}, size{"height", c.Height}, size{"width", c.Width}, size{"patch", c.Patch}, size{"dim", c.Dim}) {
		return p
	}
	if c.Height%c.Patch != 0 || c.Width%c.Patch != 0 {
		p.failf("patch is %d, it needs to divide the images' height and width, which are %d and %d", c.Patch, c.Height, c.Width)
		return p
	}
	p.patches = p.linear("patches", c.NewLinear, LinearConfig{In: c.Channels * c.Patch * c.Patch, Out: c.Dim, Init: c.Init})
	if c.ClassToken {
		p.class = p.parameter("class", Normal(gpt2Std), 1, c.Dim)
	}
	if !c.NoPositions {
		p.positions = NewPositionalEmbedding(s.Sub("positions"), PositionalEmbeddingConfig{
			Context: p.Len(), Dim: c.Dim, Kind: c.Positions, Init: Normal(patchPositionStd),
		})
	}
	return p
}

// Len is the length of the sequences that it makes.
func (p *PatchEmbedding) Len() int {
	if p.c.Patch < 1 {
		return 0
	}
	n := p.c.Height / p.c.Patch * (p.c.Width / p.c.Patch)
	if p.c.ClassToken {
		n++
	}
	return n
}

// Forward makes sequences of images.
func (p *PatchEmbedding) Forward(images Tensor) Tensor {
	c := p.c
	if !p.takes("images", images, c.Width) {
		return p.none(images)
	}
	shape := images.Shape()
	if want := (tensor.Shape{shape[0], c.Channels, c.Height, c.Width}); !shape.Eq(want) {
		return p.failf("images has shape %v, it needs (batch, %d, %d, %d)", []int(shape), c.Channels, c.Height, c.Width)
	}
	batch, rows, columns := shape[0], c.Height/c.Patch, c.Width/c.Patch
	x := images.Reshape(batch, c.Channels, rows, c.Patch, columns, c.Patch).Permute(0, 2, 4, 1, 3, 5).
		Reshape(batch, rows*columns, c.Channels*c.Patch*c.Patch).Through(p.patches)
	if p.class != nil {
		zeros := p.ids("class.ids", batch, 1, func(int, int) int { return 0 })
		class := x.apply(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.EmbeddingAs(p.class, zeros.n, x.Dtype()) })
		x = Concat(1, class, x)
	}
	if p.positions == nil {
		return x
	}
	return p.positions.Forward(x)
}
