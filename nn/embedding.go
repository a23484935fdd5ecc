package nn

import (
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// EmbeddingConfig describes an [Embedding].
type EmbeddingConfig struct {
	Vocab, Dim int
	Init       Init // of the weight; nil means Normal(0.02)

	onlyLogits bool // no vectors are looked up
}

// Embedding gives a vector for each id: ids of any shape, int, int32 or int64 from 0 to Vocab−1 →
// (ids..., Dim), in the type that the scope computes in.
//
// Its parameter is weight, (Vocab, Dim). A [LoRA] of the scope's Parameters may change the vectors,
// not [Embedding.Logits].
type Embedding struct {
	layer
	weight *gorgonia.Node
	change *linearChange // nil for none
}

// NewEmbedding makes an Embedding in a scope.
func NewEmbedding(s *Scope, c EmbeddingConfig) *Embedding {
	e := &Embedding{layer: s.layer("Embedding")}
	if e.positive(size{"vocab", c.Vocab}, size{"dim", c.Dim}) {
		e.weight = e.embeddingWeight(initOr(c.Init, Normal(gpt2Std)), c.Vocab, c.Dim)
		if e.change = e.loraOfEmbedding(c.Vocab, c.Dim); e.change != nil && c.onlyLogits {
			e.failf("Embeddings of LoRA picks it, it needs to pick tables that vectors are looked up in: this one makes logits")
		}
	}
	return e
}

// Forward looks up the vectors of ids.
func (e *Embedding) Forward(ids Tensor) Tensor {
	if !e.given("ids", ids) {
		return e.none(ids)
	}
	x := e.s.of(ops.EmbeddingAs(e.weight, ids.n, e.s.compute, e.frozen()...))
	if e.change == nil || x.failed() {
		return x
	}
	a := e.s.of(ops.EmbeddingAs(e.change.a, ids.n, e.s.compute))
	return x.Add(a.MatMul(e.s.of(e.change.b, nil).Cast(a.DType())).Mul(e.change.scale))
}

// tie says that the weight makes logits too, so that a change of the vectors cannot be added to it.
func (e *Embedding) tie() {
	if e == nil || e.change == nil {
		return
	}
	p := e.s.values
	p.mu.Lock()
	defer p.mu.Unlock()
	if weight := e.s.child("weight"); p.lora != nil && !slices.Contains(p.lora.tied, weight) {
		p.lora.tied = append(p.lora.tied, weight)
	}
}

// frozen are the rows that get no gradient from being looked up.
func (e *Embedding) frozen() []int { return e.s.values.frozenRows(e.s.child("weight")) }

// Logits is x·weightᵀ, (..., Vocab), in the type of the parameters: an embedding is also how a
// model with tied weights gives its predictions.
func (e *Embedding) Logits(x Tensor) Tensor {
	if !e.given("x", x) {
		return e.none(x)
	}
	if d := e.weight.Dtype(); x.DType() != d && !ops.IsPacked(d) {
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
