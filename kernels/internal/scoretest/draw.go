package scoretest

import (
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels/score"
)

// drawer draws programs.
type drawer struct {
	*rand.Rand
	*Program
	Sizes
	byScore []bool // of each node, whether it depends on the score
}

// deepest is how many operations may lie within each other.
const deepest = 8

// drawProgram draws a well-typed program over the whole language, for problems of the given sizes.
func drawProgram(r *rand.Rand, sizes Sizes) *Program {
	d := &drawer{Rand: r, Program: &Program{Score: None, Mask: None}, Sizes: sizes}
	d.drawTables()
	depth := func() int { return 1 + d.IntN(deepest) }
	if d.IntN(8) > 0 {
		d.Score = d.real(depth(), true)
		if !d.byScore[d.Score] && d.IntN(2) == 0 {
			d.Score = d.node(Node{Op: Add, Args: []int{d.Score, d.symbol(Score)}})
		}
	}
	if d.Score == None || d.IntN(2) == 0 {
		d.Mask = d.condition(min(depth(), depth()), false)
	}
	return d.Program
}

// drawTables makes a table for each way to look something up.
func (d *drawer) drawTables() {
	sequences, queries, keys := d.extents()
	for _, t := range []Table{
		{Type: score.Float, Shape: []int{}}, {Type: score.Float, Shape: []int{7}}, {Type: score.Float, Shape: []int{3, 5}},
		{Type: score.Float, Shape: []int{d.Heads, keys}}, {Type: score.Float, Shape: []int{queries}},
		{Type: score.Float, Shape: []int{queries, keys}}, {Type: score.Float, Shape: []int{sequences, 2, 3}},
		{Type: score.Int, Shape: []int{11}}, {Type: score.Int, Shape: []int{sequences, max(queries, keys)}}, {Type: score.Int, Shape: []int{keys}},
	} {
		elements := 1
		for _, n := range t.Shape {
			elements *= n
		}
		for range elements {
			x := math.Round(d.NormFloat64()*32) / 32 // which all types hold
			if t.Type == score.Int {
				x = float64(d.IntN(24) - 8)
			}
			t.Values = append(t.Values, x)
		}
		d.Tables = append(d.Tables, t)
	}
}

// node adds a node. What it reads is there.
func (d *drawer) node(n Node) int {
	by := n.Op == Score
	for _, arg := range n.Args {
		by = by || d.byScore[arg]
	}
	d.Nodes, d.byScore = append(d.Nodes, n), append(d.byScore, by)
	return len(d.Nodes) - 1
}

func (d *drawer) op(op Op, t score.Type, args ...int) int {
	return d.node(Node{Op: op, Type: t, Args: args})
}

func (d *drawer) symbol(op Op) int {
	if op == Score {
		return d.op(op, score.Float)
	}
	return d.op(op, score.Int)
}

func (d *drawer) number(x float64, t score.Type) int {
	return d.node(Node{Op: Number, Type: t, Value: x})
}

// again is a node of a type that there is already, or None.
func (d *drawer) again(t score.Type, free bool) int {
	if len(d.Nodes) == 0 || d.IntN(8) > 0 {
		return None
	}
	at := d.IntN(len(d.Nodes))
	if d.Nodes[at].Type != t || d.byScore[at] && !free {
		return None
	}
	return at
}

// less is the depth of an operand whose neighbour is as deep as possible.
func (d *drawer) less(depth int) int { return d.IntN(depth) }

// real draws a float, which may depend on the score where that is free to be had.
func (d *drawer) real(depth int, free bool) int {
	if at := d.again(score.Float, free); at != None {
		return at
	}
	if depth <= 0 {
		return d.realLeaf(free)
	}
	x := func() int { return d.real(depth-1, free) }
	y := func() int { return d.real(d.less(depth), free) }
	if d.IntN(2) == 0 {
		x, y = y, x
	}
	op := func(op Op, args ...int) int { return d.op(op, score.Float, args...) }
	tame := d.IntN(3) > 0 // keep values where they are numbers
	switch d.IntN(30) {
	case 0, 1, 2:
		return op(Add, x(), y())
	case 3, 4, 5:
		return op(Sub, x(), y())
	case 6, 7, 8:
		return op(Mul, x(), y())
	case 9, 10:
		return op(Div, x(), d.factor())
	case 11:
		a, b := x(), y()
		if tame {
			b = op(Add, op(Tanh, b), d.number(2, score.Float))
		}
		return op(Div, a, b)
	case 12, 13:
		return op([]Op{Min, Max}[d.IntN(2)], x(), y())
	case 14:
		return op(Neg, x())
	case 15:
		return op(Abs, x())
	case 16:
		a := x()
		if tame {
			a = op(Tanh, a)
		}
		return op(Exp, a)
	case 17:
		a := x()
		if tame {
			a = op(Add, op(Mul, a, a), d.number(1, score.Float))
		}
		return op(Log, a)
	case 18:
		return op(Tanh, x())
	case 19:
		return op(Sigmoid, x())
	case 28:
		return op(Sin, x())
	case 29:
		return op(Cos, x())
	case 20, 24, 25:
		return op(Float, d.integer(depth-1, free))
	case 21:
		return op(Mul, d.factor(), x())
	case 22:
		return d.lookup(depth-1, score.Float)
	}
	return op(If, d.condition(d.less(depth), free), x(), y())
}

// factor is a number that is not 0.
func (d *drawer) factor() int {
	return d.number([]float64{2, -1, 0.5, 3, 0.1, 7, -0.3, 1}[d.IntN(8)], score.Float)
}

func (d *drawer) realLeaf(free bool) int {
	switch d.IntN(6) {
	case 0, 1, 2:
		if free {
			return d.symbol(Score)
		}
		return d.lookup(0, score.Float)
	case 3:
		return d.lookup(0, score.Float)
	case 4:
		return d.op(Mul, score.Float, d.op(Float, score.Float, d.integer(0, free)), d.number(0.1, score.Float))
	}
	if d.IntN(3) == 0 {
		return d.number([]float64{0, 1, -1, 2, 1e-3, 100, math.Inf(1), math.Inf(-1)}[d.IntN(8)], score.Float)
	}
	return d.number(d.NormFloat64(), score.Float)
}

// lookup draws a lookup, whose indices cannot depend on the score.
func (d *drawer) lookup(depth int, t score.Type) int {
	table := d.IntN(len(d.Tables))
	for d.Tables[table].Type != t {
		table = d.IntN(len(d.Tables))
	}
	n := Node{Op: Lookup, Type: t, Table: table}
	sequences, queries, keys := d.extents()
	long := map[Op]int{Batch: sequences, Head: d.Heads, KeyHead: d.KeyHeads, Query: queries, Key: keys}
	for _, size := range d.Tables[table].Shape {
		var fitting []Op
		for _, op := range []Op{Batch, Head, KeyHead, Query, Key} {
			if long[op] == size || long[op] < size && d.IntN(4) == 0 {
				fitting = append(fitting, op)
			}
		}
		if len(fitting) > 0 && d.IntN(3) > 0 {
			n.Args = append(n.Args, d.symbol(fitting[d.IntN(len(fitting))]))
			continue
		}
		// An index is moved to the axis's nearer end; a number of the pair alone needs room for
		// all.
		n.Args = append(n.Args, d.op(Sub, score.Int, d.integer(max(0, depth-1), false), d.number(float64(1+d.IntN(3)), score.Int)))
	}
	return d.node(n)
}

// integer draws an integer.
func (d *drawer) integer(depth int, free bool) int {
	if at := d.again(score.Int, free); at != None {
		return at
	}
	if depth <= 0 {
		if d.IntN(4) == 0 {
			return d.number(float64(d.IntN(14)-4), score.Int)
		}
		return d.symbol([]Op{Batch, Head, KeyHead, Query, Query, Key, Key, Position, QueryLength, KeyLength}[d.IntN(10)])
	}
	x := func() int { return d.integer(depth-1, free) }
	y := func() int { return d.integer(d.less(depth), free) }
	if d.IntN(2) == 0 {
		x, y = y, x
	}
	op := func(op Op, args ...int) int { return d.op(op, score.Int, args...) }
	switch d.IntN(16) {
	case 0, 1:
		return op(Add, x(), y())
	case 2, 3:
		return op(Sub, x(), y())
	case 4:
		return op(Mul, x(), y())
	case 5, 6:
		a, b := x(), y()
		if d.IntN(2) == 0 || d.Nodes[b].Op == Number && d.Nodes[b].Value == 0 {
			b = d.number(float64([]int{1, 2, 3, 7, -2, 32}[d.IntN(6)]), score.Int)
		}
		return op([]Op{Div, Rem}[d.IntN(2)], a, b)
	case 7:
		return op([]Op{Min, Max}[d.IntN(2)], x(), y())
	case 8:
		return op(Neg, x())
	case 9:
		return op(Abs, x())
	case 10:
		return d.lookup(depth-1, score.Int)
	case 11:
		if d.IntN(8) == 0 {
			return op(Mul, x(), d.number(1<<30, score.Int)) // which wraps around
		}
		return op(Add, x(), d.number(float64(d.IntN(9)-4), score.Int))
	}
	return op(If, d.condition(d.less(depth), free), x(), y())
}

// condition draws a condition.
func (d *drawer) condition(depth int, free bool) int {
	if at := d.again(score.Bool, free); at != None {
		return at
	}
	op := func(op Op, args ...int) int { return d.op(op, score.Bool, args...) }
	if depth > 0 {
		switch d.IntN(7) {
		case 0:
			return op(And, d.condition(depth-1, free), d.condition(d.less(depth), free))
		case 1:
			return op(Or, d.condition(d.less(depth), free), d.condition(depth-1, free))
		case 2:
			return op(Not, d.condition(depth-1, free))
		}
	}
	compare := []Op{Less, LessEqual, Greater, GreaterEqual, Equal, NotEqual}[d.IntN(6)]
	if d.IntN(5) < 2 {
		return op(compare, d.integer(depth-1, free), d.integer(d.less(max(1, depth)), free))
	}
	return op(compare, d.real(depth-1, free), d.real(d.less(max(1, depth)), free))
}
