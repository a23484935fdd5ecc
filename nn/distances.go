package nn

import "math"

// DistanceConfig describes a bias of attention that goes by how far a key is from its query, as in
// T5 and MPNet. Half of the buckets are for keys behind the query, half for those at it and before
// it. Of each half, half are for a distance each, and the others for ranges that grow, up to
// Farthest.
type DistanceConfig struct {
	Buckets  int // a multiple of 4
	Farthest int // that distance and all beyond have one bucket
}

// distanceBias makes the bias.
type distanceBias struct {
	layer
	c     DistanceConfig
	table *Embedding // (Buckets, heads)
}

func newDistanceBias(s *Scope, c DistanceConfig, heads int) *distanceBias {
	d := &distanceBias{layer: s.layer("Distances"), c: c}
	if c.Buckets < 4 || c.Buckets%4 != 0 || c.Farthest <= c.Buckets/4 {
		d.failf("buckets is %d and farthest %d, it needs a multiple of 4 and more than a quarter of it", c.Buckets, c.Farthest)
		return d
	}
	// The bias has the type of scores, whatever the model computes in.
	d.table = NewEmbedding(s.Compute(s.dtype), EmbeddingConfig{Vocab: c.Buckets, Dim: heads})
	return d
}

// of is the bias of sequences of a length, (1, heads, length, length).
func (d *distanceBias) of(length int) Tensor {
	if !d.isMade() || length == 0 {
		return d.none(Tensor{in: d.s.making})
	}
	buckets := d.ids("ids", length, length, func(query, key int) int { return d.c.bucket(key - query) })
	bias := d.table.Forward(buckets).Permute(2, 0, 1)
	return bias.Reshape(append([]int{1}, bias.Shape()...)...)
}

// bucket is that of a key so far behind its query, in float32 as PyTorch computes it.
func (c DistanceConfig) bucket(behind int) int {
	half, bucket := c.Buckets/2, 0
	if behind > 0 {
		bucket = half
	}
	n, exact := max(behind, -behind), half/2
	if n < exact {
		return bucket + n
	}
	far := float32(math.Log(float64(float32(n)/float32(exact)))) / float32(math.Log(float64(c.Farthest)/float64(exact))) * float32(half-exact)
	return bucket + min(exact+int(far), half-1)
}
