package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Listed is what attention to listed keys computes, row-major.
type Listed[T kernels.Float] struct{ O, LSE, Delta, DQ, DK, DV []T }

// ListedAttention computes attention to listed keys and, from the gradients of O and the logsumexp,
// the gradients, all in T. dLSE may be nil.
func ListedAttention[T kernels.Float](a *kernels.ListedAttention, dO, dLSE []T) Listed[T] {
	q, k, v, lists := elements[T](a.Q), elements[T](a.K), elements[T](a.V), indices(a.Lists)
	heads, rows, d := a.Q.Shape[1], a.Q.Shape[2], a.Q.Shape[3]
	keyBatches, keyHeads, length, dv := a.K.Shape[0], a.K.Shape[1], a.K.Shape[2], a.V.Shape[3]
	n, scale := lastAxis(a.Lists), T(a.Plain().EffectiveScale())
	all := a.Q.Shape[0] * heads * rows
	to := Listed[T]{O: make([]T, all*dv), LSE: make([]T, all), Delta: make([]T, all), DQ: make([]T, len(q)), DK: make([]T, len(k)), DV: make([]T, len(v))}
	for row := range all {
		batch, head, query := row/rows/heads, row/rows%heads, row%rows
		keyHead := head / (heads / keyHeads)
		first := (batch%keyBatches*keyHeads + keyHead) * length
		list := (batch%a.Lists.Shape[0]*a.Lists.Shape[1]+keyHead%a.Lists.Shape[1])*rows + query
		var seen []int
		var scores []T
		most := T(math.Inf(-1))
		for _, i := range lists[list*n:][:n] {
			if i < 0 {
				continue
			}
			s := scale * dot(q[row*d:][:d], k[(first+i)*d:][:d])
			seen, scores, most = append(seen, first+i), append(scores, s), max(most, s)
		}
		var sum T
		for _, s := range scores {
			sum += T(math.Exp(float64(s - most)))
		}
		to.LSE[row] = most + T(math.Log(float64(sum)))
		o, dOut := to.O[row*dv:][:dv], dO[row*dv:][:dv]
		weights := make([]T, len(seen))
		for j, at := range seen {
			weights[j] = T(math.Exp(float64(scores[j] - to.LSE[row])))
			for e := range o {
				o[e] += weights[j] * v[at*dv+e]
			}
		}
		to.Delta[row] = dot(o, dOut)
		if dLSE != nil {
			to.Delta[row] -= dLSE[row]
		}
		for j, at := range seen {
			dS := weights[j] * (dot(dOut, v[at*dv:][:dv]) - to.Delta[row])
			for e := range dv {
				to.DV[at*dv+e] += weights[j] * dOut[e]
			}
			for e := range d {
				to.DQ[row*d+e] += scale * dS * k[at*d+e]
				to.DK[at*d+e] += scale * dS * q[row*d+e]
			}
		}
	}
	return to
}
