package nn

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// VisionTransformerConfig describes a [VisionTransformer]. ViT in its base size is Channels 3, Height and Width 224, Patch 16,
// Layers 12, Heads 12, Dim 768 and Epsilon 1e-12.
type VisionTransformerConfig struct {
	Name       string       // prefix of the parameters' names, empty for none
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0
	Compute    tensor.Dtype // of what the layers compute: that of the parameters (zero), ops.BFloat16 or ops.Float16

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

	// Block, if it is not nil, changes the description of block i before the block is made. It must do the same each time.
	Block func(i int, c *BlockConfig)
}

// VisionTransformer is a model of the shape of ViT: an encoder of the patches of an image, before which a token stands for the whole.
//
// Its parts are called embeddings, blocks.0, blocks.1, ..., norm, pooler and classifier.
type VisionTransformer struct {
	*scope
	compute            tensor.Dtype
	embeddings         *PatchEmbedding
	drop               *Dropout
	stack              *Stack
	pooler, classifier Layer // nil for none
}

// NewVisionTransformer adds the parameters of a VisionTransformer to a graph.
func NewVisionTransformer(g *gorgonia.ExprGraph, c VisionTransformerConfig) (*VisionTransformer, error) {
	s, err := newScope("VisionTransformer", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if c.Classes < 0 {
		return nil, s.errorf("classes is %d, it needs to be positive, or 0 for none", c.Classes)
	}
	if c.Activation == kernels.NoActivation {
		c.Activation = kernels.GELUErf
	}
	if c.Classes < 0 {
		return nil, s.errorf("classes is %d, it needs to be positive, or 0 for none", c.Classes)
	}
	m := &VisionTransformer{scope: s}
	if m.compute, err = s.computeType(c.Compute); err != nil {
		return nil, err
	}
	return made(m, m.build(c))
}

func (m *VisionTransformer) build(c VisionTransformerConfig) (err error) {
	m.embeddings, err = NewPatchEmbedding(m.g, PatchEmbeddingConfig{
		Name: m.child("embeddings"), DType: m.dtype, Parameters: m.store, Channels: c.Channels, Height: c.Height, Width: c.Width,
		Patch: c.Patch, Dim: c.Dim, ClassToken: true,
	})
	if err != nil {
		return err
	}
	if m.drop, err = m.dropout("drop", c.Dropout, nil); err != nil {
		return err
	}
	m.stack, err = NewStack(m.g, StackConfig{
		Name: m.name, DType: m.dtype, Parameters: m.store, Compute: m.compute, Layers: c.Layers, Change: c.Block,
		Block: BlockConfig{
			Attention: MultiHeadAttentionConfig{Dim: c.Dim, Heads: c.Heads, Options: ops.AttentionOptions{Dropout: c.Dropout}},
			Hidden:    c.Hidden, Activation: c.Activation, Epsilon: c.Epsilon, Dropout: c.Dropout,
		},
	})
	if err != nil {
		return err
	}
	if c.Pooler {
		if m.pooler, err = m.linear("pooler", nil, LinearConfig{In: c.Dim, Out: c.Dim}); err != nil {
			return err
		}
	}
	if c.Classes > 0 {
		m.classifier, err = m.linear("classifier", nil, LinearConfig{In: c.Dim, Out: c.Classes})
	}
	return err
}

// Forward gives a vector for the image and each of its patches: (B, Channels, Height, Width) → (B, 1 + patches, Dim).
func (m *VisionTransformer) Forward(images *gorgonia.Node) (*gorgonia.Node, error) {
	if err := m.given("images", images); err != nil {
		return nil, err
	}
	images, err := ops.Cast(images, m.compute)
	if err != nil {
		return nil, err
	}
	return Chain(images, m.embeddings, m.drop, m.stack)
}

// Pooled stands for each image: the tanh of a linear function of its own vector, (B, S, Dim) → (B, Dim).
func (m *VisionTransformer) Pooled(h *gorgonia.Node) (*gorgonia.Node, error) {
	if m.pooler == nil {
		return nil, m.errorf("there is no pooler, the config needs Pooler")
	}
	first, err := Pool(h, FirstPool, nil)
	if err != nil {
		return nil, err
	}
	if first, err = m.pooler.Forward(first); err != nil {
		return nil, err
	}
	return ops.SoftCap(first, 1)
}

// Classify gives the logits of each image's classes: (B, S, Dim) → (B, Classes).
func (m *VisionTransformer) Classify(h *gorgonia.Node) (*gorgonia.Node, error) {
	if m.classifier == nil {
		return nil, m.errorf("there is no classifier, the config needs Classes")
	}
	first, err := Pool(h, FirstPool, nil)
	if err != nil {
		return nil, err
	}
	return m.classifier.Forward(first)
}

// Parameters lists all parameters, in the order of their use.
func (m *VisionTransformer) Parameters() gorgonia.Nodes {
	if m.isMade() != nil {
		return nil
	}
	all := parametersOf(m.embeddings, m.stack)
	for _, head := range []Layer{m.pooler, m.classifier} {
		if head != nil {
			all = append(all, head.Parameters()...)
		}
	}
	return all
}

// Summary is a table of the parameters; see [Summary].
func (m *VisionTransformer) Summary() string { return Summary(m.Parameters()) }
