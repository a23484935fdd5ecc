package nn

import "github.com/stheno-ml/stheno/ops"

// DistanceConfig describes a bias of attention that goes by how far a key is from its query, as in
// T5 and MPNet. Of an encoder half of the buckets are for keys behind the query, half for those at
// it and before it; of a decoder all are for those. Half of them are for a distance each, and the
// others for ranges that grow, up to Farthest.
type DistanceConfig struct {
	Buckets  int // a multiple of 4
	Farthest int // that distance and all beyond have one bucket
}

// addDistanceBias makes the bias, which all blocks share, and adds it to the scores of attention.
// Both says that keys behind a query count.
func addDistanceBias(s *Scope, c DistanceConfig, attention *MultiHeadAttentionConfig, both bool) {
	l := s.layer("Distances")
	if attention.Options.Score != nil {
		l.failf("Options.Score of attention is set, it needs to be nil where there are distances")
		return
	}
	if c.Buckets < 4 || c.Buckets%4 != 0 || c.Farthest <= c.Buckets/2 {
		l.failf("buckets is %d and farthest %d, it needs a multiple of 4 and more than half of it", c.Buckets, c.Farthest)
		return
	}
	// The bias has the type of scores, whatever the model computes in, and weights are kept in.
	if table := s.Parameter("weight", Normal(gpt2Std), c.Buckets, attention.Heads); !table.failed() {
		attention.Options.Score, attention.scoreAdds = ops.RelativeBias(table.n, c.Farthest, both), true
	}
}
