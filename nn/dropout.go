package nn

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// DropoutConfig describes a [Dropout].
type DropoutConfig struct {
	Name       string      // decides the masks, together with the seed of Parameters
	Parameters *Parameters // nil: seed 0

	P float64 // the probability to drop an element, in [0, 1)
	// Ranks says that inputs are the rows that this rank holds of a sequence, see [ops.AttentionOptions].
	Ranks kernels.Ranks
}

// Dropout sets elements to 0 with probability P and multiplies the others by 1/(1−P), while the graph trains; while it
// evaluates it changes nothing. See [ops.ModeOf]. It has no parameters, and takes float32 and float64 alike.
type Dropout struct {
	*scope
	p     float64
	ranks kernels.Ranks
	calls int
}

// NewDropout makes a Dropout for a graph.
func NewDropout(g *gorgonia.ExprGraph, c DropoutConfig) (*Dropout, error) {
	s, err := newScope("Dropout", g, c.Name, gorgonia.Float32, c.Parameters)
	if err != nil {
		return nil, err
	}
	if !(c.P >= 0 && c.P < 1) {
		return nil, s.errorf("p is %v, it needs to be in [0, 1)", c.P)
	}
	return &Dropout{scope: s, p: c.P, ranks: ranksOr(c.Ranks, s.g)}, nil
}

// Forward drops elements of x. Each call has masks of its own. With a P of 0 the result is x itself.
func (d *Dropout) Forward(x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := d.given("x", x); err != nil {
		return nil, err
	}
	if d.p == 0 {
		return x, nil
	}
	seed := d.dropoutSeed(fmt.Sprint(d.calls))
	d.calls++
	return ops.Dropout(x, ops.DropoutOptions{P: d.p, Seed: seed, Ranks: d.ranks})
}
