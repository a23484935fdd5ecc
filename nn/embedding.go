package nn

import (
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// EmbeddingConfig describes an [Embedding].
type EmbeddingConfig struct {
	Vocab, Dim int
	Init       Init // of the weight; nil means Normal(0.02)
}

// Embedding gives a vector for each id: ids of any shape, int, int32 or int64 from 0 to Vocab−1 →
// (ids..., Dim), in the type that the scope computes in.
//
// Its parameter is weight, (Vocab, Dim).
type Embedding struct {
	layer
	weight *gorgonia.Node
}

// NewEmbedding makes an Embedding in a scope.
func NewEmbedding(s *Scope, c EmbeddingConfig) *Embedding {
	e := &Embedding{layer: s.layer("Embedding")}
	if e.positive(size{"vocab", c.Vocab}, size{"dim", c.Dim}) {
		e.weight = e.embeddingWeight(initOr(c.Init, Normal(gpt2Std)), c.Vocab, c.Dim)
	}
	return e
}

// Forward looks up the vectors of ids.
func (e *Embedding) Forward(ids Tensor) Tensor {
	if !e.given("ids", ids) {
		return e.none(ids)
	}
	return e.s.of(ops.EmbeddingAs(e.weight, ids.n, e.s.compute, e.frozen()...))
}

// frozen are the rows that get no gradient from being looked up.
func (e *Embedding) frozen() []int { return e.s.values.frozenRows(e.s.child("weight")) }

// Logits is x·weightᵀ, (..., Vocab), in the type of the parameters: an embedding is also how a
// model with tied weights gives its predictions.
func (e *Embedding) Logits(x Tensor) Tensor {
	if !e.given("x", x) {
		return e.none(x)
	}
	if x.DType() != e.weight.Dtype() {
		x = x.Cast(e.s.dtype)
	}
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.MatMul(n, e.weight, ops.MatMulOptions{TransposeB: true, Wide: true})
	})
}

// keptBeside reports whether the weight is kept in another type than x is computed in.
func (e *Embedding) keptBeside(x Tensor) bool {
	d := e.weight.Dtype()
	return ops.IsPacked(d) || isHalf(d) && x.DType() == tensor.Float32
}
