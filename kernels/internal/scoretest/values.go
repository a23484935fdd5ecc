package scoretest

import (
	"math"

	"github.com/stheno-ml/stheno/kernels/score"
)

// real is a float and a bound of how far rounding may take it from what exact arithmetic gives: e
// is infinite where nothing is known, as behind a comparison that rounding may decide.
type real struct{ x, e float64 }

var unknown = real{0, math.Inf(1)}

func (a real) known() bool { return a.e < math.Inf(1) }

// exact reports whether nothing was rounded.
func (a real) exact() bool { return a.e == 0 }

// rounding is what arithmetic does to floats, as far as a bound of its errors needs to know.
type rounding struct {
	unit        float64 // a bound of an operation's relative error
	functions   float64 // of that of an exponential, a logarithm, a hyperbolic tangent and a sigmoid, or of their errors beside 1
	least, most float64 // magnitudes between which numbers have the relative precision
}

// result is a value that was rounded; size is that of its terms, if it is a sum.
func (m rounding) result(x, e, size float64) real {
	if math.IsNaN(x) || math.Abs(x) > m.most || !(e < math.Inf(1)) {
		return unknown
	}
	return real{x, e + m.unit*max(size, math.Abs(x)) + m.least}
}

// given is a number as the type holds it.
func (m rounding) given(x float64) real {
	if float64(float32(x)) == x || math.IsInf(x, 0) {
		return real{x, 0}
	}
	return real{x, m.unit * math.Abs(x)}
}

// small reports whether a number is a small multiple of 2⁻¹⁰, with others of which every type
// computes exactly.
func small(a real) bool {
	return a.exact() && math.Abs(a.x) < 1<<10 && a.x*1024 == math.Trunc(a.x*1024)
}

func (m rounding) add(a, b real) real {
	x := a.x + b.x
	if small(a) && small(b) {
		return real{x, 0}
	}
	return m.result(x, a.e+b.e, math.Abs(a.x)+math.Abs(b.x))
}

func (m rounding) neg(a real) real    { return real{-a.x, a.e} }
func (m rounding) sub(a, b real) real { return m.add(a, m.neg(b)) }

func (m rounding) mul(a, b real) real {
	x := a.x * b.x
	if small(a) && small(b) && small(real{x, 0}) {
		return real{x, 0}
	}
	if math.IsInf(a.x, 0) || math.IsInf(b.x, 0) || !a.known() || !b.known() {
		return unknown
	}
	return m.result(x, math.Abs(a.x)*b.e+math.Abs(b.x)*a.e+a.e*b.e, 0)
}

func (m rounding) div(a, b real) real {
	room := math.Abs(b.x) - b.e
	if !(room > 0) || room < m.least/m.unit || math.IsInf(a.x, 0) || math.IsInf(b.x, 0) || !a.known() {
		return unknown
	}
	x := a.x / b.x
	return m.result(x, (a.e+math.Abs(x)*b.e)/room, 0)
}

func (m rounding) exp(a real) real {
	if math.IsInf(a.x, 0) || !(a.e < 1) {
		return unknown
	}
	x := math.Exp(a.x)
	return m.result(x, x*(math.Expm1(a.e)+m.functions), 0)
}

func (m rounding) log(a real) real {
	room := a.x - a.e
	if !(room > m.least/m.unit) || math.IsInf(a.x, 0) {
		return unknown
	}
	x := math.Log(a.x)
	return m.result(x, a.e/room+m.functions*max(1, math.Abs(x)), 0)
}

func (m rounding) tanh(a real) real {
	if !a.known() {
		return unknown
	}
	return m.result(math.Tanh(a.x), min(a.e, 2)+m.functions, 0)
}

// wave is f, a sine or a cosine, whose derivative is at most 1.
func (m rounding) wave(f func(float64) float64, a real) real {
	if !a.known() || math.IsInf(a.x, 0) {
		return unknown
	}
	return m.result(f(a.x), min(a.e, 2)+m.functions, 0)
}

func (m rounding) sigmoid(a real) real {
	if !a.known() {
		return unknown
	}
	return m.result(1/(1+math.Exp(-a.x)), min(a.e, 2)+m.functions, 0)
}

// value is a node's: a float, an integer or a condition, and whether rounding leaves the last two
// as they are.
type value struct {
	real
	int  int32
	bool bool
	sure bool
}

func (m rounding) realOp(op Op, a, b real) real {
	switch op {
	case Add:
		return m.add(a, b)
	case Sub:
		return m.sub(a, b)
	case Mul:
		return m.mul(a, b)
	case Div:
		return m.div(a, b)
	case Min:
		if !a.known() || !b.known() {
			return unknown
		}
		return real{math.Min(a.x, b.x), max(a.e, b.e)}
	case Max:
		if !a.known() || !b.known() {
			return unknown
		}
		return real{math.Max(a.x, b.x), max(a.e, b.e)}
	case Neg:
		return m.neg(a)
	case Abs:
		return real{math.Abs(a.x), a.e}
	case Exp:
		return m.exp(a)
	case Log:
		return m.log(a)
	case Tanh:
		return m.tanh(a)
	case Sin:
		return m.wave(math.Sin, a)
	case Cos:
		return m.wave(math.Cos, a)
	}
	return m.sigmoid(a)
}

func integerOp(op Op, x, y int32) int32 {
	switch op {
	case Add:
		return x + y
	case Sub:
		return x - y
	case Mul:
		return x * y
	case Div:
		if y == 0 {
			return 0
		}
		return int32(int64(x) / int64(y))
	case Rem:
		if y == 0 {
			return x
		}
		return int32(int64(x) % int64(y))
	case Min:
		return min(x, y)
	case Max:
		return max(x, y)
	case Neg:
		return -x
	}
	return max(x, -x)
}

// compare is a comparison of numbers, and whether it is certain that rounding does not decide it.
func compare(op Op, a, b real) (holds, sure bool) {
	switch op {
	case Less:
		holds = a.x < b.x
	case LessEqual:
		holds = a.x <= b.x
	case Greater:
		holds = a.x > b.x
	case GreaterEqual:
		holds = a.x >= b.x
	case Equal:
		holds = a.x == b.x
	case NotEqual:
		holds = a.x != b.x
	}
	if !a.known() || !b.known() {
		return holds, false
	}
	if a.exact() && b.exact() {
		return holds, true
	}
	return holds, math.Abs(a.x-b.x) > a.e+b.e
}

// place is where a pair lies.
type place struct {
	batch, head, keyHead, query, key, queryLength, keyLength int
}

// found is what a lookup of floats found: where, and the derivative of the score by it.
type found struct {
	table, at int
	slope     real
}

// interpreter computes programs a pair at a time, one node after the other.
type interpreter struct {
	rounding
	p       *Program
	needed  []bool // of each node, whether the score or the mask does
	depends []bool // of each float, whether it has a derivative by the score or something looked up
	values  []value
	slopes  []real
	reached []bool // has a slope
	lookups []found
}

func newInterpreter(p *Program, m rounding) *interpreter {
	n := len(p.Nodes)
	i := &interpreter{rounding: m, p: p, needed: p.reachable(p.Score, p.Mask), depends: make([]bool, n), values: make([]value, n),
		slopes: make([]real, n), reached: make([]bool, n)}
	for at, node := range p.Nodes {
		if node.Type != score.Float {
			continue
		}
		i.depends[at] = node.Op == Score || node.Op == Lookup
		for _, arg := range node.Args {
			i.depends[at] = i.depends[at] || i.depends[arg]
		}
	}
	return i
}

// run computes the values of all nodes for a pair.
func (i *interpreter) run(at place, s real) {
	for n := range i.p.Nodes {
		if i.needed[n] {
			i.values[n] = i.value(&i.p.Nodes[n], at, s)
		}
	}
}

func (i *interpreter) value(n *Node, at place, s real) value {
	var x, y value
	if len(n.Args) > 0 {
		x, y = i.values[n.Args[0]], i.values[n.Args[len(n.Args)-1]]
	}
	integer := func(n int) value { return value{int: int32(n), sure: true} }
	switch n.Op {
	case Number:
		if n.Type == score.Int {
			return integer(int(n.Value))
		}
		return value{real: i.given(n.Value)}
	case Score:
		return value{real: s}
	case Batch:
		return integer(at.batch)
	case Head:
		return integer(at.head)
	case KeyHead:
		return integer(at.keyHead)
	case Query:
		return integer(at.query)
	case Key:
		return integer(at.key)
	case QueryLength:
		return integer(at.queryLength)
	case KeyLength:
		return integer(at.keyLength)
	case Position:
		return integer(at.query + at.keyLength - at.queryLength)
	case Lookup:
		where, sure := i.place(n)
		table := &i.p.Tables[n.Table]
		switch {
		case n.Type == score.Int:
			return value{int: int32(table.Values[where]), sure: sure}
		case !sure:
			return value{real: unknown}
		}
		return value{real: real{table.Values[where], 0}}
	case If:
		return i.choose(n)
	case And:
		return value{bool: x.bool && y.bool, sure: x.sure && y.sure || x.sure && !x.bool || y.sure && !y.bool}
	case Or:
		return value{bool: x.bool || y.bool, sure: x.sure && y.sure || x.sure && x.bool || y.sure && y.bool}
	case Not:
		return value{bool: !x.bool, sure: x.sure}
	case Float:
		if !x.sure {
			return value{real: unknown}
		}
		return value{real: i.given(float64(x.int))}
	}
	switch {
	case n.Type == score.Float:
		return value{real: i.realOp(n.Op, x.real, y.real)}
	case n.Type == score.Int:
		return value{int: integerOp(n.Op, x.int, y.int), sure: x.sure && y.sure}
	case i.p.Nodes[n.Args[0]].Type == score.Int:
		holds, _ := compare(n.Op, real{float64(x.int), 0}, real{float64(y.int), 0})
		return value{bool: holds, sure: x.sure && y.sure}
	}
	holds, sure := compare(n.Op, x.real, y.real)
	return value{bool: holds, sure: sure}
}

// choose is the value of an If.
func (i *interpreter) choose(n *Node) value {
	c, yes, no := i.values[n.Args[0]], i.values[n.Args[1]], i.values[n.Args[2]]
	chosen := no
	if c.bool {
		chosen = yes
	}
	switch {
	case c.sure || yes == no:
	case n.Type == score.Float:
		chosen.real = unknown
	default:
		chosen.sure = false
	}
	return chosen
}

// place is where a lookup finds its element, each index moved to its axis's nearer end.
func (i *interpreter) place(n *Node) (at int, sure bool) {
	shape := i.p.Tables[n.Table].Shape
	sure = true
	for axis, arg := range n.Args {
		index := i.values[arg]
		at = at*shape[axis] + min(max(int(index.int), 0), shape[axis]-1)
		sure = sure && index.sure
	}
	return at, sure
}

// derive computes the derivatives of the score by the score before it and by what is looked up,
// from the values that run has left. Their list holds until the next call.
func (i *interpreter) derive() (byScore real, lookups []found) {
	i.lookups = i.lookups[:0]
	clear(i.reached)
	if i.p.Score == None {
		return real{1, 0}, nil
	}
	i.give(i.p.Score, real{1, 0})
	for at := i.p.Score; at >= 0; at-- {
		if !i.reached[at] {
			continue
		}
		n, g := &i.p.Nodes[at], i.slopes[at]
		switch n.Op {
		case Score:
			byScore = i.add(byScore, g)
		case Lookup:
			where, sure := i.place(n)
			if !sure {
				g = unknown
			}
			i.lookups = append(i.lookups, found{n.Table, where, g})
		default:
			i.spread(n, at, g)
		}
	}
	return byScore, i.lookups
}

// give adds to the slope of a node.
func (i *interpreter) give(at int, g real) {
	switch {
	case !i.depends[at]:
	case i.reached[at]:
		i.slopes[at] = i.add(i.slopes[at], g)
	default:
		i.slopes[at], i.reached[at] = g, true
	}
}

// spread gives the operands of a node their part of its slope.
func (i *interpreter) spread(n *Node, at int, g real) {
	value := i.values[at].real
	first, last := n.Args[0], n.Args[len(n.Args)-1]
	x, y := i.values[first].real, i.values[last].real
	none, one := real{}, real{1, 0}
	where := func(holds, sure bool) (yes, no real) {
		switch {
		case !sure:
			return unknown, unknown
		case holds:
			return g, none
		}
		return none, g
	}
	switch n.Op {
	case Add:
		i.give(first, g)
		i.give(last, g)
	case Sub:
		i.give(first, g)
		i.give(last, i.neg(g))
	case Mul:
		i.give(first, i.mul(g, y))
		i.give(last, i.mul(g, x))
	case Div:
		i.give(first, i.div(g, y))
		i.give(last, i.neg(i.mul(i.div(g, y), value)))
	case Min, Max:
		// Of two equal ones the first counts.
		op := map[Op]Op{Min: Less, Max: Greater}[n.Op]
		yes, no := where(compare(op, y, x))
		i.give(first, no)
		i.give(last, yes)
	case Neg:
		i.give(first, i.neg(g))
	case Abs:
		negative, sure := compare(Less, x, none)
		positive, also := compare(Greater, x, none)
		switch {
		case !sure || !also:
			i.give(first, unknown)
		case negative:
			i.give(first, i.neg(g))
		case positive:
			i.give(first, g)
		default:
			i.give(first, none)
		}
	case Exp:
		i.give(first, i.mul(g, value))
	case Log:
		i.give(first, i.div(g, x))
	case Tanh:
		i.give(first, i.mul(g, i.sub(one, i.mul(value, value))))
	case Sigmoid:
		i.give(first, i.mul(g, i.mul(value, i.sub(one, value))))
	case Sin:
		i.give(first, i.mul(g, i.wave(math.Cos, x)))
	case Cos:
		i.give(first, i.neg(i.mul(g, i.wave(math.Sin, x))))
	case If:
		yes, no := where(i.values[n.Args[0]].bool, i.values[n.Args[0]].sure)
		i.give(n.Args[1], yes)
		i.give(n.Args[2], no)
	}
}
