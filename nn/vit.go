package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
)

// ViTConfig describes an [Encoder] of images. ViT in its base size is Channels 3, Height and Width
// 224, Patch 16, Layers 12, Heads 12, Dim 768 and Epsilon 1e-12.
type ViTConfig struct {
	Channels, Height, Width int // of the images
	Patch                   int // the height and width of a patch
	Layers                  int
	Heads                   int
	Dim                     int

	Hidden     int                // of the MLPs; 0 means 4·Dim
	Activation kernels.Activation // of the MLPs; zero means GELUErf
	Epsilon    float64            // of the norms; 0 means 1e-5
	Dropout    float64            // of the embeddings, the attention weights, and what each layer adds

	Pooler  bool // adds what Pooled needs
	Classes int  // adds what Classify needs; 0 for none

	// Block, if it is not nil, changes the description of block i before the block is made. It must
	// do the same each time.
	Block func(i int, c *BlockConfig)
}

// NewViT makes an [Encoder] of the patches of an image, before which a token stands for the whole.
func NewViT(s *Scope, c ViTConfig) *Encoder { return newEncoder(s, "ViT", c.Model()) }

// Model is the description of the whole model, for models that have something else than ViT.
func (c ViTConfig) Model() EncoderConfig {
	if c.Activation == kernels.NoActivation {
		c.Activation = kernels.GELUErf
	}
	return EncoderConfig{
		Layers: c.Layers, Change: c.Block, Dropout: c.Dropout,
		Patches: &PatchEmbeddingConfig{Channels: c.Channels, Height: c.Height, Width: c.Width, Patch: c.Patch, ClassToken: true},
		Block: BlockConfig{
			Attention: MultiHeadAttentionConfig{Dim: c.Dim, Heads: c.Heads, Options: ops.AttentionOptions{Dropout: ops.Drop{P: c.Dropout}}},
			Hidden:    c.Hidden, Activation: c.Activation, Epsilon: c.Epsilon, Dropout: c.Dropout,
		},
		Heads: EncoderHeads{Pooler: c.Pooler, Classes: c.Classes},
	}
}
