package reference

import "math"

// AttentionMerge is what attention to some keys and to others gives together, from the outputs of
// rows and their logsumexps.
func AttentionMerge(o, lse, partO, partLSE []float64) (joinedO, joinedLSE []float64) {
	size := len(o) / len(lse)
	joinedO, joinedLSE = make([]float64, len(o)), make([]float64, len(lse))
	for i := range lse {
		most := max(lse[i], partLSE[i])
		if math.IsInf(most, -1) {
			joinedLSE[i] = most
			continue
		}
		own, other := math.Exp(lse[i]-most), math.Exp(partLSE[i]-most)
		joinedLSE[i] = most + math.Log(own+other)
		for d := i * size; d < (i+1)*size; d++ {
			joinedO[d] = (o[d]*own + partO[d]*other) / (own + other)
		}
	}
	return joinedO, joinedLSE
}
