package score

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Expr is an integer or a float of a pair. The zero Expr is an error wherever it is used. Methods
// that take an any want an Expr, or a number of Go: an int, or a float64 beside floats.
type Expr struct{ n *node }

// Cond is true or false of a pair.
type Cond struct{ n *node }

// Type is what an expression is.
type Type uint8

// The types: an [Expr] is of one of the first two, a [Cond] of the last.
const (
	Float Type = iota
	Int
	Bool
)

func (t Type) String() string { return [...]string{"a float", "an integer", "a condition"}[t] }

// node is an operation of an expression. Nodes with an error stand for what could not be made.
type node struct {
	op    Op
	typ   Type
	args  []*node
	value float64 // of a number
	table *Table
	err   error
}

// Pair is a query and a key that meet.
type Pair struct {
	Score                  Expr // a float
	Batch                  Expr // the batch item, or the number of the packed sequence; this and all that follow are integers
	Head, KeyHead          Expr // of the query and of the key that it reads
	Query, Key             Expr // the row of each in its sequence, from 0
	QueryLength, KeyLength Expr // how many queries and keys the sequence has
}

// Position is where a query stands among the keys if the last query stands at the last key: Query +
// KeyLength − QueryLength.
func (p Pair) Position() Expr { return p.Query.Add(p.KeyLength).Sub(p.QueryLength) }

// newPair is the pair that functions of scores and masks are given.
func newPair() Pair {
	symbol := func(op Op) Expr { return Expr{&node{op: op, typ: Int}} }
	return Pair{
		Score: Expr{&node{op: OpScore, typ: Float}}, Batch: symbol(OpBatch), Head: symbol(OpHead), KeyHead: symbol(OpKeyHead),
		Query: symbol(OpQuery), Key: symbol(OpKey), QueryLength: symbol(OpQueryLength), KeyLength: symbol(OpKeyLength),
	}
}

// Table is something to look up: numbers of one type under indices.
type Table struct {
	Name  string
	Type  Type // Float or Int
	Shape []int
	// Source tells tables apart: those of one Source are one table. It needs to be comparable; nil
	// means the Table itself.
	Source any
	// Err is why there is no such table; it comes back when an expression with the table is
	// compiled.
	Err error
}

func (t *Table) source() any {
	if t.Source != nil {
		return t.Source
	}
	return t
}

// Lookup is the element of a table under an index for each of its axes.
func Lookup(t *Table, index ...any) Expr {
	n := &node{op: OpLookup, typ: Int, table: t}
	if t == nil {
		n.err = errors.New("a lookup has no table")
		return Expr{n}
	}
	n.typ, n.err = t.Type, t.Err
	for _, i := range index {
		n.args = append(n.args, operand(i, Int))
	}
	switch {
	case n.err != nil:
	case t.Type != Float && t.Type != Int:
		n.err = fmt.Errorf("%s is %v, a table needs to be of floats or integers", t.Name, t.Type)
	case len(index) != len(t.Shape):
		n.err = fmt.Errorf("%v: %s has shape %v and there are %d indices, it needs one for each axis", Expr{n}, t.Name, t.Shape, len(index))
	default:
		for axis, a := range n.args {
			if a.err == nil && a.typ != Int {
				a = &node{err: fmt.Errorf("%v: index %d is %v, it needs to be an integer", Expr{n}, axis, a.typ)}
			}
			if n.err = a.err; n.err != nil {
				break
			}
		}
	}
	return Expr{n}
}

// Number is a float.
func Number(x float64) Expr { return Expr{number(x, Float)} }

// Integer is an integer.
func Integer(x int) Expr { return Expr{operand(x, Int)} }

func number(x float64, t Type) *node { return &node{op: OpNumber, typ: t, value: x} }

// operand is a value that stands beside one of type t.
func operand(x any, t Type) *node {
	switch x := x.(type) {
	case Expr:
		if x.n == nil {
			return &node{err: errors.New("an expression is empty: it needs to come from a Pair, a number or a lookup")}
		}
		return x.n
	case int:
		switch {
		case t == Float:
			return number(float64(x), Float)
		case x < math.MinInt32 || x > math.MaxInt32:
			return &node{err: fmt.Errorf("%d is no integer of 32 bits", x)}
		}
		return number(float64(x), Int)
	case float32:
		return number(float64(x), Float)
	case float64:
		return number(x, Float)
	}
	return &node{err: fmt.Errorf("%v is a %T, it needs to be an expression, an int or a float64", x, x)}
}

// make is an operation whose operands are of one type, or are what want says.
func (x Expr) make(op Op, y any, result func(Type) Type) *node {
	left := operand(x, Float)
	right := operand(y, left.typ)
	n := &node{op: op, args: []*node{left, right}}
	switch {
	case left.err != nil:
		n.err = left.err
	case right.err != nil:
		n.err = right.err
	case left.typ != right.typ:
		n.err = fmt.Errorf("%v: %v is %v and %v is %v; Float converts an integer", Expr{n}, Expr{left}, left.typ, Expr{right}, right.typ)
	default:
		n.typ = result(left.typ)
		if (op == OpRem || op == OpDiv && left.typ == Int) && right.op == OpNumber && right.value == 0 {
			n.err = fmt.Errorf("%v: it divides by 0", Expr{n})
		}
		if op == OpRem && left.typ == Float {
			n.err = fmt.Errorf("%v: %v is a float, remainders are of integers", Expr{n}, Expr{left})
		}
	}
	return n
}

func same(t Type) Type  { return t }
func boolean(Type) Type { return Bool }

// Type is Float or Int.
func (x Expr) Type() Type { return operand(x, Float).typ }

// Add is x + y.
func (x Expr) Add(y any) Expr { return Expr{x.make(OpAdd, y, same)} }

// Sub is x − y.
func (x Expr) Sub(y any) Expr { return Expr{x.make(OpSub, y, same)} }

// Mul is x·y.
func (x Expr) Mul(y any) Expr { return Expr{x.make(OpMul, y, same)} }

// Div is x/y, of integers without the remainder.
func (x Expr) Div(y any) Expr { return Expr{x.make(OpDiv, y, same)} }

// Rem is the remainder of x/y, both integers, with the sign of x.
func (x Expr) Rem(y any) Expr { return Expr{x.make(OpRem, y, same)} }

// Min is the smaller of x and y, NaN if one of them is.
func (x Expr) Min(y any) Expr { return Expr{x.make(OpMin, y, same)} }

// Max is the greater of x and y, NaN if one of them is.
func (x Expr) Max(y any) Expr { return Expr{x.make(OpMax, y, same)} }

// Less reports whether x < y.
func (x Expr) Less(y any) Cond { return Cond{x.make(OpLess, y, boolean)} }

// LessEqual reports whether x ≤ y.
func (x Expr) LessEqual(y any) Cond { return Cond{x.make(OpLessEqual, y, boolean)} }

// Greater reports whether x > y.
func (x Expr) Greater(y any) Cond { return Cond{x.make(OpLess, y, boolean).swapped()} }

// GreaterEqual reports whether x ≥ y.
func (x Expr) GreaterEqual(y any) Cond { return Cond{x.make(OpLessEqual, y, boolean).swapped()} }

// Equal reports whether x = y.
func (x Expr) Equal(y any) Cond { return Cond{x.make(OpEqual, y, boolean)} }

// NotEqual reports whether x ≠ y.
func (x Expr) NotEqual(y any) Cond { return x.Equal(y).Not() }

func (n *node) swapped() *node {
	n.args[0], n.args[1] = n.args[1], n.args[0]
	return n
}

// one is an operation on one operand, which needs to be of type want unless that is Bool: then any
// number will do.
func (x Expr) one(op Op, want Type, result func(Type) Type) Expr {
	arg := operand(x, Float)
	n := &node{op: op, args: []*node{arg}, err: arg.err}
	if n.err == nil {
		n.typ = result(arg.typ)
		if want != Bool && arg.typ != want {
			n.err = fmt.Errorf("%v: %v is %v, it needs to be %v", Expr{n}, Expr{arg}, arg.typ, want)
		}
	}
	return Expr{n}
}

// Neg is −x.
func (x Expr) Neg() Expr { return x.one(OpNeg, Bool, same) }

// Abs is |x|.
func (x Expr) Abs() Expr { return x.one(OpAbs, Bool, same) }

// Exp is e^x.
func (x Expr) Exp() Expr { return x.one(OpExp, Float, same) }

// Log is the natural logarithm of x.
func (x Expr) Log() Expr { return x.one(OpLog, Float, same) }

// Tanh is the hyperbolic tangent of x.
func (x Expr) Tanh() Expr { return x.one(OpTanh, Float, same) }

// Sigmoid is 1/(1 + e⁻ˣ).
func (x Expr) Sigmoid() Expr { return x.one(OpSigmoid, Float, same) }

// Sin is the sine of x, an angle in radians.
func (x Expr) Sin() Expr { return x.one(OpSin, Float, same) }

// Cos is the cosine of x, an angle in radians.
func (x Expr) Cos() Expr { return x.one(OpCos, Float, same) }

// Float is an integer as a float.
func (x Expr) Float() Expr { return x.one(OpFloat, Int, func(Type) Type { return Float }) }

// conds is an operation on conditions.
func conds(op Op, list ...Cond) Cond {
	n := &node{op: op, typ: Bool}
	for _, c := range list {
		arg := c.n
		if arg == nil {
			arg = &node{err: errors.New("a condition is empty: it needs to come from a comparison")}
		}
		if n.args = append(n.args, arg); n.err == nil {
			n.err = arg.err
		}
	}
	return Cond{n}
}

// And reports whether c and d hold both.
func (c Cond) And(d Cond) Cond { return conds(OpAnd, c, d) }

// Or reports whether c or d holds.
func (c Cond) Or(d Cond) Cond { return conds(OpOr, c, d) }

// Not reports whether c does not hold.
func (c Cond) Not() Cond { return conds(OpNot, c) }

// If is x where c holds, and y elsewhere. One of the two is an Expr.
//
// Both are computed everywhere, and so are their gradients, which are multiplied by 0 where the
// other is taken. A branch whose slope is infinite or NaN there makes the gradient NaN: bound what
// it is applied to, as in If(x > 0, log of Max(x, 1e-6), 0) in place of If(x > 0, log of x, 0).
func If(c Cond, x, y any) Expr {
	condition := conds(OpNot, c).n.args[0]
	t := Float
	for _, branch := range []any{x, y} {
		if e, ok := branch.(Expr); ok {
			t = operand(e, Float).typ
			break
		}
	}
	yes, no := operand(x, t), operand(y, t)
	n := &node{op: OpSelect, typ: yes.typ, args: []*node{condition, yes, no}}
	for _, arg := range n.args {
		if n.err == nil {
			n.err = arg.err
		}
	}
	if n.err == nil && yes.typ != no.typ {
		n.err = fmt.Errorf("%v: %v is %v and %v is %v; Float converts an integer", Expr{n}, Expr{yes}, yes.typ, Expr{no}, no.typ)
	}
	return Expr{n}
}

// String is the expression as one would write it, cut where it is long.
func (x Expr) String() string { return text(x.n) }

// String is the condition as one would write it, cut where it is long.
func (c Cond) String() string { return text(c.n) }

func text(n *node) string {
	var b strings.Builder
	n.write(&b, 0)
	return b.String()
}

// A message shows so many bytes of an expression and so many operations within each other, so that
// it stays a line however often a part occurs.
const longest, deepest = 120, 12

func (n *node) write(b *strings.Builder, depth int) {
	switch {
	case n == nil || n.op == OpNone:
		b.WriteString("?")
	case b.Len() > longest || depth > deepest:
		b.WriteString("…")
	case n.op == OpNumber:
		b.WriteString(strconv.FormatFloat(n.value, 'g', -1, 64))
	case n.op == OpLookup:
		b.WriteString(n.table.Name)
		b.WriteString("[")
		for i, arg := range n.args {
			if i > 0 {
				b.WriteString(", ")
			}
			arg.write(b, 0)
		}
		b.WriteString("]")
	case len(n.args) == 0:
		b.WriteString(n.op.String())
	case len(n.args) == 2 && infix[n.op] != "":
		if depth > 0 {
			b.WriteString("(")
		}
		n.args[0].write(b, depth+1)
		b.WriteString(" " + infix[n.op] + " ")
		n.args[1].write(b, depth+1)
		if depth > 0 {
			b.WriteString(")")
		}
	default:
		b.WriteString(n.op.String() + "(")
		for i, arg := range n.args {
			if i > 0 {
				b.WriteString(", ")
			}
			arg.write(b, 0)
		}
		b.WriteString(")")
	}
}

var infix = map[Op]string{OpAdd: "+", OpSub: "-", OpMul: "·", OpDiv: "/", OpRem: "%", OpLess: "<", OpLessEqual: "≤", OpEqual: "=", OpAnd: "and", OpOr: "or"}
