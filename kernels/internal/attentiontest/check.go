package attentiontest

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// results64 is everything that the kernels compute, row-major in float64.
type results64 struct {
	o, lse, delta []float64
	reference.AttentionGradients
}

// expected is the reference and its twin in the precision of the problem.
type expected struct {
	ref, pt  results64
	rounding *Rounding // nil unless the arithmetic is coarser than the tensors
}

func compute[T, In kernels.Float](p *Problem[In], m reference.Arithmetic[T]) results64 {
	var r results64
	dO, dLSE := values[In](p.DO), values[In](p.DLSE)
	r.o, r.lse = m.Attention(&p.Attention, p.chosen)
	r.delta = m.AttentionDelta(&p.Attention, r.o, dO, dLSE)
	r.AttentionGradients = m.AttentionGrad(&p.Attention, dO, dLSE, p.chosen)
	return r
}

// Check compares what Run computed with the reference: in float32 by the criterion that package
// reference states, in float64 by a relative error of 1e-10. A row is one vector of the last axis
// of o, dq, dk and dv, or one element elsewhere. A row that the reference gives as not finite must
// not be finite, and every other row must be; a logsumexp of −∞ must be exactly that.
func (p *Problem[T]) Check() error {
	if p.expected == nil {
		p.expected = &expected{ref: compute(p, reference.Arithmetic[float64]{})}
		if kernels.DTypeOf[T]() == kernels.F32 {
			p.expected.pt = compute(p, reference.Arithmetic[float32]{})
		} else {
			p.expected.pt = p.expected.ref
		}
	}
	ref, pt := p.expected.ref, p.expected.pt
	d, dv := p.D, p.Dv
	// dS = P·(dP − δ) is the difference of numbers as large as δ, and dq and dk are sums of it
	// times k and q; dv is one of dO.
	dS := math.Abs(p.EffectiveScale()) * largestOf(ref.delta)
	list := []comparison{
		{name: "o", weighted: true, product: true, ref: ref.o, pt: pt.o, size: dv, outputRow: true},
		{name: "lse", ref: ref.lse, pt: pt.lse, size: 1, outputRow: true},
		{name: "delta", ref: ref.delta, pt: pt.delta, size: 1, outputRow: true},
		{name: "dq", weighted: true, product: true, ref: ref.DQ, pt: pt.DQ, size: d, cancelled: dS * largestOf(values[T](p.K))},
		{name: "dk", weighted: true, product: true, ref: ref.DK, pt: pt.DK, size: d, cancelled: dS * largestOf(values[T](p.Q))},
		{name: "dv", weighted: true, product: true, ref: ref.DV, pt: pt.DV, size: dv, cancelled: largestOf(values[T](p.DO))},
		{name: "dbias", weighted: true, ref: ref.DBias, pt: pt.DBias, size: 1, terms: largestOf(ref.delta)},
		{name: "dsinks", weighted: true, ref: ref.DSinks, pt: pt.DSinks, size: 1, terms: largestOf(ref.delta)},
	}
	// An element of a small table sums over a good part of all pairs, with their signs.
	terms := largestOf(ref.delta) * math.Sqrt(float64(len(ref.lse)))
	for n := range p.DTables {
		if ref.DTables[n] != nil {
			list = append(list, comparison{name: fmt.Sprint("dtable", n), weighted: true, ref: ref.DTables[n], pt: pt.DTables[n], size: 1, terms: terms})
		}
	}
	results := p.results()
	var failures []error
	for _, c := range list {
		t, ok := results[c.name]
		if !ok {
			continue
		}
		c.tensor, c.x = t, values[T](t)
		if err := p.compare(c); err != nil {
			failures = append(failures, fmt.Errorf("%v %v: %w", kernels.DTypeOf[T](), p.Case, err))
		}
	}
	return errors.Join(failures...)
}

// comparison is one tensor that was computed thrice.
type comparison struct {
	name       string
	tensor     kernels.Tensor
	x, ref, pt []float64
	size       int     // of a row
	terms      float64 // how large the terms of a sum are that may cancel
	cancelled  float64 // how large the differences' terms are of which rounding errors alone may be left
	weighted   bool    // by exponentials of scores
	product    bool    // its elements are sums of products with rounded weights
	outputRow  bool    // rows are query rows, of which only the chosen ones count
}

func (p *Problem[T]) compare(c comparison) error {
	var worst, worstPt, largest float64
	worstAt, inexact, inexactRows := 0, 0, 0 // of the unfused program's elements and rows
	for from := 0; from < len(c.ref); from += c.size {
		if c.outputRow {
			row := from / c.size
			if !p.isChosen(row/p.Sq/p.Heads, row/p.Sq%p.Heads, row%p.Sq) {
				continue
			}
		}
		x, ref, pt := c.x[from:][:c.size], c.ref[from:][:c.size], c.pt[from:][:c.size]
		if c.name == "lse" && math.IsInf(ref[0], -1) {
			if x[0] != ref[0] {
				return fmt.Errorf("lse%v is %v, the reference has −∞: it sees no key", index(c.tensor, from), x[0])
			}
			continue
		}
		if want, got := finite(ref), finite(x); want != got {
			return fmt.Errorf("%s%v: the row's being finite is %v, it needs to be %v: %.4v instead of %.4v",
				c.name, index(c.tensor, from), got, want, head(x), head(ref))
		} else if !want {
			continue
		}
		before := inexact
		for i := range ref {
			if e := math.Abs(x[i] - ref[i]); e > worst {
				worst, worstAt = e, from+i
			}
			if pt[i] != ref[i] {
				inexact++
			}
			worstPt, largest = max(worstPt, math.Abs(pt[i]-ref[i])), max(largest, math.Abs(ref[i]))
		}
		if inexact > before {
			inexactRows++
		}
	}
	few := inexact < 64 || inexactRows < 8
	if p.Slack != 0 {
		// A second look: errors grow with their elements, so those that count are of the few that
		// are as large as the largest.
		few = few || large(c.ref, largest/8) < 64
	}
	factor, floor := p.criterion(c, few, largest)
	bound := max(factor*worstPt, p.roundings(c, largest)) + floor
	if kernels.DTypeOf[T]() == kernels.F64 {
		bound = 1e-10*largest + 1e-13
	} else {
		margin{c.name, worst, factor * worstPt, bound}.record()
	}
	if !(worst <= bound) {
		return fmt.Errorf("%s%v is %.9g instead of %.9g: error %.3g, bound %.3g (unfused %.3g, largest %.3g)",
			c.name, index(c.tensor, worstAt), c.x[worstAt], c.ref[worstAt], worst, bound, worstPt, largest)
	}
	return nil
}

// large is how many finite elements are at least as large as a size.
func large(list []float64, size float64) (n int) {
	for _, x := range list {
		if size <= math.Abs(x) && !math.IsInf(x, 0) {
			n++
		}
	}
	return n
}

// float32Unit is the distance from 1 to the next larger float32.
const float32Unit = 1.0 / (1 << 23)

// criterion is the bound of a tensor's largest error: factor times the unfused program's, and a
// floor for tensors of which that program happens to make no errors. few says that it makes errors
// in few elements or rows.
func (p *Problem[T]) criterion(c comparison, few bool, largest float64) (factor, floor float64) {
	factor, floor = 2, 1e-6*largest
	if p.Attention.SoftCap > 0 {
		factor = 3
	}
	unit := float32Unit
	if r := p.expected.rounding; r != nil {
		unit = r.Unit
	} else {
		// In float32 the unfused errors themselves are about 3e-7 of the largest element.
		floor = unit * largest
		if c.weighted {
			factor = 3 // kernels take exponentials of base 2, which round the scale, and in backward the logsumexp, once more
			if c.name == "dbias" || strings.HasPrefix(c.name, "dtable") {
				factor = 4 // and its sums go over whole rows, whose errors those of the logsumexp are
			}
		}
	}
	if few {
		// The largest of few errors is a matter of luck, and those of a row of dq, dk or dv have
		// much in common. They may cancel altogether, as where each row sees a single key.
		factor, floor = 10, 4*unit*max(largest, c.terms)
	}
	if p.Slack != 0 {
		factor *= p.Slack
		floor = max(floor, 4*unit*c.cancelled)
	}
	return factor, floor
}

// roundings is what two roundings that no program is without may make of a tensor's largest
// element: of the weight of its largest term, and of the result, half a step each. An unfused
// program rounds more, but where few elements are large its roundings may cancel in all of them.
func (p *Problem[T]) roundings(c comparison, largest float64) float64 {
	if r := p.expected.rounding; r != nil && c.product {
		return r.Unit * largest
	}
	return 0
}

// largestOf is the largest size of a finite element.
func largestOf(list []float64) float64 {
	most := 0.0
	for _, x := range list {
		if !math.IsInf(x, 0) && !math.IsNaN(x) {
			most = max(most, math.Abs(x))
		}
	}
	return most
}

func finite(row []float64) bool {
	for _, x := range row {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// head is as much of a row as fits into a message.
func head(row []float64) []float64 { return row[:min(len(row), 8)] }

// index is the position of the n-th element in row-major order.
func index(t kernels.Tensor, n int) []int {
	at := make([]int, len(t.Shape))
	for axis := len(t.Shape) - 1; axis >= 0; axis-- {
		at[axis], n = n%t.Shape[axis], n/t.Shape[axis]
	}
	return at
}
