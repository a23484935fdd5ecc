package scoretest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels/score"
)

// Op is a method of score.Expr or score.Cond, a number of score.Pair, or a function of package
// score.
type Op uint8

// The operations, named as in package score.
const (
	Number Op = iota
	Score
	Batch
	Head
	KeyHead
	Query
	Key
	QueryLength
	KeyLength
	Position
	Lookup
	Add
	Sub
	Mul
	Div
	Rem
	Min
	Max
	Neg
	Abs
	Exp
	Log
	Tanh
	Sigmoid
	Sin
	Cos
	Float
	Less
	LessEqual
	Greater
	GreaterEqual
	Equal
	NotEqual
	And
	Or
	Not
	If
)

var names = [...]string{"Number", "Score", "Batch", "Head", "KeyHead", "Query", "Key", "QueryLength", "KeyLength", "Position", "Lookup",
	"Add", "Sub", "Mul", "Div", "Rem", "Min", "Max", "Neg", "Abs", "Exp", "Log", "Tanh", "Sigmoid", "Sin", "Cos", "Float",
	"Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "And", "Or", "Not", "If"}

func (o Op) String() string { return names[o] }

// Node is an operation on nodes before it.
type Node struct {
	Op    Op
	Type  score.Type
	Args  []int
	Value float64 // of a number
	Table int     // of a lookup
}

// Table is what lookups find. Floats are numbers that every type holds.
type Table struct {
	Type   score.Type
	Shape  []int
	Values []float64
}

// None stands for a root that a program does not have.
const None = -1

// Program is a score and a mask. Its nodes are those that a user would write, one method each.
type Program struct {
	Nodes       []Node
	Score, Mask int // the nodes of the roots, or None
	Tables      []Table
}

// String is the program as Go that makes it, a line a node.
func (p *Program) String() string {
	var b strings.Builder
	needed := p.reachable(p.Score, p.Mask)
	for at, n := range p.Nodes {
		if !needed[at] {
			continue
		}
		arg := func(k int) string { return fmt.Sprint("v", n.Args[k]) }
		var args []string
		for k := range n.Args {
			args = append(args, arg(k))
		}
		fmt.Fprintf(&b, "v%d := ", at)
		switch {
		case n.Op == Number && n.Type == score.Int:
			fmt.Fprintf(&b, "score.Integer(%d)", int(n.Value))
		case n.Op == Number:
			fmt.Fprintf(&b, "score.Number(%v)", n.Value)
		case n.Op == Lookup:
			fmt.Fprintf(&b, "score.Lookup(%s)", strings.Join(append([]string{fmt.Sprint("t", n.Table)}, args...), ", "))
		case n.Op == If:
			fmt.Fprintf(&b, "score.If(%s)", strings.Join(args, ", "))
		case n.Op == Position:
			b.WriteString("p.Position()")
		case len(n.Args) == 0:
			fmt.Fprintf(&b, "p.%v", n.Op)
		default:
			fmt.Fprintf(&b, "%s.%v(%s)", args[0], n.Op, strings.Join(args[1:], ", "))
		}
		b.WriteString("\n")
	}
	for at, t := range p.Tables {
		if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Op == Lookup && n.Table == at }) {
			continue
		}
		fmt.Fprintf(&b, "t%d is of %v of shape %v\n", at, t.Type, t.Shape)
	}
	if p.Score != None {
		fmt.Fprintf(&b, "the score is v%d\n", p.Score)
	}
	if p.Mask != None {
		fmt.Fprintf(&b, "the mask is v%d\n", p.Mask)
	}
	return b.String()
}

// reachable reports which nodes the roots need.
func (p *Program) reachable(roots ...int) []bool {
	needed := make([]bool, len(p.Nodes))
	for _, r := range roots {
		if r != None {
			needed[r] = true
		}
	}
	for at := len(p.Nodes) - 1; at >= 0; at-- {
		if needed[at] {
			for _, arg := range p.Nodes[at].Args {
				needed[arg] = true
			}
		}
	}
	return needed
}

// Compile makes the score and the mask of package score, and says which of the program's tables
// each of theirs is.
func (p *Program) Compile() (s *score.Score, m *score.Mask, tables []int, err error) {
	described, number := make([]*score.Table, len(p.Tables)), map[*score.Table]int{}
	for n, t := range p.Tables {
		described[n] = &score.Table{Name: fmt.Sprint("t", n), Type: t.Type, Shape: t.Shape}
		number[described[n]] = n
	}
	var used []*score.Table
	if p.Score != None {
		if s, err = score.NewScore(func(pair score.Pair) score.Expr { return p.build(pair, described, p.Score).expr }); err != nil {
			return nil, nil, nil, err
		}
		used = s.Tables
	}
	if p.Mask != None {
		if m, err = score.NewMask(func(pair score.Pair) score.Cond { return p.build(pair, described, p.Mask).cond }, used...); err != nil {
			return nil, nil, nil, err
		}
		used = m.Tables
	}
	for _, t := range used {
		tables = append(tables, number[t])
	}
	return s, m, tables, nil
}

// built is a node in package score's language.
type built struct {
	expr score.Expr
	cond score.Cond
}

func (p *Program) build(pair score.Pair, tables []*score.Table, root int) built {
	made, needed := make([]built, len(p.Nodes)), p.reachable(root)
	for at, n := range p.Nodes {
		if needed[at] {
			args := make([]built, len(n.Args))
			for k, arg := range n.Args {
				args[k] = made[arg]
			}
			made[at] = n.build(pair, tables, args)
		}
	}
	return made[root]
}

func (n Node) build(p score.Pair, tables []*score.Table, args []built) built {
	expr := func(x score.Expr) built { return built{expr: x} }
	cond := func(c score.Cond) built { return built{cond: c} }
	var x, y built
	if len(args) > 0 {
		x, y = args[0], args[len(args)-1]
	}
	switch n.Op {
	case Number:
		if n.Type == score.Int {
			return expr(score.Integer(int(n.Value)))
		}
		return expr(score.Number(n.Value))
	case Lookup:
		var index []any
		for _, a := range args {
			index = append(index, a.expr)
		}
		return expr(score.Lookup(tables[n.Table], index...))
	case If:
		return expr(score.If(x.cond, args[1].expr, y.expr))
	case And:
		return cond(x.cond.And(y.cond))
	case Or:
		return cond(x.cond.Or(y.cond))
	case Not:
		return cond(x.cond.Not())
	}
	if len(args) == 0 {
		return expr(map[Op]score.Expr{Score: p.Score, Batch: p.Batch, Head: p.Head, KeyHead: p.KeyHead, Query: p.Query, Key: p.Key,
			QueryLength: p.QueryLength, KeyLength: p.KeyLength, Position: p.Position()}[n.Op])
	}
	if make, ok := unary[n.Op]; ok {
		return expr(make(x.expr))
	}
	if make, ok := binary[n.Op]; ok {
		return expr(make(x.expr, y.expr))
	}
	return cond(comparisons[n.Op](x.expr, y.expr))
}

var (
	unary = map[Op]func(score.Expr) score.Expr{
		Neg: score.Expr.Neg, Abs: score.Expr.Abs, Exp: score.Expr.Exp, Log: score.Expr.Log, Tanh: score.Expr.Tanh,
		Sigmoid: score.Expr.Sigmoid, Sin: score.Expr.Sin, Cos: score.Expr.Cos, Float: score.Expr.Float,
	}
	binary = map[Op]func(score.Expr, any) score.Expr{
		Add: score.Expr.Add, Sub: score.Expr.Sub, Mul: score.Expr.Mul, Div: score.Expr.Div, Rem: score.Expr.Rem,
		Min: score.Expr.Min, Max: score.Expr.Max,
	}
	comparisons = map[Op]func(score.Expr, any) score.Cond{
		Less: score.Expr.Less, LessEqual: score.Expr.LessEqual, Greater: score.Expr.Greater, GreaterEqual: score.Expr.GreaterEqual,
		Equal: score.Expr.Equal, NotEqual: score.Expr.NotEqual,
	}
)
