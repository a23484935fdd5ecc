package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// SoundConfig describes what an [Encoder] of sounds reads: spectra, (B, 2·Context, Bins), one after
// the other, as Whisper does. Two convolutions of three spectra, of which the second makes one
// vector of two, and positions.
type SoundConfig struct {
	Bins    int // numbers of a spectrum
	Context int // how many vectors there are
}

// soundEmbedding makes vectors of spectra. Its parts are conv1, conv2 and positions; the weight of
// a convolution, (3·channels, Dim), has the three taps of a channel side by side.
type soundEmbedding struct {
	layer
	c             SoundConfig
	first, second Layer
	positions     *PositionalEmbedding
}

func newSoundEmbedding(l layer, c SoundConfig, dim int) *soundEmbedding {
	e := &soundEmbedding{layer: l, c: c}
	if !e.positive(size{"bins", c.Bins}, size{"sound context", c.Context}) {
		return e
	}
	e.first = e.linear("conv1", nil, LinearConfig{In: 3 * c.Bins, Out: dim, Activation: kernels.GELUErf})
	e.second = e.linear("conv2", nil, LinearConfig{In: 3 * dim, Out: dim, Activation: kernels.GELUErf})
	e.positions = NewPositionalEmbedding(e.s.Sub("positions"), PositionalEmbeddingConfig{Context: c.Context, Dim: dim})
	return e
}

func (e *soundEmbedding) forward(spectra Tensor, _ EncoderInputs) Tensor {
	if shape := spectra.Shape(); len(shape) != 3 || shape[1] != 2*e.c.Context || shape[2] != e.c.Bins {
		return e.failf("spectra has shape %v, it needs (batch, %d, %d)", []int(shape), 2*e.c.Context, e.c.Bins)
	}
	x := spectra.Cast(e.s.compute)
	for i, l := range []Layer{e.first, e.second} {
		x = x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Patches(n, 0, ops.Sliding{Size: 3, Padding: 1, Stride: 1 + i})
		}).Permute(0, 1, 3, 2)
		x = x.Reshape(x.Dim(0), x.Dim(1), -1).Through(l)
	}
	return e.positions.Forward(x)
}
