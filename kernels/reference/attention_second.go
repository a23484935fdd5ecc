package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// AttentionSecondInputs are what attention's gradients are differentiated with, each row-major in
// the shape of what it is the gradient of; nil stands for zeros.
type AttentionSecondInputs struct {
	DO, DLSE                  []float64
	UQ, UK, UV, UBias, USinks []float64
}

// AttentionSecondGradients are the gradients of Σ U·(the gradients of attention), row-major.
// DBias and DSinks are nil where the problem has no bias or no sinks.
type AttentionSecondGradients struct {
	DQ, DK, DV, DBias, DSinks, DDO, DDLSE []float64
}

// AttentionSecond differentiates the gradients of attention, as [kernels.AttentionSecondKernels]
// says.
func AttentionSecond(a *kernels.Attention, in AttentionSecondInputs) AttentionSecondGradients {
	var m Arithmetic[float64]
	x := second{a: a, in: in}
	hq, sq := a.Q.Shape[1], a.Q.Shape[2]
	x.DQ, x.DK, x.DV = make([]float64, a.Q.Elements()), make([]float64, a.K.Elements()), make([]float64, a.V.Elements())
	x.DDO, x.DDLSE = make([]float64, a.Q.Shape[0]*hq*sq*a.V.Shape[3]), make([]float64, a.Q.Shape[0]*hq*sq)
	if a.Bias.IsSet() {
		x.DBias, x.biasStrides = make([]float64, a.Bias.Elements()), rowMajor(a.Bias.Shape)
	}
	if a.Sinks.IsSet() {
		x.DSinks = make([]float64, hq)
	}
	for _, s := range a.Sequences() {
		for keyHead := range a.K.Shape[1] {
			k, v := m.loadKeys(a, s, keyHead)
			for _, h := range m.queryHeads(a, s, keyHead, k) {
				for i := range s.Sq {
					x.row(h, keyHead, i, v)
				}
			}
		}
	}
	return x.AttentionSecondGradients
}

// second is the gradients on their way.
type second struct {
	AttentionSecondGradients
	a           *kernels.Attention
	in          AttentionSecondInputs
	biasStrides []int
}

// part is so many elements from at on; zeros of a nil slice.
func part(x []float64, at, n int) []float64 {
	if x == nil {
		return make([]float64, n)
	}
	return x[at:][:n]
}

// row adds what one query row gives.
func (x *second) row(h *head[float64], keyHead, i int, v [][]float64) {
	a, s := x.a, h.sequence
	hq, sq, hk, sk, d, dv, scale := a.Q.Shape[1], a.Q.Shape[2], a.K.Shape[1], a.K.Shape[2], a.Q.Shape[3], a.V.Shape[3], a.EffectiveScale()
	at := (s.Batch*hq+h.index)*sq + s.Q0 + i
	r := h.row(i)
	curves := h.curves(i, r)
	dO, dLSE := part(x.in.DO, at*dv, dv), part(x.in.DLSE, at, 1)[0]
	uq, us := part(x.in.UQ, at*d, d), part(x.in.USinks, h.index, 1)[0]
	keyAt := func(j int) int { return (s.KeyBatch*hk+keyHead)*sk + s.K0 + j }

	n := len(r.keys)
	c, lists := r.capGrad, matrix[float64](6, n)
	dP, raw, t, cc, uBias, y := lists[0], lists[1], lists[2], lists[3], lists[4], lists[5]
	delta, R, Z := -dLSE, us*r.sinkP, 0.0
	for n, j := range r.keys {
		dP[n] = r.kept[n] * dot(dO, v[j])
		delta += r.p[n] * dP[n]
		t[n] = scale * (dot(uq, h.k[j]) + dot(h.q[i], part(x.in.UK, keyAt(j)*d, d)))
		if a.SoftCap > 0 {
			capped := math.Tanh(scale * dot(h.q[i], h.k[j]) / a.SoftCap)
			cc[n] = -2 * capped * c[n] / a.SoftCap
		}
		if x.in.UBias != nil {
			uBias[n] = x.in.UBias[h.biasOffset(x.biasStrides, i, j)]
		}
		raw[n] = c[n]*t[n] + uBias[n]
		y[n] = r.kept[n] * dot(dO, part(x.in.UV, keyAt(j)*dv, dv))
		R += r.p[n] * r.scoreGrad[n] * raw[n]
		Z += r.p[n] * (dP[n]*r.scoreGrad[n]*raw[n] + y[n])
	}
	H := Z - R*(delta+dLSE)
	for n, j := range r.keys {
		if r.p[n] == 0 {
			continue // Score may have no derivatives at scores of −∞
		}
		X := r.p[n] * (r.scoreGrad[n]*raw[n] - R)
		dS := r.p[n] * (dP[n] - delta)
		G := dS*(r.scoreGrad[n]*raw[n]-R) + r.p[n]*(y[n]-H)
		N := r.scoreGrad[n]*G + curves[n]*dS*raw[n]
		if x.DBias != nil {
			x.DBias[h.biasOffset(x.biasStrides, i, j)] += N
		}
		dS *= r.scoreGrad[n]
		M := c[n]*N + cc[n]*dS*t[n]
		key := keyAt(j)
		for e := range d {
			x.DQ[at*d+e] += scale * (M*h.k[j][e] + c[n]*dS*part(x.in.UK, key*d, d)[e])
			x.DK[key*d+e] += scale * (M*h.q[i][e] + c[n]*dS*uq[e])
		}
		for e := range dv {
			x.DDO[at*dv+e] += r.kept[n] * (X*v[j][e] + r.p[n]*part(x.in.UV, key*dv, dv)[e])
			x.DV[key*dv+e] += r.kept[n] * X * dO[e]
		}
	}
	x.DDLSE[at] = R
	if x.DSinks != nil {
		x.DSinks[h.index] += r.sinkP * (delta*(R-us) - H)
	}
}

// curves are the second derivatives of Score at the scores of the keys that row i sees.
func (h *head[T]) curves(i int, r row[T]) []T {
	list := make([]T, len(r.keys))
	if h.a.Score == nil {
		return list
	}
	line := h.line(i)
	line.Scores = make([]T, line.N)
	for n, j := range r.keys {
		line.Scores[j] = r.before[n]
	}
	e := score.NewEvaluator[T](h.a.Score.Second)
	e.Run(line)
	for n, j := range r.keys {
		list[n] = e.Floats(2)[j]
	}
	return list
}
