package score

import "math"

// Bounds returns numbers between which an instruction's value lies wherever it is a number;
// infinities where none are known.
func (p *Program) Bounds(at int) (lo, hi float64) {
	ranges := make([]interval, at+1)
	for n := range ranges {
		i := &p.Code[n]
		ranges[n] = anything
		var x, y interval
		if len(i.Args) > 0 {
			x, y = ranges[i.Args[0]], ranges[i.Args[len(i.Args)-1]]
		}
		switch {
		case i.Type == Bool:
			ranges[n] = either
		case i.Type == Int:
		case i.Op == OpNumber:
			ranges[n] = interval{i.Value, i.Value}
		case i.Op == OpTanh, i.Op == OpSin, i.Op == OpCos:
			ranges[n] = interval{-1, 1}
		case i.Op == OpSigmoid:
			ranges[n] = interval{0, 1}
		case i.Op == OpSelect:
			ranges[n] = ranges[i.Args[1]].with(y)
		case i.Op == OpNeg:
			ranges[n] = interval{-x.hi, -x.lo}
		case i.Op == OpAdd:
			ranges[n] = interval{x.lo + y.lo, x.hi + y.hi}
		case i.Op == OpSub:
			ranges[n] = interval{x.lo - y.hi, x.hi - y.lo}
		case i.Op == OpMul:
			ranges[n] = corners(x, y)
		case i.Op == OpDiv && (y.lo > 0 || y.hi < 0):
			ranges[n] = corners(x, interval{1 / y.hi, 1 / y.lo})
		case i.Op == OpMin || i.Op == OpMax:
			ranges[n] = x.with(y)
		}
		if r := ranges[n]; r.lo != r.lo || r.hi != r.hi {
			ranges[n] = anything
		}
	}
	return ranges[at].lo, ranges[at].hi
}

// corners is the range of products.
func corners(x, y interval) interval {
	a, b, c, d := x.lo*y.lo, x.lo*y.hi, x.hi*y.lo, x.hi*y.hi
	return interval{math.Min(math.Min(a, b), math.Min(c, d)), math.Max(math.Max(a, b), math.Max(c, d))}
}
