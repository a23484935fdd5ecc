package scoretest

import (
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
)

// Bounded is a number and a bound of the error that rounding may make: infinite where nothing can
// be said.
type Bounded struct{ X, Error float64 }

// Sample is a pair with a score of its own, and what the interpreter makes of it.
type Sample struct {
	Batch, Head, KeyHead, Query, Key, QueryLength, KeyLength int

	Raw          float64 // the score that goes in
	Score, Slope Bounded
	Visible      bool
	Sure         bool               // rounding does not decide whether it is visible
	Lookups      map[[2]int]Bounded // by table and place, the derivative by what is found there
}

// Samples draws pairs, and interprets the program for them alone.
func (c *Case) Samples(m Arithmetic, n int) []Sample {
	r := rand.New(rand.NewPCG(c.Seed, 77))
	i := newInterpreter(c.Program, m.rounding())
	_, queries, keys := c.extents()
	sequences, _, _ := c.extents()
	list := make([]Sample, n)
	for k := range list {
		s := &list[k]
		s.QueryLength, s.KeyLength = queries, keys
		s.Batch, s.Head, s.Query, s.Key = r.IntN(sequences), r.IntN(c.Heads), r.IntN(queries), r.IntN(keys)
		s.KeyHead = s.Head / (c.Heads / c.KeyHeads)
		s.Raw = float64(kernels.ToBFloat16(float32(2 * r.NormFloat64())).Float32())
		s.Score, s.Slope, s.Visible, s.Sure = Bounded{s.Raw, 0}, Bounded{1, 0}, true, true
		s.Lookups = map[[2]int]Bounded{}
		i.run(place{s.Batch, s.Head, s.KeyHead, s.Query, s.Key, s.QueryLength, s.KeyLength}, real{s.Raw, 0})
		if c.Mask != None {
			s.Visible, s.Sure = i.values[c.Mask].bool, i.values[c.Mask].sure
		}
		if c.Score == None {
			continue
		}
		bounded := func(x real) Bounded {
			if math.IsInf(x.x, 0) {
				return Bounded{0, math.Inf(1)}
			}
			return Bounded{x.x, x.e}
		}
		s.Score = bounded(i.values[c.Score].real)
		byScore, lookups := i.derive()
		s.Slope = bounded(byScore)
		for _, l := range lookups {
			at := [2]int{l.table, l.at}
			sum := s.Lookups[at]
			s.Lookups[at] = Bounded{sum.X + l.slope.x, sum.Error + l.slope.e + m.Unit*(math.Abs(sum.X)+math.Abs(l.slope.x))}
		}
	}
	return list
}

// Attention is the problem of the case alone, and of each of its tables the number in the case.
func (c *Case) Attention(m Arithmetic) (a *kernels.Attention, tables []int, err error) {
	p, err := newField(c, m).problem()
	if err != nil {
		return nil, nil, err
	}
	return &p.Attention, p.numbers, nil
}
