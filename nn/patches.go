package nn

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/internal/resample"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// PatchEmbeddingConfig describes a [PatchEmbedding].
type PatchEmbeddingConfig struct {
	Channels, Height, Width int // of the images
	Patch                   int // the height and width of a patch, a divisor of those of the images
	Dim                     int
	NoBias                  bool                // the patches' linear layer has none
	ClassToken              bool                // a vector of its own comes before those of the patches
	Registers               int                 // so many vectors of their own come behind the class token, and have no position
	MaskToken               bool                // a vector stands for patches that are hidden
	Sizes                   ImageSizes          // which images are taken; zero means those of Height and Width alone
	NoPositions             bool                // nothing is added for positions
	Positions               PositionKind        // what is added; zero means LearnedPositions
	Init                    Init                // of the patches' weight; nil means FanIn
	NewLinear               Maker[LinearConfig] // makes what the patches go through; nil means NewLinear
}

// PatchEmbedding makes a sequence of vectors of images, as a vision transformer reads them: (B,
// Channels, Height, Width) → (B, S, Dim), one for each patch, row by row, after a linear layer, and
// its position added.
//
// Its parts are called patches and positions, the parameter of the class token is class, that of
// registers, (Registers, Dim), registers, and that of the mask token mask.
type PatchEmbedding struct {
	layer
	c         PatchEmbeddingConfig
	patches   Layer
	positions *PositionalEmbedding // nil for none
	class     *gorgonia.Node       // (1, Dim), nil for none
	registers *gorgonia.Node       // (Registers, Dim), nil for none
	mask      Tensor               // (1, Dim), none without MaskToken

	rows, columns int // of the patches of the last images
}

// ImageSizes says which images a [PatchEmbedding] takes, and what becomes of learned positions for
// images of another size than they were trained on: they are interpolated by cubic convolution.
type ImageSizes int

const (
	OneSize     ImageSizes = iota // those of Height and Width
	AnySize                       // any number of whole patches; positions are those around each place, as in DINOv2
	AnySizeWide                   // the same, where the filter is wider for fewer patches, as in DINOv2 with registers
)

// patchPositionStd is how positions of patches begin. Patches come out of a FanIn layer about as
// large as pixels are, beside which positions of words, 0.02, drown: a model learns late where
// things are.
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
	p.patches = p.linear("patches", c.NewLinear, LinearConfig{In: c.Channels * c.Patch * c.Patch, Out: c.Dim, NoBias: c.NoBias, Init: c.Init})
	if c.ClassToken {
		p.class = p.parameter("class", Normal(gpt2Std), 1, c.Dim)
	}
	if c.Registers < 0 || c.Registers > 0 && !c.ClassToken {
		p.failf("registers is %d, it needs to be 0, or positive with ClassToken", c.Registers)
		return p
	}
	if c.Sizes < OneSize || c.Sizes > AnySizeWide || c.Sizes != OneSize && c.Positions != LearnedPositions {
		p.failf("sizes is %d, it needs to be OneSize, or with LearnedPositions AnySize or AnySizeWide", c.Sizes)
		return p
	}
	if c.Registers > 0 {
		p.registers = p.parameter("registers", Normal(gpt2Std), c.Registers, c.Dim)
	}
	if c.MaskToken {
		p.mask = s.Parameter("mask", Zero, 1, c.Dim)
	}
	if !c.NoPositions {
		p.positions = NewPositionalEmbedding(s.Sub("positions"), PositionalEmbeddingConfig{
			Context: p.Len() - c.Registers, Dim: c.Dim, Kind: c.Positions, Init: Normal(patchPositionStd),
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
	return n + p.prefix()
}

// prefix is how many vectors stand before those of the patches.
func (p *PatchEmbedding) prefix() int {
	if p.c.ClassToken {
		return 1 + p.c.Registers
	}
	return 0
}

// Forward makes sequences of images.
func (p *PatchEmbedding) Forward(images Tensor) Tensor { return p.ForwardMasked(images, Tensor{}) }

// ForwardMasked is [PatchEmbedding.Forward] where the mask token stands for the patches of which
// hidden, (B, patches) of floats, is 1 and not 0.
func (p *PatchEmbedding) ForwardMasked(images, hidden Tensor) Tensor {
	c := p.c
	if !p.takes("images", images, 0) || !p.takesSize(images.Shape()) {
		return p.none(images)
	}
	shape := images.Shape()
	batch, rows, columns := shape[0], shape[2]/c.Patch, shape[3]/c.Patch
	p.rows, p.columns = rows, columns
	x := images.Reshape(batch, c.Channels, rows, c.Patch, columns, c.Patch).Permute(0, 2, 4, 1, 3, 5).
		Reshape(batch, rows*columns, c.Channels*c.Patch*c.Patch).Through(p.patches)
	if !hidden.IsZero() {
		x = p.hide(x, hidden)
	}
	if p.class != nil {
		x = Concat(1, p.each("class.ids", p.class, x), x)
	}
	if p.positions != nil {
		x = p.place(x)
	}
	if p.registers != nil {
		x = Concat(1, x.Slice(1, 0, 1), p.each("registers.ids", p.registers, x), x.Slice(1, 1, x.Dim(1)))
	}
	return x
}

// takesSize checks the shape of images.
func (p *PatchEmbedding) takesSize(shape tensor.Shape) bool {
	c := p.c
	switch {
	case len(shape) != 4 || shape[1] != c.Channels || c.Sizes == OneSize && (shape[2] != c.Height || shape[3] != c.Width):
		p.failf("images has shape %v, it needs (batch, %d, %d, %d)", []int(shape), c.Channels, c.Height, c.Width)
	case shape[2]%c.Patch != 0 || shape[3]%c.Patch != 0:
		p.failf("images has shape %v, it needs a height and a width that are multiples of the patches' %d", []int(shape), c.Patch)
	}
	return p.isMade()
}

// each is the rows of a table for each item of x.
func (p *PatchEmbedding) each(name string, table *gorgonia.Node, x Tensor) Tensor {
	ids := p.ids(name, x.Dim(0), table.Shape()[0], func(_, row int) int { return row })
	return x.apply(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.EmbeddingAs(table, ids.n, x.Dtype()) })
}

// hide puts the mask token into the place of patches.
func (p *PatchEmbedding) hide(x, hidden Tensor) Tensor {
	if p.mask.IsZero() {
		return p.failf("hidden is given, the config needs MaskToken for that")
	}
	if !p.given("hidden", hidden) || !hidden.Shape().Eq(x.Shape()[:2]) {
		return p.failf("hidden has shape %v, it needs one number for each patch: %v", []int(hidden.Shape()), []int(x.Shape()[:2]))
	}
	hidden = hidden.Cast(x.DType()).Reshape(x.Dim(0), x.Dim(1), 1)
	return x.Mul(hidden.Mul(-1).Add(1)).Add(hidden.MatMul(p.mask.Cast(x.DType()).Reshape(1, 1, -1)))
}

// place adds positions, of which there is one for the class token and one for each patch.
func (p *PatchEmbedding) place(x Tensor) Tensor {
	c := p.c
	have, want := [2]int{c.Height / c.Patch, c.Width / c.Patch}, [2]int{p.rows, p.columns}
	if have == want {
		return p.positions.Forward(x)
	}
	if !p.isMade() {
		return p.none(x)
	}
	table := p.s.of(p.positions.weight, nil)
	first := x.Dim(1) - want[0]*want[1]
	filter := p.s.constant(p.s.child(fmt.Sprintf("interpolation.%dx%d", want[0], want[1])), func() *tensor.Dense {
		return interpolation(p.s.dtype, c.Sizes == AnySizeWide, have, want)
	})
	moved := filter.MatMul(table.Slice(0, first, table.Dim(0)))
	if first > 0 {
		moved = Concat(0, table.Slice(0, 0, first), moved)
	}
	return x.Add(moved.Cast(x.DType()))
}

// interpolation is the matrix that makes a table of places of one of others, row by row of a grid.
func interpolation(dtype tensor.Dtype, wide bool, have, want [2]int) *tensor.Dense {
	var along [2][]resample.Element
	for axis := range along {
		if along[axis] = resample.RowAsIs(resample.Bicubic(-0.75), have[axis], want[axis]); wide {
			along[axis] = resample.Row(resample.Bicubic(-0.5), have[axis], want[axis])
		}
	}
	from := have[0] * have[1]
	values := make([]float64, want[0]*want[1]*from)
	for y, row := range along[0] {
		for x, column := range along[1] {
			to := values[(y*want[1]+x)*from:]
			for i, a := range row.Weights {
				for j, b := range column.Weights {
					to[(row.First+i)*have[1]+column.First+j] = a * b
				}
			}
		}
	}
	return denseOf(dtype, []int{want[0] * want[1], from}, func(i int) float64 { return values[i] })
}

// turnByGrid turns heads, (B, S, heads, HeadDim), by the row and the column of their patch, as
// DINOv3 does: a quarter of the pairs of dimensions by one, as many by the other. A patch is at −1
// + (2i + 1)/n of n rows or columns, times 2π; what stands before the patches is at 0, the middle.
func (p *PatchEmbedding) turnByGrid(h Tensor, base float64) Tensor {
	shape := h.Shape()
	if len(shape) != 4 || shape[1] != p.prefix()+p.rows*p.columns || shape[3]%4 != 0 {
		return p.failf("heads have shape %v, they need (batch, %d, heads, a multiple of 4)", []int(shape), p.prefix()+p.rows*p.columns)
	}
	const still = 1e30 // turns by nothing that a float has
	quarter := shape[3] / 4
	for axis, n := range []int{p.rows, p.columns} {
		// Only differences count, so positions are counted from n before the middle: they are
		// whole.
		at := p.ids([]string{"grid.rows", "grid.columns"}[axis]+fmt.Sprintf(".%d", p.columns), shape[0], shape[1], func(_, i int) int {
			i -= p.prefix()
			switch {
			case i < 0:
				return n
			case axis == 0:
				return 2*(i/p.columns) + 1
			}
			return 2*(i%p.columns) + 1
		})
		divisors := slices.Repeat([]float64{still}, 2*quarter)
		for i := range quarter {
			divisors[axis*quarter+i] = float64(n) / (2 * math.Pi) * math.Pow(base, float64(i)/float64(quarter))
		}
		h = h.rope(ops.RoPEOptions{Layout: ops.BSHD, Base: 1, Positions: at.n, Divisors: divisors})
	}
	return h
}
