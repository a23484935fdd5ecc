package nn

import (
	"math"

	"github.com/stheno-ml/stheno/ops"
)

// DisentangledConfig describes scores that go by distance as in DeBERTa. Each distance has a
// vector. A query is compared with a key, with the vector of their distance, and that vector with
// the key. The queries' and keys' linear layers make queries and keys of these vectors too.
type DisentangledConfig struct {
	// Buckets is how many vectors there are for each direction. Half of them are for a distance
	// each, and the others for ranges that grow, up to Farthest; a Farthest of 0 gives each
	// distance a vector of its own.
	Buckets  int
	Farthest int
	Norm     bool // a norm, as those of the blocks, follows the vectors
}

// disentangled is what all attention of a model shares of it.
type disentangled struct {
	layer
	c       DisentangledConfig
	vectors *Embedding
	norm    Layer // nil for none
	dropout float64
	made    Tensor // what forward gives, the same for all blocks
}

// newDisentangled makes the vectors, and the norm for them if one is asked for.
func newDisentangled(s *Scope, c DisentangledConfig, block BlockConfig, dropout float64) *disentangled {
	d := &disentangled{layer: s.layer("Disentangled"), c: c, dropout: dropout}
	if !d.positive(size{"buckets", c.Buckets}) {
		return d
	}
	if c.Farthest != 0 && (c.Buckets < 4 || c.Buckets%2 != 0 || c.Farthest <= c.Buckets/2+1) {
		d.failf("buckets is %d and farthest %d, it needs an even number of at least 4, and more than half of it and one", c.Buckets, c.Farthest)
		return d
	}
	d.vectors = NewEmbedding(s, EmbeddingConfig{Vocab: 2 * c.Buckets, Dim: block.Attention.Dim})
	if c.Norm {
		d.norm = d.layer.norm("norm", block.NewNorm, block.norm())
	}
	return d
}

// forward gives the vectors, (1, 2·Buckets, Dim).
func (d *disentangled) forward() Tensor {
	if !d.made.IsZero() {
		return d.made
	}
	d.made = d.vectors.Forward(d.ids("ids", 1, 2*d.c.Buckets, func(_, i int) int { return i }))
	if d.norm != nil {
		d.made = d.norm.Forward(d.made)
	}
	return d.made
}

// bucket is the number of the vector of a distance, a query's row less a key's.
func (c *DisentangledConfig) bucket(distance int) int {
	far := max(distance, -distance)
	if near := c.Buckets / 2; c.Farthest != 0 && far > near {
		ranges := math.Log(float64(far)/float64(near)) / math.Log(float64(c.Farthest-1)/float64(near)) * float64(near-1)
		far = near + int(math.Ceil(ranges-1e-9))
	}
	if distance < 0 {
		far = -far
	}
	return min(max(far+c.Buckets, 0), 2*c.Buckets-1)
}

// score gives what adds to scores how queries go with distances and distances with keys. Queries
// and keys are (B, S, heads, HeadDim), those of the vectors (1, 2·Buckets, heads, HeadDim).
func (d *disentangled) score(q, k, places, placed Tensor, scale float64) func(ops.Pair) ops.Expr {
	most := max(d.c.Buckets, d.c.Farthest) // all distances beyond have one vector
	buckets := d.ids("buckets", 1, 2*most+1, func(_, i int) int { return d.c.bucket(i - most) })
	with := func(h, vectors Tensor) Tensor {
		h, vectors = h.Permute(0, 2, 1, 3), vectors.Permute(0, 2, 1, 3)
		// What is added has the type of scores, whatever the model computes in.
		return h.MatMul(vectors, ops.MatMulOptions{TransposeB: true}).Cast(d.s.dtype)
	}
	of, at := with(q, places), with(k, placed)
	return func(p ops.Pair) ops.Expr {
		bucket := ops.Lookup(buckets.n, 0, p.Query.Sub(p.Key).Add(most))
		sum := ops.Lookup(of.n, p.Batch, p.Head, p.Query, bucket).Add(ops.Lookup(at.n, p.Batch, p.Head, p.Key, bucket))
		return p.Score.Add(sum.Mul(scale))
	}
}

// disentangle adds distances to the scores of a call, whose queries and keys are given.
func (m *MultiHeadAttention) disentangle(q, k Tensor, o *ops.AttentionOptions) {
	vectors := m.c.places.forward().Through(m.placeDrop)
	places := m.heads(m.k.Forward(vectors), m.c.Heads, nil, nil)
	placed := m.heads(m.q.Forward(vectors), m.c.Heads, nil, nil)
	o.Scale = 1 / math.Sqrt(float64(3*m.c.HeadDim))
	if m.isMade() {
		o.Score = m.c.places.score(q, k, places, placed, o.Scale)
	}
}
