package score

import "fmt"

// Score is a function of a pair that gives its score.
type Score struct {
	Tables []*Table // what it looks up, in the numbering of its programs
	// Forward has one result, the score.
	Forward *Program
	// Backward has the score, its derivative by the score before it, and then the derivatives by
	// what is looked up.
	Backward *Program
	// Second has the score, its derivative by the score before it, and that one's derivative.
	Second  *Program
	Lookups []Gradient
	text    string
}

// Gradient is how the score changes with the element of a table that one lookup finds.
type Gradient struct {
	Table int
	Slope int   // the instruction of the derivative in Backward's code
	Index []int // the instructions of the indices
}

// String is the score as one would write it.
func (s *Score) String() string { return s.text }

// Cap returns cap where the score is cap·tanh(score/cap) and nothing else, as [SoftCap] writes it,
// for which kernels have a loop of their own. It is 0 elsewhere.
func (s *Score) Cap() float64 {
	if s == nil || s.Forward == nil {
		return 0
	}
	code := s.Forward.Code
	product := code[s.Forward.Results[0]]
	if product.Op != OpMul {
		return 0
	}
	bounded, cap := code[product.Args[0]], code[product.Args[1]]
	if bounded.Op != OpTanh || cap.Op != OpNumber || !(cap.Value > 0) {
		return 0
	}
	quotient := code[bounded.Args[0]]
	if quotient.Op != OpDiv || code[quotient.Args[0]].Op != OpScore {
		return 0
	}
	if by := code[quotient.Args[1]]; by.Op != OpNumber || by.Value != cap.Value {
		return 0
	}
	return cap.Value
}

// NewScore checks and compiles a function. Tables that it shares with others, which come first, are
// numbered as there.
func NewScore(f func(Pair) Expr, shared ...*Table) (*Score, error) {
	x := f(newPair())
	switch n := operand(x, Float); {
	case n.err != nil:
		return nil, fmt.Errorf("score: %w", n.err)
	case n.typ != Float:
		return nil, fmt.Errorf("score: %v is %v, it needs to be a float", x, n.typ)
	}
	b := newBuilder()
	b.share(shared)
	result, err := b.compile("score", x.n)
	if err != nil {
		return nil, err
	}
	s := &Score{text: x.String()}
	slopes := b.derive(result)
	results := []int{result, b.slope(slopes, b.find(OpScore))}
	written := len(results)
	for at, i := range b.Code[:len(slopes)] {
		if i.Op == OpLookup && i.Type == Float && slopes[at] >= 0 {
			results = append(append(results, slopes[at]), i.Args...)
		}
	}
	curve := b.slope(b.derive(results[1]), b.find(OpScore))
	s.Tables = b.Tables
	s.Second = b.program(result, results[1], curve)
	s.Forward, s.Backward = b.program(result), b.program(results...)
	for at, i := range b.Code[:len(slopes)] {
		if i.Op != OpLookup || i.Type != Float || slopes[at] < 0 {
			continue
		}
		moved := s.Backward.Results[written:]
		s.Lookups = append(s.Lookups, Gradient{Table: i.Table, Slope: moved[0], Index: moved[1 : 1+len(i.Args)]})
		written += 1 + len(i.Args)
	}
	return s, nil
}

// share numbers tables that other programs look up too.
func (b *builder) share(tables []*Table) {
	for n, t := range tables {
		b.tables[t.source()] = n
		b.Tables = append(b.Tables, t)
	}
}

// compile adds a checked expression.
func (b *builder) compile(name string, n *node) (int, error) {
	result := b.add(n)
	if len(b.Code) > mostInstructions {
		return 0, fmt.Errorf("%s: %s has %d operations, it may have up to %d", name, text(n), len(b.Code), mostInstructions)
	}
	for at, i := range b.Code {
		for _, arg := range i.Args {
			if i.Op == OpLookup && b.Code[arg].ByScore {
				return 0, fmt.Errorf("%s: %s: an index depends on the score, it can depend on positions and lookups alone", name, b.Text(at))
			}
		}
	}
	return result, nil
}

// find is the instruction of a symbol, −1 if there is none.
func (b *builder) find(op Op) int {
	for at, i := range b.Code {
		if i.Op == op {
			return at
		}
	}
	return -1
}

func (b *builder) slope(slopes []int, at int) int {
	if at < 0 || slopes[at] < 0 {
		return b.number(0, Float)
	}
	return slopes[at]
}

// derive returns, of each instruction that there is, that of the result's derivative by it; −1
// where it has none.
func (b *builder) derive(result int) []int {
	n := len(b.Code)
	slopes, depends := make([]int, n), make([]bool, n)
	for at, i := range b.Code {
		slopes[at] = -1
		depends[at] = i.Type == Float && (i.Op == OpScore || i.Op == OpLookup)
		for _, arg := range i.Args {
			depends[at] = depends[at] || i.Type == Float && b.Code[arg].Type == Float && depends[arg]
		}
	}
	slopes[result] = b.number(1, Float)
	for at := result; at >= 0; at-- {
		if g := slopes[at]; g >= 0 && depends[at] {
			b.spread(at, g, func(arg int, slope func() int) {
				switch {
				case !depends[arg]:
				case slopes[arg] < 0:
					slopes[arg] = slope()
				default:
					slopes[arg] = b.op(OpAdd, Float, slopes[arg], slope())
				}
			})
		}
	}
	return slopes
}

// spread gives the operands of an instruction their part of its derivative g.
func (b *builder) spread(at, g int, give func(arg int, slope func() int)) {
	i := b.Code[at]
	op := func(op Op, args ...int) int { return b.op(op, Float, args...) }
	where := func(condition func() int, yes, no bool) func() int {
		branch := func(taken bool) int {
			if taken {
				return g
			}
			return b.number(0, Float)
		}
		return func() int { return op(OpSelect, condition(), branch(yes), branch(no)) }
	}
	var x, y int
	if len(i.Args) > 0 {
		x, y = i.Args[0], i.Args[len(i.Args)-1]
	}
	same := func() int { return g }
	switch i.Op {
	case OpAdd:
		give(x, same)
		give(y, same)
	case OpSub:
		give(x, same)
		give(y, func() int { return op(OpNeg, g) })
	case OpMul:
		give(x, func() int { return op(OpMul, g, y) })
		give(y, func() int { return op(OpMul, g, x) })
	case OpDiv:
		give(x, func() int { return op(OpDiv, g, y) })
		give(y, func() int { return op(OpNeg, op(OpMul, op(OpDiv, g, y), at)) })
	case OpMin, OpMax:
		// Of two equal ones the first counts.
		second := func() int {
			if i.Op == OpMin {
				return b.op(OpLess, Bool, y, x)
			}
			return b.op(OpLess, Bool, x, y)
		}
		give(x, where(second, false, true))
		give(y, where(second, true, false))
	case OpNeg:
		give(x, func() int { return op(OpNeg, g) })
	case OpAbs:
		give(x, func() int {
			zero := b.number(0, Float)
			negative := op(OpSelect, b.op(OpLess, Bool, x, zero), op(OpNeg, g), zero)
			return op(OpSelect, b.op(OpLess, Bool, zero, x), g, negative)
		})
	case OpExp:
		give(x, func() int { return op(OpMul, g, at) })
	case OpLog:
		give(x, func() int { return op(OpDiv, g, x) })
	case OpTanh:
		give(x, func() int { return op(OpMul, g, op(OpSub, b.number(1, Float), op(OpMul, at, at))) })
	case OpSigmoid:
		give(x, func() int { return op(OpMul, g, op(OpMul, at, op(OpSub, b.number(1, Float), at))) })
	case OpSin:
		give(x, func() int { return op(OpMul, g, op(OpCos, x)) })
	case OpCos:
		give(x, func() int { return op(OpNeg, op(OpMul, g, op(OpSin, x))) })
	case OpSelect:
		condition := func() int { return i.Args[0] }
		give(i.Args[1], where(condition, true, false))
		give(i.Args[2], where(condition, false, true))
	}
}
