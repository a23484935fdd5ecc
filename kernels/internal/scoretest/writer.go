package scoretest

import (
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels/score"
)

// Writer writes expressions of a pair that are tame: their values and derivatives stay where
// rounding matters little, so that what is computed with them, beside any option, can be compared
// with the reference by its criterion. They look up a table of floats with two axes and one of
// integers.
type Writer struct {
	score.Pair
	*rand.Rand
	Floats, Ints *score.Table
	Smooth       bool // in the score and in what is looked up
}

// NewWriter returns a writer that always writes the same, with tables of the given sizes.
func NewWriter(seed uint64, rows, columns, ints int) *Writer {
	return &Writer{Rand: rand.New(rand.NewPCG(seed, 1)), Floats: &score.Table{Name: "floats", Shape: []int{rows, columns}},
		Ints: &score.Table{Name: "ints", Type: score.Int, Shape: []int{ints}}}
}

// Real writes a float in which so many operations lie within each other.
func (w *Writer) Real(depth int) score.Expr {
	if depth == 0 {
		switch w.IntN(4) {
		case 0:
			return w.Score
		case 1:
			return score.Lookup(w.Floats, w.integer(1).Add(1), w.integer(1).Sub(1))
		case 2:
			return score.Number(w.NormFloat64())
		}
		return w.integer(0).Float().Mul(0.1)
	}
	x := w.Real(depth - 1)
	switch w.IntN(12) {
	case 0:
		return x.Add(w.Real(depth - 1))
	case 1:
		return x.Sub(w.Real(depth - 1))
	case 2:
		return x.Tanh().Mul(w.Real(depth - 1))
	case 3:
		return x.Div(w.Real(depth - 1).Tanh().Add(2))
	case 4:
		return x.Tanh().Exp()
	case 5:
		return x.Mul(x).Add(1).Log()
	case 6:
		return x.Sigmoid()
	case 7:
		return x.Neg()
	case 8:
		return score.If(w.Condition(depth-1), x, w.Real(depth-1))
	case 9:
		if w.Smooth {
			return x
		}
		return x.Max(w.Real(depth - 1))
	case 10:
		if w.Smooth {
			return x
		}
		return x.Min(w.Real(depth - 1)).Abs()
	}
	return x.Mul(0.7)
}

func (w *Writer) integer(depth int) score.Expr {
	if depth == 0 {
		return []score.Expr{w.Batch, w.Head, w.KeyHead, w.Query, w.Key, w.QueryLength, w.KeyLength, score.Integer(w.IntN(9) - 4)}[w.IntN(8)]
	}
	x, y := w.integer(depth-1), w.integer(depth-1)
	switch w.IntN(10) {
	case 0:
		return x.Add(y)
	case 1:
		return x.Sub(y)
	case 2:
		return x.Mul(w.IntN(7) - 3)
	case 3:
		return x.Div(1 + w.IntN(7))
	case 4:
		return x.Rem(1 + w.IntN(7))
	case 5:
		return x.Min(y).Abs()
	case 6:
		return x.Max(y).Neg()
	case 7:
		return score.Lookup(w.Ints, x.Sub(1))
	case 8:
		return score.If(w.Condition(depth-1), x, y)
	}
	return x.Mul(y).Div(w.Key) // which may be 0
}

// Condition writes a condition, as Real a float.
func (w *Writer) Condition(depth int) score.Cond {
	if depth <= 0 {
		x, y := w.integer(0), w.integer(0)
		return []score.Cond{x.Less(y), x.LessEqual(y), x.Equal(y), x.Greater(y), x.GreaterEqual(y), x.NotEqual(y)}[w.IntN(6)]
	}
	switch w.IntN(5) {
	case 0:
		return w.Condition(depth - 1).And(w.Condition(depth - 1))
	case 1:
		return w.Condition(depth - 1).Or(w.Condition(depth - 1))
	case 2:
		return w.Condition(depth - 1).Not()
	}
	x, y := w.integer(depth-1), w.integer(depth-1)
	return []score.Cond{x.Less(y), x.LessEqual(y), x.Equal(y)}[w.IntN(3)]
}
