package score

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// Op is an operation of expressions and programs.
type Op uint8

// The operations: numbers and what a [Pair] has, lookups, and what the methods of [Expr] and [Cond]
// are named after. OpNone, the zero value, is none.
const (
	OpNone Op = iota
	OpNumber
	OpScore
	OpBatch
	OpHead
	OpKeyHead
	OpQuery
	OpKey
	OpQueryLength
	OpKeyLength
	OpLookup
	OpAdd
	OpSub
	OpMul
	OpDiv
	OpRem
	OpMin
	OpMax
	OpNeg
	OpAbs
	OpExp
	OpLog
	OpTanh
	OpSigmoid
	OpSin
	OpCos
	OpFloat
	OpLess
	OpLessEqual
	OpEqual
	OpAnd
	OpOr
	OpNot
	OpSelect
)

var opNames = [...]string{"none", "number", "score", "batch", "head", "key head", "query", "key", "query length", "key length",
	"lookup", "add", "sub", "mul", "div", "rem", "min", "max", "neg", "abs", "exp", "log", "tanh", "sigmoid", "sin", "cos", "float",
	"less", "less or equal", "equal", "and", "or", "not", "if"}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "?"
}

// Varies is where in a score matrix a value differs.
type Varies uint8

const (
	Nowhere   Varies = iota // one value a matrix
	Rows                    // it differs with the query alone
	Columns                 // with the key alone
	Diagonals               // with Query − Key alone
	Pairs                   // with both
)

// Instr is an operation whose operands are instructions before it.
type Instr struct {
	Op     Op
	Type   Type
	Args   []int
	Value  float64 // of a number; integers are exact
	Table  int     // of a lookup, its number among the program's tables
	Varies Varies
	// Whether the value differs from one batch item to the next, from head to head, and with the
	// score.
	ByBatch, ByHead, ByScore bool

	// An integer that is queries·Query + keys·Key and something that differs nowhere; affine says
	// that it is one.
	affine        bool
	queries, keys int
}

// Program is a list of instructions of which some are results.
type Program struct {
	Code    []Instr
	Tables  []*Table
	Results []int

	compiled sync.Map
}

// Compiled is what a backend makes of the program, under a key of its own. It is made once.
func (p *Program) Compiled(key any, compile func() any) any {
	made, ok := p.compiled.Load(key)
	if !ok {
		made, _ = p.compiled.LoadOrStore(key, compile())
	}
	return made
}

// builder makes a program in which nothing is computed twice.
type builder struct {
	Program
	known  map[string]int
	nodes  map[*node]int
	tables map[any]int
}

func newBuilder() *builder {
	return &builder{known: map[string]int{}, nodes: map[*node]int{}, tables: map[any]int{}}
}

// mostInstructions bounds a program, far beyond what anyone writes.
const mostInstructions = 1 << 16

// add returns the number of a node's instruction. Deep expressions do not need a deep stack of
// Go's: that grows.
func (b *builder) add(n *node) int {
	if at, ok := b.nodes[n]; ok {
		return at
	}
	i := Instr{Op: n.op, Type: n.typ, Value: n.value}
	for _, arg := range n.args {
		i.Args = append(i.Args, b.add(arg))
	}
	if n.op == OpLookup {
		at, ok := b.tables[n.table.source()]
		if !ok {
			at = len(b.Tables)
			b.tables[n.table.source()] = at
			b.Tables = append(b.Tables, n.table)
		}
		i.Table = at
	}
	at := b.emit(i)
	b.nodes[n] = at
	return at
}

// emit adds an instruction, or finds the one that there is.
func (b *builder) emit(i Instr) int {
	if folded, ok := b.fold(i); ok {
		return folded
	}
	key := fmt.Sprint(i.Op, i.Type, i.Args, math.Float64bits(i.Value), i.Table)
	if at, ok := b.known[key]; ok {
		return at
	}
	b.classify(&i)
	b.Code = append(b.Code, i)
	b.known[key] = len(b.Code) - 1
	return len(b.Code) - 1
}

// number is an instruction of a number.
func (b *builder) number(x float64, t Type) int {
	return b.emit(Instr{Op: OpNumber, Type: t, Value: x})
}

func (b *builder) op(op Op, t Type, args ...int) int {
	return b.emit(Instr{Op: op, Type: t, Args: args})
}

func (b *builder) isNumber(at int, x float64) bool {
	return b.Code[at].Op == OpNumber && b.Code[at].Value == x
}

// fold finds an instruction that is already there and gives the same, or computes what consists of
// numbers alone.
func (b *builder) fold(i Instr) (int, bool) {
	if len(i.Args) == 0 || i.Op == OpLookup {
		return 0, false
	}
	switch {
	case i.Op == OpSelect && i.Args[1] == i.Args[2]:
		return i.Args[1], true
	case i.Op == OpMul && b.isNumber(i.Args[1], 1), (i.Op == OpSub || i.Op == OpAdd && i.Type == Int) && b.isNumber(i.Args[1], 0):
		return i.Args[0], true
	case i.Op == OpMul && b.isNumber(i.Args[0], 1), i.Op == OpAdd && i.Type == Int && b.isNumber(i.Args[0], 0):
		return i.Args[1], true
	case i.Op == OpNot:
		if at, ok := b.negate(b.Code[i.Args[0]]); ok {
			return at, true
		}
	case (i.Op == OpAnd || i.Op == OpOr) && i.Args[0] == i.Args[1]:
		return i.Args[0], true
	}
	for _, arg := range i.Args {
		if b.Code[arg].Op != OpNumber {
			return 0, false
		}
	}
	if i.Type == Bool || b.Code[i.Args[0]].Type == Bool {
		return 0, false // conditions have no number that stands for them
	}
	args := make([]Instr, len(i.Args))
	for n, arg := range i.Args {
		args[n] = b.Code[arg]
		args[n].Args = nil
		i.Args[n] = n
	}
	p := Program{Code: append(args, i), Results: []int{len(args)}}
	e := NewEvaluator[float64](&p)
	e.Run(Line[float64]{N: 1})
	if i.Type == Int {
		return b.number(float64(e.Ints(0)[0]), Int), true
	}
	return b.number(e.Floats(0)[0], Float), true
}

// negate is the opposite of a condition, where that is a condition of its own. Bands are found
// among those.
func (b *builder) negate(c Instr) (int, bool) {
	switch {
	case c.Op == OpNot:
		return c.Args[0], true
	case c.Op == OpAnd || c.Op == OpOr:
		other := OpAnd + OpOr - c.Op
		return b.op(other, Bool, b.op(OpNot, Bool, c.Args[0]), b.op(OpNot, Bool, c.Args[1])), true
	case (c.Op == OpLess || c.Op == OpLessEqual) && b.Code[c.Args[0]].Type == Int:
		return b.op(OpLess+OpLessEqual-c.Op, Bool, c.Args[1], c.Args[0]), true
	}
	return 0, false
}

// classify says where the value differs.
func (b *builder) classify(i *Instr) {
	switch i.Op {
	case OpScore:
		i.Varies, i.ByScore = Pairs, true
	case OpBatch:
		i.ByBatch = true
	case OpHead, OpKeyHead:
		i.ByHead = true
	case OpQuery:
		i.Varies, i.queries = Rows, 1
	case OpKey:
		i.Varies, i.keys = Columns, 1
	}
	i.affine = i.Type == Int
	for _, arg := range i.Args {
		a := b.Code[arg]
		i.ByBatch, i.ByHead, i.ByScore = i.ByBatch || a.ByBatch, i.ByHead || a.ByHead, i.ByScore || a.ByScore
		i.Varies = Join(i.Varies, a.Varies)
		i.affine = i.affine && a.affine
	}
	if !i.affine {
		return
	}
	arg := func(n int) Instr { return b.Code[i.Args[n]] }
	switch {
	case i.Op == OpAdd:
		i.queries, i.keys = arg(0).queries+arg(1).queries, arg(0).keys+arg(1).keys
	case i.Op == OpSub:
		i.queries, i.keys = arg(0).queries-arg(1).queries, arg(0).keys-arg(1).keys
	case i.Op == OpNeg:
		i.queries, i.keys = -arg(0).queries, -arg(0).keys
	case i.Op == OpMul && arg(1).Op == OpNumber:
		i.queries, i.keys = arg(0).queries*int(arg(1).Value), arg(0).keys*int(arg(1).Value)
	case i.Op == OpMul && arg(0).Op == OpNumber:
		i.queries, i.keys = arg(1).queries*int(arg(0).Value), arg(1).keys*int(arg(0).Value)
	case len(i.Args) > 0 && i.Varies != Nowhere:
		i.affine = false
		return
	}
	if i.queries, i.keys = int(int32(i.queries)), int(int32(i.keys)); len(i.Args) > 0 {
		switch {
		case i.queries == 0 && i.keys == 0:
			i.Varies = Nowhere
		case i.keys == 0:
			i.Varies = Rows
		case i.queries == 0:
			i.Varies = Columns
		case i.queries == -i.keys:
			i.Varies = Diagonals
		default:
			i.Varies = Pairs
		}
	}
}

// Join is where a value differs that is made of two.
func Join(a, b Varies) Varies {
	switch {
	case a == b || b == Nowhere:
		return a
	case a == Nowhere:
		return b
	}
	return Pairs
}

// program is what the given instructions need, with those as its results. It keeps the builder's
// numbers of tables.
func (b *builder) program(results ...int) *Program { return b.Program.Part(results...) }

// Part is the part of a program that computes the given instructions, which become its results. Its
// tables are the same.
func (p *Program) Part(results ...int) *Program {
	needed := make([]bool, len(p.Code))
	for _, r := range results {
		needed[r] = true
	}
	for at := len(p.Code) - 1; at >= 0; at-- {
		if needed[at] {
			for _, arg := range p.Code[at].Args {
				needed[arg] = true
			}
		}
	}
	part, moved := &Program{Tables: p.Tables}, make([]int, len(p.Code))
	for at, i := range p.Code {
		if !needed[at] {
			continue
		}
		i.Args = slices.Clone(i.Args)
		for n, arg := range i.Args {
			i.Args[n] = moved[arg]
		}
		moved[at] = len(part.Code)
		part.Code = append(part.Code, i)
	}
	for _, r := range results {
		part.Results = append(part.Results, moved[r])
	}
	return part
}

// Text is an instruction as one would write it, cut where it is long.
func (p *Program) Text(at int) string {
	nodes := make([]*node, at+1)
	for n, i := range p.Code[:at+1] {
		nodes[n] = &node{op: i.Op, typ: i.Type, value: i.Value}
		if i.Op == OpLookup {
			nodes[n].table = p.Tables[i.Table]
		}
		for _, arg := range i.Args {
			nodes[n].args = append(nodes[n].args, nodes[arg])
		}
	}
	return text(nodes[at])
}
