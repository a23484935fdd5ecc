package score

import "math"

// This file has scores and masks that people use, written in the language.

// Causal shows the keys up to the query's position: the last query sees the last key.
func Causal(p Pair) Cond { return p.Key.LessEqual(p.Position()) }

// CausalTopLeft shows the keys up to the query's row: the first query sees the first key alone.
func CausalTopLeft(p Pair) Cond { return p.Key.LessEqual(p.Query) }

// SlidingWindow shows the keys from left before the query's position to right behind it, without
// limit on a side that is negative.
func SlidingWindow(left, right int) func(Pair) Cond {
	return func(p Pair) Cond {
		c := p.Key.Equal(p.Key)
		if left >= 0 {
			c = p.Key.GreaterEqual(p.Position().Sub(left))
		}
		if right >= 0 {
			c = c.And(p.Key.LessEqual(p.Position().Add(right)))
		}
		return c
	}
}

// Prefix shows the first keys to all queries, and those behind them causally.
func Prefix(length int) func(Pair) Cond {
	return func(p Pair) Cond { return p.Key.Less(length).Or(Causal(p)) }
}

// Dilated shows every step-th key, counted from the query's position.
func Dilated(step int) func(Pair) Cond {
	return func(p Pair) Cond { return p.Position().Sub(p.Key).Rem(step).Equal(0) }
}

// And shows what all of the masks show.
func And(first func(Pair) Cond, more ...func(Pair) Cond) func(Pair) Cond {
	return func(p Pair) Cond {
		c := first(p)
		for _, mask := range more {
			c = c.And(mask(p))
		}
		return c
	}
}

// Or shows what one of the masks shows.
func Or(first func(Pair) Cond, more ...func(Pair) Cond) func(Pair) Cond {
	return func(p Pair) Cond {
		c := first(p)
		for _, mask := range more {
			c = c.Or(mask(p))
		}
		return c
	}
}

// Not shows what the mask hides.
func Not(mask func(Pair) Cond) func(Pair) Cond {
	return func(p Pair) Cond { return mask(p).Not() }
}

// SoftCap bounds scores to ±cap: cap·tanh(score/cap).
func SoftCap(cap float64) func(Pair) Expr {
	return func(p Pair) Expr { return p.Score.Div(cap).Tanh().Mul(cap) }
}

// ALiBi lowers scores by the distance of key and query times the head's slope.
func ALiBi(slopes ...float64) func(Pair) Expr {
	return func(p Pair) Expr {
		slope := Number(0)
		for h, s := range slopes {
			slope = If(p.Head.Equal(h), s, slope)
		}
		return p.Score.Sub(p.Position().Sub(p.Key).Abs().Float().Mul(slope))
	}
}

// Bucket is the number of a distance among so many buckets, as T5 counts them: near distances have
// one each, farther ones share them by their logarithm, and all from most on are in the last. With
// both, keys behind the query have the second half of the buckets; otherwise they are in the first,
// with the query's own position.
func Bucket(p Pair, buckets, most int, both bool) Expr {
	behind := p.Key.Sub(p.Position())
	distance, first := behind.Neg().Max(0), Integer(0)
	if both {
		buckets /= 2
		distance, first = behind.Abs(), If(behind.Greater(0), Integer(buckets), 0)
	}
	near := buckets / 2
	bucket := distance.Min(near)
	// Bucket near + n begins where log(distance/near) passes n parts of log(most/near): a
	// comparison each is exact on every device.
	for n := 1; n < buckets-near; n++ {
		start := 1 + int(float64(near)*math.Pow(float64(most)/float64(near), float64(n)/float64(buckets-near))-1e-9)
		bucket = bucket.Add(If(distance.GreaterEqual(start), Integer(1), 0))
	}
	return bucket.Add(first)
}
