package simd

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Softmax takes one step of the online softmax with a tile of scores, rows rows of n columns, each
// row with room for n rounded up to a multiple of Lanes. Row i sees the columns from max(0, lo+i)
// up to, not including, min(n, hi+i).
//
//	m' = max(m_i, s_ij …)        p_ij = 2^((s_ij − m')·scale)        c = 2^((m_i − m')·scale)
//	l_i ← l_i·c + Σ_j p_ij       o_i ← o_i·c
//
// and p takes the place of s, 0 in the columns that are not seen and up to the end of the room,
// whatever they held. scale is positive. Nothing is scaled before it is subtracted, since scores
// far from zero would lose their last digits. o has d columns, a multiple of Lanes, and is touched
// only where m grew. m must start at −MaxFloat, not −Inf: then a row of −Inf has p = 0, not NaN. A
// row that sees nothing only gets zeros. A visible NaN or +Inf makes its row's m and l NaN.
func Softmax[T kernels.Float](rows, n int, s *T, lds int, m, l *T, o *T, ldo, d int, scale T, lo, hi int) {
	if rows <= 0 || n <= 0 {
		return
	}
	if active != Generic {
		softmaxVector(rows, n, s, lds, m, l, o, ldo, d, scale, lo, hi)
		return
	}
	for i := range rows {
		p, first, last := row(s, i, lds, roundUp[T](n)), max(0, lo+i), min(n, hi+i)
		if first >= last {
			clear(p)
			continue
		}
		clear(p[:first])
		clear(p[last:])
		p = p[first:last]
		mi, li := at(m, i), at(l, i)
		most := *mi
		for _, x := range p {
			most = max(most, x)
		}
		if most != *mi {
			shrink := exp2((*mi - most) * scale)
			*li *= shrink
			for e, x := range row(o, i, ldo, d) {
				*at(o, i*ldo+e) = x * shrink
			}
			*mi = most
		}
		var sum T
		for j, x := range p {
			p[j] = exp2((x - most) * scale)
			sum += p[j]
		}
		if *li += sum; *li != *li {
			*mi = *li
		}
	}
}

// SoftmaxGrad is the backward counterpart, on the columns that [Softmax] describes:
//
//	s_ij ← p_ij = 2^((s_ij − lse_i)·scale), at most 1      dp_ij ← p_ij·(dp_ij − delta_i)
//
// and zeros in both in the other columns. lse is the row's logsumexp in the units of s; +Inf makes
// p zero.
func SoftmaxGrad[T kernels.Float](rows, n int, s, dp *T, ld int, lse, delta *T, scale T, lo, hi int) {
	if rows <= 0 || n <= 0 {
		return
	}
	if active != Generic {
		softmaxGradVector(rows, n, s, dp, ld, lse, delta, scale, lo, hi)
		return
	}
	for i := range rows {
		p, g := row(s, i, ld, roundUp[T](n)), row(dp, i, ld, roundUp[T](n))
		first, last := max(0, lo+i), min(n, hi+i)
		if first >= last {
			first, last = 0, 0
		}
		clear(p[:first])
		clear(p[last:])
		clear(g[:first])
		clear(g[last:])
		for j := first; j < last; j++ {
			p[j] = exp2(min(0, (p[j]-*at(lse, i))*scale))
			g[j] = p[j] * (g[j] - *at(delta, i))
		}
	}
}

// exp2 is 2^x for x ≤ 0 and NaN: 2^n·2^f with n whole and |f| ≤ ½, as the assembly has it, and 0
// where it would be below the normal numbers. It is several times as fast as package math's.
func exp2[T kernels.Float](x T) T {
	if size[T]() == 4 {
		return T(exp2Single(float32(x)))
	}
	return T(exp2Double(float64(x)))
}

func exp2Single(x float32) float32 {
	switch {
	case x < -126:
		return 0
	case x != x:
		return x
	}
	n := int32(x - 0.5)
	f := x - float32(n)
	p := float32(0.001326474231)
	p = p*f + 0.00967151258
	p = p*f + 0.05550733706
	p = p*f + 0.2402224209
	p = p*f + 0.6931469776
	p = p*f + 1
	return p * math.Float32frombits(uint32(n+127)<<23)
}

func exp2Double(x float64) float64 {
	switch {
	case x < -1022:
		return 0
	case x != x:
		return x
	}
	n := int64(x - 0.5)
	f := x - float64(n)
	p := 4.43475958267159913e-10
	p = p*f + 7.07378161018301962e-9
	p = p*f + 1.01781995893267417e-7
	p = p*f + 1.32154352909368348e-6
	p = p*f + 0.0000152527334932538375
	p = p*f + 0.000154035304570975638
	p = p*f + 0.00133335581467743115
	p = p*f + 0.00961812910759412792
	p = p*f + 0.0555041086648200849
	p = p*f + 0.240226506959101313
	p = p*f + 0.693147180559945326
	p = p*f + 1
	return p * math.Float64frombits(uint64(n+1023)<<52)
}
