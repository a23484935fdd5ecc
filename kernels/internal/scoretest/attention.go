package scoretest

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// expected is what attention computes, each element with a bound of its error; row-major, in the
// order of the tensors.
type expected struct {
	o, lse, dQ, dK, dV []real
	dTables            [][]real
}

// seen is a pair that a row sees.
type seen struct {
	j       int
	s       real
	byScore real
	lookups []found
}

// expect computes attention and its gradients by plain loops.
func (f *field) expect() *expected {
	e := &expected{o: make([]real, len(f.dO)), lse: make([]real, len(f.dLSE)), dQ: make([]real, len(f.q)), dK: make([]real, len(f.k)),
		dV: make([]real, len(f.v)), dTables: make([][]real, len(f.Tables))}
	for n, t := range f.Tables {
		e.dTables[n] = make([]real, len(t.Values))
	}
	for n := range e.lse {
		e.lse[n] = real{math.Inf(-1), 0} // of rows that belong to no sequence
	}
	var list []seen
	f.eachRow(func(s kernels.Sequence, head, i int) {
		list = list[:0]
		for j := range s.Sk {
			at := pairAt{s.Index, head, i, j}
			if f.Causal && j > i+s.Sk-s.Sq || f.hidden[at] {
				continue
			}
			f.pair(s, at, func(_ pairAt, x real, visible bool) {
				if visible {
					byScore, lookups := f.derive()
					list = append(list, seen{j, x, byScore, append([]found(nil), lookups...)})
				}
			})
		}
		f.expectRow(e, s, head, i, list)
	})
	for _, part := range [][]real{e.o, e.dQ, e.dK, e.dV} {
		for n := range part {
			part[n].e += f.Results*(math.Abs(part[n].x)+part[n].e) + f.smallest()
		}
	}
	for n := range f.Tables {
		for k := range e.dTables[n] {
			x := &e.dTables[n][k]
			x.e += f.Results*(math.Abs(x.x)+x.e) + f.smallest()
		}
	}
	return e
}

// smallest is a bound of what a result loses that is next to 0.
func (f *field) smallest() float64 {
	if f.DType == kernels.F16 {
		return 0x1p-24
	}
	return f.least
}

func (f *field) eachRow(do func(s kernels.Sequence, head, i int)) {
	for _, s := range f.sequences {
		for h := range f.Heads {
			for i := range s.Sq {
				do(s, h, i)
			}
		}
	}
}

// accumulate adds a term to a sum whose additions' errors are bounded by so many units of its
// terms.
func accumulate(to *real, x, e, units float64) {
	to.x += x
	to.e += e + units*math.Abs(x)
}

// expectRow computes what a query row that sees the given pairs gives to everything.
func (f *field) expectRow(e *expected, s kernels.Sequence, head, i int, list []seen) {
	keyHead, u := head/(f.Heads/f.KeyHeads), f.unit
	rowAt := (s.Batch*f.Heads+head)*f.Sq + s.Q0 + i
	o, dO := e.o[rowAt*f.Dv:][:f.Dv], f.dO[rowAt*f.Dv:][:f.Dv]
	if len(list) == 0 {
		return
	}
	most, coarsest := math.Inf(-1), 0.0
	for _, p := range list {
		most, coarsest = max(most, p.s.x), max(coarsest, p.s.e)
	}
	sum := 0.0
	for _, p := range list {
		sum += math.Exp(p.s.x - most)
	}
	lse := most + math.Log(sum)
	units := float64(len(list)+16)*u + 2*f.Functions
	e.lse[rowAt] = real{lse, coarsest + units + 4*u*(math.Abs(most)+math.Abs(lse))}

	// P_ij = exp(S_ij − LSE_i), whose error is relative, and rounded on its way into a product
	probability := func(p seen) (x, relative float64) {
		relative = math.Expm1(p.s.e+e.lse[rowAt].e+4*u*(math.Abs(p.s.x)+math.Abs(lse))) + f.Functions
		return math.Exp(p.s.x - lse), relative + f.Operands
	}
	for _, p := range list {
		x, relative := probability(p)
		v := row(f.v, f.KeyHeads, f.Sk, f.Dv, s.KeyBatch, keyHead, s.K0+p.j)
		for n := range o {
			accumulate(&o[n], x*v[n], (x*relative+f.least)*math.Abs(v[n]), units)
		}
	}
	// δ_i = Σ_d O_id·dO_id − dLSE_i, from the o that was stored
	delta := real{}
	for n, x := range o {
		accumulate(&delta, x.x*dO[n], (x.e+f.Results*(math.Abs(x.x)+x.e)+f.smallest())*math.Abs(dO[n]), u*float64(f.Dv+4))
	}
	if f.DLSE {
		accumulate(&delta, -f.dLSE[rowAt], 0, 4*u)
	}
	q := row(f.q, f.Heads, f.Sq, f.D, s.Batch, head, s.Q0+i)
	dQ := e.dQ[rowAt*f.D:][:f.D]
	for _, p := range list {
		x, relative := probability(p)
		keyAt := (s.KeyBatch*f.KeyHeads+keyHead)*f.Sk + s.K0 + p.j
		v, k := f.v[keyAt*f.Dv:][:f.Dv], f.k[keyAt*f.D:][:f.D]
		many := u * float64(s.Sq*f.Heads/f.KeyHeads+16)
		for n := range f.Dv {
			accumulate(&e.dV[keyAt*f.Dv+n], x*dO[n], (x*relative+f.least)*math.Abs(dO[n]), many)
		}
		// dS_ij = P_ij (dP_ij − δ_i)
		dP, size := dot(dO, v)
		difference := real{dP - delta.x, delta.e + u*float64(f.Dv+8)*size + 4*u*(math.Abs(dP)+math.Abs(delta.x))}
		dS := real{x * difference.x, x*difference.e + x*relative*(math.Abs(difference.x)+difference.e) + f.least}
		for _, l := range p.lookups {
			term := f.mul(dS, l.slope)
			accumulate(&e.dTables[l.table][l.at], term.x, term.e+f.Slopes*math.Abs(term.x), u*64)
		}
		gain := p.byScore
		gain.e += f.Slopes * (math.Abs(gain.x) + 0x1p-14)
		dS = f.mul(dS, gain)
		dS.e += f.Operands * math.Abs(dS.x)
		for n := range f.D {
			accumulate(&dQ[n], f.scale*dS.x*k[n], f.scale*dS.e*math.Abs(k[n]), units)
			accumulate(&e.dK[keyAt*f.D+n], f.scale*dS.x*q[n], f.scale*dS.e*math.Abs(q[n]), many)
		}
	}
}
