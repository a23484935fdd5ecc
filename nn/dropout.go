package nn

import (
	"fmt"

	"github.com/stheno-ml/stheno/ops"
)

// Dropout sets elements to 0 with probability p and multiplies the others by 1/(1−p), while the
// graph trains; while it evaluates it changes nothing. See [ops.ModeOf]. The name of its scope and
// the seed of the Parameters decide the masks. The probability is rounded to a multiple of 2⁻¹⁶, so
// that one below 2⁻¹⁷ drops nothing, and the factor is that of the rounded one.
type Dropout struct {
	layer
	p     float64
	calls int
}

// NewDropout makes a Dropout in a scope, which drops elements with probability p, in [0, 1).
func NewDropout(s *Scope, p float64) *Dropout {
	d := &Dropout{layer: s.layer("Dropout"), p: p}
	if !(p >= 0 && p < 1) {
		d.failf("p is %v, it needs to be in [0, 1)", p)
	}
	return d
}

// Forward drops elements of x. Each call has masks of its own. With a p of 0 the result is x
// itself.
func (d *Dropout) Forward(x Tensor) Tensor {
	if !d.given("x", x) {
		return d.none(x)
	}
	if d.p == 0 {
		return x
	}
	seed := d.dropoutSeed(fmt.Sprint(d.calls))
	d.calls++
	return d.s.of(ops.Dropout(x.n, ops.DropoutOptions{Drop: ops.Drop{P: d.p, Seed: seed}, Ranks: d.s.ranks}))
}
