package nn

import (
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// EmbeddingConfig describes an [Embedding].
type EmbeddingConfig struct {
	Name       string       // prefix of the parameter's name
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0
	Compute    tensor.Dtype // of the result: that of the parameters (zero), ops.BFloat16 or ops.Float16

	Vocab, Dim int
	Init       Init // of the weight; nil means Normal(0.02)
}

// Embedding gives a vector for each id: ids of any shape, int, int32 or int64 from 0 to Vocab−1 → (ids..., Dim).
//
// Its parameter is weight, (Vocab, Dim).
type Embedding struct {
	*scope
	weight  *gorgonia.Node
	compute tensor.Dtype
}

// NewEmbedding adds the parameter of an Embedding to a graph.
func NewEmbedding(g *gorgonia.ExprGraph, c EmbeddingConfig) (*Embedding, error) {
	s, err := newScope("Embedding", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"vocab", c.Vocab}, size{"dim", c.Dim}); err != nil {
		return nil, err
	}
	e := &Embedding{scope: s}
	if e.compute, err = s.computeType(c.Compute); err != nil {
		return nil, err
	}
	e.weight, err = s.keptWeight(initOr(c.Init, Normal(gpt2Std)), c.Vocab, c.Dim)
	return made(e, err)
}

// Forward looks up the vectors of ids.
func (e *Embedding) Forward(ids *gorgonia.Node) (*gorgonia.Node, error) {
	return ops.EmbeddingAs(e.weight, ids, e.compute)
}

// logits is x·weightᵀ, (..., Vocab), in the type of the weight: an embedding is also how a model with tied weights gives its
// predictions.
func (e *Embedding) logits(x *gorgonia.Node) (*gorgonia.Node, error) {
	x, err := ops.Cast(x, e.dtype)
	if err != nil {
		return nil, err
	}
	return ops.MatMul(x, e.weight, ops.MatMulOptions{TransposeB: true})
}
